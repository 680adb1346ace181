//! Counters by tenant: samples accepted, samples rejected by reason, queries.
//! Invariants: at most `shown_max` tenants have counters of their own, first come, first served; all others
//! count under [`OVERFLOW`]. A tenant idle for [`IDLE_MS`] gives way to another when all are taken; its
//! counters start at 0 again.
//! Not here: series by tenant, which the store knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_model::{Reject, StoreId, TenantId, WriteOutcome};
use chronolith_tsdb::store_name;
use parking_lot::RwLock;

use super::definition::Metric;
use crate::counter::Counter;

/// Label value of all tenants without counters of their own, as in Mimir's cost attribution; no tenant has
/// this id, because ids do not start with `__`.
pub const OVERFLOW: &str = "__overflow__";
/// A tenant without a write and a query for this long gives way.
const IDLE_MS: i64 = 3_600_000;
/// With all places taken, idle tenants are looked for this often.
const LOOK_EVERY_MS: i64 = 10_000;

/// Counters of one tenant.
#[derive(Default)]
pub struct TenantStat {
    /// Samples stored.
    pub accepted: Counter,
    /// Stored samples that were folded into overflow series.
    pub folded: Counter,
    /// Samples refused, by reason.
    pub rejected: [Counter; Reject::COUNT],
    /// Queries.
    pub queries: Counter,
    used_ms: AtomicI64,
    /// Time of the last check of its limits.
    limits_checked_ms: AtomicI64,
}

/// Declarations.
pub static TENANTS: &[Metric<TenantMetrics>] = &[
    Metric::counters(
        "chronolith_tenant_samples_accepted_total",
        &["tenant"],
        "Samples stored by tenant, repeats included.",
        |tenants, samples| {
            for (tenant, stat) in tenants.list() {
                samples.push(&[&tenant], stat.accepted.as_f64());
            }
        },
    ),
    Metric::counters(
        "chronolith_overflow_samples_total",
        &["tenant"],
        "Samples folded into overflow series by tenant, repeats included; the accepted samples have them too.",
        |tenants, samples| {
            for (tenant, stat) in tenants.list() {
                samples.push(&[&tenant], stat.folded.as_f64());
            }
        },
    ),
    Metric::counters(
        "chronolith_tenant_samples_rejected_total",
        &["tenant", "reason"],
        "Samples refused by tenant and reason.",
        |tenants, samples| {
            for (tenant, stat) in tenants.list() {
                // Reasons that never occurred are left out: there are many for each tenant.
                let kinds = Reject::ALL.iter().zip(&stat.rejected).filter(|(_, count)| count.get() > 0);
                kinds.for_each(|(kind, count)| samples.push(&[&tenant, kind.reason()], count.as_f64()));
            }
        },
    ),
    Metric::counters(
        "chronolith_tenant_queries_total",
        &["tenant"],
        "Instant and range queries by tenant.",
        |tenants, samples| {
            for (tenant, stat) in tenants.list() {
                samples.push(&[&tenant], stat.queries.as_f64());
            }
        },
    ),
];

impl TenantStat {
    /// Returns true once per `every_ms`.
    pub(crate) fn is_limit_check_due(&self, now_ms: i64, every_ms: i64) -> bool {
        let checked_ms = self.limits_checked_ms.load(Ordering::Relaxed);
        // A clock that was set back must not make it wait for long.
        let is_due = !(checked_ms..checked_ms.saturating_add(every_ms)).contains(&now_ms);
        // One of several threads checks.
        is_due && self.limits_checked_ms.swap(now_ms, Ordering::Relaxed) != now_ms
    }

    /// Counts a write.
    pub fn count(&self, outcome: &WriteOutcome) {
        self.accepted.add(outcome.accepted_count);
        self.folded.add(outcome.overflow.sample_count);
        for (counter, count) in self.rejected.iter().zip(outcome.rejected) {
            counter.add(count);
        }
    }
}

/// Counters of the shown tenants, and one set for all others.
pub struct TenantMetrics {
    shown_max: usize,
    by_id: RwLock<HashMap<TenantId, Arc<TenantStat>>>,
    overflow: Arc<TenantStat>,
    looked_ms: AtomicI64,
}

impl TenantMetrics {
    /// Counters of at most `shown_max` tenants.
    pub fn new(shown_max: usize) -> TenantMetrics {
        let looked_ms = AtomicI64::new(i64::MIN);
        TenantMetrics { shown_max, by_id: RwLock::default(), overflow: Arc::default(), looked_ms }
    }

