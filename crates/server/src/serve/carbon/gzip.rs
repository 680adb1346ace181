//! gzip on a plaintext connection: members are decompressed in steps of bounded output, as bytes arrive.
//!
//! Invariants: a step never grows its output beyond the capacity that it was given, so that a member that
//! expands a thousandfold takes many steps and no memory; the bytes before damage are returned. Checksum and
//! length belong to a whole member: they are compared after its bytes have been returned.
//! The gzip decoders of flate2 drop what they decompressed before damage, so only its inflater is used.
//! Not here: lines (`ingest::carbon`), gzip bodies of requests (`http::inflate`).

use flate2::{Crc, Decompress, FlushDecompress, Status};

/// First bytes of a gzip member. A line may begin with the first, which is a blank, and its path with the
/// second: a path that does is not UTF-8 and refused.
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

const METHOD_DEFLATE: u8 = 8;
const FLAG_HEADER_CRC: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const FLAGS_RESERVED: u8 = 0b1110_0000;
/// Bytes of the header before its optional fields.
const FIXED_HEADER_BYTES: usize = 10;
/// Bytes of checksum and length after the compressed bytes.
const TRAILER_BYTES: usize = 8;

/// Decompressor of one connection.
pub(super) struct GzipStream {
    part: Part,
    inflater: Decompress,
    /// Checksum of the decompressed bytes of the member.
    content_crc: Crc,
    /// Members that have begun.
    member_count: u64,
}

/// Part of a member that the next byte belongs to.
enum Part {
    Header(Header),
    Content,
    Trailer(Collected<TRAILER_BYTES>),
}

/// Outcome of one step.
pub(super) struct Step {
    /// Bytes of the input that were read.
    pub(super) read_bytes: usize,
    /// Set if another step has output without further input.
    pub(super) has_more: bool,
    /// Set if no byte can be found after what this step returned.
    pub(super) damage: Option<GzipDamage>,
}

/// Reason why a stream cannot be decompressed any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("gzip member {member}: {fault}")]
pub(super) struct GzipDamage {
    /// Members count from 1.
    pub(super) member: u64,
    pub(super) fault: GzipFault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum GzipFault {
    #[error("expected the bytes 1f 8b 08 at its start")]
    Magic,
    #[error("reserved flags are set")]
    Flags,
    #[error("the checksum of the header is {found:04x}, expected {expected:04x}")]
    HeaderChecksum { expected: u16, found: u16 },
    #[error("the deflate data is invalid")]
    Deflate,
    #[error("the checksum is {found:08x}, expected {expected:08x}")]
    Checksum { expected: u32, found: u32 },
    #[error("the length is {found} bytes, expected {expected}")]
    Length { expected: u32, found: u32 },
    #[error("the stream ends within it")]
    Truncated,
}

impl GzipStream {
    pub(super) fn new() -> GzipStream {
        GzipStream {
            part: Part::Header(Header::default()),
            inflater: Decompress::new(false),
            content_crc: Crc::new(),
            member_count: 0,
        }
    }

    /// Decompresses the start of `input` to the end of `out`, until the input or the capacity of `out` ends.
    ///
    /// # Panics
    /// If `out` has no room.
    pub(super) fn decompress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step {
        assert!(out.len() < out.capacity(), "the caller reserves room");
        let mut rest = input;
        let outcome = loop {
            let is_input_read = rest.is_empty();
            let out_bytes_before = out.len();
            match self.advance(&mut rest, out) {
                Ok(()) if out.len() == out.capacity() => break Ok(()),
                Ok(()) if is_input_read && out.len() == out_bytes_before => break Ok(()),
                Ok(()) => {}
                Err(fault) => break Err(GzipDamage { member: self.member_count.max(1), fault }),
            }
        };
        let has_more = outcome.is_ok() && out.len() == out.capacity();
        Step { read_bytes: input.len() - rest.len(), has_more, damage: outcome.err() }
    }

    /// Returns the damage of a stream that ends here, if it does so within a member.
    pub(super) fn end(&self) -> Option<GzipDamage> {
        match &self.part {
            Part::Header(header) if header.is_empty() && self.member_count > 0 => None,
            _ => Some(GzipDamage { member: self.member_count.max(1), fault: GzipFault::Truncated }),
        }
    }

    /// Reads bytes of one part.
    fn advance(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), GzipFault> {
        match &mut self.part {
            Part::Header(header) => {
                let Some((byte, after)) = rest.split_first() else { return Ok(()) };
                if header.is_empty() {
                    self.member_count += 1;
                }
                *rest = after;
                if header.push(*byte)? {
                    self.inflater.reset(false);
                    self.content_crc.reset();
                    self.part = Part::Content;
                }
            }
            Part::Content => return self.inflate(rest, out),
            Part::Trailer(trailer) => {
                let Some((byte, after)) = rest.split_first() else { return Ok(()) };
                *rest = after;
                trailer.push(*byte);
                if trailer.is_full() {
                    check_trailer(u64::from_le_bytes(trailer.bytes), &self.content_crc)?;
                    self.part = Part::Header(Header::default());
                }
            }
        }
        Ok(())
    }

