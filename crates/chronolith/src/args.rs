//! Arguments of the tools, as clap has parsed them.

use clap::ArgMatches;

/// Value of an argument of which clap has made sure, or nothing.
pub(crate) fn value<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// Values of an argument that may be given several times, joined by commas; `None` if it is not given.
pub(crate) fn joined_value(matches: &ArgMatches, name: &str) -> Option<String> {
    let values: Vec<&str> = matches.get_many::<String>(name)?.map(String::as_str).collect();
    Some(values.join(","))
}
