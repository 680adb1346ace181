//! Refused samples of the last hour by tenant and reason: counts per minute, and the newest examples.
//!
//! Invariants: at most [`KEY_COUNT_MAX`] pairs of tenant and reason and [`BYTES_MAX`] bytes; the tenants
//! beyond them share counts. A pair has at most one example per second and [`EXAMPLES_PER_KEY_MAX`] in all;
//! examples are made on the refusal path alone.
//! Not here: counters since the start (`metrics`), what to do about a reason (`advice`).

use std::net::IpAddr;

use chronolith_base::hash::HashMap;
use chronolith_model::{Reject, TenantId, TimeUnit, WriteOutcome};
use chronolith_tsdb::MemoryPart;
use parking_lot::Mutex;

use super::entry::{MINUTE_COUNT, beginning, minute_of, tenant_bytes};

/// Pairs of tenant and reason.
pub const KEY_COUNT_MAX: usize = 10_000;
/// Memory of all pairs and examples.
pub const BYTES_MAX: u64 = 8 << 20;
/// Examples of a pair.
const EXAMPLES_PER_KEY_MAX: usize = 3;
/// Bytes of the series of an example.
const SERIES_BYTES_MAX: usize = 384;
/// Bytes of the sender of an example.
const SENDER_BYTES_MAX: usize = 128;
/// Memory of a pair in the table, at its lowest load.
const SLOT_BYTES: u64 = 2 * (size_of::<Key>() + size_of::<Box<Record>>() + 1) as u64;

/// A refused sample. Strings are cut when it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// Series, line, or the text of the error where no series is known.
    pub series: Box<str>,
    /// Time of the sample.
    pub time_ms: Option<i64>,
    /// Clock at the refusal.
    pub seen_ms: i64,
    /// Address of the client, and its program if it names one.
    pub sender: Box<str>,
    /// Samples refused for the same reason since the example before it.
    pub count: u64,
}

impl Example {
    /// Cuts long texts. Count and clock are set when it is recorded.
    pub fn new(series: &str, time_ms: Option<i64>, sender: &WriteSender) -> Example {
        Example {
            series: beginning(series, SERIES_BYTES_MAX).into(),
            time_ms,
            seen_ms: 0,
            sender: beginning(&sender.to_text(), SENDER_BYTES_MAX).into(),
            count: 0,
        }
    }

    fn bytes(&self) -> u64 {
        (size_of::<Example>() + self.series.len() + self.sender.len()) as u64
    }
}

/// Sender of a write: an HTTP client, a connection, or a listener whose datagrams are mixed.
#[derive(Debug, Clone, Default)]
pub struct WriteSender {
    /// Address of the client.
    pub address: Option<IpAddr>,
    /// Program as an HTTP client names it, in bytes as sent.
    pub user_agent: Option<Box<[u8]>>,
    /// Name of the listener without HTTP.
    pub listener: Option<String>,
}

impl WriteSender {
    fn to_text(&self) -> String {
        let address = self.address.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        let user_agent = self.user_agent.as_ref().map(|agent| String::from_utf8_lossy(agent));
        match user_agent.as_deref().or(self.listener.as_deref()) {
            Some(program) => format!("{address} ({program})"),
            None => address,
        }
    }
}

/// Origin of refused samples.
#[derive(Debug, Clone, Copy)]
pub struct RejectOrigin<'a> {
    /// `None` if the request names no valid tenant.
    pub tenant: Option<&'a TenantId>,
    /// Client that sent them.
    pub sender: &'a WriteSender,
    /// Clock at the refusal.
    pub now_ms: i64,
}

/// Samples refused for one reason.
#[derive(Debug, Clone, Copy)]
pub struct RefusedSamples<'a> {
    /// `None` if the request names no valid tenant.
    pub tenant: Option<&'a TenantId>,
    /// Reason as metrics name it.
    pub reason: &'static str,
    /// Number of samples.
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    /// `None` for requests without a valid tenant, and for tenants beyond the limits.
    tenant: Option<TenantId>,
    reason: &'static str,
}

struct Record {
    /// By the number of the minute modulo [`MINUTE_COUNT`].
    minutes: [u32; MINUTE_COUNT],
    last_minute: i64,
    example_second: i64,
    /// In order of their times of refusal.
    examples: Vec<Example>,
}

