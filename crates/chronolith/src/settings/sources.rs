//! Values of settings from flags, environment, configuration file and defaults, and the effect of a reload.
//! Invariants: flag before environment before file before default; an unknown key or a bad value is an error
//! that names its origin, an unknown environment variable is a warning (ADR 0061).
//! Not here: the file's syntax (`file`), limits of single tenants (`tenants`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use chronolith_base::Disk;
use chronolith_server::{Reloaded, ShownSetting};
use chronolith_tsdb::StoreConfig;
use clap::ArgMatches;

use super::declaration::{Setting, Settings};
use super::file::{self, Entry};
use super::influx_names::{missing_listener, own_name};
use super::table::{self, all_settings};
use super::tenants::{self, Split};
use super::tools::ToolSettings;
use super::{bucket_layout, carbon, cluster, rules};
use crate::args;

/// Variable that names the configuration file.
const CONFIG_VARIABLE: &str = "CHRONOLITH_CONFIG";

/// Exit code for settings that contradict each other or cannot be used at all, as that for unknown flags.
const USAGE_EXIT_CODE: u8 = 2;

/// Reason for refusing settings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SettingsError {
    text: String,
    exit_code: u8,
}

impl SettingsError {
    fn new(text: String) -> SettingsError {
        SettingsError { text, exit_code: 1 }
    }

    /// Error of the settings of roles and of the log.
    pub(crate) fn of_cluster(text: String) -> SettingsError {
        SettingsError { text, exit_code: USAGE_EXIT_CODE }
    }

    /// Error of a tool without a bucket.
    pub(crate) fn no_bucket() -> SettingsError {
        SettingsError::new("--bucket: expected the URL of a bucket, such as s3://BUCKET/PREFIX".to_owned())
    }

    /// Exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SettingsError {}

/// Sources of settings in addition to the defaults.
pub(crate) struct Sources<'a> {
    pub(crate) flags: &'a ArgMatches,
    /// Environment variables whose name starts with `CHRONOLITH_`.
    pub(crate) environment: &'a BTreeMap<String, String>,
    /// Reads the configuration file.
    pub(crate) disk: &'a dyn Disk,
}

/// Value of a setting.
struct Found {
    value: String,
    origin: Origin,
}

/// Source of the value of a setting.
enum Origin {
    Flag,
    /// An environment variable.
    Variable(String),
    File {
        path: PathBuf,
        line: u64,
    },
    Default,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Flag => f.write_str("flag"),
            Origin::Variable(name) => write!(f, "environment variable {name}"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Default => f.write_str("default"),
        }
    }
}

impl Origin {
    /// Start of an error about the value, before the name of the setting.
    fn prefix(&self) -> String {
        match self {
            Origin::Flag => "--".to_owned(),
            Origin::Variable(_) | Origin::File { .. } => format!("{self}: "),
            Origin::Default => String::new(),
        }
    }
}

impl Sources<'_> {
    /// The configuration file, if one is named.
    pub(crate) fn config_path(&self) -> Option<PathBuf> {
        let flag = args::value(self.flags, "config").map(str::to_owned);
        flag.or_else(|| self.environment.get(CONFIG_VARIABLE).cloned()).map(PathBuf::from)
    }

    /// Merges all sources; the first invalid value is the error.
    pub(crate) fn resolve(&self) -> Result<Settings, SettingsError> {
        let mut settings = Settings::unresolved(unknown_variables(self.environment));
        let path = self.config_path();
        let Split { settings: entries, tenants, warnings } = match &path {
            Some(path) => read_file(self.disk, path)?,
            None => Split::default(),
        };
        settings.warnings.extend(warnings);
        for setting in all_settings() {
            let Found { value, origin } = self.value_of(setting, &entries, path.as_deref());
            setting.apply(&mut settings, &value).map_err(|why| {
                let text = format!("{}{}: {why}", origin.prefix(), setting.name);
                if cluster::has(setting) { SettingsError::of_cluster(text) } else { SettingsError::new(text) }
            })?;
            settings.server.shown.push(ShownSetting {
                name: setting.name.to_owned(),
                value: setting.shown(value),
                default: Some(setting.default.to_owned()),
                origin: origin.to_string(),
            });
        }
        let limits = tenants::table(settings.server.service.tsdb.limits.default.clone(), &tenants);
        let shown_path = path.as_deref().unwrap_or(Path::new("")).display();
        settings.server.service.tsdb.limits =
            limits.map_err(|why| SettingsError::new(format!("{shown_path}:{why}")))?;
        cluster::check(&mut settings, self.disk).map_err(SettingsError::of_cluster)?;
        bucket_layout::check(&settings).map_err(SettingsError::new)?;
        carbon::check(&settings).map_err(SettingsError::new)?;
        rules::check(&settings).map_err(SettingsError::new)?;
        settings.server.shown.extend(tenants::shown(&tenants, path.as_deref().unwrap_or(Path::new(""))));
        settings.server.config_yaml = show_yaml(&settings.server.shown);
        Ok(settings)
    }

    /// Merges all sources of the settings that a tool takes; the others have no value.
    pub(crate) fn resolve_tool(&self, taken: ToolSettings) -> Result<Settings, SettingsError> {
        let mut settings = Settings::unresolved(Vec::new());
        let path = self.config_path();
        let entries = match &path {
            Some(path) => read_file(self.disk, path)?.settings,
            None => Vec::new(),
        };
        for setting in all_settings().filter(|setting| taken.has(setting)) {
            let Found { value, origin } = self.value_of(setting, &entries, path.as_deref());
            setting
                .apply(&mut settings, &value)
                .map_err(|why| SettingsError::new(format!("{}{}: {why}", origin.prefix(), setting.name)))?;
        }
        if let Some(log) = &settings.server.service.cluster.log {
            cluster::check_log(log).map_err(SettingsError::new)?;
        }
        Ok(settings)
    }

    /// Merges all sources of the settings of the bucket, for the tools.
    pub(crate) fn resolve_bucket(&self) -> Result<StoreConfig, SettingsError> {
        let settings = self.resolve_tool(ToolSettings::Bucket)?;
        settings.server.bucket.map(|bucket| bucket.store).ok_or_else(SettingsError::no_bucket)
    }

    fn value_of(&self, setting: &Setting, entries: &[Entry], path: Option<&Path>) -> Found {
        if let Some(value) = args::joined_value(self.flags, setting.name) {
            return Found { value, origin: Origin::Flag };
        }
        let variable = setting.variable();
        if let Some(value) = self.environment.get(&variable) {
            return Found { value: value.clone(), origin: Origin::Variable(variable) };
        }
        let entry = entries.iter().find(|entry| entry.key == setting.name);
        if let Some((entry, path)) = entry.zip(path) {
            let origin = Origin::File { path: path.to_owned(), line: entry.line };
            return Found { value: entry.value.clone(), origin };
        }
        Found { value: setting.default.to_owned(), origin: Origin::Default }
    }
}

