//! Quoted literals, as Go's `strconv.Quote` and its variants write them.

use std::fmt::Write;

use super::classes::is_printable;
use super::runes::Runes;

/// Byte order mark, which a raw literal cannot have.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Returns `bytes` as a double-quoted literal.
pub(in crate::template) fn quote(bytes: &[u8]) -> String {
    quoted(bytes, '"', false)
}

/// Returns `bytes` as a double-quoted literal of ASCII.
pub(in crate::template) fn quote_ascii(bytes: &[u8]) -> String {
    quoted(bytes, '"', true)
}

/// Returns `rune` as a single-quoted literal.
pub(in crate::template) fn quote_rune(rune: char) -> String {
    quoted(rune.encode_utf8(&mut [0; 4]).as_bytes(), '\'', false)
}

/// Returns `rune` as a single-quoted literal of ASCII.
pub(in crate::template) fn quote_rune_ascii(rune: char) -> String {
    quoted(rune.encode_utf8(&mut [0; 4]).as_bytes(), '\'', true)
}

/// Returns true if a raw literal can hold `bytes`.
pub(in crate::template) fn can_backquote(bytes: &[u8]) -> bool {
    Runes(bytes).all(|rune| {
        let is_control = (rune.value < ' ' && rune.value != '\t') || rune.value == '\x7f';
        rune.is_valid && !is_control && rune.value != '`' && rune.value != BYTE_ORDER_MARK
    })
}

fn quoted(bytes: &[u8], delimiter: char, ascii_only: bool) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push(delimiter);
    let mut rest = bytes;
    for rune in Runes(bytes) {
        if rune.is_valid {
            push_escaped(&mut out, rune.value, delimiter, ascii_only);
        } else if let Some(byte) = rest.first() {
            push_code(&mut out, format_args!("\\x{byte:02x}"));
        }
        rest = rest.get(rune.width_bytes..).unwrap_or_default();
    }
    out.push(delimiter);
    out
}

fn push_escaped(out: &mut String, c: char, delimiter: char, ascii_only: bool) {
    match c {
        '\\' => out.push_str("\\\\"),
        c if c == delimiter => {
            out.push('\\');
            out.push(c);
        }
        c if (c.is_ascii() || !ascii_only) && is_printable(c) => out.push(c),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        c => match u32::from(c) {
            code @ (0..0x20 | 0x7f) => push_code(out, format_args!("\\x{code:02x}")),
            code @ 0x20..0x1_0000 => push_code(out, format_args!("\\u{code:04x}")),
            code => push_code(out, format_args!("\\U{code:08x}")),
        },
    }
}

fn push_code(out: &mut String, code: std::fmt::Arguments<'_>) {
    out.write_fmt(code).expect("a string takes everything");
}
