//! Bytes of a call.
//!
//! Invariants: magic, version and checksum have the same positions in every version; a decoded call equals
//! the encoded one.

use std::collections::BTreeMap;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::min_offsets::{MinOffsets, ReadConsistency};
use chronolith_model::query::Read;

use super::content::{
    CALL_BYTES_MAX, SELECT_VERSION, SelectCall, SelectError, SelectLimits, SelectQuestion, SelectView,
};
use crate::lists::{put_list, put_text, read_list, read_text};
use crate::read::{
    one_of, place_of, put_matcher, put_request, put_wanted, range_of, read_matchers, request_of, wanted_of,
};
use crate::record::{expect_end, invalid, put_store, read_store};

const MAGIC: [u8; 4] = *b"CLSQ";
const CHECKSUM_BYTES: usize = 4;
const QUESTION_READ: u8 = 0;
const QUESTION_METADATA: u8 = 1;
const QUESTION_EXEMPLARS: u8 = 2;
const QUESTION_RANGES: u8 = 3;
const FLAG_STRONG: u8 = 1;
const FLAG_OFFSETS: u8 = 1 << 1;

/// Returns the bytes of a call. A call with more than [`CALL_BYTES_MAX`] is refused by its reader.
#[must_use]
pub fn encode_call(call: &SelectCall) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&MAGIC);
    out.push(SELECT_VERSION);
    put_store(&call.tenant, call.store, &mut out);
    out.push(place_of(&SelectView::ALL, call.view));
    let SelectLimits { series_max, samples_max, bytes_max } = call.limits;
    for number in [call.deadline_ms, series_max, samples_max, bytes_max, call.catalogue] {
        put_uvarint(&mut out, number);
    }
    put_consistency(&mut out, &call.consistency);
    put_question(&mut out, &call.question);
    let sum = crc32c(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Returns the call of `bytes`. Cost: linear, but for regular expressions, which are compiled.
///
/// # Errors
/// [`SelectError`]; [`SelectError::Version`] only if the bytes are intact.
pub fn decode_call(bytes: &[u8]) -> Result<SelectCall, SelectError> {
    if bytes.len() > CALL_BYTES_MAX {
        return Err(invalid("select call", 0, "at most 1 MiB", bytes.len() as u64).into());
    }
    let mut reader = ByteReader::new(bytes);
    let magic = reader.be_u32("magic of a select call")?;
    if magic != u32::from_be_bytes(MAGIC) {
        return Err(invalid("magic of a select call", 0, "CLSQ", magic.into()).into());
    }
    let version = reader.u8("version of a select call")?;
    let end = bytes.len().saturating_sub(CHECKSUM_BYTES);
    let content = bytes.get(..end).unwrap_or_default();
    let found = ByteReader::at(bytes, end).le_u32("checksum of a select call")?;
    let expected = crc32c(content);
    if found != expected {
        return Err(DecodeError::Checksum { what: "select call", offset: end, expected, found }.into());
    }
    if version != SELECT_VERSION {
        return Err(SelectError::Version { found: version });
    }
    let mut body = ByteReader::at(content, reader.offset());
    let (tenant, store) = read_store(&mut body)?;
    let view = one_of(&mut body, "view of a select call", "0 to 2", &SelectView::ALL, 0)?;
    let mut number = || body.uvarint("limits of a select call");
    let deadline_ms = number()?;
    let limits = SelectLimits { series_max: number()?, samples_max: number()?, bytes_max: number()? };
    let catalogue = number()?;
    let consistency = read_consistency(&mut body)?;
    let question = read_question(&mut body)?;
    expect_end(&body, "end of a select call")?;
    Ok(SelectCall { tenant, store, view, deadline_ms, limits, catalogue, consistency, question })
}

fn put_question(out: &mut Vec<u8>, question: &SelectQuestion) {
    match question {
        SelectQuestion::Read(read) => {
            out.push(QUESTION_READ);
            put_wanted(out, &read.wanted);
            put_request(out, &read.request);
        }
        SelectQuestion::Metadata { metric, limit } => {
            out.push(QUESTION_METADATA);
            put_list(out, metric, |out, metric| put_text(out, metric));
            put_uvarint(out, *limit);
        }
        SelectQuestion::Exemplars { selectors, range } => {
            out.push(QUESTION_EXEMPLARS);
            put_list(out, selectors, |out, matchers| put_list(out, matchers, put_matcher));
            put_varint(out, range.start);
            put_varint(out, range.end);
        }
        SelectQuestion::Ranges => out.push(QUESTION_RANGES),
    }
}

fn read_question(body: &mut ByteReader<'_>) -> Result<SelectQuestion, SelectError> {
    let what = "question of a select call";
    let offset = body.offset();
    Ok(match body.u8(what)? {
        QUESTION_READ => {
            let wanted = wanted_of(body)?;
            SelectQuestion::Read(Read { request: request_of(body)?, wanted })
        }
        QUESTION_METADATA => {
            let mut metrics = read_list(body, what, |body| read_text(body, what))?;
            if metrics.len() > 1 {
                return Err(invalid(what, offset, "one metric at most", metrics.len() as u64).into());
            }
            SelectQuestion::Metadata { metric: metrics.pop(), limit: body.uvarint(what)? }
        }
        QUESTION_EXEMPLARS => {
            let count = body.length(what)?;
            let mut selectors = Vec::new();
            for _ in 0..count {
                selectors.push(read_matchers(body)?);
            }
            SelectQuestion::Exemplars { selectors, range: range_of(body)? }
        }
        QUESTION_RANGES => SelectQuestion::Ranges,
        other => return Err(invalid(what, offset, "0 to 3", other.into()).into()),
    })
}

fn put_consistency(out: &mut Vec<u8>, consistency: &ReadConsistency) {
    let ReadConsistency { is_strong, offsets } = consistency;
    let strong = if *is_strong { FLAG_STRONG } else { 0 };
    out.push(strong | if offsets.is_some() { FLAG_OFFSETS } else { 0 });
    let Some(offsets) = offsets else { return };
    put_text(out, offsets.topic());
    put_uvarint(out, offsets.newest().len() as u64);
    for (partition, offset) in offsets.newest() {
        put_uvarint(out, (*partition).into());
        put_uvarint(out, *offset);
    }
}

fn read_consistency(body: &mut ByteReader<'_>) -> Result<ReadConsistency, DecodeError> {
    let what = "consistency of a select call";
    let offset = body.offset();
    let flags = body.u8(what)?;
    if flags & !(FLAG_STRONG | FLAG_OFFSETS) != 0 {
        return Err(invalid(what, offset, "known flags", flags.into()));
    }
    let offsets = if flags & FLAG_OFFSETS == 0 { None } else { Some(read_offsets(body, what)?) };
    Ok(ReadConsistency { is_strong: flags & FLAG_STRONG != 0, offsets })
}

fn read_offsets(body: &mut ByteReader<'_>, what: &'static str) -> Result<MinOffsets, DecodeError> {
    let start = body.offset();
    let topic = read_text(body, what)?;
    let count = body.length(what)?;
    let mut newest = BTreeMap::new();
    let mut before: Option<u32> = None;
    for _ in 0..count {
        let offset = body.offset();
        let found = body.uvarint(what)?;
        let partition =
            u32::try_from(found).ok().filter(|number| before.is_none_or(|before| before < *number));
        let partition = partition.ok_or_else(|| invalid(what, offset, "ascending partitions", found))?;
        newest.insert(partition, body.uvarint(what)?);
        before = Some(partition);
    }
    let expected = "a topic and 1 to 100 partitions";
    MinOffsets::new(topic, newest).ok_or_else(|| invalid(what, start, expected, count as u64))
}
