//! A column of integers with the fractions of a bit that packing at one width wastes taken out: bins and tANS
//! of pco.
//!
//! Invariant: bit-exact; a reader takes untrusted bytes. Only pco's classic mode without delta coding is
//! written and read: differences are taken here (`values`), and its other modes could be asked for memory
//! without bound.
//! Not here: choice of the columns (`packed`).

use std::ops::ControlFlow;

use chronolith_base::DecodeError;
use pco::data_types::Number;
use pco::wrapped::{FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

use super::block::BLOCK_ITEMS;

const WHAT: &str = "packed chunk values";
/// Start of a pco file: the version of its format. Not stored, as the chunk's version implies it.
const HEADER: [u8; 2] = [4, 1];
/// First byte of a column: classic mode (low four bits), no delta coding (high four bits).
const FIRST_BYTE: u8 = 0;
/// Numbers per batch that pco reads at once.
const BATCH_ITEMS: usize = 256;
/// Effort of the encoder: more finds nothing worth its time in chunks of a few thousand numbers.
const LEVEL: usize = 8;

/// The type of the numbers of a column: bounds of bins take as many bits, so it is the narrowest that holds
/// all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberType {
    I64,
    I32,
    I16,
    I8,
}

impl NumberType {
    /// Two bits of a chunk's flags.
    pub(super) fn from_code(code: u8) -> NumberType {
        match code & 3 {
            0 => NumberType::I64,
            1 => NumberType::I32,
            2 => NumberType::I16,
            _ => NumberType::I8,
        }
    }

    /// Inverse of [`NumberType::from_code`].
    pub(super) fn code(self) -> u8 {
        match self {
            NumberType::I64 => 0,
            NumberType::I32 => 1,
            NumberType::I16 => 2,
            NumberType::I8 => 3,
        }
    }

    fn of(items: &[i64]) -> NumberType {
        // Bits that differ from the sign need room; the sign takes one more.
        let all_bits = items.iter().fold(0, |bits, &item| bits | (item ^ (item >> 63)));
        match 64 - all_bits.leading_zeros() {
            0..8 => NumberType::I8,
            8..16 => NumberType::I16,
            16..32 => NumberType::I32,
            _ => NumberType::I64,
        }
    }
}

/// Appends `items` as a column of the narrowest type; none (and nothing appended) when pco has no form for
/// them.
pub(super) fn put(items: &[i64], out: &mut Vec<u8>) -> Option<NumberType> {
    let start = out.len();
    let number_type = NumberType::of(items);
    let written = match number_type {
        NumberType::I64 => write(items, out),
        NumberType::I32 => write(&narrowed(items, |item| item as i32), out),
        NumberType::I16 => write(&narrowed(items, |item| item as i16), out),
        NumberType::I8 => write(&narrowed(items, |item| item as i8), out),
    };
    if written.is_none() || out.get(start) != Some(&FIRST_BYTE) {
        out.truncate(start);
        return None;
    }
    Some(number_type)
}

fn narrowed<T>(items: &[i64], narrow: impl Fn(i64) -> T) -> Vec<T> {
    items.iter().map(|&item| narrow(item)).collect()
}

fn write<T: Number>(items: &[T], out: &mut Vec<u8>) -> Option<()> {
    let config = ChunkConfig::default()
        .with_compression_level(LEVEL)
        .with_mode_spec(ModeSpec::Classic)
        .with_delta_spec(DeltaSpec::NoOp)
        .with_enable_8_bit(true);
    let mut chunk = FileCompressor::default().chunk_compressor(items, &config).ok()?;
    chunk.write_meta(&mut *out).ok()?;
    chunk.write_page(0, &mut *out).ok()?;
    Some(())
}

/// An entropy-coded column of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) number_type: NumberType,
    /// Offset, for errors.
    pub(super) offset: usize,
    pub(super) item_count: usize,
}

/// Hands the items to `visit` in pieces of [`BLOCK_ITEMS`] (the last one has the rest), until it breaks. The
/// first `skipped_pieces` are left out; they have to be decoded, though.
pub(super) fn for_each_piece(
    column: Column<'_>,
    skipped_pieces: usize,
    visit: &mut dyn FnMut(&mut [i64]) -> ControlFlow<()>,
) -> Result<(), DecodeError> {
    match column.number_type {
        NumberType::I64 => read_as::<i64>(column, skipped_pieces, visit),
        NumberType::I32 => read_as::<i32>(column, skipped_pieces, visit),
        NumberType::I16 => read_as::<i16>(column, skipped_pieces, visit),
        NumberType::I8 => read_as::<i8>(column, skipped_pieces, visit),
    }
}