#[derive(Default)]
struct State {
    records: HashMap<Key, Box<Record>>,
    bytes: u64,
    /// Minute in which idle pairs were removed last.
    cleaned_minute: i64,
    examples_dropped: u64,
}

/// Refused samples of the last hour.
#[derive(Default)]
pub struct Rejects(Mutex<State>);

/// Counts of a pair, oldest minute first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectCounts {
    /// `None` for tenants beyond the limit, and for requests that name none.
    pub tenant: Option<TenantId>,
    /// Reason as metrics name it.
    pub reason: &'static str,
    /// Samples of the last hour.
    pub total: u64,
    /// Samples per minute, oldest first.
    pub per_minute: Vec<u32>,
}

/// An example with its pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectExample {
    /// `None` for tenants beyond the limit, and for requests that name none.
    pub tenant: Option<TenantId>,
    /// Reason as metrics name it.
    pub reason: &'static str,
    /// The refused sample.
    pub example: Example,
}

/// Refused samples of a tenant or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectList {
    /// Most samples first.
    pub counts: Vec<RejectCounts>,
    /// From the newest to the oldest.
    pub examples: Vec<RejectExample>,
}

impl Rejects {
    /// Records refused samples; `example` is called if an example is due.
    pub fn record(&self, refused: &RefusedSamples<'_>, now_ms: i64, example: impl FnOnce() -> Example) {
        if refused.count == 0 {
            return;
        }
        let mut state = self.0.lock();
        let minute = minute_of(now_ms);
        let key = state.admit(Key { tenant: refused.tenant.cloned(), reason: refused.reason }, minute);
        let State { records, bytes, examples_dropped, .. } = &mut *state;
        let Some(record) = records.get_mut(&key) else { return };
        record.count(minute, refused.count);
        let second = now_ms.div_euclid(1000);
        if record.example_second == second {
            if let Some(newest) = record.examples.last_mut() {
                newest.count += refused.count;
            }
            return;
        }
        record.example_second = second;
        let example = Example { seen_ms: now_ms, count: refused.count, ..example() };
        if !record.push_example(example, bytes) {
            *examples_dropped += 1;
        }
    }

    /// Records what the store refused of a request whose times are in `unit`. `fault` is the text of a kind
    /// without a series.
    pub fn record_outcome(
        &self,
        outcome: &WriteOutcome,
        unit: TimeUnit,
        fault: &str,
        from: RejectOrigin<'_>,
    ) {
        for kind in Reject::ALL {
            let refused = RefusedSamples {
                tenant: from.tenant,
                reason: kind.reason(),
                count: outcome.rejected[kind as usize],
            };
            self.record(&refused, from.now_ms, || {
                match outcome.first_rejects().find(|(of_kind, ..)| *of_kind == kind) {
                    Some((_, series, time)) => Example::new(series, Some(unit.to_ms(*time)), from.sender),
                    None => Example::new(fault, None, from.sender),
                }
            });
        }
    }

    /// Records samples or requests that never reached the store; `text` is their line or the error.
    pub fn record_text(&self, reason: &'static str, count: u64, text: &str, from: RejectOrigin<'_>) {
        let refused = RefusedSamples { tenant: from.tenant, reason, count };
        self.record(&refused, from.now_ms, || Example::new(text, None, from.sender));
    }

    /// Returns the refused samples of `tenant`, or of all, in the hour before `now_ms`; at most `limit` pairs
    /// and examples.
    pub fn list(&self, tenant: Option<&TenantId>, now_ms: i64, limit: usize) -> RejectList {
        let minute = minute_of(now_ms);
        let mut list = RejectList::default();
        let state = self.0.lock();
        let is_asked = |key: &Key| tenant.is_none_or(|tenant| key.tenant.as_ref() == Some(tenant));
        for (key, record) in state.records.iter().filter(|(key, _)| is_asked(key)) {
            let per_minute = record.last_hour(minute);
            let total = per_minute.iter().map(|count| u64::from(*count)).sum();
            if total == 0 {
                continue;
            }
            let Key { tenant, reason } = key;
            list.counts.push(RejectCounts { tenant: tenant.clone(), reason, total, per_minute });
            list.examples.extend(record.examples.iter().map(|example| RejectExample {
                tenant: tenant.clone(),
                reason,
                example: example.clone(),
            }));
        }
        drop(state);
        let by_key = |a: &RejectCounts, b: &RejectCounts| (&a.tenant, a.reason).cmp(&(&b.tenant, b.reason));
        list.counts.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| by_key(a, b)));
        list.counts.truncate(limit);
        list.examples
            .sort_by(|a, b| b.example.seen_ms.cmp(&a.example.seen_ms).then_with(|| a.reason.cmp(b.reason)));
        list.examples.truncate(limit);
        list
    }

    /// Bytes of all pairs and examples, and the number of pairs.
    pub fn memory(&self) -> MemoryPart {
        let state = self.0.lock();
        MemoryPart::new("rejects", state.bytes, state.records.len() as u64)
    }

    /// Examples that were not kept for lack of room.
    pub fn examples_dropped_count(&self) -> u64 {
        self.0.lock().examples_dropped
    }
}

