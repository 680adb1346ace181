//! Databases of one tenant in a bucket: numbered snapshots, as in the catalogue of blocks.
//!
//! Invariants: checksums are verified before anything is returned; ids of stores are there once; users and
//! password hashes are no part of it.
//! Not here: the catalogue of databases (`model::databases`). Layout: `docs/bucket/databases.md`.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::hash::HashSet;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::databases::{
    BucketDatabase, BucketDatabases, BucketPolicy, BucketStoreId, DroppedStore,
};

use super::numbered::header::{SnapshotFormat, put_checksum, read_checksum};
use super::numbered::{NumberedSnapshot, SnapshotKey, Stamp};
use super::packed::{Unpacker, put_packed};
use super::texts::check_end;
use crate::lists::{put_list, put_text, read_list, read_text};

/// Version without a Graphite store.
const VERSION_WITHOUT_GRAPHITE: u16 = 1;
/// Version with a Graphite store, whose objects are bound to no folder.
const VERSION_WITHOUT_FOLDER: u16 = 2;
/// Version that is written, and the newest one that is read.
const VERSION: u16 = 3;
/// Bytes of the unpacked content: 20,000 databases with the longest names and many policies.
const RAW_BYTES_MAX: usize = 64 << 20;
/// Bytes before the packed content.
const HEADER_BYTES: usize = 48;
const WHAT: &str = "databases in a bucket";
/// Format that is written. Earlier versions are read here as well.
const FORMAT: SnapshotFormat =
    SnapshotFormat { what: WHAT, magic: "CLDS", version: VERSION, version_text: "version 1 to 3" };
/// Last byte since version 2: the tenant has a Graphite store.
const HAS_GRAPHITE: u8 = 1;

/// The databases of a tenant at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatabasesSnapshot {
    /// Number, writer and time.
    pub stamp: Stamp,
    /// Databases, and stores that were dropped.
    pub content: BucketDatabases,
}

/// The content is longer than readers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("databases of {0} bytes before compression, at most {RAW_BYTES_MAX}")]
pub struct TooLong(usize);

#[cold]
fn invalid(expected: &'static str, offset: usize, found: u64) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected, found }
}

impl NumberedSnapshot for DatabasesSnapshot {
    const FOLDER: &'static str = "databases/";
    const WHAT: &'static str = "databases snapshot";
    type EncodeError = TooLong;

    fn empty() -> DatabasesSnapshot {
        DatabasesSnapshot::default()
    }

    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        self.stamp = stamp;
    }

    fn encode_object(&self, folder: &str, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let mut raw = Vec::new();
        put_list(&mut raw, &self.content.databases, put_database);
        put_list(&mut raw, &self.content.dropped, |out, dropped| {
            out.extend_from_slice(&dropped.id.to_bytes());
            put_varint(out, dropped.dropped_ms);
        });
        raw.push(if self.content.has_graphite { HAS_GRAPHITE } else { 0 });
        if raw.len() > RAW_BYTES_MAX {
            return Err(TooLong(raw.len()));
        }
        let start = out.len();
        FORMAT.put_header(&self.stamp, folder, out);
        put_checksum(start, out);
        put_packed(&raw, out);
        Ok(())
    }

    fn decode_object(bytes: &[u8], key: SnapshotKey<'_>) -> Result<DatabasesSnapshot, DecodeError> {
        let mut header = ByteReader::new(bytes);
        let Header { stamp, version, folder_crc } = read_header(&mut header, bytes)?;
        if stamp.number != key.number {
            return Err(invalid("the number of its name", 8, stamp.number));
        }
        if let Some(found) = folder_crc.filter(|crc| *crc != key.folder_crc()) {
            return Err(invalid("the checksum of its folder", 40, u64::from(found)));
        }
        let left = header.remaining();
        let mut raw = Vec::new();
        Unpacker::default().unpack(WHAT, header.bytes(WHAT, left)?, RAW_BYTES_MAX, &mut raw)?;
        let mut reader = ByteReader::new(&raw);
        let databases = read_list(&mut reader, WHAT, read_database)?;
        let dropped = read_list(&mut reader, WHAT, |bytes| {
            Ok(DroppedStore { id: read_id(bytes)?, dropped_ms: bytes.varint(WHAT)? })
        })?;
        let has_graphite = version > VERSION_WITHOUT_GRAPHITE && read_has_graphite(&mut reader, version)?;
        check_end(WHAT, &reader)?;
        let content = BucketDatabases { databases, dropped, has_graphite };
        let mut seen = HashSet::default();
        let ids = content.ids().chain(content.dropped.iter().map(|dropped| dropped.id));
        if !ids.into_iter().all(|id| seen.insert(id)) {
            return Err(invalid("each store once", HEADER_BYTES, 0));
        }
        Ok(DatabasesSnapshot { stamp, content })
    }
}

