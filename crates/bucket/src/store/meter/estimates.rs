//! Moving estimates of reads: time to the first byte (mean and p99) and bandwidth of one connection.
//!
//! Invariants: the p99 is over the last [`RECENT_READS`] reads, at most [`REFRESH_READS`] reads old.

use parking_lot::Mutex;

/// Reads over which the p99 is taken.
const RECENT_READS: usize = 256;
/// Reads until the p99 is computed again.
const REFRESH_READS: usize = 16;
/// Reads without which there is no p99.
const READS_MIN: usize = 64;
/// Weight of one read in the means.
const WEIGHT: f64 = 0.05;
/// Smaller bodies do not measure the bandwidth.
const BANDWIDTH_BODY_BYTES_MIN: u64 = 64 * 1024;

/// Latency and bandwidth of recent reads, for range planning and hedging.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimates {
    /// Mean time to the first byte in nanoseconds; `None` before the first read.
    pub first_byte_ns: Option<u64>,
    /// p99 of the time to the first byte in nanoseconds; `None` before 64 reads.
    pub first_byte_p99_ns: Option<u64>,
    /// Bytes per second of one connection; `None` before the first body of 64 KiB.
    pub bytes_per_second: Option<u64>,
}

impl Estimates {
    /// Time after which a read of `len` bytes is slower than the p99; `None` without enough reads.
    #[must_use]
    pub fn slow_after_ns(&self, len: u64) -> Option<u64> {
        // A second time per byte: the bandwidth of a connection varies more than its latency.
        let body_ns = match self.bytes_per_second {
            Some(rate) if rate > 0 => len.saturating_mul(2_000_000_000) / rate,
            _ => 0,
        };
        Some(self.first_byte_p99_ns?.saturating_add(body_ns))
    }
}

#[derive(Debug, Default)]
struct Recent {
    first_byte_ns: Vec<u64>,
    next_idx: usize,
    since_refresh: usize,
    estimates: Estimates,
}

#[derive(Debug, Default)]
pub(super) struct ReadEstimates(Mutex<Recent>);

impl ReadEstimates {
    pub(super) fn record(&self, first_byte_ns: u64, body_ns: u64, body_bytes: u64) {
        let mut recent = self.0.lock();
        let recent = &mut *recent;
        if recent.first_byte_ns.len() < RECENT_READS {
            recent.first_byte_ns.push(first_byte_ns);
        } else if let Some(oldest) = recent.first_byte_ns.get_mut(recent.next_idx) {
            *oldest = first_byte_ns;
        }
        recent.next_idx = (recent.next_idx + 1) % RECENT_READS;
        recent.since_refresh += 1;
        let estimates = &mut recent.estimates;
        estimates.first_byte_ns = Some(moved(estimates.first_byte_ns, first_byte_ns));
        if body_bytes >= BANDWIDTH_BODY_BYTES_MIN {
            let rate = u128::from(body_bytes) * 1_000_000_000 / u128::from(body_ns.max(1));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            estimates.bytes_per_second = Some(moved(estimates.bytes_per_second, rate));
        }
        let is_due = recent.since_refresh >= REFRESH_READS || estimates.first_byte_p99_ns.is_none();
        if is_due && recent.first_byte_ns.len() >= READS_MIN {
            recent.since_refresh = 0;
            estimates.first_byte_p99_ns = p99(&recent.first_byte_ns);
        }
    }

    pub(super) fn estimates(&self) -> Estimates {
        self.0.lock().estimates
    }
}

fn p99(values: &[u64]) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * 99).div_ceil(100).saturating_sub(1)).copied()
}

/// Exponentially weighted moving average.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate"
)]
fn moved(mean: Option<u64>, value: u64) -> u64 {
    match mean {
        Some(mean) => (mean as f64 + (value as f64 - mean as f64) * WEIGHT) as u64,
        None => value,
    }
}
