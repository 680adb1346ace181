//! Reads of a store as bytes, for another process.
//!
//! Invariants: a decoded read equals the encoded one; an unknown version, form or flag is an error, so that
//! no other question is answered.
//! Not here: the answer; the transport. Layout: `docs/read.md`.

use std::sync::Arc;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::query::{ColumnType, Projection, Read, SampleNeed, SelectRequest, Shard, Wanted};
use chronolith_model::regex::RegexError;
use chronolith_model::rollup::RollupSpan;
use chronolith_model::{MatchOp, Matcher, StoreId, TimeRange};

use crate::lists::{put_list, put_text, read_list, read_text};
use crate::{StoreNameError, parse_store_name, store_name};

/// Version of the layout, its first byte.
pub const READ_VERSION: u8 = 1;

const OPS: [MatchOp; 4] = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex];
const NEEDS: [SampleNeed; 2] = [SampleNeed::All, SampleNeed::Newest];
/// Types in the order of their bytes.
pub(crate) const COLUMN_TYPES: [ColumnType; 6] = [
    ColumnType::Float,
    ColumnType::Integer,
    ColumnType::Unsigned,
    ColumnType::Boolean,
    ColumnType::Text,
    ColumnType::Histogram,
];

const FLAG_PRESENCE: u8 = 1;
const FLAG_GROUPING: u8 = 1 << 1;
const FLAG_PROJECTION: u8 = 1 << 2;
const FLAG_SHARD: u8 = 1 << 3;
const FLAG_PARTIAL: u8 = 1 << 4;
const FLAGS: u8 = FLAG_PRESENCE | FLAG_GROUPING | FLAG_PROJECTION | FLAG_SHARD | FLAG_PARTIAL;

/// Reason why bytes are no read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadCodecError {
    /// Bytes that are missing or that the layout does not allow.
    #[error(transparent)]
    Bytes(#[from] DecodeError),
    /// A name that is no store's.
    #[error(transparent)]
    Store(#[from] StoreNameError),
    /// A pattern that does not compile.
    #[error("matcher on {name:?}: {error}")]
    Regex {
        /// Label.
        name: String,
        /// Fault of the pattern.
        error: RegexError,
    },
}

/// Appends a read of `store`.
pub fn put_read(out: &mut Vec<u8>, store: &StoreId, read: &Read) {
    out.push(READ_VERSION);
    put_text(out, &store_name(store));
    put_wanted(out, &read.wanted);
    put_request(out, &read.request);
}

/// Appends the form of an answer.
pub(crate) fn put_wanted(out: &mut Vec<u8>, wanted: &Wanted) {
    match wanted {
        Wanted::Series => out.push(0),
        Wanted::Estimate => out.push(1),
        Wanted::LabelNames => out.push(2),
        Wanted::LabelValues { name } => {
            out.push(3);
            put_text(out, name);
        }
        Wanted::EachLabelValue { name, prefix } => {
            out.push(4);
            put_text(out, name);
            put_text(out, prefix);
        }
        Wanted::SoleLabelValues { name } => {
            out.push(5);
            put_text(out, name);
        }
    }
}

/// Appends a request.
pub(crate) fn put_request(out: &mut Vec<u8>, request: &SelectRequest) {
    put_list(out, &request.matchers, put_matcher);
    put_varint(out, request.range.start);
    put_varint(out, request.range.end);
    out.push(place_of(&NEEDS, request.samples));
    out.push(place_of(&COLUMN_TYPES, request.column_type));
    let flags = [
        (FLAG_PRESENCE, request.presence_only),
        (FLAG_GROUPING, request.grouping.is_some()),
        (FLAG_PROJECTION, request.projection.is_some()),
        (FLAG_SHARD, request.shard.is_some()),
        (FLAG_PARTIAL, request.allows_partial),
    ];
    out.push(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).sum());
    for projection in request.grouping.iter().chain(&request.projection) {
        out.push(projection.include.into());
        put_list(out, &projection.names, |out, name| put_text(out, name));
    }
    if let Some(shard) = request.shard {
        put_uvarint(out, shard.idx().into());
        put_uvarint(out, shard.count().into());
    }
    put_text(out, &request.function);
    put_varint(out, request.step_ms);
    put_varint(out, request.range_ms);
    put_list(out, &request.rollups, |out, rollup| {
        put_varint(out, rollup.span_ms);
        put_varint(out, rollup.slot_ms);
    });
    put_uvarint(out, request.limit as u64);
}

