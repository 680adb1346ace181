//! List of texts, front-coded: each has the number of bytes that it shares with the one before it, and the
//! rest. Sorted lists get short; any order is correct.
//!
//! Invariants: a decoded list is UTF-8, each text by itself; it has at most [`TEXT_BYTES_MAX`] bytes.
//! Layout: column of `uvarint shared, uvarint length of the rest` per text, column of the rests; a column is
//! `uvarint length, bytes`. The number of texts stands elsewhere.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};

/// Bytes of one decoded list. Few bytes can claim many: each text may repeat all of the one before it.
pub(super) const TEXT_BYTES_MAX: usize = 64 << 20;

/// Appends `column` with its length.
pub(super) fn put_column(column: &[u8], out: &mut Vec<u8>) {
    put_uvarint(out, column.len() as u64);
    out.extend_from_slice(column);
}

/// Returns a reader of the next column, with offsets of the whole.
pub(super) fn read_column<'a>(
    what: &'static str,
    reader: &mut ByteReader<'a>,
) -> Result<ByteReader<'a>, DecodeError> {
    let len = reader.length(what)?;
    Ok(ByteReader::new(reader.bytes(what, len)?))
}

/// Returns an error if bytes of a column are left.
pub(super) fn check_end(what: &'static str, column: &ByteReader<'_>) -> Result<(), DecodeError> {
    if column.is_empty() {
        return Ok(());
    }
    let found = column.remaining() as u64;
    Err(DecodeError::Invalid { what, offset: column.offset(), expected: "the end of the column", found })
}

/// Appends the texts.
pub(super) fn put_texts<'a>(texts: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    let mut lens = Vec::new();
    let mut rests = Vec::new();
    let mut last: &[u8] = &[];
    for text in texts {
        let bytes = text.as_bytes();
        let shared = last.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        put_uvarint(&mut lens, shared as u64);
        put_uvarint(&mut lens, (bytes.len() - shared) as u64);
        rests.extend_from_slice(bytes.get(shared..).unwrap_or_default());
        last = bytes;
    }
    put_column(&lens, out);
    put_column(&rests, out);
}

/// A decoded list; reused from list to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Texts {
    text: String,
    ends: Vec<u32>,
}

impl Texts {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, idx: usize) -> Option<&str> {
        let end = *self.ends.get(idx)?;
        let start = match idx.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.text.get(start as usize..end as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|idx| self.get(idx).unwrap_or_default())
    }

    /// Adds a text at the end.
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    /// Position of `text` in a sorted list.
    pub(super) fn find(&self, text: &str) -> Result<usize, usize> {
        let range = 0..self.len();
        let idx = self.partition_point(range, |other| other < text);
        if self.get(idx) == Some(text) { Ok(idx) } else { Err(idx) }
    }

    /// Returns the first index of `range` for whose text `is_before` is false.
    pub(super) fn partition_point(
        &self,
        range: std::ops::Range<usize>,
        is_before: impl Fn(&str) -> bool,
    ) -> usize {
        let mut low = range.start;
        let mut high = range.end;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(&is_before) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    /// Replaces the list by the next one of `reader`, of `count` texts.
    pub(super) fn decode(
        &mut self,
        what: &'static str,
        reader: &mut ByteReader<'_>,
        count: usize,
    ) -> Result<(), DecodeError> {
        self.ends.clear();
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        bytes.clear();
        let mut lens = read_column(what, reader)?;
        let mut rests = read_column(what, reader)?;
        let mut last_start = 0;
        for _ in 0..count {
            let offset = lens.offset();
            let shared = lens.uvarint(what)?;
            let rest_len = usize::try_from(lens.uvarint(what)?).unwrap_or(usize::MAX);
            let rest = rests.bytes(what, rest_len)?;
            let start = bytes.len();
            let shared = usize::try_from(shared).ok().filter(|&shared| shared <= start - last_start);
            let end = shared.map(|shared| start + shared + rest.len()).filter(|&end| end <= TEXT_BYTES_MAX);
            let (Some(shared), Some(end)) = (shared, end) else {
                let expected = "a prefix of the text before, within the limit of all texts";
                return Err(DecodeError::Invalid { what, offset, expected, found: rest_len as u64 });
            };
            bytes.extend_from_within(last_start..last_start + shared);
            bytes.extend_from_slice(rest);
            last_start = start;
            self.ends.push(u32::try_from(end).unwrap_or(u32::MAX));
        }
        check_end(what, &lens)?;
        check_end(what, &rests)?;
        let offset = reader.offset();
        let invalid = |found| DecodeError::Invalid { what, offset, expected: "UTF-8", found };
        self.text = String::from_utf8(bytes).map_err(|e| invalid(e.utf8_error().valid_up_to() as u64))?;
        // A text that begins or ends within a character.
        match self.ends.iter().find(|end| !self.text.is_char_boundary(**end as usize)) {
            Some(end) => Err(invalid(u64::from(*end))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