impl State {
    /// Makes room for a pair, and returns it, or the shared one of its reason.
    fn admit(&mut self, key: Key, minute: i64) -> Key {
        if self.records.contains_key(&key) {
            return key;
        }
        let is_full =
            |state: &State| state.records.len() >= KEY_COUNT_MAX || state.bytes + key_bytes(&key) > BYTES_MAX;
        if is_full(self) && self.cleaned_minute != minute {
            self.remove_idle(minute);
        }
        // There are few reasons: the shared pairs are admitted beyond the limit.
        let key = if is_full(self) { Key { tenant: None, ..key } } else { key };
        if !self.records.contains_key(&key) {
            self.bytes += key_bytes(&key);
            self.records.insert(key.clone(), Box::new(Record::new(minute)));
        }
        key
    }

    /// Removes pairs without a refused sample in the last hour.
    fn remove_idle(&mut self, minute: i64) {
        self.cleaned_minute = minute;
        let bytes = &mut self.bytes;
        self.records.retain(|key, record| {
            let is_used = record.last_minute > minute - MINUTE_COUNT as i64;
            if !is_used {
                *bytes -= key_bytes(key) + record.examples.iter().map(Example::bytes).sum::<u64>();
            }
            is_used
        });
    }
}

/// Memory of a pair without its examples.
fn key_bytes(key: &Key) -> u64 {
    let of_examples = (EXAMPLES_PER_KEY_MAX * size_of::<Example>()) as u64;
    SLOT_BYTES + size_of::<Record>() as u64 + of_examples + key.tenant.as_ref().map_or(0, tenant_bytes)
}

impl Record {
    fn new(minute: i64) -> Record {
        Record {
            minutes: [0; MINUTE_COUNT],
            last_minute: minute,
            example_second: i64::MIN,
            examples: Vec::new(),
        }
    }

