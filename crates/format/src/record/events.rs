//! Records without samples: deletions, ticks, cuts.

use chronolith_base::ByteReader;
use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_model::{Matcher, TimeRange};

use super::content::{Cut, CutScope, Record, RecordError, RecordTooLarge};
use super::frame::{
    Header, KIND_CUT, KIND_DELETE, KIND_TICK, RECORD_BYTES_MAX, expect_end, finish, invalid, put_origin,
    put_store, read_origin, read_store, start,
};
use crate::lists::put_list;
use crate::read::{put_matcher, read_matchers};

/// Flag of a cut: of one store alone.
const FLAG_SCOPE: u16 = 1;
/// Flag of a deletion: with its number.
const FLAG_NUMBER: u16 = 1;

/// Replaces `out` by the bytes of a record without samples.
///
/// # Errors
/// [`RecordTooLarge`] for a deletion with long matchers.
///
/// # Panics
/// For a record of samples, which [`super::RecordEncoder`] encodes.
pub fn encode_event(record: &Record, out: &mut Vec<u8>) -> Result<(), RecordTooLarge> {
    match record {
        Record::Samples { .. } => panic!("samples are in a batch"),
        Record::Delete { origin, number, selectors, range } => {
            let flags = if number.is_some() { FLAG_NUMBER } else { 0 };
            start(Header { kind: KIND_DELETE, flags, arrival_ms: origin.arrival_ms }, out);
            put_origin(origin, out);
            if let Some(number) = number {
                put_uvarint(out, *number);
            }
            put_varint(out, range.start);
            put_varint(out, range.end);
            put_list(out, selectors, |out, matchers| put_list(out, matchers, put_matcher));
        }
        Record::Tick { arrival_ms } => {
            start(Header { kind: KIND_TICK, flags: 0, arrival_ms: *arrival_ms }, out);
        }
        Record::Cut(Cut { arrival_ms, before_ms, scope }) => {
            let flags = if scope.is_some() { FLAG_SCOPE } else { 0 };
            start(Header { kind: KIND_CUT, flags, arrival_ms: *arrival_ms }, out);
            put_varint(out, *before_ms);
            if let Some(CutScope { tenant, store }) = scope {
                put_store(tenant, *store, out);
            }
        }
    }
    finish(out);
    if out.len() > RECORD_BYTES_MAX {
        let what = "a deletion";
        return Err(RecordTooLarge { what, bytes: out.len(), bytes_max: RECORD_BYTES_MAX });
    }
    Ok(())
}

/// Reads the body of a record without samples.
///
/// # Errors
/// [`RecordError`].
pub(super) fn read_event(header: Header, mut body: ByteReader<'_>) -> Result<Record, RecordError> {
    let Header { kind, flags, arrival_ms } = header;
    let flags_known = match kind {
        KIND_DELETE => FLAG_NUMBER,
        KIND_CUT => FLAG_SCOPE,
        _ => 0,
    };
    if flags & !flags_known != 0 {
        return Err(invalid("record flags", 6, "flags of the kind", u64::from(flags)).into());
    }
    let record = match kind {
        KIND_DELETE => {
            let origin = read_origin(&mut body, arrival_ms)?;
            let has_number = flags & FLAG_NUMBER != 0;
            let number = if has_number { Some(body.uvarint("number of a deletion")?) } else { None };
            let range = read_range(&mut body)?;
            Record::Delete { origin, number, selectors: read_selectors(&mut body)?, range }
        }
        KIND_TICK => Record::Tick { arrival_ms },
        KIND_CUT => {
            let before_ms = body.varint("end of the windows")?;
            let scope = if flags & FLAG_SCOPE != 0 {
                let (tenant, store) = read_store(&mut body)?;
                Some(CutScope { tenant, store })
            } else {
                None
            };
            Record::Cut(Cut { arrival_ms, before_ms, scope })
        }
        other => return Err(invalid("record kind", 5, "1 to 4", u64::from(other)).into()),
    };
    expect_end(&body, "record")?;
    Ok(record)
}

fn read_range(body: &mut ByteReader<'_>) -> Result<TimeRange, RecordError> {
    let start = body.varint("start of a deletion")?;
    let offset = body.offset();
    let end = body.varint("end of a deletion")?;
    if start > end {
        return Err(invalid("end of a deletion", offset, "a later time", end.cast_unsigned()).into());
    }
    Ok(TimeRange { start, end })
}

fn read_selectors(body: &mut ByteReader<'_>) -> Result<Vec<Vec<Matcher>>, RecordError> {
    let count = body.length("selectors")?;
    let mut selectors = Vec::new();
    for _ in 0..count {
        selectors.push(read_matchers(body)?);
    }
    Ok(selectors)
}
