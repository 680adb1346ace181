//! Faults of lines and messages: reason, position, and a text in the words of Prometheus's parsers.
//!
//! Invariants: a fault is small and made without an allocation; its text is made where it is reported, and is
//! bounded. Not here: consequences of a fault, which depend on the mode (`refused`).

use std::fmt;

use super::rule::Rule;

/// Bytes of a token that a message shows.
const TOKEN_BYTES_SHOWN: usize = 64;
/// Bytes of a line that a message shows, before its fault.
const LINE_BYTES_SHOWN: usize = 256;

/// Reason why a line or a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Neither a sample nor a comment.
    Start,
    /// Name or labels of a series.
    Labels,
    /// Text that is not UTF-8.
    Utf8,
    /// Value of a sample.
    Value,
    /// Timestamp of a sample, or bytes after it.
    Timestamp,
    /// Exemplar of a sample.
    Exemplar,
    /// `# TYPE`, `# HELP` or `# UNIT`.
    Metadata,
    /// End of an OpenMetrics body.
    End,
    /// A limit of lines, messages or labels.
    Limit,
    /// A protobuf message that is not well-formed.
    Protobuf,
    /// A native histogram that is not valid.
    Histogram,
    /// A rule of the OpenMetrics specification, where these are checked.
    Specification,
}

impl Reason {
    /// Number of reasons.
    pub const COUNT: usize = 12;

    /// All reasons, in order of their numbers.
    pub const ALL: [Reason; Reason::COUNT] = [
        Reason::Start,
        Reason::Labels,
        Reason::Utf8,
        Reason::Value,
        Reason::Timestamp,
        Reason::Exemplar,
        Reason::Metadata,
        Reason::End,
        Reason::Limit,
        Reason::Protobuf,
        Reason::Histogram,
        Reason::Specification,
    ];

    /// Returns the value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Reason::Start => "start",
            Reason::Labels => "labels",
            Reason::Utf8 => "utf8",
            Reason::Value => "value",
            Reason::Timestamp => "timestamp",
            Reason::Exemplar => "exemplar",
            Reason::Metadata => "metadata",
            Reason::End => "end",
            Reason::Limit => "limit",
            Reason::Protobuf => "protobuf",
            Reason::Histogram => "histogram",
            Reason::Specification => "specification",
        }
    }
}

/// A refused line or message, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({position})")]
pub struct ExpositionError {
    /// Reason.
    pub reason: Reason,
    /// Position of the fault.
    pub position: Position,
    /// Fault and the text with it, as Prometheus's parsers report them.
    pub message: String,
}

/// Position within a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Line of a text format, and byte within it; both are counted from 1 on.
    Line {
        /// Line.
        line: u64,
        /// Byte within the line.
        column: u64,
    },
    /// Message of delimited protobuf, counted from 1 on, and offset within it.
    Message {
        /// Message.
        message: u64,
        /// Offset.
        offset: u64,
    },
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line { line, column } => write!(f, "line {line}, column {column}"),
            Position::Message { message, offset } => write!(f, "message {message}, offset {offset}"),
        }
    }
}

/// Fault of a line, without its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// Offset of the token, in the bytes that the parser was called with.
    pub(super) at: usize,
    pub(super) what: What,
}

/// Description of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Start,
    LabelName,
    Equal,
    LabelValue,
    CommaOrBrace,
    NameSetTwice,
    NameNotSet,
    NameEmpty,
    Utf8,
    TooManyLabels,
    ValueAfterMetric,
    ValueAfterExemplar,
    ValueSyntax,
    ValueRange,
    TimestampOrRecord,
    TimestampSyntax,
    TimestampRange,
    EntryAfterTimestamp,
    ExemplarTimestamp,
    EntryAfterExemplar,
    MetadataName,
    MetadataText,
    MetricType,
    HelpUtf8,
    Unit,
    DataAfterEof,
    NoEof,
    LineTooLong,
    TooManyLines,
    Rule(Rule),
}

