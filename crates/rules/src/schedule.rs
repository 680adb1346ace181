//! Times of the rounds of a group, equal to the times of Prometheus 3.16.
//!
//! Invariants: rounds lie `interval` apart; their offset within it is a hash of file and group name, so that
//! groups are spread, and the same after each restart. Times are nanoseconds since 1970.
//! Not here: waiting for them (the caller), evaluation (`round`).

use xxhash_rust::xxh64::xxh64;

use crate::group::{Group, GroupKey};

/// Nanoseconds per millisecond.
pub const NS_PER_MS: i64 = 1_000_000;

/// Length from which a label's length takes four bytes in the hashed form.
const LONG_LABEL_BYTES: usize = 255;

/// Times of the rounds of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    interval_ns: i64,
    /// From 0 to below the interval.
    offset_ns: i64,
}

/// A round that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Time of the round.
    pub time_ns: i64,
    /// Rounds before it that were not evaluated.
    pub missed_count: u64,
}

/// Rounds of an outage that are evaluated after the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatchUp {
    /// Time of the next round.
    next_ns: i64,
    end_ns: i64,
    interval_ns: i64,
    /// Rounds before the horizon, which stay missing.
    pub lost_count: u64,
}

impl Schedule {
    /// Returns the times of a group.
    ///
    /// # Panics
    /// If its interval is not positive.
    #[must_use]
    pub fn of(group: &Group) -> Schedule {
        let interval_ns = group.interval_ms.saturating_mul(NS_PER_MS);
        assert!(interval_ns > 0, "an interval is more than 0");
        let offset_ns = (hash(&group.key) % interval_ns.unsigned_abs()).cast_signed();
        assert!((0..interval_ns).contains(&offset_ns), "an offset lies within its interval");
        Schedule { interval_ns, offset_ns }
    }

    /// Distance between rounds.
    #[must_use]
    pub fn interval_ns(&self) -> i64 {
        self.interval_ns
    }

    /// The last round at or before `now_ns`.
    #[must_use]
    pub fn last_before(&self, now_ns: i64) -> i64 {
        let since = now_ns.saturating_sub(self.offset_ns);
        // As in Go, the remainder of a time before 1970 is negative.
        since - since % self.interval_ns + self.offset_ns
    }

    /// The first round of a group that has no state.
    #[must_use]
    pub fn first_after(&self, now_ns: i64) -> i64 {
        self.last_before(now_ns).saturating_add(self.interval_ns)
    }

    /// The newest round after `last_ns` that is due at `now_ns`; `None` before its time. After a change of
    /// the interval, `last_ns` may lie between two rounds.
    #[must_use]
    pub fn due(&self, last_ns: i64, now_ns: i64) -> Option<Due> {
        let newest_ns = self.last_before(now_ns);
        let first_ns = self.first_after(last_ns);
        if newest_ns < first_ns {
            return None;
        }
        let missed_count = ((newest_ns - first_ns) / self.interval_ns).unsigned_abs();
        Some(Due { time_ns: newest_ns, missed_count })
    }

    /// Rounds after `last_ns` up to `now_ns`, oldest first; none that is older than `horizon_ns`.
    #[must_use]
    pub fn catch_up(&self, last_ns: i64, now_ns: i64, horizon_ns: i64) -> CatchUp {
        let end_ns = self.last_before(now_ns);
        let first_ns = self.first_after(last_ns);
        let oldest_ns = now_ns.saturating_sub(horizon_ns);
        let mut next_ns = first_ns;
        if next_ns < oldest_ns {
            next_ns = self.last_before(oldest_ns);
            if next_ns < oldest_ns {
                next_ns += self.interval_ns;
            }
        }
        assert!(next_ns >= first_ns, "rounds that are made up follow the last one");
        let lost_count = ((next_ns - first_ns) / self.interval_ns).unsigned_abs();
        CatchUp { next_ns, end_ns, interval_ns: self.interval_ns, lost_count }
    }
}

impl Iterator for CatchUp {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let time_ns = self.next_ns;
        if time_ns > self.end_ns {
            return None;
        }
        self.next_ns = time_ns.saturating_add(self.interval_ns);
        Some(time_ns)
    }
}

/// Returns Prometheus's hash of the labels `file` and `name`: xxHash64 of each name and value after its
/// length.
#[must_use]
pub fn hash(key: &GroupKey) -> u64 {
    let mut bytes = Vec::with_capacity(key.file.len() + key.name.len() + 16);
    for text in ["file", &key.file, "name", &key.name] {
        let len = text.len();
        if len < LONG_LABEL_BYTES {
            bytes.push(len as u8);
        } else {
            // Three bytes, the lowest first.
            bytes.push(LONG_LABEL_BYTES as u8);
            bytes.extend([len as u8, (len >> 8) as u8, (len >> 16) as u8]);
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    xxh64(&bytes, 0)
}

#[cfg(test)]
mod tests;