/// A warning for each variable that is no setting. Kubernetes sets variables for its services, which may be
/// called `chronolith` and are no mistake.
fn unknown_variables(environment: &BTreeMap<String, String>) -> Vec<String> {
    let names: Vec<String> = all_settings().map(Setting::variable).collect();
    let is_service = |name: &str| {
        name.ends_with("_SERVICE_HOST")
            || name.contains("_SERVICE_PORT")
            || name.ends_with("_PORT")
            || name.contains("_PORT_")
    };
    let is_known = |name: &String| name == CONFIG_VARIABLE || names.contains(name) || is_service(name);
    let warning = |name: &String| {
        if let Some(answer) = missing_listener(name) {
            return format!("environment variable {name}: {answer}");
        }
        let nearest = names.iter().min_by_key(|known| strsim::levenshtein(known, name));
        format!("unknown environment variable {name}, did you mean {}?", nearest.map_or("", String::as_str))
    };
    environment.keys().filter(|name| !is_known(name)).map(warning).collect()
}

fn read_file(disk: &dyn Disk, path: &Path) -> Result<Split, SettingsError> {
    let shown = path.display();
    let bytes = disk.read(path).map_err(|error| SettingsError::new(format!("reading {shown}: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| SettingsError::new(format!("{shown}: not UTF-8")))?;
    let split = file::parse(&text).and_then(tenants::split);
    let mut split = split.map_err(|why| SettingsError::new(format!("{shown}:{why}")))?;
    let mut seen = BTreeSet::new();
    for entry in &mut split.settings {
        let Some(setting) = table::find(&entry.key) else {
            let nearest = own_name(&entry.key).unwrap_or_else(|| table::nearest_name(&entry.key));
            let what = missing_listener(&entry.key)
                .unwrap_or_else(|| format!("unknown setting {:?}, did you mean {nearest:?}?", entry.key));
            return Err(SettingsError::new(format!("{shown}:{}: {what}", entry.line)));
        };
        setting.name.clone_into(&mut entry.key);
        if !seen.insert(setting.name) {
            return Err(SettingsError::new(format!("{shown}:{}: {:?} is set twice", entry.line, entry.key)));
        }
    }
    for warning in &mut split.warnings {
        *warning = format!("{shown}:{warning}");
    }
    Ok(split)
}

/// All settings in a form that can be a configuration file.
fn show_yaml(shown: &[ShownSetting]) -> String {
    // Names of tenants may have characters that mean something in YAML; a JSON string is one of YAML too.
    let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let line = |ShownSetting { name, value, .. }: &ShownSetting| {
        let name = if is_plain(name) { name.clone() } else { text(name) };
        format!("{name}: {}\n", text(value))
    };
    shown.iter().map(line).collect()
}

/// Returns the settings after a reload: live settings from `fresh`, the others as they are in the running
/// server.
pub(crate) fn reloaded(running: &Settings, fresh: Settings) -> Reloaded {
    let mut shown = Vec::new();
    let tenants = fresh.server.shown.get(all_settings().count()..).unwrap_or_default().to_vec();
    for (setting, (old, new)) in all_settings().zip(running.server.shown.iter().zip(fresh.server.shown)) {
        if setting.is_live() || old.value == new.value {
            shown.push(new);
        } else {
            tracing::warn!(setting = setting.name, "changed in the file, takes effect at the next start");
            shown.push(old.clone());
        }
    }
    shown.extend(tenants);
    Reloaded { limits: fresh.server.service.tsdb.limits, config_yaml: show_yaml(&shown), shown }
}