/// Appends a matcher.
pub(crate) fn put_matcher(out: &mut Vec<u8>, matcher: &Matcher) {
    out.push(place_of(&OPS, matcher.op));
    put_text(out, &matcher.name);
    put_text(out, &matcher.value);
}

/// Place of a value in the list of all, which is its byte.
pub(crate) fn place_of<T: PartialEq>(all: &[T], value: T) -> u8 {
    let place = all.iter().position(|one| *one == value).expect("a list of all values");
    u8::try_from(place).expect("few values")
}

/// Returns the store and the read of `bytes`, which have nothing else. Patterns are compiled. Cost:
/// linear, but for patterns.
///
/// # Errors
/// [`ReadCodecError`].
pub fn decode_read(bytes: &[u8]) -> Result<(StoreId, Read), ReadCodecError> {
    let mut bytes = ByteReader::new(bytes);
    one_of(&mut bytes, "version of a read", "version 1", &[(), ()], 1)?;
    let store = parse_store_name(&read_text(&mut bytes, "store of a read")?)?;
    let wanted = wanted_of(&mut bytes)?;
    let request = request_of(&mut bytes)?;
    if !bytes.is_empty() {
        let found = bytes.remaining() as u64;
        let offset = bytes.offset();
        return Err(DecodeError::Invalid { what: "end of a read", offset, expected: "0 bytes", found }.into());
    }
    Ok((store, Read { request, wanted }))
}

/// Reads a byte that is the place of a value in the list of all, at least `first`.
pub(crate) fn one_of<T: Copy>(
    bytes: &mut ByteReader<'_>,
    what: &'static str,
    expected: &'static str,
    all: &[T],
    first: u8,
) -> Result<T, DecodeError> {
    let offset = bytes.offset();
    let found = bytes.u8(what)?;
    let value = all.get(usize::from(found)).filter(|_| found >= first);
    value.copied().ok_or(DecodeError::Invalid { what, offset, expected, found: found.into() })
}

fn arc_text(bytes: &mut ByteReader<'_>, what: &'static str) -> Result<Arc<str>, DecodeError> {
    read_text(bytes, what).map(Arc::from)
}

/// Reads the form of an answer.
///
/// # Errors
/// [`DecodeError`].
pub(crate) fn wanted_of(bytes: &mut ByteReader<'_>) -> Result<Wanted, DecodeError> {
    const WHAT: &str = "label of a read";
    let places: [u8; 6] = [0, 1, 2, 3, 4, 5];
    Ok(match one_of(bytes, "form of a read", "0 to 5", &places, 0)? {
        0 => Wanted::Series,
        1 => Wanted::Estimate,
        2 => Wanted::LabelNames,
        3 => Wanted::LabelValues { name: arc_text(bytes, WHAT)? },
        4 => {
            let name = arc_text(bytes, WHAT)?;
            Wanted::EachLabelValue { name, prefix: arc_text(bytes, "prefix of a read")? }
        }
        _ => Wanted::SoleLabelValues { name: arc_text(bytes, WHAT)? },
    })
}

fn matcher_of(bytes: &mut ByteReader<'_>) -> Result<(MatchOp, String, String), DecodeError> {
    let op = one_of(bytes, "operator of a matcher", "0 to 3", &OPS, 0)?;
    let name = read_text(bytes, "label of a matcher")?;
    Ok((op, name, read_text(bytes, "value of a matcher")?))
}

