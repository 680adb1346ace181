//! Texts and numbers of protocol 0: quoted strings, escaped unicode, decimal integers.
//!
//! Invariant: the decoded text is at most twice as long as the literal. Not here: opcodes (`machine`).

/// Appends the bytes of a quoted string as Python 2's `repr` writes it; `None` if the quotes do not match or
/// an escape is not valid.
pub(super) fn push_quoted(literal: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (&quote, rest) = literal.split_first()?;
    let (&closing, text) = rest.split_last()?;
    if quote != closing || !matches!(quote, b'\'' | b'"') {
        return None;
    }
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let escaped = *text.get(at)?;
        at += 1;
        match escaped {
            b'\\' | b'\'' | b'"' => out.push(escaped),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'x' => {
                out.push(u8::try_from(hex(text.get(at..at + 2)?)?).ok()?);
                at += 2;
            }
            // Any other backslash stays, as in Python.
            _ => out.extend_from_slice(&[b'\\', escaped]),
        }
    }
    Some(())
}

/// Appends the UTF-8 of a text in Python's raw-unicode-escape: Latin-1 with `\u` and four, `\U` and eight
/// digits; `None` for an escape that is no character.
pub(super) fn push_unicode(literal: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut at = 0;
    while let Some(&byte) = literal.get(at) {
        at += 1;
        let digit_count = match (byte, literal.get(at)) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => 0,
        };
        let char = if digit_count > 0 {
            let digits = literal.get(at + 1..at + 1 + digit_count)?;
            at += 1 + digit_count;
            char::from_u32(hex(digits)?)?
        } else {
            char::from(byte)
        };
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(())
}

/// Returns the value of hexadecimal digits, at most eight.
fn hex(digits: &[u8]) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the value of a decimal integer of at most 128 bits.
pub(super) fn integer(literal: &[u8]) -> Option<f64> {
    let value: i128 = std::str::from_utf8(literal.trim_ascii()).ok()?.parse().ok()?;
    Some(value as f64)
}

/// Returns the value of a little-endian two's complement of at most 16 bytes.
pub(super) fn long(bytes: &[u8]) -> Option<f64> {
    let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut word = if is_negative { [0xff; 16] } else { [0; 16] };
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i128::from_le_bytes(word) as f64)
}
