//! Remote read: a snappy-compressed `prometheus.ReadRequest` becomes queries.
//!
//! Invariants: the claimed size is checked before memory is taken; bytes never panic; counts are limited.
//! Not here: answers (`encode`), HTTP headers, reading (`server`).

pub mod encode;

#[cfg(test)]
mod tests;

use chronolith_model::matcher::MatchOp;
use chronolith_model::regex::RegexError;
use chronolith_model::{Matcher, TimeRange};

use crate::remote_write::wire::{Cursor, LEN, VARINT};
use crate::remote_write::{DecodeError, WireError, decompress};

/// Queries in one request at most.
pub const QUERY_COUNT_MAX: usize = 1 << 10;
/// Matchers of one query at most.
pub const MATCHER_COUNT_MAX: usize = 1 << 10;
/// Types of answers that one request may list.
pub const RESPONSE_KIND_COUNT_MAX: usize = 64;

/// Forms of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// One message with all samples.
    Samples,
    /// Frames with chunks, series by series.
    StreamedChunks,
}

/// Reason for refusing a request. The texts are Prometheus's where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadRequestError {
    /// The body is not the message that the protocol sends.
    #[error(transparent)]
    Body(#[from] DecodeError),
    /// The client accepts no known form of answers.
    #[error(
        "server does not support any of the requested response types: [{}]; supported: map[SAMPLES:{{}} STREAMED_XOR_CHUNKS:{{}}]",
        .0.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
    )]
    NoResponseKind(Vec<u64>),
    /// A matcher is of an unknown type.
    #[error("invalid matcher type")]
    MatcherType,
    /// The pattern of a matcher is refused.
    #[error("{0}")]
    Pattern(#[from] RegexError),
}

impl From<WireError> for ReadRequestError {
    fn from(error: WireError) -> ReadRequestError {
        ReadRequestError::Body(error.into())
    }
}

/// Queries of a client, with the accepted forms of answers.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// Queries in the order of the request.
    pub queries: Vec<ReadQuery>,
    /// The first form that the client accepts and this version knows.
    pub response: ResponseKind,
}

/// One selection.
#[derive(Debug, Clone)]
pub struct ReadQuery {
    /// Times of the samples: the range of the query, or the part that its hints need.
    pub range: TimeRange,
    /// All must hold.
    pub matchers: Vec<Matcher>,
    /// Only the labels of the series are needed (`func` of the hints is `series`).
    pub is_labels_only: bool,
}

/// Decompresses and reads a request.
///
/// # Errors
/// [`ReadRequestError`].
pub fn decode(body: &[u8], decompressed_bytes_max: usize) -> Result<ReadRequest, ReadRequestError> {
    let mut message = Vec::new();
    decompress(body, decompressed_bytes_max, &mut message)?;
    let mut at = Cursor::new(&message);
    let mut queries = Vec::new();
    let mut accepted = Vec::new();
    while !at.is_empty() {
        match at.tag()? {
            (1, LEN) => {
                limit(queries.len(), "queries", QUERY_COUNT_MAX)?;
                queries.push(query(at.message()?)?);
            }
            (2, VARINT) => accepted.push(at.varint()?),
            (2, LEN) => {
                let mut packed = at.message()?;
                while !packed.is_empty() {
                    limit(accepted.len(), "response types", RESPONSE_KIND_COUNT_MAX)?;
                    accepted.push(packed.varint()?);
                }
            }
            (1 | 2, _) => return Err(at.wrong_type().into()),
            (_, wire_type) => at.skip(wire_type)?,
        }
        limit(accepted.len(), "response types", RESPONSE_KIND_COUNT_MAX + 1)?;
    }
    Ok(ReadRequest { queries, response: negotiate(accepted)? })
}

/// A request that lists nothing is from before there was a choice.
fn negotiate(accepted: Vec<u64>) -> Result<ResponseKind, ReadRequestError> {
    if accepted.is_empty() {
        return Ok(ResponseKind::Samples);
    }
    let known = |number: &u64| match number {
        0 => Some(ResponseKind::Samples),
        1 => Some(ResponseKind::StreamedChunks),
        _ => None,
    };
    accepted.iter().find_map(known).ok_or(ReadRequestError::NoResponseKind(accepted))
}

fn limit(count: usize, what: &'static str, limit: usize) -> Result<(), DecodeError> {
    if count < limit { Ok(()) } else { Err(DecodeError::TooMany { what, limit }) }
}

fn query(mut at: Cursor<'_>) -> Result<ReadQuery, ReadRequestError> {
    let mut start_ms = 0;
    let mut end_ms = 0;
    let mut matchers = Vec::new();
    let mut hints = None;
    while !at.is_empty() {
        match at.tag()? {
            (1, VARINT) => start_ms = at.varint()?.cast_signed(),
            (2, VARINT) => end_ms = at.varint()?.cast_signed(),
            (3, LEN) => {
                limit(matchers.len(), "matchers", MATCHER_COUNT_MAX)?;
                matchers.push(matcher(at.message()?)?);
            }
            (4, LEN) => hints = Some(self::hints(at.message()?)?),
            (1..=4, _) => return Err(at.wrong_type().into()),
            (_, wire_type) => at.skip(wire_type)?,
        }
    }
    // Hints may only narrow. Without times they say nothing about them.
    let Hints { first_ms, last_ms, is_labels_only } = hints.unwrap_or_default();
    if (first_ms, last_ms) != (0, 0) {
        (start_ms, end_ms) = (start_ms.max(first_ms), end_ms.min(last_ms));
    }
    let range = TimeRange::inclusive(start_ms, end_ms.max(start_ms.saturating_sub(1)));
    Ok(ReadQuery { range, matchers, is_labels_only })
}

/// Function of a reader that needs labels alone.
const LABELS_ONLY_FUNCTION: &[u8] = b"series";

/// Parts of a query that its reader needs.
#[derive(Default)]
struct Hints {
    first_ms: i64,
    last_ms: i64,
    is_labels_only: bool,
}

fn hints(mut at: Cursor<'_>) -> Result<Hints, WireError> {
    let mut hints = Hints::default();
    while !at.is_empty() {
        match at.tag()? {
            (2, LEN) => hints.is_labels_only = at.message()?.rest() == LABELS_ONLY_FUNCTION,
            (3, VARINT) => hints.first_ms = at.varint()?.cast_signed(),
            (4, VARINT) => hints.last_ms = at.varint()?.cast_signed(),
            (2..=4, _) => return Err(at.wrong_type()),
            (_, wire_type) => at.skip(wire_type)?,
        }
    }
    Ok(hints)
}

fn matcher(mut at: Cursor<'_>) -> Result<Matcher, ReadRequestError> {
    let mut kind = 0;
    let mut name = "";
    let mut value = "";
    while !at.is_empty() {
        match at.tag()? {
            (1, VARINT) => kind = at.varint()?,
            (2, LEN) => name = at.message()?.text()?,
            (3, LEN) => value = at.message()?.text()?,
            (1..=3, _) => return Err(at.wrong_type().into()),
            (_, wire_type) => at.skip(wire_type)?,
        }
    }
    let op = match kind {
        0 => MatchOp::Equal,
        1 => MatchOp::NotEqual,
        2 => MatchOp::Regex,
        3 => MatchOp::NotRegex,
        _ => return Err(ReadRequestError::MatcherType),
    };
    Ok(Matcher::new(name, op, value)?)
}
