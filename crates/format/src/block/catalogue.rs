//! The block catalogue: what a start has to know of every block of every tenant, as frames that are only
//! appended.
//!
//! Invariant: frames have the format of the WAL, under a key of the file; readers take untrusted bytes, never
//! panic and allocate no more than the bytes they read. Layout: `docs/block/catalogue.md`.
//! Not here: the time at which a record is written, its use at start (`tsdb`).

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

use crate::block::meta::Ulid;
use crate::head::wal::{FrameHeader, STRIPE_NONE, scan_segment_from};

/// First bytes of a file.
pub const FILE_MAGIC: [u8; 4] = *b"CLBC";
/// Version of the layout.
pub const FILE_VERSION: u16 = 2;
/// The first version, whose records have no sizes of single files.
const VERSION_WITHOUT_SIZES: u16 = 1;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 32;
/// Frame kind: changes of the blocks of one tenant.
pub const KIND_BLOCKS: u8 = 72;

const OP_ADD: u8 = 1;
const OP_REMOVE: u8 = 2;
const FLAG_COMPACTION_FAILED: u8 = 1;
const FLAG_SPLIT: u8 = 2;
const FLAG_IMMUTABLE_BYTES: u8 = 4;
const FLAG_SAMPLE_COUNT: u8 = 8;

/// Sizes of the files of a block that are written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImmutableBytes {
    /// Bytes of `index`.
    pub index: u64,
    /// Bytes of all segments in `chunks/`.
    pub chunks: u64,
}

/// Record of a block: what planning and queries need without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRecord {
    /// Name of the block.
    pub ulid: Ulid,
    /// The oldest head block that went in: the order in which blocks were written.
    pub oldest_source: Ulid,
    /// First time covered, in the unit of the tenant.
    pub min_time: i64,
    /// First time after that.
    pub max_time: i64,
    /// Bytes of all its files.
    pub size_bytes: u64,
    /// Bytes of its index and of all its chunk segments, which never change; `None` if not recorded.
    pub immutable_bytes: Option<ImmutableBytes>,
    /// Series.
    pub series_count: u64,
    /// Samples, deleted ones included; `None` if not recorded.
    pub sample_count: Option<u64>,
    /// Deleted intervals, of all series together.
    pub tombstone_count: u64,
    /// `compaction.failed` of its `meta.json`.
    pub compaction_failed: bool,
    /// Name of the set of blocks that a compaction split by series, if it is of one.
    pub split_set: Option<Ulid>,
    /// Blocks that it was merged from, older than it.
    pub parents: Box<[Ulid]>,
}

/// One change of the blocks of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The block is there, as the record has it; replaces an earlier record of it.
    Add(BlockRecord),
    /// The block is gone or about to be.
    Remove(Ulid),
}

