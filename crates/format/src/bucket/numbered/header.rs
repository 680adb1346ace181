//! Frame of a numbered snapshot that is bound to its folder: magic, version, stamp, checksum of the folder;
//! the checksum of all bytes before it; a packed section, if the kind has one.
//!
//! Invariant: a header that was read is used after [`SnapshotHeader::check`] alone.
//! Not here: the content after the header (each kind).

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

use super::{SnapshotKey, Stamp};
use crate::bucket::packed::{Unpacker, put_packed};

/// Magic and version of a kind of snapshot.
#[derive(Clone, Copy)]
pub(in crate::bucket) struct SnapshotFormat {
    /// Name of the content in errors.
    pub(in crate::bucket) what: &'static str,
    /// First four bytes.
    pub(in crate::bucket) magic: &'static str,
    /// Version that is written, and the only one that is read.
    pub(in crate::bucket) version: u16,
    /// The version in errors.
    pub(in crate::bucket) version_text: &'static str,
}

/// Header of a snapshot, not compared with its place yet.
pub(in crate::bucket) struct SnapshotHeader {
    what: &'static str,
    stamp: Stamp,
    folder_crc: u32,
}

impl SnapshotFormat {
    /// Appends the header of a snapshot in the folder with this key, 44 bytes.
    pub(in crate::bucket) fn put_header(&self, stamp: &Stamp, folder: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(self.magic.as_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&stamp.number.to_le_bytes());
        out.extend_from_slice(&stamp.writer);
        out.extend_from_slice(&stamp.created_ms.to_le_bytes());
        let key = SnapshotKey { folder, number: stamp.number };
        out.extend_from_slice(&key.folder_crc().to_le_bytes());
    }

    /// Appends a snapshot whose content is `raw`, packed.
    pub(in crate::bucket) fn put_object(&self, stamp: &Stamp, folder: &str, raw: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        self.put_header(stamp, folder, out);
        put_checksum(start, out);
        put_packed(raw, out);
    }

    /// Returns stamp and unpacked content of the snapshot `key`; content of more than `raw_bytes_max` is
    /// refused.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub(in crate::bucket) fn read_object(
        &self,
        bytes: &[u8],
        key: SnapshotKey<'_>,
        raw_bytes_max: usize,
    ) -> Result<(Stamp, Vec<u8>), DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let header = self.read_header(&mut reader)?;
        read_checksum(self.what, &mut reader, bytes)?;
        let stamp = header.check(key)?;
        let packed = reader.bytes(self.what, reader.remaining())?;
        let mut raw = Vec::new();
        Unpacker::default().unpack(self.what, packed, raw_bytes_max, &mut raw)?;
        Ok((stamp, raw))
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`DecodeError`]: cut short, another magic or version.
    pub(in crate::bucket) fn read_header(
        &self,
        reader: &mut ByteReader<'_>,
    ) -> Result<SnapshotHeader, DecodeError> {
        let what = self.what;
        let magic = reader.bytes(what, 4)?;
        if magic != self.magic.as_bytes() {
            let found = u64::from(magic.first().copied().unwrap_or(0));
            return Err(DecodeError::Invalid { what, offset: 0, expected: self.magic, found });
        }
        let version = reader.le_u16(what)?;
        if version != self.version {
            let found = u64::from(version);
            return Err(DecodeError::Invalid { what, offset: 4, expected: self.version_text, found });
        }
        reader.bytes(what, 2)?;
        let number = reader.le_u64(what)?;
        let mut writer = [0; 16];
        writer.copy_from_slice(reader.bytes(what, 16)?);
        let created_ms = reader.le_u64(what)?.cast_signed();
        let folder_crc = reader.le_u32(what)?;
        Ok(SnapshotHeader { what, stamp: Stamp { number, writer, created_ms }, folder_crc })
    }
}

impl SnapshotHeader {
    /// Returns the stamp of the snapshot `key`; call it after the checksum of the bytes.
    ///
    /// # Errors
    /// [`DecodeError`]: the header is one of another snapshot.
    pub(in crate::bucket) fn check(self, key: SnapshotKey<'_>) -> Result<Stamp, DecodeError> {
        let SnapshotHeader { what, stamp, folder_crc } = self;
        if stamp.number != key.number {
            let expected = "the number of its name";
            return Err(DecodeError::Invalid { what, offset: 8, expected, found: stamp.number });
        }
        if folder_crc != key.folder_crc() {
            let expected = "the checksum of its folder";
            return Err(DecodeError::Invalid { what, offset: 40, expected, found: u64::from(folder_crc) });
        }
        Ok(stamp)
    }
}

/// Appends the checksum of the bytes from `start` on.
pub(in crate::bucket) fn put_checksum(start: usize, out: &mut Vec<u8>) {
    let sum = crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Reads the checksum of all bytes before it. `reader` reads `bytes` from their start.
///
/// # Errors
/// [`DecodeError`]: cut short, or another checksum.
pub(in crate::bucket) fn read_checksum(
    what: &'static str,
    reader: &mut ByteReader<'_>,
    bytes: &[u8],
) -> Result<(), DecodeError> {
    let offset = reader.offset();
    let found = reader.le_u32(what)?;
    let expected = crc32c(bytes.get(..offset).unwrap_or_default());
    if found != expected {
        return Err(DecodeError::Checksum { what, offset, expected, found });
    }
    Ok(())
}
