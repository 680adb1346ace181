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

use chronolith_base::Env;
use chronolith_format::graphite::{StoredEvent, StoredMetaTags};
use chronolith_head::WriteError;
use chronolith_model::{AnnotationLimits, TenantId};

use crate::frame_log::copies::{Findings, LogFormat};
use crate::frame_log::frames::LogFrames;
use crate::frame_log::{FrameLog, LogEntries};
use crate::options::{OpenError, TsdbOptions};
use crate::tenant_deletions::TenantDeletions;
use log::Entry;
pub(crate) use log::FORMAT;
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
    log: FrameLog<Kept>,
    dropped_count: AtomicU64,
    /// Tenants that are being deleted; `None` for a log without a database.
    deletions: Option<Arc<TenantDeletions>>,
}

/// Entries in memory.
struct Kept {
    tenants: BTreeMap<TenantId, TenantEntries>,
    text_bytes: usize,
    /// Limit of the texts of all tenants.
    text_bytes_max: usize,
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

impl LogEntries for Kept {
    const FORMAT: &'static LogFormat = &log::FORMAT;

    fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    fn put_all(&mut self, frames: &mut LogFrames) {
        self.tenants.iter().for_each(|(tenant, entries)| entries.put_all(tenant, frames));
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
        let text_bytes_max = options.texts.annotation_bytes_max;
        let kept = Kept { tenants: BTreeMap::new(), text_bytes: 0, text_bytes_max };
        let load = |kept: &mut Kept, kind, payload: &[u8]| {
            log::load(kind, payload, |tenant, entry| {
                kept.apply(tenant, entry, &options.limits.of(tenant).annotations);
            })
        };
        let log = FrameLog::open(env, &options.data_dir, options.sync, kept, findings, load)?;
        Ok(GraphiteLog { log, dropped_count: AtomicU64::new(0), deletions: None })
    }

    /// The same log, which refuses changes of tenants that are being deleted.
    pub(crate) fn with_deletions(self, deletions: Arc<TenantDeletions>) -> GraphiteLog {
        GraphiteLog { deletions: Some(deletions), ..self }
    }

    /// Removes events and rules of a tenant and returns when that is durable. Cost: the file is written
    /// as a whole.
    ///
    /// # Errors
    /// As [`FrameLog::rewrite`].
    pub(crate) fn remove_tenant(&self, tenant: &TenantId) -> Result<(), WriteError> {
        self.log.rewrite(|kept| {
            if let Some(removed) = kept.tenants.remove(tenant) {
                kept.text_bytes -= removed.text_bytes();
            }
        })
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
        let _permit = self.deletions.as_ref().map(|deletions| deletions.admit(tenant)).transpose()?;
        let GraphiteEvent { when_s, what, tags, data } = event;
        let add = |kept: &mut Kept, frames: &mut LogFrames| {
            let id = kept.tenants.get(tenant).map_or(1, TenantEntries::next_id);
            let event = StoredEvent { id, when_s, what, tags, data };
            let event_bytes = tenant::event_bytes(&event);
            let setting = "graphite.max-event-size";
            check_limit("bytes of the event", event_bytes, limits.event_bytes_max, setting)?;
            kept.check_room(event_bytes)?;
            log::put(frames, tenant, id + 1, &event);
            frames.end_frame();
            let dropped_count = kept.apply(tenant, Entry::Event(event), limits);
            self.dropped_count.fetch_add(dropped_count, Ordering::Relaxed);
            Ok::<u64, GraphiteLogError>(id)
        };
        let (added, change) = self.log.change(add);
        let id = added?;
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
        let kept = self.log.entries();
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
        let kept = self.log.entries();
        kept.tenants.get(tenant).map_or_else(Vec::new, |entries| entries.event_times(range_s, tags))
    }

    /// Returns one event.
    #[must_use]
    pub fn event(&self, tenant: &TenantId, id: u64) -> Option<StoredEvent> {
        self.log.entries().tenants.get(tenant)?.event(id).cloned()
    }

    /// Returns the rules of a tenant, in order.
    #[must_use]
    pub fn meta_tags(&self, tenant: &TenantId) -> Arc<[StoredMetaTags]> {
        let kept = self.log.entries();
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
        let _permit = self.deletions.as_ref().map(|deletions| deletions.admit(tenant)).transpose()?;
        let replace = |kept: &mut Kept, frames: &mut LogFrames| {
            let before =
                kept.tenants.get(tenant).map_or_else(Arc::default, |entries| entries.rules().clone());
            let mut rules = before.to_vec();
            let result = change(&mut rules);
            check_rules(&before, &rules, limits)?;
            kept.check_room(bytes_of_rules(&rules).saturating_sub(bytes_of_rules(&before)))?;
            log::put_rules(frames, tenant, &rules);
            kept.apply(tenant, Entry::MetaTags(rules), limits);
            Ok::<T, GraphiteLogError>(result)
        };
        let (replaced, change) = self.log.change(replace);
        let result = replaced?;
        self.log.wait(change)?;
        Ok(result)
    }

    /// Syncs written frames. Cheap if there is nothing to do.
    ///
    /// # Errors
    /// As [`FrameLog::sync`].
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        self.log.sync()
    }

    /// Returns a file with the entries of `tenants`; `None` if there is none.
    pub(crate) fn file_of(&self, tenants: &[TenantId]) -> Option<Vec<u8>> {
        self.log.file_with(|kept, frames| {
            for tenant in tenants {
                if let Some(entries) = kept.tenants.get(tenant) {
                    entries.put_all(tenant, frames);
                }
            }
        })
    }

    /// Returns the approximate bytes on the heap, and the number of events and rules.
    pub(crate) fn heap_bytes(&self) -> (u64, u64) {
        let kept = self.log.entries();
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
        self.log.entries().tenants.get(tenant).map_or(0, |entries| entries.event_count() as u64)
    }

    /// Returns the number of events of all tenants.
    pub(crate) fn event_count(&self) -> u64 {
        self.log.entries().tenants.values().map(|entries| entries.event_count() as u64).sum()
    }
}

#[cfg(test)]
mod tests;
