//! Text as a Go double-quoted string literal: label values in series names, messages and printed queries.
//! Not here: reading literals (`promql`), the exposition format's own escapes (`server`).

use std::fmt;

/// Writes `text` as a Go double-quoted string literal.
///
/// # Errors
/// As the writer.
pub fn write_quoted(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\x07' => out.write_str("\\a")?,
            '\x08' => out.write_str("\\b")?,
            '\x0c' => out.write_str("\\f")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\x0b' => out.write_str("\\v")?,
            c if is_printable(c) => out.write_char(c)?,
            c => write_escaped(out, c)?,
        }
    }
    out.write_char('"')
}

fn write_escaped(out: &mut impl fmt::Write, c: char) -> fmt::Result {
    let code = u32::from(c);
    match code {
        0..0x80 => write!(out, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    }
}

/// Returns true for letters, marks, numbers, punctuation, symbols and the ASCII space.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // A combining mark after a letter is printable; the standard library escapes it only on its own.
    let mut buffer = [0; 8];
    let mark_at = 'a'.encode_utf8(&mut buffer).len();
    let end = mark_at + c.len_utf8();
    if let Some(room) = buffer.get_mut(mark_at..end) {
        c.encode_utf8(room);
    }
    let text = buffer.get(..end).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("");
    text.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        let mut out = String::new();
        write_quoted(&mut out, text).expect("a string takes everything");
        assert_eq!(out, want);
    }

    #[test]
    fn escapes_are_those_of_go() {
        check("a\"b\\c", r#""a\"b\\c""#);
        check("\x07\x08\x0c\n\r\t\x0b\x01\x7f", r#""\a\b\f\n\r\t\v\x01\x7f""#);
        check("ü\u{200b}\u{e0001}", r#""ü\u200b\U000e0001""#);
    }
}