    /// Counters of a tenant that writes or asks at `now_ms`.
    pub fn of(&self, tenant: &TenantId, now_ms: i64) -> Arc<TenantStat> {
        let by_id = self.by_id.read();
        let known = by_id.get(tenant).cloned();
        let is_full = by_id.len() >= self.shown_max;
        drop(by_id);
        let stat = match known {
            Some(stat) => stat,
            None if is_full && !self.is_time_to_look(now_ms) => return self.overflow.clone(),
            None => self.admit(tenant, now_ms),
        };
        stat.used_ms.store(now_ms, Ordering::Relaxed);
        stat
    }

    fn is_time_to_look(&self, now_ms: i64) -> bool {
        let looked_ms = self.looked_ms.load(Ordering::Relaxed);
        // A clock that was set back must not make it wait for long.
        let is_time = !(looked_ms..looked_ms.saturating_add(LOOK_EVERY_MS)).contains(&now_ms);
        if is_time {
            self.looked_ms.store(now_ms, Ordering::Relaxed);
        }
        is_time
    }

    #[cold]
    fn admit(&self, tenant: &TenantId, now_ms: i64) -> Arc<TenantStat> {
        let mut by_id = self.by_id.write();
        if by_id.len() >= self.shown_max {
            let oldest_ms = now_ms.saturating_sub(IDLE_MS);
            by_id.retain(|_, stat| stat.used_ms.load(Ordering::Relaxed) >= oldest_ms);
        }
        if by_id.len() >= self.shown_max && !by_id.contains_key(tenant) {
            return self.overflow.clone();
        }
        by_id.entry(tenant.clone()).or_default().clone()
    }

    /// Tenants with counters of their own, by id, then the sum of the others if there are others.
    pub fn list(&self) -> Vec<(String, Arc<TenantStat>)> {
        let by_id = self.by_id.read();
        let mut list: Vec<_> =
            by_id.iter().map(|(id, stat)| (id.as_str().to_owned(), stat.clone())).collect();
        drop(by_id);
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list.push((OVERFLOW.to_owned(), self.overflow.clone()));
        list
    }

    /// Values as metrics show them: at most `shown_max` tenants by id, then the sum of the rest. Tenants with
    /// counters of their own come before the others, then higher values before lower ones.
    pub fn split(&self, mut values: Vec<(StoreId, u64)>) -> Vec<(String, u64)> {
        let by_id = self.by_id.read();
        values.sort_by(|a, b| {
            let has_counters = |id: &StoreId| id.tenant().is_some_and(|tenant| by_id.contains_key(tenant));
            let key = |(id, value): &(StoreId, u64)| (!has_counters(id), u64::MAX - *value);
            key(a).cmp(&key(b)).then_with(|| a.0.cmp(&b.0))
        });
        drop(by_id);
        let rest = values.split_off(values.len().min(self.shown_max));
        let mut shown: Vec<_> =
            values.into_iter().map(|(id, value)| (store_name(&id).into_owned(), value)).collect();
        shown.sort();
        if !rest.is_empty() {
            shown.push((OVERFLOW.to_owned(), rest.iter().map(|(_, value)| value).sum()));
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> TenantId {
        TenantId::new(name).expect("valid")
    }

    #[test]
    fn tenants_beyond_the_limit_count_together() {
        let metrics = TenantMetrics::new(2);
        for (name, now_ms) in [("a", 0), ("b", 1), ("c", 2), ("d", 3), ("a", 4)] {
            metrics.of(&id(name), now_ms).queries.add(1);
        }
        let counts: Vec<_> = metrics.list().into_iter().map(|(id, stat)| (id, stat.queries.get())).collect();
        assert_eq!(counts, [("a".to_owned(), 2), ("b".to_owned(), 1), (OVERFLOW.to_owned(), 2)]);
        let series =
            metrics.split(["a", "c", "d"].map(|name| id(name).into()).into_iter().zip([1, 9, 5]).collect());
        assert_eq!(series, [("a".to_owned(), 1), ("c".to_owned(), 9), (OVERFLOW.to_owned(), 5)]);
    }

    #[test]
    fn an_idle_tenant_gives_way() {
        let metrics = TenantMetrics::new(1);
        metrics.of(&id("a"), 0).queries.add(1);
        metrics.of(&id("b"), IDLE_MS).queries.add(1);
        metrics.of(&id("c"), 2 * IDLE_MS).queries.add(1);
        let shown: Vec<_> = metrics.list().into_iter().map(|(id, stat)| (id, stat.queries.get())).collect();
        assert_eq!(shown, [("c".to_owned(), 1), (OVERFLOW.to_owned(), 1)]);
    }
}
