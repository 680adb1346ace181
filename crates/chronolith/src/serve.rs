//! `chronolith serve`: settings, log, server, signals. Invariant: the process ends with 0 after a clean stop.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use chronolith_base::{Disk, Env};
use chronolith_cluster::options::Role;
use chronolith_server::{
    Reload, RunError, Server, ServerOptions, check_access_file, check_alerting_config, check_carbon_tls,
    check_rule_files, check_web_config,
};
use clap::ArgMatches;

use crate::settings::{Settings, SettingsError, Sources, reloaded};
use crate::{foreign_dir, listeners, log, version};

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let env = Env::real();
    let settings = resolve(&env, matches)?;
    if matches.get_flag("check-config") {
        let open = listeners::open_to_others(&settings.server, &*env.disk);
        let warnings = settings.warnings.iter().chain(&open);
        warnings.for_each(|warning| log::print(&format!("chronolith: warning: {warning}")));
        check_files(&settings.server, &*env.disk)?;
        crate::query::print("configuration is valid\n");
        return Ok(ExitCode::SUCCESS);
    }
    log::start(&settings)?;
    log_warnings(&settings);
    if let Some(open) = listeners::open_to_others(&settings.server, &*env.disk) {
        anyhow::ensure!(!settings.server.web.access_required, "--access.required: {open}");
        tracing::warn!("{open}");
    }
    if settings.server.service.access.file.is_some() {
        let listed = listeners::without_login(&settings.server, &*env.disk);
        listed.iter().for_each(|text| tracing::info!("{text}"));
    }
    let reload = reload(&env, matches, &settings);
    let is_read_only = settings.server.bucket.as_ref().is_some_and(|bucket| bucket.is_read_only);
    let roles = &settings.server.service.cluster.roles;
    let has_store = !is_read_only && (roles.is_all() || roles.has(Role::Owner) || roles.has(Role::Store));
    let data_dir = has_store.then_some(settings.server.service.tsdb.data_dir.as_path());
    if let Some(dir) = data_dir {
        let warning = foreign_dir::refuse_foreign(&*env.disk, dir)?;
        warning.iter().for_each(|text| tracing::warn!("{text}"));
    }
    let data_dir = data_dir.map(|dir| dir.display().to_string());
    let features = version::build_info().features.join(" ");
    tracing::info!(version = chronolith_server::VERSION, features, data_dir, "starting");
    let server = Server::start(env, settings.server, reload).map_err(with_advice)?;
    server.run_until_signal().map_err(with_advice)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the files that settings name and that a start reads.
fn check_files(options: &ServerOptions, disk: &dyn Disk) -> anyhow::Result<()> {
    if let Some(path) = &options.service.access.file {
        check_access_file(path, options.service.multitenancy, disk).map_err(anyhow::Error::msg)?;
    }
    if let Some(path) = &options.web.config_file {
        let why = check_web_config(path, disk).err();
        why.map_or(Ok(()), |why| Err(anyhow::anyhow!("web configuration file {}: {why}", path.display())))?;
    }
    if let Some(path) = &options.service.write.carbon.tls_file {
        let why = check_carbon_tls(path, disk).err();
        why.map_or(Ok(()), |why| Err(anyhow::anyhow!("carbon.tls: {}: {why}", path.display())))?;
    }
    if let Some(path) = &options.notifier.config_file {
        check_alerting_config(path, disk).map_err(anyhow::Error::msg)?;
    }
    check_rule_files(&options.service, disk).map_err(anyhow::Error::msg)
}

fn resolve(env: &Env, matches: &ArgMatches) -> anyhow::Result<Settings> {
    let environment = environment();
    let sources = Sources { flags: matches, environment: &environment, disk: &*env.disk };
    Ok(sources.resolve()?)
}

/// Variables that are settings, or were meant to be.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let all = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    all.filter(|(name, _)| name.starts_with("CHRONOLITH_")).collect()
}

fn log_warnings(settings: &Settings) {
    settings.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}

/// Reads the same sources again; without a configuration file there is nothing that could have changed.
fn reload(env: &Env, matches: &ArgMatches, settings: &Settings) -> Option<Reload> {
    Sources { flags: matches, environment: &environment(), disk: &*env.disk }.config_path()?;
    let env = env.clone();
    let matches = matches.clone();
    let running = settings.clone();
    Some(Arc::new(move || {
        let fresh = resolve(&env, &matches).map_err(|error| format!("{error:#}"))?;
        log_warnings(&fresh);
        Ok(reloaded(&running, fresh))
    }))
}

/// Adds an advice to the error.
fn with_advice(error: RunError) -> anyhow::Error {
    use std::io::ErrorKind;

    let advice = match &error {
        RunError::Bind { setting, error, .. } => &listeners::bind_advice(setting, error.kind()),
        RunError::Open(open) => match &**open {
            chronolith_tsdb::OpenError::Locked(_) => {
                "stop the other process, or choose another directory with --data-dir (from the checkout: make run \
                 DATA=DIR)"
            }
            chronolith_tsdb::OpenError::Io { error, .. } if error.kind() == ErrorKind::PermissionDenied => {
                "make the directory writable for this user, or choose another with --data-dir"
            }
            chronolith_tsdb::OpenError::Io { .. } => {
                "check the disk, or choose another directory with --data-dir"
            }
            chronolith_tsdb::OpenError::Corrupt { .. } | chronolith_tsdb::OpenError::Head(_) => {
                "run `chronolith check` on the directory to see all damage; restore the file from a backup, or move \
                 it away to go on without its content"
            }
        },
        RunError::Bucket(_) => "see docs/bucket.md for the forms of --bucket and its settings",
        RunError::WebConfig(_) => "see docs/tls.md; `chronolith check web-config FILE` checks the file",
        RunError::Rules(_) => "see docs/rules.md for rule files and their limits",
        RunError::NodeToken(_) => {
            "all nodes of a cluster have the same token, for example of `openssl rand -hex 32`"
        }
        RunError::Alerting(_) => "see docs/rules.md for what the file may have",
        RunError::Access(_) => "see docs/access.md for the form of the file",
        RunError::GraphiteRules(_) => "see docs/graphite.md for the files of rules",
        RunError::QueryLog(_) | RunError::AuditLog(_) => {
            "choose a file in a directory that exists and is writable"
        }
        RunError::Log(_) => "see docs/scale-out.md for the log and its settings",
        // As other values that contradict each other.
        RunError::Partition { .. } => return SettingsError::of_cluster(error.to_string()).into(),
        RunError::Threads(_) => "the system refuses more threads: raise its limits",
        RunError::Close(_) | RunError::Interrupted(_) => {
            "nothing acknowledged is lost; the next start replays the log"
        }
    };
    anyhow::anyhow!("{error}\n  {advice}")
}
