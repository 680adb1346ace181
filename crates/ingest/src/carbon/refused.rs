//! Points that are not stored: reasons, counters, and the newest refused text of each reason.
//!
//! Invariants: every refused point is counted by exactly one reason; texts are cut to [`TEXT_BYTES_MAX`].
//! Not here: refusals by the store ([`chronolith_model::Reject`]).

/// Bytes of a refused line that are kept at most.
pub const TEXT_BYTES_MAX: usize = 256;

/// Reason why a point is not stored. One byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RefusedReason {
    /// A path without a value.
    MissingValue,
    /// More fields than path, value and time.
    TooManyFields,
    /// The value is not a number.
    BadValue,
    /// The value is NaN.
    Nan,
    /// The time is not a number, or not finite.
    BadTime,
    /// The time is zero, negative, or neither seconds of 11 digits nor milliseconds of 13 digits.
    TimeRange,
    /// The line or the path is longer than [`super::LINE_BYTES_MAX`].
    LineTooLong,
    /// A node of the path is longer than [`super::NODE_BYTES_MAX`].
    NodeTooLong,
    /// A path of dots only, or without bytes.
    EmptyPath,
    /// The path has a control character.
    ControlByte,
    /// The path is not UTF-8.
    InvalidUtf8,
    /// A rewrite rule drops the path.
    DroppedByRule,
    /// An element of a pickle that is not `(path, (time, value))`.
    BadTuple,
    /// A pickle that cannot be read; its points are unknown.
    BadPickle,
    /// A metrics2.0 object with a missing or wrong field.
    BadMetric,
    /// A gzip stream that is damaged or cut; its further points are unknown.
    BadGzip,
}

impl RefusedReason {
    /// Number of reasons.
    pub const COUNT: usize = 16;

    /// All reasons, in order of their numbers.
    pub const ALL: [RefusedReason; RefusedReason::COUNT] = [
        RefusedReason::MissingValue,
        RefusedReason::TooManyFields,
        RefusedReason::BadValue,
        RefusedReason::Nan,
        RefusedReason::BadTime,
        RefusedReason::TimeRange,
        RefusedReason::LineTooLong,
        RefusedReason::NodeTooLong,
        RefusedReason::EmptyPath,
        RefusedReason::ControlByte,
        RefusedReason::InvalidUtf8,
        RefusedReason::DroppedByRule,
        RefusedReason::BadTuple,
        RefusedReason::BadPickle,
        RefusedReason::BadMetric,
        RefusedReason::BadGzip,
    ];

    /// Returns the value of the `reason` label of metrics, also the parameter of the API.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            RefusedReason::MissingValue => "missing_value",
            RefusedReason::TooManyFields => "too_many_fields",
            RefusedReason::BadValue => "bad_value",
            RefusedReason::Nan => "nan",
            RefusedReason::BadTime => "bad_time",
            RefusedReason::TimeRange => "time_range",
            RefusedReason::LineTooLong => "line_too_long",
            RefusedReason::NodeTooLong => "node_too_long",
            RefusedReason::EmptyPath => "empty_path",
            RefusedReason::ControlByte => "control_byte",
            RefusedReason::InvalidUtf8 => "invalid_utf8",
            RefusedReason::DroppedByRule => "dropped_by_rule",
            RefusedReason::BadTuple => "bad_tuple",
            RefusedReason::BadPickle => "bad_pickle",
            RefusedReason::BadMetric => "bad_metric",
            RefusedReason::BadGzip => "bad_gzip",
        }
    }

    /// Returns the sentence for an operator.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            RefusedReason::MissingValue => "the line has a path and no value",
            RefusedReason::TooManyFields => "the line has more fields than path, value and time",
            RefusedReason::BadValue => "the value is not a number",
            RefusedReason::Nan => "the value is NaN, which Graphite does not store",
            RefusedReason::BadTime => "the time is not a number",
            RefusedReason::TimeRange => {
                "the time is not positive, or neither seconds of up to 11 digits nor milliseconds of 13 digits"
            }
            RefusedReason::LineTooLong => "the line is longer than 4096 bytes",
            RefusedReason::NodeTooLong => "a node of the path is longer than 1024 bytes",
            RefusedReason::EmptyPath => "the path is empty",
            RefusedReason::ControlByte => "the path has a control character",
            RefusedReason::InvalidUtf8 => "the path is not valid UTF-8",
            RefusedReason::DroppedByRule => "a rewrite rule drops the path",
            RefusedReason::BadTuple => "an element of the pickle is not (path, (time, value))",
            RefusedReason::BadPickle => "the pickle cannot be read",
            RefusedReason::BadMetric => "a field of the metric is missing or has the wrong type",
            RefusedReason::BadGzip => "the gzip stream is damaged or cut, its further points are lost",
        }
    }
}

/// A refused line, or a text about another refused point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedLine {
    /// The line as sent, at most [`TEXT_BYTES_MAX`] bytes of it; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Clock at the refusal, in milliseconds.
    pub time_ms: i64,
}

/// Counters of refused points, and the newest of each reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    counts: [u64; RefusedReason::COUNT],
    newest: [Option<RefusedLine>; RefusedReason::COUNT],
}

impl Refused {
    /// Number of points refused for a reason.
    #[must_use]
    pub fn count(&self, reason: RefusedReason) -> u64 {
        self.counts.get(reason as usize).copied().unwrap_or(0)
    }

    /// Number of all refused points.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the newest refused line of a reason.
    #[must_use]
    pub fn newest(&self, reason: RefusedReason) -> Option<&RefusedLine> {
        self.newest.get(reason as usize).and_then(Option::as_ref)
    }

    /// Adds the counts of a later piece.
    pub fn add(&mut self, after: Refused) {
        self.counts.iter_mut().zip(after.counts).for_each(|(count, more)| *count += more);
        for (mine, newer) in self.newest.iter_mut().zip(after.newest) {
            if newer.is_some() {
                *mine = newer;
            }
        }
    }

    /// Counts a point and keeps its text.
    #[cold]
    pub(super) fn note(&mut self, reason: RefusedReason, text: &[u8], now_ms: i64) {
        if let Some(count) = self.counts.get_mut(reason as usize) {
            *count += 1;
        }
        let kept = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
        if let Some(newest) = self.newest.get_mut(reason as usize) {
            *newest = Some(RefusedLine { text: String::from_utf8_lossy(kept).into_owned(), time_ms: now_ms });
        }
    }
}
