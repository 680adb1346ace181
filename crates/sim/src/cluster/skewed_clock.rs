//! Clock of one machine of a cluster: the time of all, off by a constant.

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock, ManualClock};

/// A clock that is ahead of another one, or after it.
pub(super) struct SkewedClock {
    pub(super) base: Arc<ManualClock>,
    /// Milliseconds ahead, negative for a clock that is slow.
    pub(super) skew_ms: i64,
}

impl Clock for SkewedClock {
    fn now_ms(&self) -> i64 {
        self.base.now_ms() + self.skew_ms
    }

    fn mono_ns(&self) -> u64 {
        self.base.mono_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.base.sleep(duration);
    }
}