/// Fields of the header.
struct Header {
    stamp: Stamp,
    version: u16,
    /// Checksum of the folder; `None` before version 3.
    folder_crc: Option<u32>,
}

fn read_header(header: &mut ByteReader<'_>, bytes: &[u8]) -> Result<Header, DecodeError> {
    let magic = header.bytes(WHAT, 4)?;
    if magic != FORMAT.magic.as_bytes() {
        return Err(invalid("magic CLDS", 0, u64::from(magic.first().copied().unwrap_or(0))));
    }
    let version = header.le_u16(WHAT)?;
    if !(VERSION_WITHOUT_GRAPHITE..=VERSION).contains(&version) {
        return Err(invalid(FORMAT.version_text, 4, u64::from(version)));
    }
    let zero = header.le_u16(WHAT)?;
    let number = header.le_u64(WHAT)?;
    let writer = read_bytes(header)?;
    let created_ms = header.le_u64(WHAT)?.cast_signed();
    let folder_crc = if version > VERSION_WITHOUT_FOLDER { Some(header.le_u32(WHAT)?) } else { None };
    read_checksum(WHAT, header, bytes)?;
    if zero != 0 {
        return Err(invalid("zero", 6, u64::from(zero)));
    }
    Ok(Header { stamp: Stamp { number, writer, created_ms }, version, folder_crc })
}

fn read_has_graphite(bytes: &mut ByteReader<'_>, version: u16) -> Result<bool, DecodeError> {
    let offset = bytes.offset();
    match bytes.u8(WHAT)? {
        HAS_GRAPHITE => Ok(true),
        0 if version > VERSION_WITHOUT_FOLDER => Ok(false),
        other => Err(invalid("1 for a Graphite store, or 0", offset, u64::from(other))),
    }
}

fn put_database(out: &mut Vec<u8>, database: &BucketDatabase) {
    put_text(out, &database.name);
    put_text(out, &database.default_policy);
    put_list(out, &database.policies, |out, policy| {
        put_text(out, &policy.name);
        put_uvarint(out, policy.duration_ns.unsigned_abs());
        put_uvarint(out, policy.shard_group_ns.unsigned_abs());
        put_uvarint(out, u64::from(policy.replica_count));
        out.extend_from_slice(&policy.id.to_bytes());
    });
    put_list(out, &database.continuous_queries, |out, (name, text)| {
        put_text(out, name);
        put_text(out, text);
    });
}

fn read_database(bytes: &mut ByteReader<'_>) -> Result<BucketDatabase, DecodeError> {
    Ok(BucketDatabase {
        name: read_text(bytes, "database")?,
        default_policy: read_text(bytes, "default retention policy")?,
        policies: read_list(bytes, WHAT, read_policy)?,
        continuous_queries: read_list(bytes, WHAT, |bytes| {
            Ok((read_text(bytes, "continuous query")?, read_text(bytes, "text of a continuous query")?))
        })?,
    })
}

fn read_policy(bytes: &mut ByteReader<'_>) -> Result<BucketPolicy, DecodeError> {
    let name = read_text(bytes, "retention policy")?;
    let duration_ns = read_duration(bytes)?;
    let offset = bytes.offset();
    let shard_group_ns = read_duration(bytes)?;
    if shard_group_ns == 0 {
        return Err(invalid("a width of shard groups", offset, 0));
    }
    let offset = bytes.offset();
    let replica_count = bytes.uvarint(WHAT)?;
    let replica_count =
        u32::try_from(replica_count).map_err(|_| invalid("replicas below 2^32", offset, replica_count))?;
    Ok(BucketPolicy { name, duration_ns, shard_group_ns, replica_count, id: read_id(bytes)? })
}

fn read_duration(bytes: &mut ByteReader<'_>) -> Result<i64, DecodeError> {
    let offset = bytes.offset();
    let ns = bytes.uvarint(WHAT)?;
    i64::try_from(ns).map_err(|_| invalid("nanoseconds below 2^63", offset, ns))
}

fn read_id(bytes: &mut ByteReader<'_>) -> Result<BucketStoreId, DecodeError> {
    read_bytes(bytes).map(BucketStoreId::from_bytes)
}

fn read_bytes(bytes: &mut ByteReader<'_>) -> Result<[u8; 16], DecodeError> {
    let offset = bytes.offset();
    let read = bytes.bytes(WHAT, 16)?;
    read.try_into().map_err(|_| invalid("16 bytes", offset, read.len() as u64))
}

#[cfg(test)]
mod tests;
