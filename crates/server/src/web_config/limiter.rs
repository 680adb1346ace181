//! Token bucket of requests, as a generic cell rate algorithm: one time instead of a count of tokens.
//!
//! Invariant: within any time, at most `burst` requests and one more per interval pass.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Token bucket of all requests together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimit {
    interval_ns: u64,
    burst: u32,
}

impl RateLimit {
    /// One request per `interval`, which is more than 0, and `burst` at once; a burst of 0 refuses all.
    pub(super) fn new(interval: Duration, burst: u32) -> RateLimit {
        RateLimit { interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX), burst }
    }
}

/// State of the bucket.
pub(crate) struct Limiter {
    limit: RateLimit,
    /// Time at which the bucket is full again, ns of the monotonic clock.
    full_at_ns: AtomicU64,
}

impl Limiter {
    /// A full bucket.
    pub(super) fn new(limit: RateLimit) -> Limiter {
        Limiter { limit, full_at_ns: AtomicU64::new(0) }
    }

    pub(super) fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Takes a token at `now_ns`. Returns false if there is none.
    pub(crate) fn admit(&self, now_ns: u64) -> bool {
        let RateLimit { interval_ns, burst } = self.limit;
        let depth_ns = interval_ns.saturating_mul(u64::from(burst));
        let take = |full_at_ns: u64| {
            let next = full_at_ns.max(now_ns).saturating_add(interval_ns);
            (next - now_ns <= depth_ns).then_some(next)
        };
        self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let limiter = Limiter::new(RateLimit::new(Duration::from_secs(1), 3));
        let second = 1_000_000_000;
        let start = 10 * second;
        assert_eq!((0..5).filter(|_| limiter.admit(start)).count(), 3);
        assert!(!limiter.admit(start + second - 1));
        assert!(limiter.admit(start + second));
        assert!(!limiter.admit(start + second));
        assert_eq!(
            (0..5).filter(|_| limiter.admit(start + 100 * second)).count(),
            3,
            "no more than the burst"
        );
        let closed = Limiter::new(RateLimit::new(Duration::from_secs(1), 0));
        assert!(!closed.admit(start));
    }
}
