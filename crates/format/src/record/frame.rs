//! Header, checksum and the fields that several kinds of records have.
//!
//! Invariant: magic, version and checksum stand at the same positions in every version, so that an intact
//! record of a later version is no damage.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::TenantId;
use chronolith_model::databases::BucketStoreId;

use super::content::{RECORD_VERSION, REQUEST_ID_BYTES_MAX, RecordError, RecordOrigin, RecordStore};
use crate::lists::{put_text, read_text};

/// Bytes of the longest record: below the default limit of every broker, 1 MB with the batch around it.
pub const RECORD_BYTES_MAX: usize = 900_000;

const MAGIC: [u8; 4] = *b"CLRR";
pub(super) const CHECKSUM_BYTES: usize = 4;
/// Bytes of the longest record without its checksum.
pub(super) const CONTENT_BYTES_MAX: usize = RECORD_BYTES_MAX - CHECKSUM_BYTES;
/// Bytes before the body.
pub(super) const HEADER_BYTES: usize = 16;
/// Place of the version.
pub(super) const VERSION_OFFSET: usize = 4;
/// Version of records with a plain body.
const VERSION_PLAIN: u8 = 1;
/// Version of records with a packed body.
pub(super) const VERSION_PACKED: u8 = 2;

/// Kind: samples of one store.
pub(super) const KIND_SAMPLES: u8 = 1;
/// Kind: samples to delete.
pub(super) const KIND_DELETE: u8 = 2;
/// Kind: time passes.
pub(super) const KIND_TICK: u8 = 3;
/// Kind: windows become blocks.
pub(super) const KIND_CUT: u8 = 4;

const STORE_DEFAULT: u8 = 0;
const STORE_DATABASE: u8 = 1;
const STORE_GRAPHITE: u8 = 2;

/// Longest tenant and request id with their lengths, store and its id.
pub(super) const ORIGIN_BYTES_MAX: usize = 2 + 150 + 17 + 2 + REQUEST_ID_BYTES_MAX;
/// Bytes of header and checksum.
pub(super) const FRAME_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;

const _: () = assert!(chronolith_model::tenant::TENANT_ID_BYTES_MAX == 150, "it is in the bound of a record");

/// Fields of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Kind of the record.
    pub(super) kind: u8,
    /// Presence of columns, and other bits of the kind.
    pub(super) flags: u16,
    /// Milliseconds since 1970.
    pub(super) arrival_ms: i64,
}

/// An intact record.
pub(super) struct Opened<'a> {
    pub(super) header: Header,
    /// Reader of the body, with offsets of the record.
    pub(super) body: ByteReader<'a>,
    /// The body is packed.
    pub(super) is_packed: bool,
}

/// Replaces `out` by a header; [`finish`] completes the record.
pub(super) fn start(header: Header, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION_PLAIN, header.kind]);
    out.extend_from_slice(&header.flags.to_le_bytes());
    out.extend_from_slice(&header.arrival_ms.to_le_bytes());
}

/// Appends the checksum of all bytes of `out`.
pub(super) fn finish(out: &mut Vec<u8>) {
    let sum = crc32c(out);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Verifies the checksum of a record and reads its header.
///
/// # Errors
/// [`RecordError::Bytes`], or [`RecordError::LaterVersion`] for an intact record.
pub(super) fn open(bytes: &[u8]) -> Result<Opened<'_>, RecordError> {
    let mut reader = ByteReader::new(bytes);
    let magic = reader.be_u32("record magic")?;
    if magic != u32::from_be_bytes(MAGIC) {
        return Err(invalid("record magic", 0, "CLRR", u64::from(magic)).into());
    }
    let version = reader.u8("record version")?;
    let end = bytes.len().saturating_sub(CHECKSUM_BYTES);
    let content = bytes.get(..end).unwrap_or_default();
    let found = ByteReader::at(bytes, end).le_u32("record checksum")?;
    let expected = crc32c(content);
    if found != expected {
        return Err(DecodeError::Checksum { what: "record", offset: end, expected, found }.into());
    }
    if version > RECORD_VERSION {
        return Err(RecordError::LaterVersion { found: version });
    }
    if version == 0 {
        return Err(invalid("record version", VERSION_OFFSET, "at least 1", 0).into());
    }
    let mut body = ByteReader::at(content, reader.offset());
    let kind = body.u8("record kind")?;
    let flags = body.le_u16("record flags")?;
    let arrival_ms = body.le_u64("arrival time")?.cast_signed();
    let header = Header { kind, flags, arrival_ms };
    Ok(Opened { header, body, is_packed: version == VERSION_PACKED })
}