/// The bytes of a file header.
#[must_use]
pub fn encode_header(key: u128) -> [u8; FILE_HEADER_BYTES] {
    let mut out = [0u8; FILE_HEADER_BYTES];
    out[..4].copy_from_slice(&FILE_MAGIC);
    out[4..6].copy_from_slice(&FILE_VERSION.to_le_bytes());
    out[8..24].copy_from_slice(&key.to_le_bytes());
    let sum = crc32c(&out[..28]);
    out[28..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// The version and key of the file that starts with `bytes`.
///
/// # Errors
/// [`DecodeError`] for short, foreign, damaged or later-version bytes.
fn decode_header(bytes: &[u8]) -> Result<(u16, u128), DecodeError> {
    let head = ByteReader::new(bytes).bytes("catalogue header", FILE_HEADER_BYTES)?;
    let mut reader = ByteReader::new(head);
    let magic = reader.be_u32("catalogue magic")?;
    if magic != u32::from_be_bytes(FILE_MAGIC) {
        let (what, found) = ("catalogue magic", u64::from(magic));
        return Err(DecodeError::Invalid { what, offset: 0, expected: "CLBC", found });
    }
    let version = reader.le_u16("catalogue version")?;
    reader.bytes("catalogue reserved", 2)?;
    let (low, high) = (reader.le_u64("catalogue key")?, reader.le_u64("catalogue key")?);
    reader.bytes("catalogue reserved", 4)?;
    let found = reader.le_u32("catalogue checksum")?;
    let expected = crc32c(head.get(..28).unwrap_or(&[]));
    if found != expected {
        return Err(DecodeError::Checksum { what: "catalogue header", offset: 28, expected, found });
    }
    if ![VERSION_WITHOUT_SIZES, FILE_VERSION].contains(&version) {
        let (what, found) = ("catalogue version", u64::from(version));
        return Err(DecodeError::Invalid { what, offset: 4, expected: "1 or 2", found });
    }
    Ok((version, u128::from(high) << 64 | u128::from(low)))
}

/// Appends the start of a payload: whose changes follow.
pub fn put_tenant(tenant: &str, out: &mut Vec<u8>) {
    put_uvarint(out, tenant.len() as u64);
    out.extend_from_slice(tenant.as_bytes());
}

/// Appends "the block is gone" to a payload.
pub fn put_remove(ulid: Ulid, out: &mut Vec<u8>) {
    out.push(OP_REMOVE);
    out.extend_from_slice(&ulid.to_bytes());
}

/// Appends "the block is there" to a payload.
pub fn put_add(record: &BlockRecord, out: &mut Vec<u8>) {
    out.push(OP_ADD);
    out.extend_from_slice(&record.ulid.to_bytes());
    out.extend_from_slice(&record.oldest_source.to_bytes());
    let failed = if record.compaction_failed { FLAG_COMPACTION_FAILED } else { 0 };
    let split = if record.split_set.is_some() { FLAG_SPLIT } else { 0 };
    let immutable = if record.immutable_bytes.is_some() { FLAG_IMMUTABLE_BYTES } else { 0 };
    let samples = if record.sample_count.is_some() { FLAG_SAMPLE_COUNT } else { 0 };
    out.push(failed | split | immutable | samples);
    if let Some(set) = record.split_set {
        out.extend_from_slice(&set.to_bytes());
    }
    put_varint(out, record.min_time);
    put_varint(out, record.max_time);
    put_uvarint(out, record.size_bytes);
    if let Some(bytes) = record.immutable_bytes {
        put_uvarint(out, bytes.index);
        put_uvarint(out, bytes.chunks);
    }
    put_uvarint(out, record.series_count);
    if let Some(count) = record.sample_count {
        put_uvarint(out, count);
    }
    put_uvarint(out, record.tombstone_count);
    put_uvarint(out, record.parents.len() as u64);
    for parent in &record.parents {
        out.extend_from_slice(&parent.to_bytes());
    }
}

/// Appends the frame of `payload`.
pub fn put_frame(key: u128, sequence: u64, payload: &[u8], out: &mut Vec<u8>) {
    let header = FrameHeader::for_payload(KIND_BLOCKS, STRIPE_NONE, payload);
    FrameHeader { sequence, ..header }.put_frame(key, payload, out);
}

/// Bytes after the last good frame, or between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the first one.
    pub offset: usize,
    /// Number of damaged bytes.
    pub len: usize,
    /// True if a good frame follows: changes are missing in the middle. Otherwise the end is torn.
    pub followed: bool,
}

/// Content of a catalogue file.
#[derive(Debug)]
pub struct Contents {
    /// Key of the file.
    pub key: u128,
    /// Returns true if the file is of an earlier version, which must not be appended to.
    pub is_earlier_version: bool,
    /// Sequence of the last frame.
    pub sequence: u64,
    /// End of the last good frame.
    pub end: usize,
    /// Damaged ranges, ascending.
    pub damages: Vec<Damage>,
}

/// Reads the file `bytes`, change by change, in order.
///
/// # Errors
/// [`DecodeError`] if the header or the payload of a whole frame cannot be read.
pub fn read(bytes: &[u8], visit: &mut dyn FnMut(&str, Change)) -> Result<Contents, DecodeError> {
    let (version, key) = decode_header(bytes)?;
    let scan = scan_segment_from(bytes, key, FILE_HEADER_BYTES, 0);
    for frame in scan.frames.iter().filter(|frame| frame.header.kind == KIND_BLOCKS) {
        read_payload(bytes.get(frame.payload.clone()).unwrap_or(&[]), visit)?;
    }
    let damages = scan.damage.iter().map(|d| Damage { offset: d.offset, len: d.len, followed: d.followed });
    let sequence = scan.frames.last().map_or(0, |frame| frame.header.sequence);
    let is_earlier_version = version != FILE_VERSION;
    Ok(Contents { key, is_earlier_version, sequence, end: scan.end, damages: damages.collect() })
}

fn read_payload(payload: &[u8], visit: &mut dyn FnMut(&str, Change)) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(payload);
    let len = reader.length("catalogue tenant")?;
    let offset = reader.offset();
    let tenant = std::str::from_utf8(reader.bytes("catalogue tenant", len)?).map_err(|e| {
        let (what, found) = ("catalogue tenant", e.valid_up_to() as u64);
        DecodeError::Invalid { what, offset, expected: "UTF-8", found }
    })?;
    while !reader.is_empty() {
        let offset = reader.offset();
        match reader.u8("catalogue change")? {
            OP_ADD => visit(tenant, Change::Add(read_record(&mut reader)?)),
            OP_REMOVE => visit(tenant, Change::Remove(read_ulid(&mut reader)?)),
            op => {
                let (what, expected) = ("catalogue change", "1 or 2");
                return Err(DecodeError::Invalid { what, offset, expected, found: u64::from(op) });
            }
        }
    }
    Ok(())
}

