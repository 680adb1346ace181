//! The table of strings of a request, as they lie in its body.
//! Invariants: a symbol is found by its number in one look; the first is the empty string, as the
//! specification says.

use super::limits::SYMBOL_COUNT_MAX;
use crate::remote_write::DecodeError;
use crate::remote_write::wire::{Cursor, LEN};

/// Number of the field that holds symbols.
const FIELD_SYMBOLS: u64 = 4;
/// Tag byte of the field `symbols`.
const TAG_SYMBOLS: u8 = 0x22;

/// One string within the body.
#[derive(Clone, Copy)]
struct Place {
    start: u32,
    len: u32,
}

/// The symbols table of one request.
pub(super) struct Symbols<'a> {
    body: &'a [u8],
    places: Vec<Place>,
}

impl<'a> Symbols<'a> {
    /// Finds the symbols of the request `body`, at any position among the other fields.
    pub(super) fn find(body: &'a [u8]) -> Result<Symbols<'a>, DecodeError> {
        let mut places = Vec::new();
        let mut at = Cursor::new(body);
        while !at.is_empty() {
            if at.peek() == Some(TAG_SYMBOLS) {
                at.advance();
            } else {
                match at.tag()? {
                    (FIELD_SYMBOLS, LEN) => {}
                    (FIELD_SYMBOLS, _) => return Err(at.wrong_type().into()),
                    (_, other) => {
                        at.skip(other)?;
                        continue;
                    }
                }
            }
            if places.len() >= SYMBOL_COUNT_MAX {
                return Err(DecodeError::TooMany { what: "symbols", limit: SYMBOL_COUNT_MAX });
            }
            let text = at.message()?;
            let len = text.rest().len();
            if places.is_empty() && len > 0 {
                return Err(text.error("first symbol is not the empty string").into());
            }
            places.push(Place { start: offset(text.offset()), len: offset(len) });
        }
        Ok(Symbols { body, places })
    }

    /// Number of symbols.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Memory of the table.
    pub(super) fn heap_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
    }

    /// The bytes of symbol `idx`; UTF-8 is not checked.
    pub(super) fn get(&self, idx: u32) -> Option<&'a [u8]> {
        let place = self.places.get(idx as usize)?;
        let start = place.start as usize;
        self.body.get(start..start + place.len as usize)
    }
}

/// A body has at most [`crate::remote_write::DECOMPRESSED_BYTES_MAX`] bytes.
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a request fit u32")
}
