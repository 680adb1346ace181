//! Dictionary of an answer: each name and value of a label travels once, and series name texts by number.
//!
//! Invariants: numbers count up from 0 after each reset; both sides have at most [`TEXTS_BYTES_MAX`] and the
//! texts of one frame.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::hash::HashMap;
use chronolith_base::{ByteReader, DecodeError};

use crate::lists::put_text;
use crate::record::invalid;

/// Bytes of texts from which a writer starts a new dictionary.
pub(super) const TEXTS_BYTES_MAX: usize = 4 << 20;
/// Bytes that a reader keeps: the texts of a writer's dictionary, and of a frame.
const READER_BYTES_MAX: usize = TEXTS_BYTES_MAX + super::frame::FRAME_BYTES_MAX;

/// Bytes of a text in the table of numbers, without its own bytes.
const ENTRY_BYTES: usize = size_of::<(Box<str>, u32)>();
const WHAT: &str = "texts of a select answer";
/// First byte of a frame that adds to the dictionary.
const ADDS: u8 = 0;
/// First byte of a frame that starts a new dictionary.
const RESETS: u8 = 1;

/// Numbers of texts, and the texts that no frame has yet.
#[derive(Debug)]
pub(super) struct DictionaryWriter {
    numbers: HashMap<Box<str>, u32>,
    /// Texts of the series before, one after the other, with their ends and numbers.
    last_texts: String,
    last: Vec<(usize, u32)>,
    /// Memory of the next [`DictionaryWriter::last_texts`].
    next_texts: String,
    next: Vec<(usize, u32)>,
    /// Bytes of the texts and of their entries in the table.
    bytes: usize,
    /// Payload of the next frame.
    pending: Vec<u8>,
}

impl Default for DictionaryWriter {
    fn default() -> DictionaryWriter {
        DictionaryWriter {
            numbers: HashMap::default(),
            last_texts: String::new(),
            last: Vec::new(),
            next_texts: String::new(),
            next: Vec::new(),
            bytes: 0,
            pending: vec![RESETS],
        }
    }
}

impl DictionaryWriter {
    /// Appends the numbers of the texts of a series to `out`. Series are sorted by their labels, so that most
    /// texts are those at the same places of the series before: they are compared and not looked up.
    pub(super) fn put_numbers<'t>(&mut self, texts: impl Iterator<Item = &'t str>, out: &mut Vec<u8>) {
        self.next_texts.clear();
        self.next.clear();
        let mut start = 0;
        for (idx, text) in texts.enumerate() {
            let before = self.last.get(idx).copied();
            let same = before.filter(|&(end, _)| self.last_texts.get(start..end) == Some(text));
            start = before.map_or(start, |(end, _)| end);
            let number = match same {
                Some((_, number)) => number,
                None => self.number_of(text),
            };
            put_uvarint(out, number.into());
            self.next_texts.push_str(text);
            self.next.push((self.next_texts.len(), number));
        }
        std::mem::swap(&mut self.last_texts, &mut self.next_texts);
        std::mem::swap(&mut self.last, &mut self.next);
    }

    /// Returns the number of a text.
    fn number_of(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = u32::try_from(self.numbers.len()).expect("a dictionary is reset before");
        self.numbers.insert(text.into(), number);
        self.bytes = self.bytes.saturating_add(text.len()).saturating_add(ENTRY_BYTES);
        put_text(&mut self.pending, text);
        number
    }

    /// Returns true if the next series should have a new dictionary.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= TEXTS_BYTES_MAX
    }

    /// Starts a new dictionary. All series of the one before are in frames.
    pub(super) fn reset(&mut self) {
        self.numbers.clear();
        self.last.clear();
        self.bytes = 0;
        self.pending.clear();
        self.pending.push(RESETS);
    }

    /// Returns the payload of the next frame, and empties it; `None` if there are no further texts.
    pub(super) fn take_pending(&mut self) -> Option<Vec<u8>> {
        let has_texts = self.pending.len() > 1;
        has_texts.then(|| std::mem::replace(&mut self.pending, vec![ADDS]))
    }

    /// Bytes of the texts, of which the table of numbers and the next frame have a copy each.
    pub(super) fn heap_bytes(&self) -> usize {
        let table_bytes = self.numbers.capacity().saturating_mul(ENTRY_BYTES);
        let last_bytes = self.last_texts.capacity() + self.next_texts.capacity();
        let places_bytes = (self.last.capacity() + self.next.capacity()) * size_of::<(usize, u32)>();
        let pending_bytes = self.pending.capacity() + last_bytes + places_bytes;
        self.bytes.saturating_add(table_bytes).saturating_add(pending_bytes)
    }

    /// Bytes of the next frame.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }
}

/// Texts by number.
#[derive(Debug, Default)]
pub(super) struct DictionaryReader {
    texts: String,
    /// End of each text.
    ends: Vec<usize>,
}

impl DictionaryReader {
    /// Adds the texts of a frame.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub(super) fn add(&mut self, payload: &[u8]) -> Result<(), DecodeError> {
        let mut reader = ByteReader::new(payload);
        match reader.u8(WHAT)? {
            ADDS => {}
            RESETS => *self = DictionaryReader::default(),
            other => return Err(invalid(WHAT, 0, "0 or 1", other.into())),
        }
        while !reader.is_empty() {
            let offset = reader.offset();
            let len = reader.length(WHAT)?;
            let text = std::str::from_utf8(reader.bytes(WHAT, len)?);
            let text = text.map_err(|_| invalid(WHAT, offset, "UTF-8", len as u64))?;
            let bytes = self.heap_bytes().saturating_add(text.len());
            if bytes > READER_BYTES_MAX {
                return Err(invalid(WHAT, offset, "at most 36 MiB of texts", bytes as u64));
            }
            self.texts.push_str(text);
            self.ends.push(self.texts.len());
        }
        Ok(())
    }

    /// Returns the text of a number.
    pub(super) fn get(&self, number: u64) -> Option<&str> {
        let idx = usize::try_from(number).ok()?;
        let end = *self.ends.get(idx)?;
        let start = idx.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.texts.get(start..end)
    }

    /// Bytes of the texts and of their ends.
    pub(super) fn heap_bytes(&self) -> usize {
        self.texts.len().saturating_add(self.ends.len().saturating_mul(size_of::<usize>()))
    }
}
