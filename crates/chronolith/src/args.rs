//! Arguments of the tools, as clap has parsed them.

use clap::ArgMatches;

/// Value of an argument of which clap has made sure, or nothing.
pub(crate) fn value<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}