    fn inflate(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), GzipFault> {
        let start = out.len();
        let read_before = self.inflater.total_in();
        let status = self.inflater.decompress_vec(rest, out, FlushDecompress::None);
        let read_bytes = usize::try_from(self.inflater.total_in() - read_before).unwrap_or(rest.len());
        *rest = rest.get(read_bytes..).unwrap_or_default();
        self.content_crc.update(out.get(start..).unwrap_or_default());
        match status {
            Ok(Status::StreamEnd) => self.part = Part::Trailer(Collected::default()),
            // Neither input nor room are missing: the next call would do nothing either.
            Ok(_) if read_bytes == 0 && out.len() == start && !rest.is_empty() && start < out.capacity() => {
                return Err(GzipFault::Deflate);
            }
            Ok(Status::Ok | Status::BufError) => {}
            Err(_) => return Err(GzipFault::Deflate),
        }
        Ok(())
    }
}

/// Compares the trailer: the checksum, then the length modulo 2^32, both little-endian.
fn check_trailer(trailer: u64, content: &Crc) -> Result<(), GzipFault> {
    let found = Crc32AndLength { crc: content.sum(), len: content.amount() };
    let expected = Crc32AndLength { crc: trailer as u32, len: (trailer >> 32) as u32 };
    if found.crc != expected.crc {
        return Err(GzipFault::Checksum { expected: expected.crc, found: found.crc });
    }
    if found.len != expected.len {
        return Err(GzipFault::Length { expected: expected.len, found: found.len });
    }
    Ok(())
}

struct Crc32AndLength {
    crc: u32,
    len: u32,
}

/// Bytes of a field of fixed length that may arrive one by one.
struct Collected<const N: usize> {
    bytes: [u8; N],
    count: usize,
}

impl<const N: usize> Default for Collected<N> {
    fn default() -> Self {
        Collected { bytes: [0; N], count: 0 }
    }
}

impl<const N: usize> Collected<N> {
    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.count) {
            *slot = byte;
            self.count += 1;
        }
    }

    fn is_full(&self) -> bool {
        self.count == N
    }
}

/// Header of a member; optional fields are read over, none is kept.
#[derive(Default)]
struct Header {
    field: Field,
    fixed: Collected<FIXED_HEADER_BYTES>,
    crc: Crc,
}

/// Field of a header that the next byte belongs to.
#[derive(Default)]
enum Field {
    #[default]
    Fixed,
    ExtraLength(Collected<2>),
    Extra {
        left: u16,
    },
    /// A text that ends with a zero.
    Name,
    Comment,
    Checksum(Collected<2>),
}

impl Header {
    fn is_empty(&self) -> bool {
        self.fixed.count == 0
    }

    /// Reads one byte. Returns true if it is the last one of the header.
    fn push(&mut self, byte: u8) -> Result<bool, GzipFault> {
        if !matches!(self.field, Field::Checksum(_)) {
            self.crc.update(&[byte]);
        }
        let is_field_end = match &mut self.field {
            Field::Fixed => {
                self.fixed.push(byte);
                check_fixed(&self.fixed)?;
                self.fixed.is_full()
            }
            Field::ExtraLength(len) => {
                len.push(byte);
                len.is_full()
            }
            Field::Extra { left } => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            Field::Name | Field::Comment => byte == 0,
            Field::Checksum(checksum) => {
                checksum.push(byte);
                checksum.is_full()
            }
        };
        if !is_field_end {
            return Ok(false);
        }
        let ended = std::mem::take(&mut self.field);
        match self.field_after(&ended)? {
            Some(field) => {
                self.field = field;
                Ok(false)
            }
            None => Ok(true),
        }
    }

    /// Returns the field after one that has ended; `None` at the end of the header.
    fn field_after(&self, ended: &Field) -> Result<Option<Field>, GzipFault> {
        let [_, _, _, flags, ..] = self.fixed.bytes;
        let has = |flag: u8| flags & flag != 0;
        let order = match ended {
            Field::Fixed => 0,
            Field::ExtraLength(len) => match u16::from_le_bytes(len.bytes) {
                0 => 1,
                left => return Ok(Some(Field::Extra { left })),
            },
            Field::Extra { .. } => 1,
            Field::Name => 2,
            Field::Comment => 3,
            Field::Checksum(checksum) => {
                let expected = u16::from_le_bytes(checksum.bytes);
                let found = self.crc.sum() as u16;
                if found != expected {
                    return Err(GzipFault::HeaderChecksum { expected, found });
                }
                4
            }
        };
        Ok(match order {
            0 if has(FLAG_EXTRA) => Some(Field::ExtraLength(Collected::default())),
            0 | 1 if has(FLAG_NAME) => Some(Field::Name),
            0..=2 if has(FLAG_COMMENT) => Some(Field::Comment),
            0..=3 if has(FLAG_HEADER_CRC) => Some(Field::Checksum(Collected::default())),
            _ => None,
        })
    }
}

/// Checks the bytes of the fixed header that are there.
fn check_fixed(fixed: &Collected<FIXED_HEADER_BYTES>) -> Result<(), GzipFault> {
    let [magic_0, magic_1, ..] = MAGIC;
    match (fixed.count, fixed.bytes) {
        (1, [byte, ..]) if byte != magic_0 => Err(GzipFault::Magic),
        (2, [_, byte, ..]) if byte != magic_1 => Err(GzipFault::Magic),
        (3, [_, _, method, ..]) if method != METHOD_DEFLATE => Err(GzipFault::Magic),
        (4, [_, _, _, flags, ..]) if flags & FLAGS_RESERVED != 0 => Err(GzipFault::Flags),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
