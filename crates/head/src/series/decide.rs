//! Decides about a new sample: one decision table for every kind of value.
//!
//! Invariant: a series has one sample per timestamp, whatever the kinds of its samples; nothing else decides
//! that.
//! Not here: looking up the stored sample, storing the new one.

use std::sync::Arc;

use chronolith_model::sample::is_stale;
use chronolith_model::{DuplicatePolicy, Histogram};

/// Result of an append of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    /// Stored after all samples of its series.
    InOrder,
    /// Stored between samples of its series.
    OutOfOrder,
    /// The series has this sample already; nothing was stored.
    Duplicate,
    /// Stored in place of another value.
    Replaced,
    /// Refused: the series has another value at this timestamp.
    DuplicateTimestamp,
    /// Not stored yet: it is older than the newest sample of its series.
    NotNewest,
    /// The series has left the head.
    SeriesGone,
}

/// Timestamp of a sample relative to the newest one of its series, of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// After it, or the series has no sample.
    Newest,
    /// Before it or equal.
    NotNewest,
}

/// Sample that a series already has at the timestamp of a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    Nothing,
    Same,
    /// The same value, with another start timestamp.
    OtherStart,
    Different,
}

/// New sample of a series.
#[derive(Clone, Copy)]
pub(crate) struct Sample<'a> {
    pub(crate) time: i64,
    pub(crate) value: Value<'a>,
    /// Start timestamp in milliseconds; 0 = unknown.
    pub(crate) start_ms: i64,
}

/// Value of any kind.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    /// Bits of a 64-bit word; words of floats are compared by them.
    Word(u64),
    Histogram(&'a Arc<Histogram>),
}

impl Value<'_> {
    fn is_stale(self) -> bool {
        match self {
            Value::Word(bits) => is_stale(f64::from_bits(bits)),
            Value::Histogram(histogram) => is_stale(histogram.sum()),
        }
    }

    /// Compares the stored value with the one of a new sample.
    pub(crate) fn compare(stored: Option<Value<'_>>, new: Value<'_>) -> Stored {
        let is_same = match (stored, new) {
            (None, _) => return Stored::Nothing,
            (Some(Value::Word(stored)), Value::Word(new)) => stored == new,
            // Histogram chunks add or drop buckets without observations; the comparison ignores those.
            (Some(Value::Histogram(stored)), Value::Histogram(new)) if !is_stale(stored.sum()) => {
                stored.is_equivalent(new)
            }
            // A staleness marker ends a series, whatever the kind in which it was written.
            (Some(stored), new) => stored.is_stale() && new.is_stale(),
        };
        if is_same { Stored::Same } else { Stored::Different }
    }
}

/// Returns the outcome for a new sample.
pub(crate) fn decide(position: Position, stored: Stored, duplicates: DuplicatePolicy) -> AppendOutcome {
    match (stored, position, duplicates) {
        (Stored::Nothing, Position::Newest, _) => AppendOutcome::InOrder,
        (Stored::Nothing, Position::NotNewest, _) => AppendOutcome::OutOfOrder,
        // Senders retry whole batches after a lost response.
        (Stored::Same, _, _) => AppendOutcome::Duplicate,
        (Stored::OtherStart, _, DuplicatePolicy::KeepFirst) => AppendOutcome::Duplicate,
        (Stored::Different, _, DuplicatePolicy::KeepFirst) => AppendOutcome::DuplicateTimestamp,
        (Stored::OtherStart | Stored::Different, _, DuplicatePolicy::LastWins) => AppendOutcome::Replaced,
    }
}

#[cfg(test)]
mod tests;