    /// Counts samples of `minute`, or of the last one if the clock went back.
    fn count(&mut self, minute: i64, count: u64) {
        let passed = (minute - self.last_minute).clamp(0, MINUTE_COUNT as i64);
        for number in self.last_minute + 1..=self.last_minute + passed {
            self.minutes[slot_of(number)] = 0;
        }
        if passed == MINUTE_COUNT as i64 {
            self.minutes = [0; MINUTE_COUNT];
        }
        self.last_minute = self.last_minute.max(minute);
        let slot = &mut self.minutes[slot_of(self.last_minute)];
        *slot = slot.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Counts of the minutes that end with `minute`, oldest first.
    fn last_hour(&self, minute: i64) -> Vec<u32> {
        let first = minute - MINUTE_COUNT as i64 + 1;
        let known = self.last_minute - MINUTE_COUNT as i64 + 1..=self.last_minute;
        let count = |number: i64| if known.contains(&number) { self.minutes[slot_of(number)] } else { 0 };
        (first..=minute).map(count).collect()
    }

    /// Keeps an example if there is room for it; the oldest of the pair makes room.
    fn push_example(&mut self, example: Example, bytes: &mut u64) -> bool {
        // The first example of a pair is worth more than the second of another one.
        let limit = if self.examples.is_empty() { BYTES_MAX } else { BYTES_MAX / 2 };
        let has_room = |bytes: u64| bytes + example.bytes() <= limit;
        let must_replace = self.examples.len() >= EXAMPLES_PER_KEY_MAX || !has_room(*bytes);
        if must_replace {
            if self.examples.is_empty() {
                return false;
            }
            *bytes -= self.examples.remove(0).bytes();
            if *bytes + example.bytes() > BYTES_MAX {
                return false;
            }
        }
        *bytes += example.bytes();
        self.examples.reserve_exact(EXAMPLES_PER_KEY_MAX - self.examples.len());
        self.examples.push(example);
        true
    }
}

fn slot_of(minute: i64) -> usize {
    minute.rem_euclid(MINUTE_COUNT as i64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: i64 = super::super::entry::MINUTE_MS;

    fn record(rejects: &Rejects, tenant: &TenantId, reason: &'static str, now_ms: i64, count: u64) {
        let refused = RefusedSamples { tenant: Some(tenant), reason, count };
        let sender = WriteSender {
            address: Some([10, 0, 0, 1].into()),
            user_agent: Some((*b"Prometheus/2.42").into()),
            listener: None,
        };
        rejects.record(&refused, now_ms, || Example::new(&format!("s{now_ms}"), Some(1), &sender));
    }

    #[test]
    fn minutes_of_the_last_hour_are_counted() {
        let rejects = Rejects::default();
        let (a, b) = (TenantId::new("a").expect("valid"), TenantId::new("b").expect("valid"));
        record(&rejects, &a, "too_old", 0, 5);
        record(&rejects, &a, "too_old", 59 * MINUTE_MS, 7);
        record(&rejects, &b, "too_old", 59 * MINUTE_MS, 1);
        let list = rejects.list(Some(&a), 59 * MINUTE_MS, 10);
        assert_eq!(list.counts.len(), 1);
        let counts = &list.counts[0];
        assert_eq!((counts.total, counts.per_minute.len()), (12, MINUTE_COUNT));
        assert_eq!((counts.per_minute[0], counts.per_minute[59]), (5, 7));
        let later = rejects.list(Some(&a), 60 * MINUTE_MS, 10);
        assert_eq!((later.counts[0].total, later.counts[0].per_minute[58]), (7, 7));
        assert!(rejects.list(Some(&a), 119 * MINUTE_MS, 10).counts.is_empty());
        // A long pause, and a clock that goes back.
        record(&rejects, &a, "too_old", 500 * MINUTE_MS, 2);
        record(&rejects, &a, "too_old", 400 * MINUTE_MS, 3);
        assert_eq!(rejects.list(Some(&a), 500 * MINUTE_MS, 10).counts[0].total, 5);
        assert_eq!(rejects.list(None, 59 * MINUTE_MS, 1).counts.len(), 1);
    }

    #[test]
    fn the_newest_examples_have_series_time_and_sender() {
        let rejects = Rejects::default();
        let tenant = TenantId::anonymous();
        for second in 0..5 {
            record(&rejects, &tenant, "too_old", second * 1000, 2);
            record(&rejects, &tenant, "too_old", second * 1000 + 500, 3);
        }
        let examples = rejects.list(None, 0, 10).examples;
        let seen: Vec<(i64, u64)> =
            examples.iter().map(|one| (one.example.seen_ms, one.example.count)).collect();
        assert_eq!(seen, [(4000, 5), (3000, 5), (2000, 5)]);
        let newest = &examples[0].example;
        assert_eq!((&*newest.series, newest.time_ms), ("s4000", Some(1)));
        assert_eq!(&*newest.sender, "10.0.0.1 (Prometheus/2.42)");
    }

    #[test]
    fn tenants_beyond_the_limit_share_counts_until_others_are_idle() {
        let rejects = Rejects::default();
        let tenant = |idx: usize| TenantId::new(&format!("t{idx}")).expect("valid");
        for idx in 0..KEY_COUNT_MAX + 100 {
            record(&rejects, &tenant(idx), "too_old", 0, 1);
        }
        let list = rejects.list(None, 0, usize::MAX);
        assert_eq!(list.counts.len(), KEY_COUNT_MAX + 1);
        assert_eq!((&list.counts[0].tenant, list.counts[0].total), (&None, 100));
        record(&rejects, &tenant(KEY_COUNT_MAX + 1), "too_old", 61 * MINUTE_MS, 1);
        let len = rejects.memory().count;
        assert_eq!(len, 1, "idle pairs made room");
        let counts = &rejects.list(None, 61 * MINUTE_MS, 10).counts[0];
        assert_eq!((counts.tenant.clone(), counts.total), (Some(tenant(KEY_COUNT_MAX + 1)), 1));
    }
}