fn read_record(reader: &mut ByteReader<'_>) -> Result<BlockRecord, DecodeError> {
    let (ulid, oldest_source) = (read_ulid(reader)?, read_ulid(reader)?);
    let flags = reader.u8("catalogue flags")?;
    let split_set = if flags & FLAG_SPLIT != 0 { Some(read_ulid(reader)?) } else { None };
    let (min_time, max_time) = (reader.varint("catalogue start")?, reader.varint("catalogue end")?);
    let size_bytes = reader.uvarint("catalogue block size")?;
    let mut immutable_bytes = None;
    if flags & FLAG_IMMUTABLE_BYTES != 0 {
        let (index, chunks) =
            (reader.uvarint("catalogue index size")?, reader.uvarint("catalogue chunks size")?);
        immutable_bytes = Some(ImmutableBytes { index, chunks });
    }
    let series_count = reader.uvarint("catalogue series count")?;
    let has_sample_count = flags & FLAG_SAMPLE_COUNT != 0;
    let sample_count = has_sample_count.then(|| reader.uvarint("catalogue sample count")).transpose()?;
    let tombstone_count = reader.uvarint("catalogue tombstone count")?;
    // `length` bounds the count by the bytes that are left.
    let parent_count = reader.length("catalogue parents")?;
    let parents = (0..parent_count).map(|_| read_ulid(reader)).collect::<Result<_, _>>()?;
    Ok(BlockRecord {
        ulid,
        oldest_source,
        min_time,
        max_time,
        size_bytes,
        immutable_bytes,
        series_count,
        sample_count,
        tombstone_count,
        compaction_failed: flags & FLAG_COMPACTION_FAILED != 0,
        split_set,
        parents,
    })
}

fn read_ulid(reader: &mut ByteReader<'_>) -> Result<Ulid, DecodeError> {
    let (high, low) = (reader.be_u64("catalogue block name")?, reader.be_u64("catalogue block name")?);
    Ok(Ulid::from_bits(u128::from(high) << 64 | u128::from(low)))
}

#[cfg(test)]
mod tests;
