//! Rate control of the checkpoint: writes slices at a rate for which replaying the WAL after the oldest slice
//! takes about [`TAIL_NS_AIM`] of processor time; the rate is steady and leaves disk bandwidth to others.
//!
//! Invariant: pure arithmetic; the caller passes time and sizes.

/// Target: processor time, spread over the cores, for the WAL replay at startup.
const TAIL_NS_AIM: f64 = 300e6;
/// All slices are written at least this often while there are writes.
const PERIOD_NS_MAX: f64 = 300e9;
/// All slices are written at most this often.
const PERIOD_NS_MIN: f64 = 2e9;
/// Limit of slice bytes per second, whatever the target, while the WAL grows slowly.
const BYTES_PER_S_MAX: f64 = 64e6;
/// Limit of slice bytes relative to WAL bytes while the WAL grows fast: a disk for that load has the
/// bandwidth, and a WAL that grows by 50 MB per second is long before a slow pass is over.
const LOG_BYTES_FACTOR_MAX: f64 = 3.0;
/// Limit of slice bytes per second, however fast the WAL grows.
const BYTES_PER_S_LIMIT: f64 = 192e6;
/// Assumed cost of replaying one byte of WAL until a replay was measured.
// PERF: 4.5 CPU s for 100 M samples of 9 bytes, by `cargo xtask bench load-wal-large --only long`.
const NS_PER_BYTE_DEFAULT: f64 = 5.0;
/// Weight of the newest rate in the moving average.
const RATE_WEIGHT: f64 = 0.2;

/// Rate controller of the checkpoint.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Wall time of replaying one byte of WAL.
    ns_per_byte: f64,
    last_ns: u64,
    last_log_bytes: i64,
    log_bytes_per_ns: f64,
    /// Slices that are due; fractions carry over to the next call.
    due_count: f64,
}

/// Budget of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(super) slice_count: usize,
    /// No further slice is begun once this is exceeded.
    pub(super) bytes: u64,
}

impl Pace {
    /// Starts at `now_ns`; `replayed` are bytes and nanoseconds of the last WAL replay, if it was long enough
    /// to be a measure.
    pub(crate) fn new(now_ns: u64, core_count: usize, replayed: Option<(u64, u64)>) -> Pace {
        let default = NS_PER_BYTE_DEFAULT / core_count.max(1) as f64;
        let ns_per_byte = replayed.map_or(default, |(bytes, ns)| ns as f64 / bytes.max(1) as f64);
        let ns_per_byte = ns_per_byte.clamp(default / 10.0, default * 10.0);
        Pace { ns_per_byte, last_ns: now_ns, last_log_bytes: 0, log_bytes_per_ns: 0.0, due_count: 0.0 }
    }

    /// Estimates the time to replay `tail_bytes` of WAL.
    pub(crate) fn tail_ns(&self, tail_bytes: i64) -> u64 {
        (tail_bytes.max(0) as f64 * self.ns_per_byte) as u64
    }

    /// Returns the budget at `now_ns`, when the WAL has grown to `log_bytes`, of which `tail_bytes` would be
    /// replayed, and `slice_count` slices take `state_bytes`.
    pub(crate) fn allow(
        &mut self,
        now_ns: u64,
        log_bytes: i64,
        tail_bytes: i64,
        slice_count: usize,
        state_bytes: u64,
    ) -> Allowance {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns) as f64;
        if elapsed_ns <= 0.0 {
            return Allowance { slice_count: 0, bytes: 0 };
        }
        let rate = (log_bytes - self.last_log_bytes).max(0) as f64 / elapsed_ns;
        // After a long pause the old average is meaningless.
        let weight = RATE_WEIGHT.max((elapsed_ns / 10e9).min(1.0));
        self.log_bytes_per_ns += weight * (rate - self.log_bytes_per_ns);
        (self.last_ns, self.last_log_bytes) = (now_ns, log_bytes);
        let bytes_per_s = bytes_per_s_max(self.log_bytes_per_ns * 1e9);
        let slowest_ns = (state_bytes as f64 / bytes_per_s * 1e9).max(PERIOD_NS_MIN);
        let aim_ns = TAIL_NS_AIM / (self.log_bytes_per_ns * self.ns_per_byte).max(f64::MIN_POSITIVE);
        let mut period_ns = aim_ns.min(PERIOD_NS_MAX);
        // Above the target (after a burst or after startup) the rest is written as fast as the limits allow.
        if self.tail_ns(tail_bytes) as f64 > TAIL_NS_AIM {
            period_ns = 0.0;
        }
        let count_max = slice_count.max(1) as f64;
        self.due_count = (self.due_count + count_max * elapsed_ns / period_ns.max(slowest_ns)).min(count_max);
        let due = self.due_count.floor();
        self.due_count -= due;
        let bytes = (bytes_per_s * elapsed_ns / 1e9) as u64;
        Allowance { slice_count: due as usize, bytes: bytes.max(1) }
    }
}

