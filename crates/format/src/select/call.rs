//! Bytes of a call.
//!
//! Invariants: magic, version and checksum have the same positions in every version; a decoded call equals
//! the encoded one.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::query::Read;

use super::content::{CALL_BYTES_MAX, SELECT_VERSION, SelectCall, SelectError, SelectLimits, SelectView};
use crate::read::{one_of, place_of, put_request, put_wanted, request_of, wanted_of};
use crate::record::{expect_end, invalid, put_store, read_store};

const MAGIC: [u8; 4] = *b"CLSQ";
const CHECKSUM_BYTES: usize = 4;

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
    put_wanted(&mut out, &call.read.wanted);
    put_request(&mut out, &call.read.request);
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
    let wanted = wanted_of(&mut body)?;
    let request = request_of(&mut body)?;
    expect_end(&body, "end of a select call")?;
    let read = Read { request, wanted };
    Ok(SelectCall { tenant, store, view, deadline_ms, limits, catalogue, read })
}