impl What {
    pub(super) fn reason(self) -> Reason {
        match self {
            What::Start => Reason::Start,
            What::LabelName
            | What::Equal
            | What::LabelValue
            | What::CommaOrBrace
            | What::NameSetTwice
            | What::NameNotSet
            | What::NameEmpty => Reason::Labels,
            What::Utf8 | What::HelpUtf8 => Reason::Utf8,
            What::ValueAfterMetric | What::ValueSyntax | What::ValueRange => Reason::Value,
            What::TimestampOrRecord
            | What::TimestampSyntax
            | What::TimestampRange
            | What::EntryAfterTimestamp => Reason::Timestamp,
            What::ValueAfterExemplar | What::ExemplarTimestamp | What::EntryAfterExemplar => Reason::Exemplar,
            What::MetadataName | What::MetadataText | What::MetricType | What::Unit => Reason::Metadata,
            What::DataAfterEof | What::NoEof => Reason::End,
            What::Rule(_) => Reason::Specification,
            What::TooManyLabels | What::LineTooLong | What::TooManyLines => Reason::Limit,
        }
    }

    fn text(self) -> &'static str {
        match self {
            What::Start => "expected a valid start token",
            What::LabelName => "expected label name",
            What::Equal => "expected equal",
            What::LabelValue => "expected label value",
            What::CommaOrBrace => "expected comma or brace close",
            What::NameSetTwice => "metric name already set",
            What::NameNotSet => "metric name not set",
            What::NameEmpty => "expected a name that is not empty",
            What::Utf8 => "invalid UTF-8 label value or name",
            What::TooManyLabels => "series has more labels than the limit of a line",
            What::ValueAfterMetric => "expected value after metric",
            What::ValueAfterExemplar => "expected value after exemplar labels",
            What::ValueSyntax => "expected a float as value",
            What::ValueRange => "value out of range of a float",
            What::TimestampOrRecord => "expected timestamp or new record",
            What::TimestampSyntax => "expected a number as timestamp",
            What::TimestampRange => "timestamp out of range",
            What::EntryAfterTimestamp => "expected next entry after timestamp",
            What::ExemplarTimestamp => "invalid exemplar timestamp",
            What::EntryAfterExemplar => "expected next entry after exemplar",
            What::MetadataName => "expected metric name after HELP, TYPE or UNIT",
            What::MetadataText => "expected text after the metric name of HELP, TYPE or UNIT",
            What::MetricType => "invalid metric type",
            What::HelpUtf8 => "help text is not a valid utf8 string",
            What::Unit => "unit is not a suffix of the metric",
            What::DataAfterEof => "unexpected data after # EOF",
            What::NoEof => "data does not end with # EOF",
            What::LineTooLong => "line is longer than the limit",
            What::Rule(rule) => rule.text(),
            What::TooManyLines => "body has more lines than the limit",
        }
    }

    /// Returns the error of a line, whose fault is at offset `at` of it.
    #[cold]
    pub(super) fn error(self, line: &[u8], line_number: u64, at: usize) -> ExpositionError {
        let rest = line.get(at..).unwrap_or(&[]);
        let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n');
        let len = rest.iter().skip(1).position(is_end).map_or(rest.len(), |len| len + 1);
        let token = rest.get(..len.min(TOKEN_BYTES_SHOWN)).unwrap_or(&[]);
        let read_end = line.len().min(at.saturating_add(token.len()));
        let read = line.get(read_end.saturating_sub(LINE_BYTES_SHOWN)..read_end).unwrap_or(&[]);
        let token = if rest.is_empty() { "end".to_owned() } else { quoted(token) };
        ExpositionError {
            reason: self.reason(),
            position: Position::Line { line: line_number, column: at as u64 + 1 },
            message: format!("{}, got {token} while parsing: {}", self.text(), quoted(read)),
        }
    }
}

/// Returns text in quotes, with escapes for what cannot be printed.
pub(super) fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", String::from_utf8_lossy(bytes).escape_debug())
}
