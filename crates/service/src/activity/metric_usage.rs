//! Metrics that queries select: how often, and when last, by tenant and name.
//!
//! Invariants: at most [`NAME_COUNT_MAX`] names of all tenants and [`BYTES_MAX`] bytes; the least recently
//! used names leave, and are counted. Counts are since the start of the process, or since the name came back.
//! Not here: which metrics there are (`tsdb`).

use chronolith_base::hash::{FixedState, HashMap};
use chronolith_model::{METRIC_NAME, MatchOp, Matcher, TenantId};
use chronolith_tsdb::MemoryPart;
use hashlink::LruCache;
use parking_lot::Mutex;

/// Names of all tenants.
pub const NAME_COUNT_MAX: usize = 10_000;
/// Memory of all names.
pub const BYTES_MAX: u64 = 4 << 20;
/// Bytes of a name; queries of longer ones are not counted.
const NAME_BYTES_MAX: usize = 512;
/// Names that one query counts at most.
const NAMES_PER_QUERY_MAX: usize = 64;
/// Between tenant and name in a key; no id of a tenant has it.
const SEPARATOR: char = '\0';
/// Memory of an entry without its text: key and value with the links of the cache, a slot of its table at its
/// lowest load, and the header of two allocations.
const ENTRY_BYTES: u64 = (size_of::<(Box<str>, NameUsage)>() + 2 * size_of::<usize>() + 18 + 32) as u64;

/// Queries of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameUsage {
    /// Queries that selected the metric.
    pub query_count: u64,
    /// Clock at the last of them.
    pub last_ms: i64,
}

struct Names {
    /// By tenant, [`SEPARATOR`] and name.
    cache: LruCache<Box<str>, NameUsage, FixedState>,
    /// Buffer for the key that is looked up.
    key: String,
    bytes: u64,
    evicted_count: u64,
}

/// Names that queries selected.
pub struct MetricUsage(Mutex<Names>);

impl Default for MetricUsage {
    fn default() -> MetricUsage {
        let cache = LruCache::with_hasher(usize::MAX, FixedState::default());
        MetricUsage(Mutex::new(Names { cache, key: String::new(), bytes: 0, evicted_count: 0 }))
    }
}

/// Names that matchers select: of an equality, or of a regex that is a set of texts.
pub fn selected_names(matchers: &[Matcher]) -> impl Iterator<Item = &str> {
    matchers.iter().filter(|matcher| *matcher.name == *METRIC_NAME).flat_map(|matcher| {
        let equal = (matcher.op == MatchOp::Equal).then_some(&*matcher.value);
        let set = (matcher.op == MatchOp::Regex).then(|| matcher.regex()?.set_matches()).flatten();
        equal.into_iter().chain(set.into_iter().flatten().map(String::as_str))
    })
}

impl MetricUsage {
    /// Counts a query of each of `names`, of which each counts once.
    pub fn record<'a>(&self, tenant: &TenantId, names: impl Iterator<Item = &'a str>, now_ms: i64) {
        let is_counted = |name: &&str| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        let mut of_query: Vec<&str> = names.filter(is_counted).take(NAMES_PER_QUERY_MAX).collect();
        if of_query.is_empty() {
            return;
        }
        of_query.sort_unstable();
        of_query.dedup();
        let mut all = self.0.lock();
        for name in of_query {
            all.record(tenant, name, now_ms);
        }
    }

    /// Returns the names of `tenant` with their usage.
    pub fn of_tenant(&self, tenant: &TenantId) -> HashMap<Box<str>, NameUsage> {
        let names = self.0.lock();
        let of_tenant = names.cache.iter().filter_map(|(key, usage)| {
            let (of, name) = key.split_once(SEPARATOR)?;
            (of == tenant.as_str()).then(|| (name.into(), *usage))
        });
        of_tenant.collect()
    }

    /// Bytes of all names, and their number.
    pub fn memory(&self) -> MemoryPart {
        let names = self.0.lock();
        MemoryPart::new("metric_usage", names.bytes, names.cache.len() as u64)
    }

    /// Names that left for others.
    pub fn evicted_count(&self) -> u64 {
        self.0.lock().evicted_count
    }
}

