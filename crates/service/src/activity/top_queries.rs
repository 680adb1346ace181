//! Queries of the last hour by tenant, language and text: how often, how long, how many samples.
//!
//! Invariants: at most [`QUERIES_PER_MINUTE_MAX`] entries per minute. Beyond that a query takes the place of
//! the shortest one if it was longer, so that the costliest are kept; queries left out are counted. Texts are
//! cut to [`TEXT_BYTES_MAX`]; equal texts of several minutes share one copy.
//! Not here: running queries (`active_queries`).

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use chronolith_base::hash::{FixedState, HashMap};
use chronolith_model::TenantId;
use chronolith_tsdb::MemoryPart;
use parking_lot::Mutex;

use super::entry::{MINUTE_COUNT, beginning, minute_of, tenant_bytes};

/// Different queries of one minute.
pub const QUERIES_PER_MINUTE_MAX: usize = 64;
/// Bytes of a query's text.
pub const TEXT_BYTES_MAX: usize = 512;
/// Memory of all minutes: entries, texts of their longest, and ids of tenants of their longest.
pub const BYTES_MAX: u64 = (MINUTE_COUNT
    * QUERIES_PER_MINUTE_MAX
    * (size_of::<Entry>() + ARC_BYTES + size_of::<QueryKey>() + 700)) as u64;

const ARC_BYTES: usize = 2 * size_of::<usize>();

/// Language of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueryLanguage {
    /// PromQL.
    PromQl,
    /// InfluxQL.
    InfluxQl,
    /// Targets of Graphite.
    Graphite,
    /// No language: work of the server itself.
    Internal,
}

impl QueryLanguage {
    /// Name as the API shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            QueryLanguage::PromQl => "promql",
            QueryLanguage::InfluxQl => "influxql",
            QueryLanguage::Graphite => "graphite",
            QueryLanguage::Internal => "internal",
        }
    }
}

/// A query that has ended.
#[derive(Debug, Clone, Copy)]
pub struct FinishedQuery<'a> {
    /// Tenant that asked.
    pub tenant: &'a TenantId,
    /// Language of the text.
    pub language: QueryLanguage,
    /// Text as sent.
    pub text: &'a str,
    /// Time from the permit to the encoded answer.
    pub duration_ns: u64,
    /// Samples that it read.
    pub sample_count: u64,
    /// True if the query failed.
    pub is_error: bool,
    /// Clock at its end.
    pub ended_ms: i64,
}

/// Identity of equal queries.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct QueryKey {
    /// Tenant that asked.
    pub tenant: TenantId,
    /// Language of the text.
    pub language: QueryLanguage,
    /// The beginning of the text.
    pub text: Box<str>,
}

/// Sums over equal queries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryCounts {
    /// Runs.
    pub count: u64,
    /// Runs that failed.
    pub error_count: u64,
    /// Time of all runs.
    pub duration_ns: u64,
    /// Time of the longest run.
    pub duration_max_ns: u64,
    /// Samples that all runs read.
    pub sample_count: u64,
    /// Clock at the end of the last run.
    pub last_ms: i64,
}

impl QueryCounts {
    fn of(query: &FinishedQuery<'_>) -> QueryCounts {
        QueryCounts {
            count: 1,
            error_count: u64::from(query.is_error),
            duration_ns: query.duration_ns,
            duration_max_ns: query.duration_ns,
            sample_count: query.sample_count,
            last_ms: query.ended_ms,
        }
    }

    fn add(&mut self, other: &QueryCounts) {
        self.count += other.count;
        self.error_count += other.error_count;
        self.duration_ns = self.duration_ns.saturating_add(other.duration_ns);
        self.duration_max_ns = self.duration_max_ns.max(other.duration_max_ns);
        self.sample_count = self.sample_count.saturating_add(other.sample_count);
        self.last_ms = self.last_ms.max(other.last_ms);
    }
}

struct Entry {
    hash: u64,
    key: Arc<QueryKey>,
    counts: QueryCounts,
}

