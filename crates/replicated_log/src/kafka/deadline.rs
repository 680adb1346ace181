//! The end of a call that is made of several ones.

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Clock;

/// Time that is left for a call.
pub struct Deadline {
    clock: Arc<dyn Clock>,
    end_ns: u64,
}

impl Deadline {
    /// Returns the deadline that is `within` from now.
    pub(super) fn after(clock: &Arc<dyn Clock>, within: Duration) -> Deadline {
        let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        Deadline { clock: clock.clone(), end_ns: clock.mono_ns().saturating_add(within_ns) }
    }

    /// Returns the time that is left; zero after the deadline.
    pub(super) fn left(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(self.clock.mono_ns()))
    }
}
