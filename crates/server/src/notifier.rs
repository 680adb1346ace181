//! Notifications to Alertmanagers over HTTP: the file of `--rules.alerting-config` in use, and a sender for
//! each Alertmanager.
//!
//! Invariants: an Alertmanager that hangs or is down delays no other; a file that cannot be used leaves the
//! one in use as it is; alerts that wait stay over a reload as long as their URL stays.
//! Not here: the format of the file, queues and relabelling (`rules::notifier`), the state of alerts.

mod client;
mod files;
mod reading;
mod sender;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use chronolith_base::{Clock, Disk, Env};
use chronolith_model::Labels;
use chronolith_rules::notifier::config::{AlertingConfig, AlertmanagerSet};
use chronolith_rules::notifier::{Alert, relabel_alerts};
use chronolith_service::counter::Seconds;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::reading::{Reader, Reading};
pub(crate) use self::sender::Sender;
use crate::options::NotifierOptions;

/// Sends alerts to all Alertmanagers.
pub(crate) struct Notifier {
    options: NotifierOptions,
    clock: Arc<dyn Clock>,
    in_use: RwLock<InUse>,
    reader: Mutex<Reader>,
    /// Time of the last reading that succeeded, ms since 1970; 0 before the first.
    read_ms: AtomicI64,
    read_ok: AtomicBool,
    /// Files with targets that could not be used at the last reading.
    failed_file_count: AtomicUsize,
    running: Mutex<Running>,
}

/// The last reading that succeeded, with its senders.
#[derive(Default)]
struct InUse {
    config: Arc<AlertingConfig>,
    sets: Vec<SetInUse>,
}

/// An entry of `alertmanagers` with its senders.
struct SetInUse {
    set: Arc<AlertmanagerSet>,
    senders: Vec<Arc<Sender>>,
    /// URLs that rules drop.
    dropped: Vec<String>,
}

/// Tasks of the senders.
#[derive(Default)]
struct Running {
    /// Runtime of the tasks; `None` until the server starts, and after its stop.
    runtime: Option<Handle>,
    /// Each task has a clone, so that `ended` is closed with the last of them.
    guard: Option<watch::Receiver<()>>,
    ended: Option<watch::Sender<()>>,
}

impl Notifier {
    /// A notifier without Alertmanagers; [`Notifier::read`] reads its file.
    pub(crate) fn new(options: NotifierOptions, clock: Arc<dyn Clock>) -> Notifier {
        Notifier {
            options,
            clock,
            in_use: RwLock::default(),
            reader: Mutex::default(),
            read_ms: AtomicI64::new(0),
            read_ok: AtomicBool::new(false),
            failed_file_count: AtomicUsize::new(0),
            running: Mutex::default(),
        }
    }

    /// Senders run on `runtime` from the next reading on.
    pub(crate) fn start(&self, runtime: Handle) {
        let (ended, guard) = watch::channel(());
        *self.running.lock() = Running { runtime: Some(runtime), guard: Some(guard), ended: Some(ended) };
    }

    /// Returns true if there is a file to read.
    pub(crate) fn has_file(&self) -> bool {
        self.options.config_file.is_some()
    }

    /// Returns true if the last reading succeeded.
    pub(crate) fn is_read(&self) -> bool {
        self.read_ok.load(Ordering::Relaxed)
    }

    /// Time of the last reading that succeeded, ms since 1970; 0 before the first.
    pub(crate) fn read_ms(&self) -> i64 {
        self.read_ms.load(Ordering::Relaxed)
    }

    /// Files with targets that could not be used at the last reading.
    pub(crate) fn failed_file_count(&self) -> usize {
        self.failed_file_count.load(Ordering::Relaxed)
    }

    /// Reads the file and all files that it names, and uses them if one has changed since the last reading.
    /// Returns true if others are in use now.
    ///
    /// # Errors
    /// Text for the operator. It is returned once for each content of the files.
    pub(crate) fn read(&self, env: &Env) -> Result<bool, String> {
        let Some(path) = &self.options.config_file else { return Ok(false) };
        let read = self.reader.lock().read(path, &*env.disk);
        let reading = match read {
            Ok(Some(reading)) => reading,
            Ok(None) => return Ok(false),
            Err(why) => {
                self.read_ok.store(false, Ordering::Relaxed);
                return Err(named(path, &why));
            }
        };
        self.failed_file_count.store(reading.failed_files.len(), Ordering::Relaxed);
        for (file, why) in &reading.failed_files {
            let file = file.display();
            tracing::error!(%file, why, "file with targets not used, its previous targets stay in use");
        }
        for fault in &reading.faults {
            tracing::error!(fault, "targets of an Alertmanager not used");
        }
        self.apply(reading);
        self.read_ok.store(true, Ordering::Relaxed);
        self.read_ms.store(env.clock.now_ms(), Ordering::Relaxed);
        Ok(true)
    }

