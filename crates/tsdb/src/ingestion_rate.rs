//! Rate limits per tenant, in samples and in bytes per second: token buckets.
//!
//! Invariants: a request takes all its tokens of both rates or none; a request that is refused for another
//! reason returns them. A full bucket equals no bucket and is dropped, so there are as many as tenants that
//! wrote within the time of a burst.
//! Not here: the settings (`model::TenantLimits`), answers (`server`).

use chronolith_base::hash::HashMap;
use chronolith_head::WriteError;
use chronolith_model::{StoreId, TenantLimits, WriteBatch};
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

/// Size of a request, in the units of both rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSize {
    samples: u64,
    bytes: u64,
}

impl RequestSize {
    /// Returns the size of a batch: its samples, and the bytes of its keys and texts.
    #[must_use]
    pub fn of(batch: &WriteBatch) -> RequestSize {
        RequestSize { samples: batch.sample_count() as u64, bytes: batch.raw.len() as u64 }
    }
}

/// A rate and its burst; a rate of 0 is no limit.
#[derive(Debug, Clone, Copy)]
struct Rate {
    per_second: u64,
    burst: u64,
}

impl Rate {
    fn of_samples(limits: &TenantLimits) -> Rate {
        Rate::new(limits.ingestion.rate, limits.ingestion.burst)
    }

    fn of_bytes(limits: &TenantLimits) -> Rate {
        Rate::new(limits.ingestion.bytes_rate, limits.ingestion.bytes_burst)
    }

    fn new(per_second: u64, burst: u64) -> Rate {
        let burst = if burst == 0 { per_second.saturating_mul(BURST_SECONDS) } else { burst };
        Rate { per_second, burst }
    }
}

/// Reason why a bucket gives no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// The bucket never holds as many.
    NeverFits,
    /// The bucket has too few for now.
    Wait { used: u64, retry_after_ms: u64 },
}

/// Buckets of one rate of all tenants with a limit.
#[derive(Default)]
struct TokenBuckets(Mutex<Buckets>);

/// Buckets of samples and of bytes.
#[derive(Default)]
pub struct IngestionRates {
    samples: TokenBuckets,
    bytes: TokenBuckets,
}

impl IngestionRates {
    /// Takes the tokens of a request of `store`.
    ///
    /// # Errors
    /// [`WriteError::BurstExceeded`] or [`WriteError::BytesBurstExceeded`] if the bucket never holds as many
    /// tokens, [`WriteError::RateLimited`] or [`WriteError::BytesRateLimited`] if it has too few for now.
    pub fn take(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        size: RequestSize,
        now_ns: u64,
    ) -> Result<(), WriteError> {
        let Rate { per_second: rate, burst } = Rate::of_samples(limits);
        let taken = self.samples.take(store, Rate { per_second: rate, burst }, size.samples, now_ns);
        taken.map_err(|refused| match refused {
            Refused::NeverFits => WriteError::BurstExceeded { sample_count: size.samples, burst },
            Refused::Wait { used, retry_after_ms } => {
                WriteError::RateLimited { rate, burst, used, sample_count: size.samples, retry_after_ms }
            }
        })?;
        let Rate { per_second: rate, burst } = Rate::of_bytes(limits);
        let taken = self.bytes.take(store, Rate { per_second: rate, burst }, size.bytes, now_ns);
        taken.map_err(|refused| {
            self.samples.give_back(store, Rate::of_samples(limits), size.samples);
            match refused {
                Refused::NeverFits => WriteError::BytesBurstExceeded { byte_count: size.bytes, burst },
                Refused::Wait { used, retry_after_ms } => {
                    WriteError::BytesRateLimited { rate, burst, used, byte_count: size.bytes, retry_after_ms }
                }
            }
        })
    }

