//! String literals: Go's quoting for printing, and the reading of escapes.
//!
//! Invariants: what [`write_go_quoted`] writes, [`unquote`] reads back to the same text.
//! Not here: finding the end of a literal (lexer).

use chronolith_model::quote::write_quoted;

/// Appends `text` as a Go double-quoted literal.
pub(super) fn write_go_quoted(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = write_quoted(out, text);
}

/// Bytes of a literal, quotes included in `literal`. The lexer has checked its escapes; what cannot be an
/// escape stands for itself.
pub(super) fn unquote(literal: &str) -> Vec<u8> {
    let mut chars = literal.chars();
    let quote = chars.next();
    chars.next_back();
    let body = chars.as_str();
    if quote == Some('`') {
        return body.as_bytes().to_vec();
    }
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        let used = unescape(&escape[1..], &mut out);
        rest = escape.get(1 + used..).unwrap_or("");
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Reads one escape after its backslash; returns the bytes used.
fn unescape(text: &str, out: &mut Vec<u8>) -> usize {
    let Some(c) = text.chars().next() else { return 0 };
    let simple = match c {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        _ => {
            if let Some(shape) = EscapeShape::of(c) {
                return shape.read(text, out);
            }
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return c.len_utf8();
        }
    };
    out.push(simple);
    1
}

/// Number and base of the digits of an escape.
#[derive(Debug, Clone, Copy)]
pub(super) struct EscapeShape {
    /// Letters between the backslash and the digits.
    pub(super) prefix_bytes: usize,
    pub(super) digits: usize,
    pub(super) base: u32,
    pub(super) max: u32,
}

impl EscapeShape {
    /// The shape of the numeric escape that `first` opens.
    pub(super) fn of(first: char) -> Option<EscapeShape> {
        let unicode_max = u32::from(char::MAX);
        match first {
            '0'..='7' => Some(EscapeShape { prefix_bytes: 0, digits: 3, base: 8, max: 255 }),
            'x' => Some(EscapeShape { prefix_bytes: 1, digits: 2, base: 16, max: 255 }),
            'u' => Some(EscapeShape { prefix_bytes: 1, digits: 4, base: 16, max: unicode_max }),
            'U' => Some(EscapeShape { prefix_bytes: 1, digits: 8, base: 16, max: unicode_max }),
            _ => None,
        }
    }

    fn read(self, text: &str, out: &mut Vec<u8>) -> usize {
        let end = self.prefix_bytes + self.digits;
        let digits = text.get(self.prefix_bytes..end).unwrap_or("0");
        let code = u32::from_str_radix(digits, self.base).unwrap_or(0);
        match (u8::try_from(code), self.max) {
            (Ok(byte), 255) => out.push(byte),
            _ => {
                let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::{unquote, write_go_quoted};

    #[track_caller]
    fn check(text: &str, want: &str) {
        let mut out = String::new();
        write_go_quoted(&mut out, text);
        assert_eq!(out, want);
        assert_eq!(unquote(&out), text.as_bytes());
    }

    #[test]
    fn quoting_round_trips() {
        check("plain", r#""plain""#);
        check("a\"\\\n\u{7}\u{8}\u{c}\r\t\u{b}", r#""a\"\\\n\a\b\f\r\t\v""#);
        check("\0\u{7f}\u{80}\u{a0}\u{200b}\u{feff}", r#""\x00\x7f\u0080\u00a0\u200b\ufeff""#);
        check("e\u{301}é😀\u{e0001}", "\"e\u{301}é😀\\U000e0001\"");
    }

    #[test]
    fn bytes_that_are_no_text() {
        assert_eq!(unquote(r#""a\xff\377""#), b"a\xff\xff");
        assert_eq!(unquote("`a\\n`"), b"a\\n");
    }
}
