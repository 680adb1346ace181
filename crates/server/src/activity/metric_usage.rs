//! Metrics that queries select: how often, and when last, by tenant and name.
//!
//! Invariants: at most [`NAME_COUNT_MAX`] names of all tenants and [`BYTES_MAX`] bytes; the least recently
//! used names leave, and are counted. Counts are since the start of the process, or since the name came back.
//! Not here: which metrics there are (`tsdb`).

use std::hash::BuildHasher as _;

use chronolith_base::hash::{Entry, FixedState, HashMap, HashTable};
use chronolith_model::{METRIC_NAME, MatchOp, Matcher, TenantId};
use chronolith_tsdb::MemoryPart;
use parking_lot::Mutex;

use super::entry::tenant_bytes;

/// Names of all tenants.
pub(crate) const NAME_COUNT_MAX: usize = 10_000;
/// Memory of all names.
pub(super) const BYTES_MAX: u64 = 4 << 20;
/// Bytes of a name; queries of longer ones are not counted.
const NAME_BYTES_MAX: usize = 512;
/// Names that one query counts at most.
const NAMES_PER_QUERY_MAX: usize = 64;
/// Position of no node.
const NONE: u32 = u32::MAX;
/// Bytes of a slot of the table with its control byte, at its lowest load.
const SLOT_BYTES: u64 = 10;

/// Queries of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameUsage {
    pub(crate) query_count: u64,
    pub(crate) last_ms: i64,
}

/// Node of the list of names, in order of their last use.
struct Node {
    tenant: TenantId,
    name: Box<str>,
    usage: NameUsage,
    /// The node that was used next before and after this one.
    older: u32,
    newer: u32,
}

impl Node {
    /// Memory of the node; the vector of nodes may have room for as many more.
    fn bytes(&self) -> u64 {
        2 * size_of::<Node>() as u64 + SLOT_BYTES + self.name.len() as u64 + tenant_bytes(&self.tenant)
    }
}

struct Names {
    nodes: Vec<Node>,
    table: HashTable<u32>,
    oldest: u32,
    newest: u32,
    bytes: u64,
    evicted_count: u64,
}

/// Names that queries selected.
pub(crate) struct MetricUsage {
    names: Mutex<Names>,
    hasher: FixedState,
}

impl Default for MetricUsage {
    fn default() -> MetricUsage {
        let names = Names {
            nodes: Vec::new(),
            table: HashTable::new(),
            oldest: NONE,
            newest: NONE,
            bytes: 0,
            evicted_count: 0,
        };
        MetricUsage { names: Mutex::new(names), hasher: FixedState::default() }
    }
}

/// Names that matchers select: of an equality, or of a regex that is a set of texts.
pub(crate) fn selected_names(matchers: &[Matcher]) -> impl Iterator<Item = &str> {
    matchers.iter().filter(|matcher| *matcher.name == *METRIC_NAME).flat_map(|matcher| {
        let equal = (matcher.op == MatchOp::Equal).then_some(&*matcher.value);
        let set = (matcher.op == MatchOp::Regex).then(|| matcher.regex()?.set_matches()).flatten();
        equal.into_iter().chain(set.into_iter().flatten().map(String::as_str))
    })
}

impl MetricUsage {
    /// Counts a query of each of `names`, of which each counts once.
    pub(crate) fn record<'a>(&self, tenant: &TenantId, names: impl Iterator<Item = &'a str>, now_ms: i64) {
        let is_counted = |name: &&str| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        let mut of_query: Vec<&str> = names.filter(is_counted).take(NAMES_PER_QUERY_MAX).collect();
        if of_query.is_empty() {
            return;
        }
        of_query.sort_unstable();
        of_query.dedup();
        let mut all = self.names.lock();
        for name in of_query {
            all.record(&self.hasher, tenant, name, now_ms);
        }
    }

    /// Returns the names of `tenant` with their usage.
    pub(crate) fn of_tenant(&self, tenant: &TenantId) -> HashMap<Box<str>, NameUsage> {
        let names = self.names.lock();
        let of_tenant = names.nodes.iter().filter(|node| node.tenant == *tenant);
        of_tenant.map(|node| (node.name.clone(), node.usage)).collect()
    }

    /// Bytes of all names, and their number.
    pub(crate) fn memory(&self) -> MemoryPart {
        let names = self.names.lock();
        MemoryPart::new("metric_usage", names.bytes, names.nodes.len() as u64)
    }

    /// Names that left for others.
    pub(crate) fn evicted_count(&self) -> u64 {
        self.names.lock().evicted_count
    }
}