/// Returns the limit of slice bytes per second while the WAL grows by `log_bytes_per_s`.
fn bytes_per_s_max(log_bytes_per_s: f64) -> f64 {
    (LOG_BYTES_FACTOR_MAX * log_bytes_per_s).clamp(BYTES_PER_S_MAX, BYTES_PER_S_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the WAL bytes to replay, and the slice bytes written per second, after `seconds` of this load.
    fn tail_after(seconds: u64, log_bytes_per_s: i64, slice_count: usize, slice_bytes: u64) -> (i64, u64) {
        let mut pace = Pace::new(0, 2, None);
        let mut positions = vec![0i64; slice_count];
        let (mut written, mut log_bytes) = (0, 0);
        for second in 1..=seconds {
            log_bytes += log_bytes_per_s;
            let oldest = positions.iter().min().copied().unwrap_or(log_bytes);
            let state_bytes = slice_bytes * slice_count as u64;
            let allowed =
                pace.allow(second * 1_000_000_000, log_bytes, log_bytes - oldest, slice_count, state_bytes);
            positions.sort_unstable();
            for position in positions.iter_mut().take(allowed.slice_count) {
                *position = log_bytes;
                written += slice_bytes;
            }
        }
        (log_bytes - positions.iter().min().copied().unwrap_or(log_bytes), written / seconds)
    }

    #[test]
    fn the_wal_to_replay_stays_short_at_any_rate() {
        for (rate, slices, slice_bytes) in [
            (600_000, 122, 2_500_000),
            (18_000_000, 122, 2_500_000),
            (1000, 1, 10_000),
            (6_000_000, 1220, 2_500_000),
            (50_000_000, 122, 2_500_000),
        ] {
            let (tail, written) = tail_after(1200, rate, slices, slice_bytes);
            let tail_ns = tail as f64 * NS_PER_BYTE_DEFAULT / 2.0;
            let fastest = bytes_per_s_max(rate as f64);
            let slowest_s = (slices as u64 * slice_bytes) as f64 / fastest;
            let bound = (1.5 * TAIL_NS_AIM).max(rate as f64 * 1.5 * slowest_s * NS_PER_BYTE_DEFAULT);
            assert!(tail_ns <= bound, "{rate} B/s: {tail} bytes, {tail_ns} ns");
            assert!(written as f64 <= fastest, "{written} bytes/s");
        }
        let (_, written) = tail_after(1200, 600_000, 122, 2_500_000);
        assert!(written < 3_000_000, "a usual load writes little: {written} bytes/s");
    }

    #[test]
    fn a_stopped_clock_allows_nothing() {
        let mut pace = Pace::new(5, 2, Some((1 << 30, 1 << 30)));
        assert_eq!(pace.allow(5, 1 << 30, 1 << 30, 10, 1), Allowance { slice_count: 0, bytes: 0 });
        assert!(pace.allow(20_000_000_005, 1 << 30, 1 << 30, 10, 1).slice_count > 0);
    }
}
