//! Events and rules of one tenant in memory.
//!
//! Invariants: the count of a tag is the number of kept events that have it; the limits of events hold after
//! each event.
//! Not here: other tenants, the file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_format::graphite::{StoredEvent, StoredMetaTags};
use chronolith_model::{AnnotationLimits, TenantId};

use super::log::{self, Entry};
use crate::frame_log::frames::LogFrames;

/// Selection of events by their tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTags<'a> {
    /// All events.
    Any,
    /// At least one of the tags.
    OneOf(&'a [String]),
    /// Every one of the tags.
    AllOf(&'a [String]),
    /// Every one of the tags that occur in events of the tenant, and at least one.
    KnownOf(&'a [String]),
}

/// Entries of one tenant.
#[derive(Debug, Default)]
pub(super) struct TenantEntries {
    /// By time and id.
    events: BTreeMap<(i64, u64), StoredEvent>,
    times: HashMap<u64, i64>,
    /// Number of events with each tag.
    tag_counts: BTreeMap<String, usize>,
    next_id: u64,
    event_bytes: usize,
    rules: Arc<[StoredMetaTags]>,
    rule_bytes: usize,
}

/// Bytes of the texts of an event.
pub(super) fn event_bytes(event: &StoredEvent) -> usize {
    event.what.len() + event.data.len() + texts_bytes(&event.tags)
}

/// Bytes of the texts of a rule.
pub(super) fn rule_bytes(rule: &StoredMetaTags) -> usize {
    texts_bytes(&rule.tags) + texts_bytes(&rule.expressions)
}

fn texts_bytes(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + size_of::<String>()).sum()
}

impl TenantEntries {
    /// Applies an entry. Returns the number of events that left.
    pub(super) fn apply(&mut self, entry: Entry, limits: &AnnotationLimits) -> u64 {
        match entry {
            Entry::NextId(id) => self.next_id = self.next_id.max(id),
            Entry::Event(event) => return self.insert(event, limits),
            Entry::MetaTags(rules) => {
                self.rule_bytes = rules.iter().map(rule_bytes).sum();
                self.rules = rules.into();
            }
        }
        0
    }

    fn insert(&mut self, event: StoredEvent, limits: &AnnotationLimits) -> u64 {
        self.next_id = self.next_id.max(event.id.saturating_add(1));
        // A file that was written twice has an event twice.
        if let Some(when_s) = self.times.get(&event.id).copied() {
            self.remove((when_s, event.id));
        }
        self.event_bytes += event_bytes(&event);
        for tag in &event.tags {
            *self.tag_counts.entry(tag.clone()).or_default() += 1;
        }
        self.times.insert(event.id, event.when_s);
        self.events.insert((event.when_s, event.id), event);
        let mut dropped_count = 0;
        while self.events.len() > limits.event_count_max || self.event_bytes > limits.all_events_bytes_max {
            let Some(earliest) = self.events.keys().next().copied() else { break };
            self.remove(earliest);
            dropped_count += 1;
        }
        dropped_count
    }

    fn remove(&mut self, key: (i64, u64)) {
        let Some(event) = self.events.remove(&key) else { return };
        self.times.remove(&event.id);
        assert_eq!(self.times.len(), self.events.len(), "each event has one time");
        self.event_bytes -= event_bytes(&event);
        for tag in &event.tags {
            let count = self.tag_counts.get_mut(tag);
            assert!(count.is_some(), "tags of an event are counted until it is removed");
            if let Some(count) = count {
                *count -= 1;
                if *count == 0 {
                    self.tag_counts.remove(tag);
                }
            }
        }
    }

    /// Id of the next event.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.max(1)
    }

    pub(super) fn text_bytes(&self) -> usize {
        self.event_bytes + self.rule_bytes
    }

    pub(super) fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Number of events and rules.
    pub(super) fn len(&self) -> usize {
        self.events.len() + self.rules.len()
    }

    pub(super) fn event(&self, id: u64) -> Option<&StoredEvent> {
        self.events.get(&(*self.times.get(&id)?, id))
    }

    pub(super) fn rules(&self) -> &Arc<[StoredMetaTags]> {
        &self.rules
    }

    pub(super) fn events(&self, range_s: RangeInclusive<i64>, tags: EventTags<'_>) -> Vec<StoredEvent> {
        self.select(range_s, tags).cloned().collect()
    }

    pub(super) fn event_times(&self, range_s: RangeInclusive<i64>, tags: EventTags<'_>) -> Vec<i64> {
        self.select(range_s, tags).map(|event| event.when_s).collect()
    }

    /// Events in the range that the tags select.
    fn select<'a>(
        &'a self,
        range_s: RangeInclusive<i64>,
        tags: EventTags<'a>,
    ) -> impl Iterator<Item = &'a StoredEvent> {
        let start_s = *range_s.start();
        let end_s = *range_s.end();
        let range = (start_s, 0)..=(end_s.max(start_s), if start_s <= end_s { u64::MAX } else { 0 });
        let known: Vec<&String> = match tags {
            EventTags::KnownOf(tags) => {
                tags.iter().filter(|tag| self.tag_counts.contains_key(*tag)).collect()
            }
            EventTags::Any | EventTags::OneOf(_) | EventTags::AllOf(_) => Vec::new(),
        };
        let events = self.events.range(range).map(|(_, event)| event);
        events.filter(move |event| match tags {
            _ if start_s > end_s => false,
            EventTags::Any => true,
            EventTags::OneOf(tags) => tags.iter().any(|tag| event.tags.contains(tag)),
            EventTags::AllOf(tags) => tags.iter().all(|tag| event.tags.contains(tag)),
            EventTags::KnownOf(_) => !known.is_empty() && known.iter().all(|tag| event.tags.contains(tag)),
        })
    }

    /// Puts all entries into frames.
    pub(super) fn put_all(&self, tenant: &TenantId, frames: &mut LogFrames) {
        if self.next_id > 1 {
            log::put_next_id(frames, tenant, self.next_id);
        }
        self.events.values().for_each(|event| log::put(frames, tenant, self.next_id, event));
        frames.end_frame();
        if !self.rules.is_empty() {
            log::put_rules(frames, tenant, &self.rules);
        }
    }
}
