//! Events and meta tag rules of Graphite clients by tenant, in memory for requests and in a file for
//! restarts.
//!
//! Invariants: what [`GraphiteLog::add_event`] and [`GraphiteLog::change_meta_tags`] return is durable; ids
//! of a tenant ascend and are not used again. Events of a tenant are bounded in number and bytes: the one
//! with the earliest time leaves first and is counted. A change is checked by the limits that the
//! tenant has then ([`AnnotationLimits`]); lowered ones apply from the next event on, and rules above
//! one may get fewer.
//! Not here: the file (`log`), its bytes (`format::graphite`), what rules mean (`chronolith_graphite`).

mod log;
mod tenant;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::{Env, Rng};
use chronolith_format::graphite::{StoredEvent, StoredMetaTags};
use chronolith_head::WriteError;
use chronolith_model::{AnnotationLimits, TenantId};

use crate::frame_log::copies::Findings;
use crate::frame_log::{CommittedLog, FrameQueue};
use crate::options::{OpenError, TsdbOptions};
use log::{Entry, Frames};
pub(crate) use log::{FILE_NAME, FORMAT, MIRROR_NAME, frame_entry_count};
pub use tenant::EventTags;
use tenant::TenantEntries;

/// Name of the setting of the bytes of all tenants.
const TEXT_MEMORY_SETTING: &str = "graphite.events-memory";

/// Error of a change of events or rules.
#[derive(Debug, thiserror::Error)]
pub enum GraphiteLogError {
    /// A limit is exceeded; nothing changed.
    #[error("{what}: {found} exceed the limit of {limit} ({setting})")]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// Amount of the quantity.
        found: usize,
        /// The limit.
        limit: usize,
        /// Name of the setting of the limit.
        setting: &'static str,
    },
    /// The change is visible, and may or may not be durable; the next one writes it again.
    #[error("{0}")]
    Write(#[from] WriteError),
}

/// An event without an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphiteEvent {
    /// Seconds since 1970.
    pub when_s: i64,
    /// Short text.
    pub what: String,
    /// Tags in the order of the client.
    pub tags: Vec<String>,
    /// Long text.
    pub data: String,
}

/// Events and rules of all tenants in memory, and their file.
pub struct GraphiteLog {
    log: CommittedLog<Kept>,
    dropped_count: AtomicU64,
}

/// Entries in memory, and frames that are not in the file yet.
struct Kept {
    tenants: BTreeMap<TenantId, TenantEntries>,
    text_bytes: usize,
    /// Limit of the texts of all tenants.
    text_bytes_max: usize,
    pending: Frames,
    /// Number of changes since the start.
    change_count: u64,
    /// Source of the key of a new file.
    rng: Arc<Rng>,
}

impl Kept {
    /// Applies an entry of the file or of a request. Returns the number of events that left.
    fn apply(&mut self, tenant: &TenantId, entry: Entry, limits: &AnnotationLimits) -> u64 {
        let entries = self.tenants.entry(tenant.clone()).or_default();
        let bytes_before = entries.text_bytes();
        let dropped_count = entries.apply(entry, limits);
        self.text_bytes = self.text_bytes - bytes_before + entries.text_bytes();
        dropped_count
    }

    /// # Errors
    /// [`GraphiteLogError::Limit`] if there is no room for the texts of all tenants.
    fn check_room(&self, more_bytes: usize) -> Result<(), GraphiteLogError> {
        let found = self.text_bytes + more_bytes;
        let what = "bytes of events and meta tags of all tenants";
        check_limit(what, found, self.text_bytes_max, TEXT_MEMORY_SETTING)
    }
}

impl FrameQueue for Kept {
    fn change_count(&self) -> u64 {
        self.change_count
    }

    fn has_no_entries(&self) -> bool {
        self.tenants.is_empty()
    }

    fn queued_bytes(&self) -> usize {
        self.pending.len()
    }

    fn take_queued(&mut self) -> Vec<u8> {
        self.pending.take()
    }