// PERF: batch by batch, so that items after the last wanted one stay packed, and no column is unpacked as a
// whole. cargo bench -p chronolith-format --bench dense_speed
fn read_as<T: Number + Default + Into<i64>>(
    column: Column<'_>,
    skipped_pieces: usize,
    visit: &mut dyn FnMut(&mut [i64]) -> ControlFlow<()>,
) -> Result<(), DecodeError> {
    let Column { bytes, offset, item_count, .. } = column;
    let invalid = |expected| DecodeError::Invalid { what: WHAT, offset, expected, found: bytes.len() as u64 };
    if bytes.first() != Some(&FIRST_BYTE) {
        return Err(invalid("classic mode without delta coding"));
    }
    let damaged = |_| invalid("an entropy-coded column");
    let (file, _) = FileDecompressor::new(HEADER.as_slice()).map_err(damaged)?;
    let (mut chunk, rest) = file.chunk_decompressor::<T, _>(bytes).map_err(damaged)?;
    let mut page = chunk.page_decompressor(rest, item_count).map_err(damaged)?;
    let mut batch = [T::default(); BATCH_ITEMS];
    let mut items = [0i64; BLOCK_ITEMS];
    let (mut left, mut to_skip) = (item_count, skipped_pieces);
    while left > 0 {
        let part = batch.get_mut(..left.min(BATCH_ITEMS)).unwrap_or_default();
        let progress = page.read(&mut *part).map_err(damaged)?;
        if progress.n_processed != part.len() || progress.finished != (part.len() == left) {
            return Err(invalid("as many numbers as the chunk has samples"));
        }
        left -= part.len();
        for piece in part.chunks(BLOCK_ITEMS) {
            if to_skip > 0 {
                to_skip -= 1;
                continue;
            }
            items.iter_mut().zip(piece).for_each(|(item, &number)| *item = number.into());
            if visit(items.get_mut(..piece.len()).unwrap_or_default()).is_break() {
                return Ok(());
            }
        }
    }
    if page.into_src().is_empty() {
        return Ok(());
    }
    Err(invalid("as many numbers as the chunk has samples"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_is_left_out_is_the_one_that_is_written() {
        let mut header = Vec::new();
        FileCompressor::default().write_header(&mut header).unwrap();
        assert_eq!(header, HEADER);
    }

    /// The items of the pieces from `first` on, at most `count` pieces.
    fn pieces(column: Column<'_>, first: usize, count: usize) -> Result<Vec<i64>, DecodeError> {
        let (mut found, mut visited) = (Vec::new(), 0);
        for_each_piece(column, first, &mut |piece| {
            found.extend_from_slice(piece);
            visited += 1;
            if visited == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    #[test]
    fn pieces_are_parts_of_the_whole() {
        let items: Vec<i64> = (0..3000i64).map(|i| i * i % 1777 - 900).collect();
        let mut bytes = Vec::new();
        let number_type = put(&items, &mut bytes).unwrap();
        assert_eq!(number_type, NumberType::I16);
        let read = |bytes: &[u8], first, count| {
            pieces(Column { bytes, number_type, offset: 0, item_count: 3000 }, first, count)
        };
        for first in 0..25 {
            for count in [1, 2, 3, 30] {
                let (start, end) = (3000.min(first * 128), 3000.min((first + count) * 128));
                assert_eq!(read(&bytes, first, count).unwrap(), items[start..end], "{count} from {first}");
            }
        }
        bytes.push(0);
        assert!(read(&bytes, 0, 30).is_err(), "bytes behind the column");
        assert!(read(&bytes, 3, 2).is_ok(), "which a reader of the front does not meet");
    }

    #[test]
    fn the_type_is_the_narrowest_that_holds_all() {
        let edges = [
            (NumberType::I8, i64::from(i8::MIN), i64::from(i8::MAX)),
            (NumberType::I16, i64::from(i16::MIN), i64::from(i16::MAX)),
            (NumberType::I32, i64::from(i32::MIN), i64::from(i32::MAX)),
            (NumberType::I64, i64::MIN, i64::MAX),
        ];
        let mut narrower: Option<NumberType> = None;
        for (number_type, low, high) in edges {
            assert_eq!(NumberType::from_code(number_type.code()), number_type);
            for edge in [low, high] {
                let items: Vec<i64> = (0..600).map(|i| if i % 7 == 0 { edge } else { i % 3 }).collect();
                let mut bytes = Vec::new();
                assert_eq!(put(&items, &mut bytes), Some(number_type));
                let column = Column { bytes: &bytes, number_type, offset: 0, item_count: 600 };
                assert_eq!(pieces(column, 0, 9).unwrap(), items);
                assert!(narrower.is_none_or(|narrower| narrower != number_type));
            }
            narrower = Some(number_type);
        }
    }
}