    /// Uses a reading: senders of URLs that stay go on with what waits, the others end.
    fn apply(&self, reading: Reading) {
        let mut in_use = self.in_use.write();
        let mut old: Vec<Arc<Sender>> = in_use.sets.drain(..).flat_map(|set| set.senders).collect();
        let latencies: BTreeMap<String, Arc<Seconds>> =
            old.iter().map(|sender| (sender.url().to_owned(), sender.latency())).collect();
        for plan in reading.plans {
            let mut senders = Vec::with_capacity(plan.endpoints.len());
            for endpoint in plan.endpoints {
                let kept = old.iter().position(|sender| sender.url() == endpoint.url);
                let sender = match kept {
                    Some(idx) => {
                        let sender = old.swap_remove(idx);
                        sender.set_client(plan.client.clone());
                        sender
                    }
                    None => {
                        let latency = latencies.get(&endpoint.url).cloned().unwrap_or_default();
                        self.spawn(Sender::new(endpoint, plan.client.clone(), latency))
                    }
                };
                senders.push(sender);
            }
            in_use.sets.push(SetInUse { set: plan.set, senders, dropped: plan.dropped });
        }
        in_use.config = reading.config;
        old.iter().for_each(|sender| sender.end());
    }

    /// Number of Alertmanagers, and names of the blocks of the file that are not read.
    pub(crate) fn summary(&self) -> (usize, Vec<String>) {
        let in_use = self.in_use.read();
        (in_use.sets.iter().map(|set| set.senders.len()).sum(), in_use.config.ignored_blocks.clone())
    }

    fn spawn(&self, sender: Sender) -> Arc<Sender> {
        let sender = Arc::new(sender);
        let running = self.running.lock();
        if let (Some(runtime), Some(guard)) = (&running.runtime, &running.guard) {
            runtime.spawn(sender::run(sender.clone(), self.clock.clone(), guard.clone()));
        }
        sender
    }

    /// Queues alerts for all Alertmanagers, with external labels and after relabelling. Waits for nothing.
    pub(crate) fn send(&self, alerts: &[Arc<Alert>]) {
        let in_use = self.in_use.read();
        let alerts = relabel_alerts(&in_use.config.alert_relabel, &self.options.external_labels, alerts);
        let no_labels = Labels::empty();
        for entry in &in_use.sets {
            let alerts = relabel_alerts(&entry.set.alert_relabel, &no_labels, &alerts);
            entry.senders.iter().for_each(|sender| sender.queue(&alerts, &*self.clock));
        }
    }

    /// URLs of Alertmanagers, and URLs that rules drop.
    pub(crate) fn urls(&self) -> (Vec<String>, Vec<String>) {
        let in_use = self.in_use.read();
        let active =
            in_use.sets.iter().flat_map(|set| set.senders.iter().map(|sender| sender.url().to_owned()));
        let dropped = in_use.sets.iter().flat_map(|set| set.dropped.iter().cloned());
        (active.collect(), dropped.collect())
    }

    /// Senders by URL; two entries may have the same one.
    pub(crate) fn senders(&self) -> BTreeMap<String, Vec<Arc<Sender>>> {
        let mut by_url: BTreeMap<String, Vec<Arc<Sender>>> = BTreeMap::new();
        for sender in self.in_use.read().sets.iter().flat_map(|set| &set.senders) {
            by_url.entry(sender.url().to_owned()).or_default().push(sender.clone());
        }
        by_url
    }

    /// Sends each waiting batch once and ends all senders; gives up the alerts that are left after `limit`.
    pub(crate) async fn stop(&self, limit: Duration) {
        let ended = {
            let mut running = self.running.lock();
            running.runtime = None;
            running.guard = None;
            running.ended.take()
        };
        let Some(ended) = ended else { return };
        let senders: Vec<Arc<Sender>> =
            self.in_use.read().sets.iter().flat_map(|set| set.senders.clone()).collect();
        senders.iter().for_each(|sender| sender.end());
        let _ = tokio::time::timeout(limit, ended.closed()).await;
        for sender in senders {
            let count = sender.give_up();
            if count > 0 {
                let alertmanager = sender.url();
                tracing::warn!(alertmanager, count, "alerts not sent before the stop, dropped");
            }
        }
    }
}

fn named(path: &Path, why: &str) -> String {
    format!("alerting configuration {}: {why}", path.display())
}

/// Checks a file of `--rules.alerting-config`, and the files that it names.
///
/// # Errors
/// Path, and the reason why it cannot be used.
pub fn check_alerting_config(path: &Path, disk: &dyn Disk) -> Result<(), String> {
    let checked = Reader::default().read(path, disk).and_then(|reading| {
        let Some(reading) = reading else { return Ok(()) };
        let failed = reading.failed_files.iter().map(|(file, why)| format!("{}: {why}", file.display()));
        match failed.chain(reading.faults).next() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    });
    checked.map_err(|why| named(path, &why))
}
