//! Form of the declaration of a setting, and settings once they are resolved.
//! Not here: the declarations (`table`), precedence of flag, environment and file (`sources`).

use std::path::PathBuf;

use chronolith_model::TenantLimits;
use chronolith_server::ServerOptions;

use crate::version::build_info;

/// Settings after flags, environment, file and defaults were merged.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) server: ServerOptions,
    pub(crate) log_level: String,
    pub(crate) log_format: LogFormat,
    /// Accepted but probably mistaken input: unknown environment variables, old names.
    pub(crate) warnings: Vec<String>,
}

impl Settings {
    /// Settings to which no declaration has been applied.
    pub(super) fn unresolved(warnings: Vec<String>) -> Settings {
        let mut server = ServerOptions::new(PathBuf::new());
        server.web.build = build_info();
        Settings { server, log_level: String::new(), log_format: LogFormat::Full, warnings }
    }
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// One line with time, level, target, message, fields.
    Full,
    /// The same, shorter.
    Compact,
    /// One JSON object with time, level, source, msg, fields.
    Json,
}

/// Form of a value, for help and reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// True or false; the flag alone means true.
    Switch,
    /// `15d`, `1h30m`, `100ms`.
    Duration,
    /// `64MiB`, `1GB`, `4096`.
    Size,
    /// A whole number.
    Count,
    /// One of these words.
    Choice(&'static str),
    /// Anything else, by the name of what it is.
    Text(&'static str),
    /// Values of this name, separated by commas; the flag may be given several times.
    List(&'static str),
    /// Text that no endpoint shows.
    Secret,
}

impl Form {
    /// Name of the value in `--help` and in the reference.
    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Switch => "true|false",
            Form::Duration => "DURATION",
            Form::Size => "SIZE",
            Form::Count => "COUNT",
            Form::Choice(name) | Form::Text(name) | Form::List(name) => name,
            Form::Secret => "SECRET",
        }
    }
}

type ApplyToServer = fn(&mut Settings, &str) -> Result<(), String>;
type ApplyToTenant = fn(&mut TenantLimits, &str) -> Result<(), String>;

/// Scope of a setting, with the function that parses a value and stores it.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// The process; a reload does not change it.
    Server(ApplyToServer),
    /// A limit of tenants: the setting applies to all tenants, and the file may have another value for each.
    /// A reload changes it.
    Tenant(ApplyToTenant),
}

/// Declaration of one setting: from it come flag, key of the file, environment variable, help, limit of
/// tenants and reference.
pub(super) struct Setting {
    /// Name of flag and key. A dot may be written as a dash, and the file may nest it.
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    pub(super) form: Form,
    pub(super) help: &'static str,
    /// Names below `limits:` and `tenants:` in files of older versions.
    pub(super) old_names: &'static [&'static str],
    pub(super) scope: Scope,
    /// Accepted everywhere, and listed in the reference alone.
    pub(super) is_hidden: bool,
}

impl Setting {
    pub(super) const fn server(
        name: &'static str,
        default: &'static str,
        form: Form,
        help: &'static str,
        apply: ApplyToServer,
    ) -> Setting {
        Setting { name, default, form, help, old_names: &[], scope: Scope::Server(apply), is_hidden: false }
    }

    pub(super) const fn tenant(
        name: &'static str,
        old_names: &'static [&'static str],
        default: &'static str,
        form: Form,
        help: &'static str,
        apply: ApplyToTenant,
    ) -> Setting {
        Setting { name, default, form, help, old_names, scope: Scope::Tenant(apply), is_hidden: false }
    }

    /// The same setting, left out of `--help`: changed on very few servers.
    pub(super) const fn hidden(self) -> Setting {
        Setting { is_hidden: true, ..self }
    }

    /// The value as endpoints show it; a secret as Prometheus shows one.
    pub(super) fn shown(&self, value: String) -> String {
        if self.form == Form::Secret && !value.is_empty() { "<secret>".to_owned() } else { value }
    }

    /// Returns true if a reload changes the setting in a running server.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.scope, Scope::Tenant(_))
    }

    /// Returns true if the setting says where the bucket is or how it is reached, which the tools need, too.
    pub(super) fn is_of_bucket(&self) -> bool {
        let of_server = [
            "bucket.poll",
            "bucket.memory",
            "bucket.cache-dir",
            "bucket.cache-dir-size",
            "bucket.local-retention",
            "bucket.retention",
            "bucket.delete-delay",
            "bucket.compaction",
        ];
        self.name == "bucket" || self.name.starts_with("bucket.") && !of_server.contains(&self.name)
    }

    /// Returns the name of the environment variable: `query.timeout` -> `CHRONOLITH_QUERY_TIMEOUT`.
    pub(super) fn variable(&self) -> String {
        format!("CHRONOLITH_{}", self.name.to_ascii_uppercase().replace(['-', '.'], "_"))
    }

    /// Returns the name without dots: `query.timeout` -> `query-timeout`.
    pub(super) fn dashed_name(&self) -> String {
        self.name.replace('.', "-")
    }

    /// Parses and stores a value for the process or for all tenants.
    pub(super) fn apply(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        match self.scope {
            Scope::Server(apply) => apply(settings, text),
            Scope::Tenant(apply) => apply(&mut settings.server.service.tsdb.limits.default, text),
        }
    }
}
