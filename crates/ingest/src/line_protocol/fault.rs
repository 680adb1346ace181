//! Reasons why a line cannot be parsed, counted by kind and worded as InfluxDB 1.8 does.
//!
//! Not here: lines that are parsed and dropped (`refused`).

use super::precision::{TIME_MAX_NS, TIME_MIN_NS};

/// Longest series key with its field, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Reason why a line cannot be parsed. One byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ParseReason {
    /// The line starts with a comma.
    MissingMeasurement,
    /// A tag has no key.
    MissingTagKey,
    /// A tag has no equals sign or an empty value.
    MissingTagValue,
    /// An equals sign in a tag value, or a backslash before the space after it.
    InvalidTagFormat,
    /// A tag key occurs twice.
    DuplicateTags,
    /// The line ends after the tags.
    MissingFields,
    /// A field has no key.
    MissingFieldKey,
    /// A field has no value.
    MissingFieldValue,
    /// Fields are not pairs of key and value.
    InvalidFieldFormat,
    /// A text has no closing quote.
    UnbalancedQuotes,
    /// Not a number.
    InvalidNumber,
    /// A float that is out of range or has a bad exponent.
    InvalidFloat,
    /// Not a boolean.
    InvalidBoolean,
    /// An integer that does not fit 64 bits.
    IntegerRange,
    /// The time is not an integer.
    BadTimestamp,
    /// The time is outside of the valid times.
    TimeRange,
    /// Bytes after the time.
    TrailingBytes,
    /// Series key and field key are longer than [`KEY_BYTES_MAX`].
    KeyTooLong,
    /// The line is longer than the limit.
    LineTooLong,
    /// A measurement, tag or field key is not UTF-8.
    InvalidUtf8,
}

impl ParseReason {
    /// Number of kinds.
    pub const COUNT: usize = 20;

    /// All kinds, in order of their numbers.
    pub const ALL: [ParseReason; ParseReason::COUNT] = [
        ParseReason::MissingMeasurement,
        ParseReason::MissingTagKey,
        ParseReason::MissingTagValue,
        ParseReason::InvalidTagFormat,
        ParseReason::DuplicateTags,
        ParseReason::MissingFields,
        ParseReason::MissingFieldKey,
        ParseReason::MissingFieldValue,
        ParseReason::InvalidFieldFormat,
        ParseReason::UnbalancedQuotes,
        ParseReason::InvalidNumber,
        ParseReason::InvalidFloat,
        ParseReason::InvalidBoolean,
        ParseReason::IntegerRange,
        ParseReason::BadTimestamp,
        ParseReason::TimeRange,
        ParseReason::TrailingBytes,
        ParseReason::KeyTooLong,
        ParseReason::LineTooLong,
        ParseReason::InvalidUtf8,
    ];

    /// Returns the value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            ParseReason::MissingMeasurement => "missing_measurement",
            ParseReason::MissingTagKey => "missing_tag_key",
            ParseReason::MissingTagValue => "missing_tag_value",
            ParseReason::InvalidTagFormat => "invalid_tag_format",
            ParseReason::DuplicateTags => "duplicate_tags",
            ParseReason::MissingFields => "missing_fields",
            ParseReason::MissingFieldKey => "missing_field_key",
            ParseReason::MissingFieldValue => "missing_field_value",
            ParseReason::InvalidFieldFormat => "invalid_field_format",
            ParseReason::UnbalancedQuotes => "unbalanced_quotes",
            ParseReason::InvalidNumber => "invalid_number",
            ParseReason::InvalidFloat => "invalid_float",
            ParseReason::InvalidBoolean => "invalid_boolean",
            ParseReason::IntegerRange => "integer_range",
            ParseReason::BadTimestamp => "bad_timestamp",
            ParseReason::TimeRange => "time_range",
            ParseReason::TrailingBytes => "trailing_bytes",
            ParseReason::KeyTooLong => "key_too_long",
            ParseReason::LineTooLong => "line_too_long",
            ParseReason::InvalidUtf8 => "invalid_utf8",
        }
    }
}