impl Names {
    fn record(&mut self, tenant: &TenantId, name: &str, now_ms: i64) {
        self.key.clear();
        self.key.push_str(tenant.as_str());
        self.key.push(SEPARATOR);
        self.key.push_str(name);
        if let Some(usage) = self.cache.get_mut(self.key.as_str()) {
            usage.query_count += 1;
            usage.last_ms = now_ms;
            return;
        }
        let bytes = entry_bytes(&self.key);
        while self.cache.len() >= NAME_COUNT_MAX || self.bytes + bytes > BYTES_MAX {
            let Some((key, _)) = self.cache.remove_lru() else { break };
            self.bytes -= entry_bytes(&key);
            self.evicted_count += 1;
        }
        self.bytes += bytes;
        self.cache.insert(self.key.as_str().into(), NameUsage { query_count: 1, last_ms: now_ms });
    }
}

fn entry_bytes(key: &str) -> u64 {
    ENTRY_BYTES + key.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(usage: &MetricUsage, tenant: &TenantId) -> Vec<(String, u64, i64)> {
        let mut all: Vec<_> = usage
            .of_tenant(tenant)
            .into_iter()
            .map(|(name, usage)| (name.into_string(), usage.query_count, usage.last_ms))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn each_name_of_a_query_counts_once() {
        let usage = MetricUsage::default();
        let (a, b) = (TenantId::new("a").expect("valid"), TenantId::new("b").expect("valid"));
        usage.record(&a, ["up", "up", "", "x"].into_iter(), 5);
        usage.record(&a, ["up"].into_iter(), 7);
        usage.record(&b, ["up", &"y".repeat(NAME_BYTES_MAX + 1)].into_iter(), 6);
        assert_eq!(counts(&usage, &a), [("up".to_owned(), 2, 7), ("x".to_owned(), 1, 5)]);
        assert_eq!(counts(&usage, &b), [("up".to_owned(), 1, 6)]);
    }

    #[test]
    fn equalities_and_sets_name_metrics() {
        let names = |name: &str, op, value: &str| -> Vec<String> {
            let matcher = Matcher::new(name, op, value).expect("valid");
            selected_names(&[matcher]).map(str::to_owned).collect()
        };
        assert_eq!(names(METRIC_NAME, MatchOp::Equal, "up"), ["up"]);
        assert_eq!(names(METRIC_NAME, MatchOp::Regex, "up|down"), ["down", "up"]);
        assert_eq!(names(METRIC_NAME, MatchOp::Regex, "u.*"), [""; 0]);
        assert_eq!(names(METRIC_NAME, MatchOp::NotEqual, "up"), [""; 0]);
        assert_eq!(names("job", MatchOp::Equal, "up"), [""; 0]);
    }

    /// Compares with a list in order of use.
    #[test]
    fn the_least_recently_used_name_leaves() {
        let usage = MetricUsage::default();
        let tenant = TenantId::anonymous();
        let rng = chronolith_base::Rng::from_seed(1);
        let mut model: Vec<u64> = Vec::new();
        for step in 0..60_000 {
            let number = rng.below(NAME_COUNT_MAX as u64 * 2);
            usage.record(&tenant, [format!("m{number}").as_str()].into_iter(), step);
            if step % 5_000 == 0 {
                model.clear();
            }
            model.retain(|other| *other != number);
            model.push(number);
        }
        let found = usage.of_tenant(&tenant);
        assert_eq!(found.len(), NAME_COUNT_MAX);
        for number in &model {
            assert!(found.contains_key(format!("m{number}").as_str()), "m{number} was used recently");
        }
        assert!(usage.evicted_count() > 0);
        let names = usage.0.lock();
        assert!(names.cache.iter().is_sorted_by_key(|(_, usage)| usage.last_ms), "in order of use");
        assert_eq!(names.bytes, names.cache.iter().map(|(key, _)| entry_bytes(key)).sum::<u64>());
    }
}
