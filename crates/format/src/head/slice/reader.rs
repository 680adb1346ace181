//! Reads series from the frames of slices of this version and of earlier ones.
//!
//! Not here: one entry (`entry`, `old_entry`).

use chronolith_base::{ByteReader, DecodeError};

use super::entry::{self, OooPayload, SeriesEntry};
use super::{KIND_OLD_SERIES, old_entry};
use crate::head::wal::{KIND_SAMPLES, Samples, decode_samples};

/// Iterator over the series of a payload; entries are reused.
pub struct EntryReader<'a> {
    reader: ByteReader<'a>,
    kind: u8,
    last_id: u32,
}

impl<'a> EntryReader<'a> {
    /// Starts at the first series of a frame of `kind` (see [`super::is_series`]).
    #[must_use]
    pub fn new(kind: u8, payload: &'a [u8]) -> EntryReader<'a> {
        EntryReader { reader: ByteReader::new(payload), kind, last_id: 0 }
    }

    /// Replaces `entry` by the next series; returns false at the end.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn next(&mut self, entry: &mut SeriesEntry<'a>) -> Result<bool, DecodeError> {
        let reader = &mut self.reader;
        if reader.is_empty() {
            return Ok(false);
        }
        let (mut open, mut sealed) = (std::mem::take(&mut entry.open), std::mem::take(&mut entry.sealed));
        open.clear();
        sealed.clear();
        *entry = SeriesEntry { open, sealed, ..SeriesEntry::default() };
        let offset = reader.offset();
        let delta = narrow(reader, "entry series")?;
        entry.id = self.last_id.checked_add(delta).filter(|&id| id != u32::MAX).ok_or({
            let expected = "an id of 32 bits";
            DecodeError::Invalid { what: "entry series", offset, expected, found: u64::from(delta) }
        })?;
        self.last_id = entry.id;
        entry.tenant = narrow(reader, "entry tenant")?;
        if self.kind == KIND_OLD_SERIES {
            old_entry::get(entry, reader)?
        } else {
            entry::get(entry, reader)?
        }
        Ok(true)
    }
}

/// Replaces `out` by the out-of-order samples of an entry.
///
/// # Errors
/// [`DecodeError`]; the columns are then not usable.
pub fn decode_ooo(entry: &SeriesEntry<'_>, out: &mut Samples) -> Result<(), DecodeError> {
    match entry.ooo {
        OooPayload::None => out.clear(),
        OooPayload::Samples(payload) => decode_samples(KIND_SAMPLES, payload, out)?,
        OooPayload::Old(floats, histograms) => old_entry::decode_ooo(entry.id, floats, histograms, out)?,
    }
    Ok(())
}

fn narrow(reader: &mut ByteReader<'_>, what: &'static str) -> Result<u32, DecodeError> {
    let offset = reader.offset();
    let found = reader.uvarint(what)?;
    u32::try_from(found).map_err(|_| DecodeError::Invalid { what, offset, expected: "32 bits", found })
}
