//! Rate limit per tenant, in samples per second: token buckets.
//!
//! Invariants: a request takes all its tokens or none; a request that is refused for another reason returns
//! them. A full bucket equals no bucket and is dropped, so there are as many as tenants that wrote within the
//! time of a burst.
//! Not here: the settings (`model::TenantLimits`), answers (`server`).

use chronolith_base::hash::HashMap;
use chronolith_head::WriteError;
use chronolith_model::{StoreId, TenantLimits};
use parking_lot::Mutex;

/// Default burst: the samples of this many seconds at the tenant's rate.
const BURST_SECONDS: u64 = 10;
/// Number of buckets below which full ones are not dropped; above it, they are dropped each time it has
/// doubled.
const BUCKET_COUNT_MIN: usize = 1024;

struct Bucket {
    tokens: f64,
    filled_ns: u64,
    /// Time at which it is full if no tokens are taken.
    full_ns: u64,
}

/// Tokens of a burst that are taken, and all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BurstUse {
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

#[derive(Default)]
struct Buckets {
    by_tenant: HashMap<StoreId, Bucket>,
    sweep_at: usize,
}

/// Buckets of all tenants with a limit.
#[derive(Default)]
pub(crate) struct IngestionRates(Mutex<Buckets>);

impl IngestionRates {
    /// Takes `sample_count` tokens of `store`.
    ///
    /// # Errors
    /// [`WriteError::BurstExceeded`] if the bucket never holds as many tokens, [`WriteError::RateLimited`] if
    /// it has too few at the moment.
    pub(crate) fn take(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        sample_count: u64,
        now_ns: u64,
    ) -> Result<(), WriteError> {
        let rate = limits.ingestion.rate;
        if rate == 0 || sample_count == 0 {
            return Ok(());
        }
        let burst = burst_of(limits);
        if sample_count > burst {
            return Err(WriteError::BurstExceeded { sample_count, burst });
        }
        let mut buckets = self.0.lock();
        buckets.drop_full(now_ns);
        let fresh = Bucket { tokens: burst as f64, filled_ns: now_ns, full_ns: now_ns };
        let bucket = buckets.by_tenant.entry(store.clone()).or_insert(fresh);
        let filled = now_ns.saturating_sub(bucket.filled_ns) as f64 / 1e9 * rate as f64;
        bucket.tokens = (bucket.tokens + filled).min(burst as f64);
        bucket.filled_ns = bucket.filled_ns.max(now_ns);
        let missing = sample_count as f64 - bucket.tokens;
        if missing > 0.0 {
            let retry_after_ms = (missing / rate as f64 * 1000.0).ceil() as u64;
            return Err(WriteError::RateLimited { rate, burst, retry_after_ms });
        }
        bucket.take(sample_count as f64, rate, burst);
        Ok(())
    }

    /// Returns the tokens of a request that was refused for another reason.
    pub(crate) fn give_back(&self, store: &StoreId, limits: &TenantLimits, sample_count: u64) {
        if let Some(bucket) = self.0.lock().by_tenant.get_mut(store) {
            bucket.take(-(sample_count as f64), limits.ingestion.rate, burst_of(limits));
        }
    }

    /// Returns the tokens that are taken at the moment; `None` without a limit.
    pub(crate) fn burst_use(&self, store: &StoreId, limits: &TenantLimits, now_ns: u64) -> Option<BurstUse> {
        let rate = limits.ingestion.rate;
        if rate == 0 {
            return None;
        }
        let limit = burst_of(limits);
        let buckets = self.0.lock();
        let used = buckets.by_tenant.get(store).map_or(0.0, |bucket| {
            let filled = now_ns.saturating_sub(bucket.filled_ns) as f64 / 1e9 * rate as f64;
            limit as f64 - (bucket.tokens + filled).min(limit as f64)
        });
        Some(BurstUse { used: used as u64, limit })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().by_tenant.len()
    }
}

impl Bucket {
    fn take(&mut self, tokens: f64, rate: u64, burst: u64) {
        self.tokens = (self.tokens - tokens).min(burst as f64);
        let fill_ns = (burst as f64 - self.tokens) / rate.max(1) as f64 * 1e9;
        self.full_ns = self.filled_ns.saturating_add(fill_ns as u64);
    }
}

impl Buckets {
    fn drop_full(&mut self, now_ns: u64) {
        if self.by_tenant.len() >= self.sweep_at.max(BUCKET_COUNT_MIN) {
            self.by_tenant.retain(|_, bucket| bucket.full_ns > now_ns);
            self.sweep_at = 2 * self.by_tenant.len();
        }
    }
}

fn burst_of(limits: &TenantLimits) -> u64 {
    match limits.ingestion.burst {
        0 => limits.ingestion.rate.saturating_mul(BURST_SECONDS),
        burst => burst,
    }
}

#[cfg(test)]
mod tests {
    use chronolith_model::{IngestionLimits, StoreId, TenantId};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn limits(ingestion_rate: u64, ingestion_burst: u64) -> TenantLimits {
        let ingestion = IngestionLimits { rate: ingestion_rate, burst: ingestion_burst };
        TenantLimits { ingestion, ..TenantLimits::default() }
    }

    #[test]
    fn a_bucket_takes_a_burst_and_then_the_rate() {
        let (rates, tenant, limits) = (IngestionRates::default(), StoreId::anonymous(), limits(100, 500));
        rates.take(&tenant, &limits, 500, 0).unwrap();
        let refused = rates.take(&tenant, &limits, 50, 0).unwrap_err();
        assert_eq!(refused, WriteError::RateLimited { rate: 100, burst: 500, retry_after_ms: 500 });
        rates.take(&tenant, &limits, 50, SECOND_NS / 2).unwrap();
        rates.take(&tenant, &limits, 1, SECOND_NS / 2).unwrap_err();
        rates.take(&tenant, &limits, 500, 100 * SECOND_NS).unwrap();
        rates.take(&tenant, &limits, 101, 101 * SECOND_NS).unwrap_err();
        rates.take(&tenant, &limits, 100, 101 * SECOND_NS).unwrap();
    }

    #[test]
    fn more_than_a_burst_never_fits_and_takes_nothing() {
        let (rates, tenant, limits) = (IngestionRates::default(), StoreId::anonymous(), limits(100, 0));
        let refused = rates.take(&tenant, &limits, 1001, 0).unwrap_err();
        assert_eq!(refused, WriteError::BurstExceeded { sample_count: 1001, burst: 1000 });
        rates.take(&tenant, &limits, 1000, 0).unwrap();
    }

    #[test]
    fn tokens_are_returned_and_tenants_have_their_own() {
        let (rates, limits) = (IngestionRates::default(), limits(100, 100));
        let (a, b) = (StoreId::from(TenantId::new("a").unwrap()), StoreId::from(TenantId::new("b").unwrap()));
        rates.take(&a, &limits, 100, 0).unwrap();
        rates.take(&b, &limits, 100, 0).unwrap();
        rates.take(&a, &limits, 1, 0).unwrap_err();
        rates.give_back(&a, &limits, 100);
        rates.take(&a, &limits, 100, 0).unwrap();
    }

    #[test]
    fn full_buckets_are_dropped() {
        let (rates, limits) = (IngestionRates::default(), limits(100, 100));
        for idx in 0..100_000u64 {
            let tenant = StoreId::from(TenantId::new(&format!("t{idx}")).unwrap());
            rates.take(&tenant, &limits, 1, idx * SECOND_NS / 1000).unwrap();
        }
        assert!(rates.len() <= 2 * BUCKET_COUNT_MIN, "{} buckets", rates.len());
    }
}
