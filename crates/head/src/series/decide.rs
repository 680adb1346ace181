//! Decides about a new sample: one decision table for every kind of value.
//!
//! Invariant: a series has one sample per timestamp, whatever the kinds of its samples; nothing else decides
//! that.
//! Not here: comparing values (`value`), looking up the stored sample, storing the new one.

use chronolith_model::DuplicatePolicy;

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