/// Reads a list of matchers and compiles their patterns.
///
/// # Errors
/// [`ReadCodecError::Bytes`] or [`ReadCodecError::Regex`].
pub(crate) fn read_matchers(bytes: &mut ByteReader<'_>) -> Result<Vec<Matcher>, ReadCodecError> {
    let mut matchers = Vec::new();
    for (op, name, value) in read_list(bytes, "matchers", matcher_of)? {
        let matcher = Matcher::new(&name, op, &value);
        matchers.push(matcher.map_err(|error| ReadCodecError::Regex { name, error })?);
    }
    Ok(matchers)
}

fn projection_of(bytes: &mut ByteReader<'_>) -> Result<Projection, DecodeError> {
    let include = one_of(bytes, "kind of a projection", "0 or 1", &[false, true], 0)?;
    let offset = bytes.offset();
    let names = read_list(bytes, "labels of a projection", |bytes| arc_text(bytes, "label"))?;
    if !names.is_sorted() {
        let found = names.len() as u64;
        let what = "labels of a projection";
        return Err(DecodeError::Invalid { what, offset, expected: "ascending names", found });
    }
    Ok(Projection { names, include })
}

fn shard_of(bytes: &mut ByteReader<'_>) -> Result<Shard, DecodeError> {
    let offset = bytes.offset();
    let idx = bytes.uvarint("shard")?;
    let count = bytes.uvarint("number of shards")?;
    let shard = u32::try_from(idx).ok().zip(u32::try_from(count).ok());
    let shard = shard.and_then(|(idx, count)| Shard::new(idx, count));
    shard.ok_or(DecodeError::Invalid {
        what: "shard",
        offset,
        expected: "less than their number",
        found: idx,
    })
}

/// Reads a range.
///
/// # Errors
/// [`DecodeError`].
pub(crate) fn range_of(bytes: &mut ByteReader<'_>) -> Result<TimeRange, DecodeError> {
    let start = bytes.varint("start of a range")?;
    let offset = bytes.offset();
    let end = bytes.varint("end of a range")?;
    if start > end {
        let found = end.cast_unsigned();
        return Err(DecodeError::Invalid { what: "end of a range", offset, expected: "a later time", found });
    }
    Ok(TimeRange { start, end })
}

/// Reads a request and compiles its patterns.
///
/// # Errors
/// [`ReadCodecError`].
pub(crate) fn request_of(bytes: &mut ByteReader<'_>) -> Result<SelectRequest, ReadCodecError> {
    let matchers = read_matchers(bytes)?;
    let range = range_of(bytes)?;
    let samples = one_of(bytes, "samples of a read", "0 or 1", &NEEDS, 0)?;
    let column_type = one_of(bytes, "type of a read", "0 to 5", &COLUMN_TYPES, 0)?;
    let offset = bytes.offset();
    let flags = bytes.u8("flags of a read")?;
    if flags & !FLAGS != 0 {
        let what = "flags of a read";
        let found = flags.into();
        return Err(DecodeError::Invalid { what, offset, expected: "bits 0 to 4", found }.into());
    }
    let has = |flag: u8| flags & flag != 0;
    let grouping = has(FLAG_GROUPING).then(|| projection_of(bytes)).transpose()?;
    let projection = has(FLAG_PROJECTION).then(|| projection_of(bytes)).transpose()?;
    let shard = has(FLAG_SHARD).then(|| shard_of(bytes)).transpose()?;
    Ok(SelectRequest {
        matchers,
        range,
        samples,
        presence_only: has(FLAG_PRESENCE),
        function: arc_text(bytes, "function of a read")?,
        grouping,
        projection,
        step_ms: bytes.varint("step of a read")?,
        range_ms: bytes.varint("width of a read")?,
        column_type,
        shard,
        rollups: read_list(bytes, "roll-ups of a read", |bytes| {
            let span_ms = bytes.varint("span of a roll-up")?;
            Ok(RollupSpan { span_ms, slot_ms: bytes.varint("slot of a roll-up")? })
        })?,
        limit: usize::try_from(bytes.uvarint("limit of a read")?).unwrap_or(usize::MAX),
        allows_partial: has(FLAG_PARTIAL),
    })
}

#[cfg(test)]
mod tests;
