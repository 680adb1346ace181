//! Wall time in milliseconds and monotonic time in nanoseconds, real or manual.
//! Invariants: `mono_ns` never goes back. Not here: calendars, time zones.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Source of time. Callers pass the value down instead of reading the clock in inner functions.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> i64;
    /// Nanoseconds since an arbitrary start, never decreasing.
    fn mono_ns(&self) -> u64;
    /// Blocks the calling thread. A fake clock returns at once and advances itself.
    fn sleep(&self, duration: Duration);
}

/// The machine's clock.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts at zero.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the interface")]
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the interface")]
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(d) => i64::try_from(d.as_millis()).unwrap_or(i64::MAX),
            Err(e) => -i64::try_from(e.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn mono_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock that moves only when a test moves it.
pub struct ManualClock {
    now_ms: AtomicI64,
    mono_ns: AtomicU64,
}

impl ManualClock {
    /// A clock at `now_ms`.
    #[must_use]
    pub fn new(now_ms: i64) -> ManualClock {
        ManualClock { now_ms: AtomicI64::new(now_ms), mono_ns: AtomicU64::new(0) }
    }

    /// Moves both times forward.
    pub fn advance(&self, duration: Duration) {
        let ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.mono_ns.fetch_add(ns, Ordering::SeqCst);
    }

    /// Sets the wall time, forwards or backwards, as an operator or NTP might.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn mono_ns(&self) -> u64 {
        self.mono_ns.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}