    /// Returns the tokens of a request that was refused for another reason.
    pub fn give_back(&self, store: &StoreId, limits: &TenantLimits, size: RequestSize) {
        self.samples.give_back(store, Rate::of_samples(limits), size.samples);
        self.bytes.give_back(store, Rate::of_bytes(limits), size.bytes);
    }

    /// Returns the tokens of samples that are taken at the moment; `None` without a limit.
    pub(crate) fn burst_use(&self, store: &StoreId, limits: &TenantLimits, now_ns: u64) -> Option<BurstUse> {
        self.samples.burst_use(store, Rate::of_samples(limits), now_ns)
    }

    /// Returns the tokens of bytes that are taken at the moment; `None` without a limit.
    pub(crate) fn bytes_burst_use(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        now_ns: u64,
    ) -> Option<BurstUse> {
        self.bytes.burst_use(store, Rate::of_bytes(limits), now_ns)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.samples.0.lock().by_tenant.len()
    }
}

impl TokenBuckets {
    fn take(&self, store: &StoreId, rate: Rate, token_count: u64, now_ns: u64) -> Result<(), Refused> {
        if rate.per_second == 0 || token_count == 0 {
            return Ok(());
        }
        if token_count > rate.burst {
            return Err(Refused::NeverFits);
        }
        let burst = rate.burst as f64;
        let mut buckets = self.0.lock();
        buckets.drop_full(now_ns);
        let fresh = Bucket { tokens: burst, filled_ns: now_ns, full_ns: now_ns };
        let bucket = buckets.by_tenant.entry(store.clone()).or_insert(fresh);
        let filled = now_ns.saturating_sub(bucket.filled_ns) as f64 / 1e9 * rate.per_second as f64;
        bucket.tokens = (bucket.tokens + filled).min(burst);
        bucket.filled_ns = bucket.filled_ns.max(now_ns);
        let missing = token_count as f64 - bucket.tokens;
        if missing > 0.0 {
            let retry_after_ms = (missing / rate.per_second as f64 * 1000.0).ceil() as u64;
            return Err(Refused::Wait { used: (burst - bucket.tokens) as u64, retry_after_ms });
        }
        bucket.take(token_count as f64, rate);
        Ok(())
    }

    fn give_back(&self, store: &StoreId, rate: Rate, token_count: u64) {
        if let Some(bucket) = self.0.lock().by_tenant.get_mut(store) {
            bucket.take(-(token_count as f64), rate);
        }
    }

    fn burst_use(&self, store: &StoreId, rate: Rate, now_ns: u64) -> Option<BurstUse> {
        if rate.per_second == 0 {
            return None;
        }
        let burst = rate.burst as f64;
        let buckets = self.0.lock();
        let used = buckets.by_tenant.get(store).map_or(0.0, |bucket| {
            let filled = now_ns.saturating_sub(bucket.filled_ns) as f64 / 1e9 * rate.per_second as f64;
            burst - (bucket.tokens + filled).min(burst)
        });
        Some(BurstUse { used: used as u64, limit: rate.burst })
    }
}