#[cold]
pub(crate) fn invalid(what: &'static str, offset: usize, expected: &'static str, found: u64) -> DecodeError {
    DecodeError::Invalid { what, offset, expected, found }
}

/// Returns an error if bytes are left.
pub(crate) fn expect_end(reader: &ByteReader<'_>, what: &'static str) -> Result<(), DecodeError> {
    if reader.is_empty() {
        return Ok(());
    }
    Err(invalid(what, reader.offset(), "no further bytes", reader.remaining() as u64))
}

/// Appends tenant, store and request id.
pub(super) fn put_origin(origin: &RecordOrigin, out: &mut Vec<u8>) {
    put_store(&origin.tenant, origin.store, out);
    put_text(out, cut_to(&origin.request_id, REQUEST_ID_BYTES_MAX));
}

/// Returns the longest prefix of at most `bytes_max` bytes.
fn cut_to(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}

/// Reads tenant, store and request id.
pub(super) fn read_origin(reader: &mut ByteReader<'_>, arrival_ms: i64) -> Result<RecordOrigin, DecodeError> {
    let (tenant, store) = read_store(reader)?;
    let offset = reader.offset();
    let request_id = read_text(reader, "request id")?;
    if request_id.len() > REQUEST_ID_BYTES_MAX {
        return Err(invalid("request id", offset, "at most 128 bytes", request_id.len() as u64));
    }
    Ok(RecordOrigin { tenant, store, request_id, arrival_ms })
}

/// Appends tenant and store.
pub(crate) fn put_store(tenant: &TenantId, store: RecordStore, out: &mut Vec<u8>) {
    put_text(out, tenant.as_str());
    match store {
        RecordStore::Default => out.push(STORE_DEFAULT),
        RecordStore::Database(id) => {
            out.push(STORE_DATABASE);
            out.extend_from_slice(&id.to_bytes());
        }
        RecordStore::Graphite(id) => {
            out.push(STORE_GRAPHITE);
            out.extend_from_slice(&id.to_bytes());
        }
    }
}

/// Reads tenant and store.
pub(crate) fn read_store(reader: &mut ByteReader<'_>) -> Result<(TenantId, RecordStore), DecodeError> {
    let offset = reader.offset();
    let tenant = read_text(reader, "tenant")?;
    let tenant =
        TenantId::new(&tenant).map_err(|_| invalid("tenant", offset, "a tenant id", tenant.len() as u64))?;
    let offset = reader.offset();
    let store = match reader.u8("store")? {
        STORE_DEFAULT => RecordStore::Default,
        STORE_DATABASE => RecordStore::Database(read_store_id(reader)?),
        STORE_GRAPHITE => RecordStore::Graphite(read_store_id(reader)?),
        other => return Err(invalid("store", offset, "0, 1 or 2", u64::from(other))),
    };
    Ok((tenant, store))
}

fn read_store_id(reader: &mut ByteReader<'_>) -> Result<BucketStoreId, DecodeError> {
    let mut id = [0; 16];
    id.copy_from_slice(reader.bytes("id of a store", 16)?);
    Ok(BucketStoreId::from_bytes(id))
}

/// Appends `column` after its length.
pub(super) fn put_column(column: &[u8], out: &mut Vec<u8>) {
    put_uvarint(out, column.len() as u64);
    out.extend_from_slice(column);
}

/// Returns a reader of the next column, with offsets of the record; `content` is the record up to its
/// checksum.
pub(super) fn read_column<'a>(
    what: &'static str,
    content: &'a [u8],
    reader: &mut ByteReader<'a>,
) -> Result<ByteReader<'a>, DecodeError> {
    let len = reader.length(what)?;
    let start = reader.offset();
    reader.bytes(what, len)?;
    Ok(ByteReader::at(content.get(..reader.offset()).unwrap_or_default(), start))
}