struct Minute {
    number: i64,
    entries: Vec<Entry>,
    /// Queries that are in no entry.
    dropped_count: u64,
}

/// Queries of the last hour.
#[derive(Default)]
pub struct TopQueries {
    /// From the oldest to the newest.
    minutes: Mutex<VecDeque<Minute>>,
    hasher: FixedState,
}

/// Queries of a tenant or of all, each once.
#[derive(Debug, Default)]
pub struct QueryList {
    /// Queries with their counts, the costliest first.
    pub queries: Vec<(Arc<QueryKey>, QueryCounts)>,
    /// Queries of the last hour that are not listed, of all tenants.
    pub dropped_count: u64,
}

impl TopQueries {
    /// Records a query. Cost: a hash of its text, and a scan of the hashes of this minute.
    pub fn record(&self, query: &FinishedQuery<'_>) {
        let text = beginning(query.text, TEXT_BYTES_MAX);
        let hash = self.hasher.hash_one((query.tenant, query.language, text));
        let is_it = |entry: &Entry| {
            entry.hash == hash
                && *entry.key.text == *text
                && entry.key.language == query.language
                && entry.key.tenant == *query.tenant
        };
        let counts = QueryCounts::of(query);
        let mut minutes = self.minutes.lock();
        begin_minute(&mut minutes, minute_of(query.ended_ms));
        let Some(minute) = minutes.back_mut() else { return };
        if let Some(entry) = minute.entries.iter_mut().find(|entry| is_it(entry)) {
            entry.counts.add(&counts);
            return;
        }
        if minute.entries.len() >= QUERIES_PER_MINUTE_MAX && !minute.remove_shorter(query.duration_ns) {
            minute.dropped_count += 1;
            return;
        }
        let mut known = minutes.iter().flat_map(|minute| &minute.entries);
        let key = known.find(|entry| is_it(entry)).map(|entry| entry.key.clone());
        let fresh = || {
            let tenant = query.tenant.clone();
            Arc::new(QueryKey { tenant, language: query.language, text: text.into() })
        };
        let key = key.unwrap_or_else(fresh);
        if let Some(minute) = minutes.back_mut() {
            minute.entries.push(Entry { hash, key, counts });
        }
    }

    /// Returns the queries of `tenant`, or of all, in the hour before `now_ms`.
    pub fn list(&self, tenant: Option<&TenantId>, now_ms: i64) -> QueryList {
        let first = minute_of(now_ms) - MINUTE_COUNT as i64;
        let mut sums: HashMap<Arc<QueryKey>, QueryCounts> = HashMap::default();
        let mut list = QueryList::default();
        let minutes = self.minutes.lock();
        for minute in minutes.iter().filter(|minute| minute.number > first) {
            list.dropped_count += minute.dropped_count;
            let is_asked = |entry: &&Entry| tenant.is_none_or(|tenant| entry.key.tenant == *tenant);
            for entry in minute.entries.iter().filter(is_asked) {
                sums.entry(entry.key.clone()).or_default().add(&entry.counts);
            }
        }
        drop(minutes);
        list.queries = sums.into_iter().collect();
        list
    }

    /// Bytes of all entries and texts, and the number of entries.
    pub fn memory(&self) -> MemoryPart {
        let minutes = self.minutes.lock();
        let mut texts: HashMap<*const QueryKey, u64> = HashMap::default();
        let mut bytes = (minutes.capacity() * size_of::<Minute>()) as u64;
        let mut len = 0;
        for minute in minutes.iter() {
            bytes += (minute.entries.capacity() * size_of::<Entry>()) as u64;
            len += minute.entries.len() as u64;
            for entry in &minute.entries {
                let of_key = ARC_BYTES + size_of::<QueryKey>() + entry.key.text.len();
                texts.insert(Arc::as_ptr(&entry.key), of_key as u64 + tenant_bytes(&entry.key.tenant));
            }
        }
        MemoryPart::new("top_queries", bytes + texts.values().sum::<u64>(), len)
    }
}

