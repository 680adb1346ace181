//! Readings of the alerting configuration with all files that it names.
//!
//! Invariant: a file with targets that cannot be used has the groups of its last reading that succeeded, as
//! in Prometheus.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::Uri;
use chronolith_base::Disk;
use chronolith_rules::notifier::config::{AlertingConfig, AlertmanagerSet, TargetGroup, parse_target_file};
use chronolith_rules::notifier::discovery::discover;

use super::client::HttpClient;
use super::files::{Files, matching_paths, read_bounded};

/// Files with targets of one reading.
const TARGET_FILES_MAX: usize = 1000;
/// Alertmanagers of all entries together. Each has a queue of its own.
const ALERTMANAGERS_MAX: usize = 256;

/// Reads the files again and again.
#[derive(Default)]
pub(super) struct Reader {
    /// Content at the last reading, good or bad.
    last: Option<Content>,
    /// The last configuration that could be read, with its text.
    parsed: Option<(Vec<u8>, Arc<AlertingConfig>)>,
    /// Groups of each file with targets.
    groups: BTreeMap<PathBuf, Arc<Vec<TargetGroup>>>,
    clients: Vec<KnownClient>,
}

/// Everything that a reading depends on.
#[derive(PartialEq, Eq)]
struct Content {
    config: Result<Vec<u8>, String>,
    entries: Vec<EntryContent>,
    targets: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
}

/// Files of an entry of `alertmanagers`.
#[derive(PartialEq, Eq)]
struct EntryContent {
    files: Result<Files, String>,
    target_paths: Vec<PathBuf>,
}

/// A client with everything that it is made of.
struct KnownClient {
    set: Arc<AlertmanagerSet>,
    files: Files,
    client: Arc<HttpClient>,
}

/// A reading that can be used.
pub(super) struct Reading {
    pub(super) config: Arc<AlertingConfig>,
    /// A plan for each entry of `alertmanagers`.
    pub(super) plans: Vec<Plan>,
    /// Files with targets that cannot be used, each with the reason.
    pub(super) failed_files: Vec<(PathBuf, String)>,
    /// Reasons for targets that cannot be used.
    pub(super) faults: Vec<String>,
}

/// Alertmanagers of an entry.
pub(super) struct Plan {
    pub(super) set: Arc<AlertmanagerSet>,
    pub(super) client: Arc<HttpClient>,
    pub(super) endpoints: Vec<Endpoint>,
    /// URLs that rules drop.
    pub(super) dropped: Vec<String>,
}

/// Address of the API of an Alertmanager.
pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) uri: Uri,
}

impl Reader {
    /// Reads all files; `None` if nothing has changed since the last reading.
    ///
    /// # Errors
    /// Text for the operator. It is returned once for each content of the files.
    pub(super) fn read(&mut self, path: &Path, disk: &dyn Disk) -> Result<Option<Reading>, String> {
        let bytes = read_bounded(path, disk);
        let parsed = bytes.as_ref().map_err(Clone::clone).and_then(|bytes| self.parse(bytes, path));
        let mut content = Content { config: bytes, entries: Vec::new(), targets: BTreeMap::new() };
        for set in parsed.iter().flat_map(|config| &config.alertmanagers) {
            let patterns = set.files.iter().flat_map(|files| &files.patterns);
            let target_paths: Vec<PathBuf> =
                patterns.flat_map(|pattern| matching_paths(pattern, disk)).collect();
            for path in target_paths.iter().take(TARGET_FILES_MAX) {
                content.targets.entry(path.clone()).or_insert_with(|| read_bounded(path, disk));
            }
            content.entries.push(EntryContent { files: Files::read(&set.http, disk), target_paths });
        }
        if self.last.as_ref() == Some(&content) {
            return Ok(None);
        }
        let reading = parsed.and_then(|config| self.reading(config, &content));
        self.last = Some(content);
        reading.map(Some)
    }

    fn parse(&mut self, bytes: &[u8], path: &Path) -> Result<Arc<AlertingConfig>, String> {
        if let Some((text, config)) = &self.parsed
            && text == bytes
        {
            return Ok(config.clone());
        }
        let config = Arc::new(AlertingConfig::parse(bytes, path.parent().unwrap_or(Path::new("")))?);
        self.parsed = Some((bytes.to_vec(), config.clone()));
        Ok(config)
    }

    fn reading(&mut self, config: Arc<AlertingConfig>, content: &Content) -> Result<Reading, String> {
        let mut reading = Reading { config, plans: Vec::new(), failed_files: Vec::new(), faults: Vec::new() };
        self.groups.retain(|path, _| content.targets.contains_key(path));
        for (path, bytes) in &content.targets {
            let bytes = bytes.as_ref().map_err(Clone::clone);
            match bytes.and_then(|bytes| parse_target_file(path, bytes)) {
                Ok(groups) => drop(self.groups.insert(path.clone(), Arc::new(groups))),
                Err(why) => reading.failed_files.push((path.clone(), why)),
            }
        }
        let mut clients = Vec::new();
        for (set, entry) in reading.config.alertmanagers.iter().zip(&content.entries) {
            let files = entry.files.clone()?;
            let client = self.client(set, &files)?;
            clients.push(KnownClient { set: set.clone(), files, client: client.clone() });
            let groups = entry.target_paths.iter().filter_map(|path| self.groups.get(path));
            let groups = set.static_groups.iter().chain(groups.flat_map(|groups| groups.iter()));
            let discovered = discover(set, groups);
            reading.faults.extend(discovered.faults);
            let mut plan =
                Plan { set: set.clone(), client, endpoints: Vec::new(), dropped: discovered.dropped };
            for url in discovered.active {
                match uri_of(&url) {
                    Some(uri) => plan.endpoints.push(Endpoint { url, uri }),
                    None => reading.faults.push(format!("{url:?} is no URL of http or https")),
                }
            }
            reading.plans.push(plan);
        }
        let count: usize = reading.plans.iter().map(|plan| plan.endpoints.len()).sum();
        if count > ALERTMANAGERS_MAX {
            return Err(format!("{count} Alertmanagers, at most {ALERTMANAGERS_MAX} are allowed"));
        }
        self.clients = clients;
        Ok(reading)
    }

    /// The client of the last reading if nothing that it is made of has changed: it has open connections.
    fn client(&self, set: &Arc<AlertmanagerSet>, files: &Files) -> Result<Arc<HttpClient>, String> {
        let is_same = |known: &&KnownClient| known.set == *set && known.files == *files;
        match self.clients.iter().find(is_same) {
            Some(known) => Ok(known.client.clone()),
            None => HttpClient::new(set, files).map(Arc::new),
        }
    }
}

fn uri_of(url: &str) -> Option<Uri> {
    let uri: Uri = url.parse().ok()?;
    let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    (has_scheme && uri.host().is_some_and(|host| !host.is_empty())).then_some(uri)
}
