//! Series of slices of version 1: floats first, histograms and start timestamps in an extension.
//!
//! Not here: writing them; no version after 1 does.

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

use super::entry::{OooPayload, OpenChunk, SealedEntry, SeriesEntry, get_last, get_part};
use crate::chunk::xor;
use crate::head::wal::{KIND_OLD_HISTOGRAMS, Samples, decode_samples};

const HAS_OPEN: u8 = 1;
const HAS_LAST: u8 = 2;
const HAS_OOO: u8 = 4;
const HAS_SEALED: u8 = 8;
const HAS_EXTENSION: u8 = 128;

/// First byte of the extension that holds histograms and start timestamps; others are skipped.
const EXTENSION_NUMBER: u8 = 1;
const EXTENSION_HAS_OPEN: u8 = 1;
const EXTENSION_HAS_OOO: u8 = 2;
const EXTENSION_HAS_SEALED: u8 = 4;
const EXTENSION_HAS_STARTS: u8 = 8;

/// Reads an entry after its id and tenant.
pub(super) fn get<'a>(entry: &mut SeriesEntry<'a>, reader: &mut ByteReader<'a>) -> Result<(), DecodeError> {
    let flags = reader.u8("entry flags")?;
    if flags & HAS_OPEN != 0 {
        entry.open.push(OpenChunk::get_words(xor::ENCODING_XOR, reader)?);
    }
    if flags & HAS_LAST != 0 {
        entry.last = Some(get_last(reader)?);
    }
    let (mut floats, mut histograms) = (&[][..], &[][..]);
    if flags & HAS_OOO != 0 {
        floats = get_part(reader, "late samples")?;
    }
    if flags & HAS_SEALED != 0 {
        SealedEntry::get_list(reader, true, &mut entry.sealed)?;
    }
    if flags & HAS_EXTENSION != 0 {
        histograms = get_extension(entry, get_part(reader, "entry extension")?)?;
    }
    if !floats.is_empty() || !histograms.is_empty() {
        entry.ooo = OooPayload::Old(floats, histograms);
    }
    Ok(())
}

/// Reads an extension; returns the out-of-order histograms in it.
fn get_extension<'a>(entry: &mut SeriesEntry<'a>, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let mut reader = ByteReader::new(bytes);
    if reader.u8("entry extension")? != EXTENSION_NUMBER {
        return Ok(&[]);
    }
    let flags = reader.u8("histogram flags")?;
    if flags & EXTENSION_HAS_OPEN != 0 {
        let encoding = reader.u8("open histogram chunk")?;
        entry.open.push(OpenChunk::Histograms(encoding, get_part(&mut reader, "open histogram chunk")?));
    }
    let mut ooo = &[][..];
    if flags & EXTENSION_HAS_OOO != 0 {
        ooo = get_part(&mut reader, "late histograms")?;
    }
    if flags & EXTENSION_HAS_SEALED != 0 {
        SealedEntry::get_list(&mut reader, false, &mut entry.sealed)?;
    }
    if flags & EXTENSION_HAS_STARTS != 0 {
        entry.old_starts = get_part(&mut reader, "start times")?;
    }
    Ok(ooo)
}

/// Replaces `out` by the out-of-order samples of series `id`: floats of an XOR chunk, then histograms.
pub(super) fn decode_ooo(
    id: u32,
    floats: &[u8],
    histograms: &[u8],
    out: &mut Samples,
) -> Result<(), DecodeError> {
    let (mut columns, mut found) = (Columns::default(), Samples::default());
    if !floats.is_empty() {
        xor::decode(floats, TimeRange::ALL, &mut columns)?;
    }
    if !histograms.is_empty() {
        decode_samples(KIND_OLD_HISTOGRAMS, histograms, &mut found)?;
    }
    out.clear();
    (out.arrival_ms, out.duplicates) = (0, chronolith_model::DuplicatePolicy::LastWins);
    columns.times.iter().zip(&columns.values).for_each(|(&time, value)| out.push(id, time, value.to_bits()));
    found.times.iter().zip(found.histograms).for_each(|(&time, (_, one))| out.push_histogram(id, time, one));
    Ok(())
}
