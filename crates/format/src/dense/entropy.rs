//! A column of integers with the fractions of a bit that packing at one width wastes taken out: bins and tANS of pco.
//!
//! Holds: bit-exact; a reader takes untrusted bytes. Only pco's classic mode without delta coding is written and
//! read: differences are taken here (`values`), and its other modes could be asked for memory without bound.
//! Not here: when a column is worth it (`packed`).

use chronolith_base::DecodeError;
use pco::wrapped::{FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

const WHAT: &str = "packed chunk values";
/// What pco puts in front of a file: the version of its format. Not stored, as the chunk's version implies it.
const HEADER: [u8; 2] = [4, 1];
/// First byte of a column: classic mode (low four bits), no delta coding (high four bits).
const FIRST_BYTE: u8 = 0;
/// pco reads whole batches of so many numbers.
const BATCH_ITEMS: usize = 256;
/// Effort of the encoder: more finds nothing worth its time in chunks of a few thousand numbers.
const LEVEL: usize = 8;

/// Appends `items`; false (and nothing appended) when pco has no form for them.
pub(super) fn put(items: &[i64], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let config = ChunkConfig::default()
        .with_compression_level(LEVEL)
        .with_mode_spec(ModeSpec::Classic)
        .with_delta_spec(DeltaSpec::NoOp);
    let written = FileCompressor::default().chunk_compressor(items, &config).and_then(|mut chunk| {
        chunk.write_meta(&mut *out)?;
        chunk.write_page(0, &mut *out)?;
        Ok(())
    });
    let is_classic = out.get(start) == Some(&FIRST_BYTE);
    if written.is_err() || !is_classic {
        out.truncate(start);
        return false;
    }
    true
}

/// The first `wanted` (at least one) of `item_count` items, and some behind them; `bytes` is the whole column.
pub(super) fn read(
    bytes: &[u8],
    offset: usize,
    item_count: usize,
    wanted: usize,
) -> Result<Vec<i64>, DecodeError> {
    let invalid = |expected| DecodeError::Invalid { what: WHAT, offset, expected, found: bytes.len() as u64 };
    if bytes.first() != Some(&FIRST_BYTE) {
        return Err(invalid("classic mode without delta coding"));
    }
    let mut items = vec![0i64; item_count.min(wanted.next_multiple_of(BATCH_ITEMS))];
    let done = FileDecompressor::new(HEADER.as_slice()).and_then(|(file, _)| {
        let (mut chunk, rest) = file.chunk_decompressor::<i64, _>(bytes)?;
        let mut page = chunk.page_decompressor(rest, item_count)?;
        let progress = page.read(&mut items)?;
        Ok((progress.n_processed, progress.finished, page.into_src().len()))
    });
    match done {
        Ok((count, finished, left)) if count == items.len() && !(finished && left > 0) => Ok(items),
        Ok(_) => Err(invalid("as many numbers as the chunk has samples")),
        Err(_) => Err(invalid("an entropy-coded column")),
    }
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

    #[test]
    fn a_front_part_is_the_front_of_the_whole() {
        let items: Vec<i64> = (0..3000i64).map(|i| i * i % 1777 - 900).collect();
        let mut bytes = Vec::new();
        assert!(put(&items, &mut bytes));
        for wanted in [1, 256, 257, 2999, 3000] {
            let found = read(&bytes, 0, items.len(), wanted).unwrap();
            assert!(found.len() >= wanted && found == items[..found.len()], "{wanted}");
        }
        bytes.push(0);
        assert!(read(&bytes, 0, items.len(), items.len()).is_err(), "bytes behind the column");
    }
}
