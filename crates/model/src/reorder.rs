//! Rule of a reorder buffer: interval, length of the window, update policy.
//!
//! Invariant: a rule is checked once; with it, dividing a distance inside the window is one multiplication.
//! Not here: the buffer (`head::reorder`), choice of the rule of a series (`ingest::carbon`).

/// Maximal number of slots of one buffer (16 bytes each).
pub const WINDOW_LEN_MAX: usize = 1 << 16;

/// Policy for a second value at a buffered timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Update {
    /// The second value replaces the first.
    Allow,
    /// The second value is refused, even if it is equal.
    Disallow,
}

/// Reasons why a rule is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReorderRuleError {
    /// A window without slots, or with too many.
    #[error("reorder window of {found} samples: expected 1 to {WINDOW_LEN_MAX}")]
    WindowLen {
        /// Requested number of slots.
        found: usize,
    },
    /// No interval, or one so long that the window cannot be divided exactly.
    #[error("interval of {interval_ms} ms does not fit a reorder window of {window_len} samples")]
    Interval {
        /// Requested interval.
        interval_ms: u64,
        /// Requested number of slots.
        window_len: usize,
    },
}

/// A checked rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReorderRule {
    interval_ms: u64,
    span_ms: u64,
    /// `(2^64 - 1) / interval`, rounded down.
    reciprocal: u64,
    window_len: u32,
    update: Update,
}

impl ReorderRule {
    /// Returns a rule for a window of `window_len` slots, `interval_ms` apart.
    ///
    /// # Errors
    /// [`ReorderRuleError`] if `window_len` is out of bounds, or if the square of the interval times the
    /// length exceeds 64 bits (an interval of a day and a window of a year fit).
    pub fn new(interval_ms: u64, window_len: usize, update: Update) -> Result<ReorderRule, ReorderRuleError> {
        const { assert!(WINDOW_LEN_MAX <= u32::MAX as usize) };
        let slot_count = match u32::try_from(window_len) {
            Ok(count) if (1..=WINDOW_LEN_MAX).contains(&window_len) => count,
            _ => return Err(ReorderRuleError::WindowLen { found: window_len }),
        };
        let span_ms = interval_ms.checked_mul(u64::from(slot_count));
        // This product within 64 bits makes `whole_intervals` exact for every distance below the span.
        let exact = span_ms.filter(|span_ms| interval_ms > 0 && span_ms.checked_mul(interval_ms).is_some());
        let span_ms = exact.ok_or(ReorderRuleError::Interval { interval_ms, window_len })?;
        let reciprocal = u64::MAX / interval_ms;
        Ok(ReorderRule { interval_ms, span_ms, reciprocal, window_len: slot_count, update })
    }

    /// Returns the number of slots in the window.
    #[inline]
    #[must_use]
    pub fn window_len(&self) -> usize {
        self.window_len as usize
    }

    /// Returns the distance of two slots.
    #[inline]
    #[must_use]
    pub fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// Returns the length of the window; a sample at that distance from the newest is outside.
    #[inline]
    #[must_use]
    pub fn span_ms(&self) -> u64 {
        self.span_ms
    }

    /// Returns the policy for a second value at a buffered timestamp.
    #[inline]
    #[must_use]
    pub fn update(&self) -> Update {
        self.update
    }

    /// Returns the whole intervals in a distance in milliseconds below the span.
    ///
    /// With `d` the interval, `m = (2^64 - r) / d` the reciprocal (`1 <= r <= d`) and `n = q*d + s` the
    /// distance, the product `m*(n+1) / 2^64` is `q + (s+1)/d - e` with `e = r*(n+1) / (d * 2^64)`. It stays
    /// below `q + 1` because `s+1 <= d` and `e > 0`, and reaches `q` because `r*(n+1) <= d * span <= 2^64`.
    #[inline]
    #[must_use]
    pub fn whole_intervals(&self, distance_ms: u64) -> usize {
        debug_assert!(distance_ms < self.span_ms);
        let product = u128::from(self.reciprocal) * u128::from(distance_ms + 1);
        (product >> 64) as usize
    }

    /// Returns the length of `count` intervals; `count` is at most the window.
    #[inline]
    #[must_use]
    pub fn intervals_ms(&self, count: usize) -> i64 {
        (self.interval_ms * count as u64).cast_signed()
    }

    /// Returns the first multiple of the interval that is not before `time_ms`, a valid timestamp.
    #[inline]
    #[must_use]
    pub fn round_up(&self, time_ms: i64) -> i64 {
        let past_ms = time_ms.rem_euclid(self.interval_ms.cast_signed());
        if past_ms == 0 { time_ms } else { time_ms + (self.interval_ms.cast_signed() - past_ms) }
    }
}