impl Minute {
    /// Removes the entry with the shortest time if that is less than `duration_ns`.
    fn remove_shorter(&mut self, duration_ns: u64) -> bool {
        let times = self.entries.iter().map(|entry| entry.counts.duration_ns).enumerate();
        let Some((idx, shortest_ns)) = times.min_by_key(|(_, ns)| *ns) else { return false };
        if shortest_ns >= duration_ns {
            return false;
        }
        self.dropped_count += self.entries.swap_remove(idx).counts.count;
        true
    }
}

/// Appends the minute `number` unless a later one exists, and removes minutes older than an hour.
fn begin_minute(minutes: &mut VecDeque<Minute>, number: i64) {
    if minutes.back().is_none_or(|last| last.number < number) {
        minutes.push_back(Minute { number, entries: Vec::new(), dropped_count: 0 });
    }
    let first = minutes.back().map_or(number, |last| last.number) - MINUTE_COUNT as i64;
    while minutes.front().is_some_and(|minute| minute.number <= first) {
        minutes.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn query<'a>(tenant: &'a TenantId, text: &'a str, duration_ns: u64, ended_ms: i64) -> FinishedQuery<'a> {
        let language = QueryLanguage::PromQl;
        FinishedQuery { tenant, language, text, duration_ns, sample_count: 10, is_error: false, ended_ms }
    }

    #[test]
    fn equal_queries_are_added_over_minutes() {
        let top = TopQueries::default();
        let (a, b) = (TenantId::new("a").expect("valid"), TenantId::new("b").expect("valid"));
        top.record(&query(&a, "up", SECOND_NS, 1000));
        top.record(&query(&a, "up", 3 * SECOND_NS, 61_000));
        top.record(&FinishedQuery { is_error: true, ..query(&a, "up", SECOND_NS, 62_000) });
        top.record(&query(&b, "up", SECOND_NS, 62_000));
        top.record(&FinishedQuery { language: QueryLanguage::Graphite, ..query(&a, "up", 1, 62_000) });
        let list = top.list(Some(&a), 62_000);
        assert_eq!(list.queries.len(), 2, "one per language");
        let of_promql = list.queries.iter().find(|(key, _)| key.language == QueryLanguage::PromQl);
        let want = QueryCounts {
            count: 3,
            error_count: 1,
            duration_ns: 5 * SECOND_NS,
            duration_max_ns: 3 * SECOND_NS,
            sample_count: 30,
            last_ms: 62_000,
        };
        assert_eq!(of_promql.map(|(_, counts)| *counts), Some(want));
        assert_eq!(top.list(None, 62_000).queries.len(), 3);
        // The first minute is an hour ago, the others are not.
        let later = top.list(Some(&a), 60 * 60_000);
        let counts: u64 = later.queries.iter().map(|(_, counts)| counts.count).sum();
        assert_eq!(counts, 3);
        assert!(top.list(None, 62 * 60_000).queries.is_empty());
    }

    #[test]
    fn the_longest_queries_of_a_minute_are_kept() {
        let top = TopQueries::default();
        let tenant = TenantId::anonymous();
        for idx in 0..QUERIES_PER_MINUTE_MAX as u64 + 10 {
            top.record(&query(&tenant, &format!("q{idx}"), idx, 0));
        }
        top.record(&query(&tenant, "short", 1, 0));
        let list = top.list(None, 0);
        assert_eq!((list.queries.len(), list.dropped_count), (QUERIES_PER_MINUTE_MAX, 11));
        assert!(list.queries.iter().all(|(_, counts)| counts.duration_ns >= 10));
    }

    #[test]
    fn texts_are_cut_and_a_clock_may_go_back() {
        let top = TopQueries::default();
        let tenant = TenantId::anonymous();
        let text = "ä".repeat(TEXT_BYTES_MAX);
        top.record(&query(&tenant, &text, 1, 600_000));
        top.record(&query(&tenant, &text, 1, 0));
        let list = top.list(None, 600_000);
        assert_eq!((list.queries.len(), list.queries[0].1.count), (1, 2));
        assert_eq!(list.queries[0].0.text.len(), TEXT_BYTES_MAX);
    }
}
