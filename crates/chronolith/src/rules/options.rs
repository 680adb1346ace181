//! Options that the tools of rules share, and the reading of rule files.

use std::path::Path;

use chronolith_base::Env;
use chronolith_promql::NameRemoval;
use chronolith_promql::parser::ParserOptions;
use chronolith_rules::file::{FileError, FileLimits, FileOptions, RuleFile, UnknownFields, parse};
use chronolith_rules::template_engine::TemplateEngine;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::log;

/// Parts of PromQL that `--enable-feature` switches on, by Prometheus's names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Features {
    pub(super) parser: ParserOptions,
    pub(super) name_removal: NameRemoval,
}

/// Adds the arguments that all tools have.
pub(super) fn tool(command: Command) -> Command {
    command
        .arg(
            Arg::new("ignore-unknown-fields")
                .long("ignore-unknown-fields")
                .action(ArgAction::SetTrue)
                .help("Accept rule files with fields that Prometheus does not know"),
        )
        .arg(
            Arg::new("enable-feature")
                .long("enable-feature")
                .value_name("NAMES")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .help(
                    "Features of PromQL that the server has enabled, such as promql-experimental-functions",
                ),
        )
}

/// Files in the order of the command line.
pub(super) fn files(matches: &ArgMatches) -> impl Iterator<Item = &str> {
    matches.get_many::<String>("files").into_iter().flatten().map(String::as_str)
}

pub(super) fn features(matches: &ArgMatches) -> Features {
    let mut features = Features { parser: ParserOptions::default(), name_removal: NameRemoval::Immediate };
    for name in matches.get_many::<String>("enable-feature").into_iter().flatten() {
        match name.as_str() {
            "promql-experimental-functions" => features.parser.experimental_functions = true,
            "promql-binop-fill-modifiers" => features.parser.binop_fill_modifiers = true,
            "promql-unquoted-utf8-names" => features.parser.unquoted_utf8_names = true,
            "promql-delayed-name-removal" => features.name_removal = NameRemoval::Delayed,
            // Features that are always on.
            "" | "promql-duration-expr" | "promql-extended-range-selectors" => {}
            _ => log::print(&format!("  WARNING: unknown feature {name:?} is ignored")),
        }
    }
    features
}

pub(super) fn file_options<'a>(matches: &ArgMatches, templates: &'a dyn TemplateEngine) -> FileOptions<'a> {
    FileOptions {
        parser: features(matches).parser,
        unknown_fields: match matches.get_flag("ignore-unknown-fields") {
            true => UnknownFields::Ignore,
            false => UnknownFields::Refuse,
        },
        templates,
        limits: FileLimits::default(),
    }
}

/// Reads and checks a rule file.
pub(super) fn read_rule_file(
    env: &Env,
    file: &str,
    options: &FileOptions<'_>,
) -> Result<RuleFile, Vec<FileError>> {
    match env.disk.read(Path::new(file)) {
        Ok(bytes) => parse(file, &bytes, options),
        Err(error) => {
            let message = format!("cannot be read: {error}");
            Err(vec![FileError { file: file.to_owned(), position: Default::default(), message }])
        }
    }
}
