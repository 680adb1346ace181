//! Segments of Prometheus's WAL and WBL: pages of 32 KiB, fragments with checksums, records assembled from
//! them.
//!
//! Invariants: a record is returned only if the checksums of all its fragments match and their order is
//! valid. After damage the rest of the page is skipped, and reading continues with the first record that
//! starts on a later page.
//! Not here: reading files (`import`), the content of records (`record`).

use std::io::Read as _;

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

/// Bytes of a page; only the last one of a segment may be shorter.
pub const PAGE_BYTES: usize = 32 << 10;
/// Kind and flags, length, checksum.
pub const FRAGMENT_HEADER_BYTES: usize = 7;
/// Limit of a record, packed and unpacked, against hostile lengths. Prometheus writes far smaller ones.
pub const RECORD_BYTES_MAX: usize = 256 << 20;

const KIND_MASK: u8 = 0b0000_0111;
const FLAG_SNAPPY: u8 = 0b0000_1000;
const FLAG_ZSTD: u8 = 0b0001_0000;
const KIND_PADDING: u8 = 0;
const KIND_FULL: u8 = 1;
const KIND_FIRST: u8 = 2;
const KIND_LAST: u8 = 4;

/// Compression of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Uncompressed.
    None,
    /// Snappy block.
    Snappy,
    /// Zstandard frame.
    Zstd,
}

/// A record with verified checksums, compressed as it was written.
#[derive(Debug, Clone, Copy)]
pub struct PackedRecord<'a> {
    /// Compression.
    pub packing: Packing,
    /// Compressed bytes.
    pub bytes: &'a [u8],
    /// Offset of its last fragment in the segment.
    pub offset: u64,
}

/// Damaged bytes of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the segment.
    pub offset: u64,
    /// Reason.
    pub what: String,
}

/// Content of a page.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record.
    Record(PackedRecord<'a>),
    /// Damage. Reading continues after it.
    Damage(Damage),
}

/// Assembles records from pages. One reader per segment, since records do not span segments.
#[derive(Debug, Default)]
pub struct SegmentReader {
    page_offset: u64,
    /// Fragments of an incomplete record.
    carried: Vec<u8>,
    carrying: bool,
    /// The start of a record was lost to reported damage: its further fragments are skipped.
    lost: bool,
}

impl SegmentReader {
    /// A reader at the start of a segment.
    #[must_use]
    pub fn new() -> SegmentReader {
        SegmentReader::default()
    }

