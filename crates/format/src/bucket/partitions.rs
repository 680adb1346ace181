//! Partition map of a cluster in a bucket: numbered snapshots of which partitions of the log accept writes,
//! and since when.
//!
//! Invariants: checksums are verified before anything is returned; a decoded map has ascending times and
//! partitions.
//! Not here: what a map means (`model::partition`), changes of it. Layout: `docs/bucket/partitions.md`.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::partition::{PartitionEpoch, PartitionMap};

use super::numbered::header::SnapshotFormat;
use super::numbered::{NumberedSnapshot, SnapshotKey, Stamp};
use super::texts::check_end;

const FORMAT: SnapshotFormat =
    SnapshotFormat { what: WHAT, magic: "CLPM", version: 1, version_text: "version 1" };
/// Bytes of the unpacked content: a thousand changes of ten thousand partitions.
const RAW_BYTES_MAX: usize = 16 << 20;
const WHAT: &str = "partition map";

/// The partition map at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionsSnapshot {
    /// Number, writer and time.
    pub stamp: Stamp,
    /// The map.
    pub map: PartitionMap,
}

/// The map is longer than readers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("partition map of {0} bytes before compression, at most {RAW_BYTES_MAX}")]
pub struct MapTooLong(usize);

#[cold]
fn invalid(expected: &'static str, offset: usize, found: u64) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected, found }
}

impl NumberedSnapshot for PartitionsSnapshot {
    const FOLDER: &'static str = "partitions/";
    const WHAT: &'static str = "partition map";
    type EncodeError = MapTooLong;

    fn empty() -> PartitionsSnapshot {
        PartitionsSnapshot::default()
    }

    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        self.stamp = stamp;
    }

    fn encode_object(&self, folder: &str, out: &mut Vec<u8>) -> Result<(), MapTooLong> {
        let mut raw = Vec::new();
        put_epochs(self.map.epochs(), &mut raw);
        if raw.len() > RAW_BYTES_MAX {
            return Err(MapTooLong(raw.len()));
        }
        FORMAT.put_object(&self.stamp, folder, &raw, out);
        Ok(())
    }

    fn decode_object(bytes: &[u8], key: SnapshotKey<'_>) -> Result<PartitionsSnapshot, DecodeError> {
        let (stamp, raw) = FORMAT.read_object(bytes, key, RAW_BYTES_MAX)?;
        let mut reader = ByteReader::new(&raw);
        let epochs = read_epochs(&mut reader)?;
        check_end(WHAT, &reader)?;
        let count = epochs.len() as u64;
        let map = PartitionMap::from_epochs(epochs);
        let expected = "ascending times and partitions within the limits";
        let map = map.map_err(|_| invalid(expected, 0, count))?;
        Ok(PartitionsSnapshot { stamp, map })
    }
}

fn put_epochs(epochs: &[PartitionEpoch], out: &mut Vec<u8>) {
    put_uvarint(out, epochs.len() as u64);
    let mut last_ms = 0;
    for PartitionEpoch { since_ms, accepting } in epochs {
        put_varint(out, since_ms.wrapping_sub(last_ms));
        last_ms = *since_ms;
        put_uvarint(out, accepting.len() as u64);
        let mut last = 0;
        for &number in accepting {
            put_uvarint(out, u64::from(number - last));
            last = number;
        }
    }
}

fn read_epochs(reader: &mut ByteReader<'_>) -> Result<Vec<PartitionEpoch>, DecodeError> {
    let count = reader.length(WHAT)?;
    let mut epochs = Vec::new();
    let mut since_ms = 0i64;
    for _ in 0..count {
        since_ms = since_ms.wrapping_add(reader.varint(WHAT)?);
        let partition_count = reader.length(WHAT)?;
        let mut accepting = Vec::new();
        let mut number = 0u32;
        for _ in 0..partition_count {
            let offset = reader.offset();
            let difference = reader.uvarint(WHAT)?;
            let next = u32::try_from(difference).ok().and_then(|difference| number.checked_add(difference));
            number = next.ok_or_else(|| invalid("32 bits", offset, difference))?;
            accepting.push(number);
        }
        epochs.push(PartitionEpoch { since_ms, accepting });
    }
    Ok(epochs)
}

#[cfg(test)]
mod tests;