/// Fault of a line, borrowed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault<'a> {
    /// The reason says all.
    Plain(ParseReason),
    /// An integer that does not fit.
    Integer(&'a [u8]),
    /// An unsigned integer that does not fit.
    Unsigned(&'a [u8]),
    /// The time is a sign without digits.
    TimeSyntax(&'a [u8]),
    /// The time does not fit 64 bits.
    TimeTooLarge(&'a [u8]),
    /// A field key whose last byte before the equals sign is a backslash, at the end of the fields.
    FieldValue(&'a [u8]),
    /// Bytes of series key and field key.
    KeyTooLong(usize),
    /// Bytes of the line, and the limit.
    LineTooLong { found: usize, limit: usize },
    /// The first byte that is not UTF-8, and its offset in the line.
    Utf8 { byte: u8, offset: usize },
}

impl Fault<'_> {
    pub(super) fn reason(self) -> ParseReason {
        match self {
            Fault::Plain(reason) => reason,
            Fault::Integer(_) | Fault::Unsigned(_) => ParseReason::IntegerRange,
            Fault::TimeSyntax(_) => ParseReason::BadTimestamp,
            Fault::TimeTooLarge(_) => ParseReason::TimeRange,
            Fault::FieldValue(_) => ParseReason::InvalidFieldFormat,
            Fault::KeyTooLong(_) => ParseReason::KeyTooLong,
            Fault::LineTooLong { .. } => ParseReason::LineTooLong,
            Fault::Utf8 { .. } => ParseReason::InvalidUtf8,
        }
    }

    /// Returns the reason as clients read it.
    pub(super) fn text(self) -> String {
        let of_number = |kind: &str, function: &str, text: &[u8]| {
            let text = text_of(text);
            format!(
                "unable to parse {kind} {text}: strconv.{function}: parsing \"{text}\": value out of range"
            )
        };
        match self {
            Fault::Plain(reason) => plain_text(reason),
            Fault::Integer(text) => of_number("integer", "ParseInt", text),
            Fault::Unsigned(text) => of_number("unsigned", "ParseUint", text),
            Fault::TimeSyntax(text) => {
                format!("strconv.ParseInt: parsing \"{}\": invalid syntax", text_of(text))
            }
            Fault::TimeTooLarge(text) => {
                format!("strconv.ParseInt: parsing \"{}\": value out of range", text_of(text))
            }
            Fault::FieldValue(key) => format!("invalid value: field-key={}", text_of(key)),
            Fault::KeyTooLong(found) => format!("max key length exceeded: {found} > {KEY_BYTES_MAX}"),
            Fault::LineTooLong { found, limit } => format!("max line length exceeded: {found} > {limit}"),
            Fault::Utf8 { byte, offset } => format!("invalid UTF-8: byte 0x{byte:02x} at offset {offset}"),
        }
    }
}

fn plain_text(reason: ParseReason) -> String {
    let text = match reason {
        ParseReason::MissingMeasurement => "missing measurement",
        ParseReason::MissingTagKey => "missing tag key",
        ParseReason::MissingTagValue => "missing tag value",
        ParseReason::InvalidTagFormat => "invalid tag format",
        ParseReason::DuplicateTags => "duplicate tags",
        ParseReason::MissingFields => "missing fields",
        ParseReason::MissingFieldKey => "missing field key",
        ParseReason::MissingFieldValue => "missing field value",
        ParseReason::InvalidFieldFormat => "invalid field format",
        ParseReason::UnbalancedQuotes => "unbalanced quotes",
        ParseReason::InvalidNumber => "invalid number",
        ParseReason::InvalidFloat => "invalid float",
        ParseReason::InvalidBoolean => "invalid boolean",
        ParseReason::IntegerRange => "value out of range",
        ParseReason::BadTimestamp => "bad timestamp",
        ParseReason::TimeRange => return format!("time outside range {TIME_MIN_NS} - {TIME_MAX_NS}"),
        ParseReason::TrailingBytes => "point is invalid",
        ParseReason::KeyTooLong => "max key length exceeded",
        ParseReason::LineTooLong => "max line length exceeded",
        ParseReason::InvalidUtf8 => "invalid UTF-8",
    };
    text.to_owned()
}

/// Text for an answer: each byte that is not UTF-8 becomes one replacement character.
pub(super) fn text_of(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| out.push(char::REPLACEMENT_CHARACTER));
    }
    out
}
