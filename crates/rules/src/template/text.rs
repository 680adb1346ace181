//! Go's strings: bytes that are UTF-8 by convention only. Runes of them, quoted literals in both directions,
//! and floats as text.

mod classes;
mod float;
mod quote;
mod runes;
mod unquote;

#[cfg(test)]
mod tests;

pub(super) use classes::{is_letter_or_digit, is_printable};
pub(super) use float::{is_underscore_ok, parse_float};
pub(super) use quote::{can_backquote, quote, quote_ascii, quote_rune, quote_rune_ascii};
pub(super) use runes::{REPLACEMENT, Runes, first_rune, rune_count, to_text, truncate};
pub(super) use unquote::{Unit, unquote, unquote_char};