    fn whole_file(&mut self) -> Vec<u8> {
        if self.pending.key() == 0 {
            // There is no file yet: a start without one draws no random numbers.
            let key = u128::from(self.rng.next_u64()) << 64 | u128::from(self.rng.next_u64());
            self.pending = Frames::new(key);
        }
        self.pending = self.pending.restarted();
        for (tenant, entries) in &self.tenants {
            entries.put_all(tenant, &mut self.pending);
        }
        self.pending.take()
    }
}

fn check_limit(
    what: &'static str,
    found: usize,
    limit: usize,
    setting: &'static str,
) -> Result<(), GraphiteLogError> {
    if found <= limit { Ok(()) } else { Err(GraphiteLogError::Limit { what, found, limit, setting }) }
}

fn bytes_of_rules(rules: &[StoredMetaTags]) -> usize {
    rules.iter().map(tenant::rule_bytes).sum()
}

/// Checks the rules of a tenant after a change; above a limit, fewer rules or bytes are accepted.
fn check_rules(
    before: &[StoredMetaTags],
    rules: &[StoredMetaTags],
    limits: &AnnotationLimits,
) -> Result<(), GraphiteLogError> {
    let count_max = limits.rule_count_max.max(before.len().saturating_sub(1));
    check_limit("meta tag rules", rules.len(), count_max, "graphite.max-meta-tags")?;
    let bytes_max = limits.all_rules_bytes_max.max(bytes_of_rules(before).saturating_sub(1));
    check_limit("bytes of meta tag rules", bytes_of_rules(rules), bytes_max, "graphite.max-meta-tags-size")
}

impl GraphiteLog {
    /// Reads the file in the data directory, if there is one.
    ///
    /// # Errors
    /// [`OpenError`] if the file cannot be read or is of a later version.
    pub(crate) fn open(
        env: &Env,
        options: &TsdbOptions,
        findings: &mut Findings<'_>,
    ) -> Result<GraphiteLog, OpenError> {
        let mut kept = Kept {
            tenants: BTreeMap::new(),
            text_bytes: 0,
            text_bytes_max: options.texts.annotation_bytes_max,
            pending: Frames::new(0),
            change_count: 0,
            rng: env.rng.clone(),
        };
        let (file, pending) = log::load(env, &options.data_dir, findings, |tenant, entry| {
            kept.apply(tenant, entry, &options.limits.of(tenant).annotations);
        })?;
        kept.pending = pending;
        let log = CommittedLog::new(kept, file, options.sync);
        log.repair("events", findings.notes);
        Ok(GraphiteLog { log, dropped_count: AtomicU64::new(0) })
    }

    /// Stores an event and returns its id once it is as durable as the sync mode promises. Blocks the thread.
    ///
    /// # Errors
    /// [`GraphiteLogError`].
    pub fn add_event(
        &self,
        tenant: &TenantId,
        limits: &AnnotationLimits,
        event: GraphiteEvent,
    ) -> Result<u64, GraphiteLogError> {
        let GraphiteEvent { when_s, what, tags, data } = event;
        let mut kept = self.log.change();
        let id = kept.tenants.get(tenant).map_or(1, TenantEntries::next_id);
        let event = StoredEvent { id, when_s, what, tags, data };
        let event_bytes = tenant::event_bytes(&event);
        let setting = "graphite.max-event-size";
        check_limit("bytes of the event", event_bytes, limits.event_bytes_max, setting)?;
        kept.check_room(event_bytes)?;
        kept.pending.put_event(tenant, id + 1, &event);
        kept.pending.end_frame();
        let dropped_count = kept.apply(tenant, Entry::Event(event), limits);
        self.dropped_count.fetch_add(dropped_count, Ordering::Relaxed);
        kept.change_count += 1;
        let change = kept.change_count;
        drop(kept);
        self.log.wait(change)?;
        Ok(id)
    }

    /// Returns the events in a range of seconds, ascending by time and id.
    #[must_use]
    pub fn events(
        &self,
        tenant: &TenantId,
        range_s: RangeInclusive<i64>,
        tags: EventTags<'_>,
    ) -> Vec<StoredEvent> {
        let kept = self.log.read();
        kept.tenants.get(tenant).map_or_else(Vec::new, |entries| entries.events(range_s, tags))
    }