    /// Reads the next page: [`PAGE_BYTES`], or less at the end of the segment. Calls `visit` with each
    /// record, and with damage, after which the rest of the page is skipped.
    pub fn page(&mut self, page: &[u8], visit: &mut dyn FnMut(Item<'_>)) {
        let start = self.page_offset;
        self.page_offset += PAGE_BYTES as u64;
        let mut at = 0;
        while let Some(&head) = page.get(at) {
            let offset = start + at as u64;
            if head & KIND_MASK == KIND_PADDING {
                if page.get(at..).is_some_and(|rest| rest.iter().any(|&b| b != 0)) {
                    visit(self.damage(offset, "padding of the page is not zero".to_owned()));
                }
                return;
            }
            match fragment(page, at) {
                Ok(bytes) => {
                    at += FRAGMENT_HEADER_BYTES + bytes.len();
                    if let Err(what) = self.take(offset, head, bytes, visit) {
                        return visit(self.damage(offset, what));
                    }
                }
                Err(error) => return visit(self.damage(offset, error.to_string())),
            }
        }
    }

    /// Ends the segment; calls `visit` if its last record is incomplete, because a crash tore it.
    pub fn finish(&mut self, visit: &mut dyn FnMut(Item<'_>)) {
        if self.carrying {
            visit(self.damage(self.page_offset, "the segment ends before its last record does".to_owned()));
        }
    }

    fn take(
        &mut self,
        offset: u64,
        head: u8,
        bytes: &[u8],
        visit: &mut dyn FnMut(Item<'_>),
    ) -> Result<(), String> {
        let packing = match (head & FLAG_SNAPPY != 0, head & FLAG_ZSTD != 0) {
            (true, _) => Packing::Snappy,
            (false, true) => Packing::Zstd,
            (false, false) => Packing::None,
        };
        let kind = head & KIND_MASK;
        let starts = matches!(kind, KIND_FULL | KIND_FIRST);
        if self.lost && !starts && kind <= KIND_LAST {
            return Ok(());
        }
        // The checksum does not cover the kind: if it is invalid here, the bytes are not a record either.
        if kind > KIND_LAST || starts == self.carrying {
            return Err(format!("a fragment of kind {kind} cannot follow here"));
        }
        self.lost = false;
        match kind {
            KIND_FULL => visit(Item::Record(PackedRecord { packing, bytes, offset })),
            KIND_FIRST => {
                self.carried.clear();
                self.carried.extend_from_slice(bytes);
                self.carrying = true;
            }
            _ if self.carried.len() + bytes.len() > RECORD_BYTES_MAX => {
                return Err(format!("a record exceeds {RECORD_BYTES_MAX} bytes"));
            }
            _ => {
                self.carried.extend_from_slice(bytes);
                self.carrying = kind != KIND_LAST;
                if kind == KIND_LAST {
                    visit(Item::Record(PackedRecord { packing, bytes: &self.carried, offset }));
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn damage<'a>(&mut self, offset: u64, what: String) -> Item<'a> {
        (self.carrying, self.lost) = (false, true);
        Item::Damage(Damage { offset, what })
    }
}

/// Returns the fragment at `at` after verifying its checksum.
fn fragment(page: &[u8], at: usize) -> Result<&[u8], DecodeError> {
    let mut reader = ByteReader::at(page, at);
    reader.u8("fragment kind")?;
    let len = reader.be_u16("fragment length")?;
    let found = reader.be_u32("fragment checksum")?;
    let bytes = reader.bytes("fragment", usize::from(len))?;
    let expected = crc32c(bytes);
    if found != expected {
        return Err(DecodeError::Checksum { what: "fragment", offset: at, expected, found });
    }
    Ok(bytes)
}

/// Decompressor of records; reuses its tables.
pub struct Unpacker {
    snappy: snap::raw::Decoder,
    zstd: ruzstd::decoding::FrameDecoder,
}

impl Default for Unpacker {
    fn default() -> Self {
        Unpacker { snappy: snap::raw::Decoder::new(), zstd: ruzstd::decoding::FrameDecoder::new() }
    }
}

impl Unpacker {
    /// Appends the uncompressed record to `out`, which is unchanged on an error.
    ///
    /// # Errors
    /// If the compressed bytes are damaged, or the record exceeds [`RECORD_BYTES_MAX`].
    pub fn unpack(&mut self, record: &PackedRecord<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let start = out.len();
        let done = match record.packing {
            Packing::None => {
                out.extend_from_slice(record.bytes);
                Ok(())
            }
            Packing::Snappy => self.snappy(record.bytes, out),
            Packing::Zstd => self.zstd(record.bytes, out),
        };
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    fn snappy(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let len = snap::raw::decompress_len(bytes).map_err(|e| format!("snappy: {e}"))?;
        // Snappy expands a byte to 64 bytes at most. Larger lengths are damage and must not allocate memory.
        if len > RECORD_BYTES_MAX || len / 64 > bytes.len() {
            return Err(format!("snappy: a record of {len} bytes out of {}", bytes.len()));
        }
        let start = out.len();
        out.resize(start + len, 0);
        let target = out.get_mut(start..).unwrap_or_default();
        self.snappy.decompress(bytes, target).map_err(|e| format!("snappy: {e}"))?;
        Ok(())
    }

    fn zstd(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let decoder = ruzstd::decoding::StreamingDecoder::new_with_decoder(bytes, &mut self.zstd);
        let decoder = decoder.map_err(|e| format!("zstd: {e}"))?;
        let start = out.len();
        let mut limited = decoder.take(RECORD_BYTES_MAX as u64 + 1);
        limited.read_to_end(out).map_err(|e| format!("zstd: {e}"))?;
        if out.len() - start > RECORD_BYTES_MAX {
            return Err(format!("zstd: a record of more than {RECORD_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}