fn hash_of(hasher: &FixedState, tenant: &TenantId, name: &str) -> u64 {
    hasher.hash_one((tenant.as_str(), name))
}

impl Names {
    fn record(&mut self, hasher: &FixedState, tenant: &TenantId, name: &str, now_ms: i64) {
        let hash = hash_of(hasher, tenant, name);
        let nodes = &self.nodes;
        let is_it = |idx: &u32| {
            let node = &nodes[*idx as usize];
            *node.name == *name && node.tenant == *tenant
        };
        if let Some(&idx) = self.table.find(hash, is_it) {
            let usage = &mut self.nodes[idx as usize].usage;
            usage.query_count += 1;
            usage.last_ms = now_ms;
            self.unlink(idx);
            self.link_newest(idx);
            return;
        }
        let usage = NameUsage { query_count: 1, last_ms: now_ms };
        let node = Node { tenant: tenant.clone(), name: name.into(), usage, older: NONE, newer: NONE };
        let bytes = node.bytes();
        while self.nodes.len() >= NAME_COUNT_MAX || self.bytes + bytes > BYTES_MAX {
            self.evict_oldest(hasher);
        }
        self.bytes += bytes;
        let idx = self.nodes.len() as u32;
        self.nodes.push(node);
        let nodes = &self.nodes;
        self.table.insert_unique(hash, idx, |&idx| {
            let node = &nodes[idx as usize];
            hash_of(hasher, &node.tenant, &node.name)
        });
        self.link_newest(idx);
    }

    /// Removes the name that was used least recently. The last node takes its position.
    fn evict_oldest(&mut self, hasher: &FixedState) {
        let idx = self.oldest;
        self.unlink(idx);
        self.forget(hasher, idx);
        let last = (self.nodes.len() - 1) as u32;
        if idx != last {
            self.forget(hasher, last);
        }
        let gone = self.nodes.swap_remove(idx as usize);
        self.bytes -= gone.bytes();
        self.evicted_count += 1;
        if idx == last {
            return;
        }
        let moved = &self.nodes[idx as usize];
        let hash = hash_of(hasher, &moved.tenant, &moved.name);
        for (neighbour, is_older) in [(moved.older, true), (moved.newer, false)] {
            match (neighbour, is_older) {
                (NONE, true) => self.oldest = idx,
                (NONE, false) => self.newest = idx,
                (at, true) => self.nodes[at as usize].newer = idx,
                (at, false) => self.nodes[at as usize].older = idx,
            }
        }
        let nodes = &self.nodes;
        self.table.insert_unique(hash, idx, |&idx| {
            let node = &nodes[idx as usize];
            hash_of(hasher, &node.tenant, &node.name)
        });
    }

    /// Removes a node from the table.
    fn forget(&mut self, hasher: &FixedState, idx: u32) {
        let node = &self.nodes[idx as usize];
        let hash = hash_of(hasher, &node.tenant, &node.name);
        let nodes = &self.nodes;
        let rehash = |&idx: &u32| {
            let node = &nodes[idx as usize];
            hash_of(hasher, &node.tenant, &node.name)
        };
        if let Entry::Occupied(found) = self.table.entry(hash, |other| *other == idx, rehash) {
            found.remove();
        }
    }

    fn unlink(&mut self, idx: u32) {
        let Node { older, newer, .. } = self.nodes[idx as usize];
        match older {
            NONE => self.oldest = newer,
            at => self.nodes[at as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            at => self.nodes[at as usize].older = older,
        }
    }

    fn link_newest(&mut self, idx: u32) {
        let before = std::mem::replace(&mut self.newest, idx);
        let node = &mut self.nodes[idx as usize];
        node.older = before;
        node.newer = NONE;
        match before {
            NONE => self.oldest = idx,
            at => self.nodes[at as usize].newer = idx,
        }
    }
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
        let names = usage.names.lock();
        let mut at = names.oldest;
        let mut last_ms = i64::MIN;
        let mut len = 0;
        while at != NONE {
            let node = &names.nodes[at as usize];
            assert!(node.usage.last_ms > last_ms, "in order of use");
            last_ms = node.usage.last_ms;
            at = node.newer;
            len += 1;
        }
        assert_eq!((len, names.table.len()), (NAME_COUNT_MAX, NAME_COUNT_MAX));
        assert_eq!(names.bytes, names.nodes.iter().map(Node::bytes).sum::<u64>());
    }
}
