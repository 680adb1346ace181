//! Flags of `chronolith serve`: one for each setting, `--config` and `--check-config`.

use clap::{Arg, ArgAction, Command};

use super::declaration::{Form, Setting};
use super::table::GROUPS;

/// Adds all flags to a command.
pub(crate) fn add_flags(command: Command) -> Command {
    let config = Arg::new("config").long("config").value_name("FILE");
    let check = Arg::new("check-config").long("check-config").action(ArgAction::SetTrue);
    let command = command.arg(config.help("YAML file with settings [env: CHRONOLITH_CONFIG]")).arg(
        check.help(
            "Check flags, environment and file, then end: exit code 1 (2 for roles and the log) if the server would not start",
        ),
    );
    GROUPS.iter().fold(command, |command, group| {
        command.next_help_heading(group.title).args(group.settings.iter().map(flag))
    })
}

pub(super) fn flag(setting: &'static Setting) -> Arg {
    let default = match setting.default {
        "" => String::new(),
        text => format!(" [default: {text}]"),
    };
    let help = format!("{}{default} [env: {}]", setting.help, setting.variable());
    let arg = Arg::new(setting.name).long(setting.name).alias(setting.dashed_name());
    let arg = arg.value_name(setting.form.name()).help(help).hide(setting.is_hidden);
    match setting.form {
        Form::Switch => arg.num_args(0..=1).default_missing_value("true").require_equals(true),
        Form::List(_) => arg.action(ArgAction::Append),
        _ => arg,
    }
}