    /// Returns the times of the events in a range of seconds, ascending.
    #[must_use]
    pub fn event_times(
        &self,
        tenant: &TenantId,
        range_s: RangeInclusive<i64>,
        tags: EventTags<'_>,
    ) -> Vec<i64> {
        let kept = self.log.read();
        kept.tenants.get(tenant).map_or_else(Vec::new, |entries| entries.event_times(range_s, tags))
    }

    /// Returns one event.
    #[must_use]
    pub fn event(&self, tenant: &TenantId, id: u64) -> Option<StoredEvent> {
        self.log.read().tenants.get(tenant)?.event(id).cloned()
    }

    /// Returns the rules of a tenant, in order.
    #[must_use]
    pub fn meta_tags(&self, tenant: &TenantId) -> Arc<[StoredMetaTags]> {
        let kept = self.log.read();
        kept.tenants.get(tenant).map_or_else(Arc::default, |entries| entries.rules().clone())
    }

    /// Replaces the rules of a tenant by what `change` makes of them; returns its result once they are as
    /// durable as the sync mode promises. Blocks the thread. Cost: all rules of the tenant are written.
    ///
    /// # Errors
    /// [`GraphiteLogError`].
    pub fn change_meta_tags<T>(
        &self,
        tenant: &TenantId,
        limits: &AnnotationLimits,
        change: impl FnOnce(&mut Vec<StoredMetaTags>) -> T,
    ) -> Result<T, GraphiteLogError> {
        let mut kept = self.log.change();
        let before = kept.tenants.get(tenant).map_or_else(Arc::default, |entries| entries.rules().clone());
        let mut rules = before.to_vec();
        let result = change(&mut rules);
        check_rules(&before, &rules, limits)?;
        kept.check_room(bytes_of_rules(&rules).saturating_sub(bytes_of_rules(&before)))?;
        kept.pending.put_meta_tags(tenant, &rules);
        kept.apply(tenant, Entry::MetaTags(rules), limits);
        kept.change_count += 1;
        let change = kept.change_count;
        drop(kept);
        self.log.wait(change)?;
        Ok(result)
    }

    /// Syncs written frames. Cheap if there is nothing to do.
    ///
    /// # Errors
    /// As [`CommittedLog::sync`].
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        self.log.sync()
    }

    /// Returns a file with the entries of `tenants`; `None` if there is none.
    pub(crate) fn file_of(&self, tenants: &[TenantId]) -> Option<Vec<u8>> {
        let kept = self.log.read();
        let mut frames = kept.pending.restarted();
        let header_len = frames.len();
        for tenant in tenants {
            if let Some(entries) = kept.tenants.get(tenant) {
                entries.put_all(tenant, &mut frames);
            }
        }
        (frames.len() > header_len).then(|| frames.take())
    }

    /// Returns the approximate bytes on the heap, and the number of events and rules.
    pub(crate) fn heap_bytes(&self) -> (u64, u64) {
        let kept = self.log.read();
        let entry_bytes = size_of::<StoredEvent>() + size_of::<((i64, u64), u64)>();
        let count: usize = kept.tenants.values().map(TenantEntries::len).sum();
        ((kept.text_bytes + count * entry_bytes) as u64, count as u64)
    }

    /// Returns the number of events that left because of a limit since the start.
    pub(crate) fn dropped_count(&self) -> u64 {
        self.dropped_count.load(Ordering::Relaxed)
    }

    /// Returns the number of events of `tenant`.
    pub(crate) fn event_count_of(&self, tenant: &TenantId) -> u64 {
        self.log.read().tenants.get(tenant).map_or(0, |entries| entries.event_count() as u64)
    }

    /// Returns the number of events of all tenants.
    pub(crate) fn event_count(&self) -> u64 {
        self.log.read().tenants.values().map(|entries| entries.event_count() as u64).sum()
    }
}

#[cfg(test)]
mod tests;