impl Bucket {
    fn take(&mut self, tokens: f64, rate: Rate) {
        self.tokens = (self.tokens - tokens).min(rate.burst as f64);
        let fill_ns = (rate.burst as f64 - self.tokens) / rate.per_second.max(1) as f64 * 1e9;
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

#[cfg(test)]
mod tests {
    use chronolith_model::{IngestionLimits, StoreId, TenantId};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn limits(ingestion_rate: u64, ingestion_burst: u64) -> TenantLimits {
        let ingestion =
            IngestionLimits { rate: ingestion_rate, burst: ingestion_burst, ..IngestionLimits::default() };
        TenantLimits { ingestion, ..TenantLimits::default() }
    }

    fn samples(samples: u64) -> RequestSize {
        RequestSize { samples, bytes: 0 }
    }

    /// A request that is refused for its bytes takes no samples.
    #[test]
    fn bytes_have_a_rate_of_their_own() {
        let (rates, tenant) = (IngestionRates::default(), StoreId::anonymous());
        let ingestion =
            IngestionLimits { rate: 100, burst: 100, bytes_rate: 1000, ..IngestionLimits::default() };
        let limits = TenantLimits { ingestion, ..TenantLimits::default() };
        let take =
            |samples, bytes, now_ns| rates.take(&tenant, &limits, RequestSize { samples, bytes }, now_ns);
        let never = WriteError::BytesBurstExceeded { byte_count: 10_001, burst: 10_000 };
        assert_eq!(take(50, 10_001, 0), Err(never));
        take(50, 10_000, 0).unwrap();
        let refused = WriteError::BytesRateLimited {
            rate: 1000,
            burst: 10_000,
            used: 10_000,
            byte_count: 500,
            retry_after_ms: 500,
        };
        assert_eq!(take(50, 500, 0), Err(refused));
        take(50, 0, 0).unwrap();
        take(1, 500, SECOND_NS / 2).unwrap();
        let used = |used| Some(BurstUse { used, limit: 10_000 });
        assert_eq!(rates.bytes_burst_use(&tenant, &limits, SECOND_NS / 2), used(10_000));
        assert_eq!(rates.bytes_burst_use(&tenant, &limits, 2 * SECOND_NS), used(8500));
    }

    #[test]
    fn a_bucket_takes_a_burst_and_then_the_rate() {
        let (rates, tenant, limits) = (IngestionRates::default(), StoreId::anonymous(), limits(100, 500));
        rates.take(&tenant, &limits, samples(500), 0).unwrap();
        let refused = rates.take(&tenant, &limits, samples(50), 0).unwrap_err();
        let limited = WriteError::RateLimited {
            rate: 100,
            burst: 500,
            used: 500,
            sample_count: 50,
            retry_after_ms: 500,
        };
        assert_eq!(refused, limited);
        rates.take(&tenant, &limits, samples(50), SECOND_NS / 2).unwrap();
        rates.take(&tenant, &limits, samples(1), SECOND_NS / 2).unwrap_err();
        rates.take(&tenant, &limits, samples(500), 100 * SECOND_NS).unwrap();
        rates.take(&tenant, &limits, samples(101), 101 * SECOND_NS).unwrap_err();
        rates.take(&tenant, &limits, samples(100), 101 * SECOND_NS).unwrap();
    }

    #[test]
    fn more_than_a_burst_never_fits_and_takes_nothing() {
        let (rates, tenant, limits) = (IngestionRates::default(), StoreId::anonymous(), limits(100, 0));
        let refused = rates.take(&tenant, &limits, samples(1001), 0).unwrap_err();
        assert_eq!(refused, WriteError::BurstExceeded { sample_count: 1001, burst: 1000 });
        rates.take(&tenant, &limits, samples(1000), 0).unwrap();
    }

    #[test]
    fn tokens_are_returned_and_tenants_have_their_own() {
        let (rates, limits) = (IngestionRates::default(), limits(100, 100));
        let (a, b) = (StoreId::from(TenantId::new("a").unwrap()), StoreId::from(TenantId::new("b").unwrap()));
        rates.take(&a, &limits, samples(100), 0).unwrap();
        rates.take(&b, &limits, samples(100), 0).unwrap();
        rates.take(&a, &limits, samples(1), 0).unwrap_err();
        rates.give_back(&a, &limits, samples(100));
        rates.take(&a, &limits, samples(100), 0).unwrap();
    }

    #[test]
    fn full_buckets_are_dropped() {
        let (rates, limits) = (IngestionRates::default(), limits(100, 100));
        for idx in 0..100_000u64 {
            let tenant = StoreId::from(TenantId::new(&format!("t{idx}")).unwrap());
            rates.take(&tenant, &limits, samples(1), idx * SECOND_NS / 1000).unwrap();
        }
        assert!(rates.len() <= 2 * BUCKET_COUNT_MIN, "{} buckets", rates.len());
    }
}
