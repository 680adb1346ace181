//! Literals of Go's syntax, read as `strconv.Unquote` reads them.

/// Returns the bytes of a string literal in double quotes or backquotes, `None` if it is not valid.
pub(in crate::template) fn unquote(literal: &str) -> Option<Vec<u8>> {
    if let Some(raw) = literal.strip_prefix('`') {
        let raw = raw.strip_suffix('`')?;
        return (!raw.contains('`')).then(|| raw.bytes().filter(|&b| b != b'\r').collect());
    }
    let mut rest = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        if rest.starts_with('\n') {
            return None;
        }
        let unit = unquote_char(rest, '"')?;
        match unit.value {
            Unit::Byte(byte) => out.push(byte),
            Unit::Char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = unit.rest;
    }
    Some(out)
}

/// One character or byte of a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum Unit {
    /// From an octal or hexadecimal escape.
    Byte(u8),
    /// From a character itself or any other escape.
    Char(char),
}

/// A unit and the literal after it.
#[derive(Debug)]
pub(in crate::template) struct Unquoted<'a> {
    pub(in crate::template) value: Unit,
    pub(in crate::template) rest: &'a str,
}

/// Reads the first character of the inside of a literal between `delimiter`s.
pub(in crate::template) fn unquote_char(text: &str, delimiter: char) -> Option<Unquoted<'_>> {
    let mut chars = text.chars();
    match chars.next()? {
        c if c == delimiter => None,
        '\\' => escape(chars.as_str(), delimiter),
        c => Some(Unquoted { value: Unit::Char(c), rest: chars.as_str() }),
    }
}

/// `text` follows a backslash.
fn escape(text: &str, delimiter: char) -> Option<Unquoted<'_>> {
    let mut chars = text.chars();
    let kind = chars.next()?;
    let rest = chars.as_str();
    let c = match kind {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '\\' => '\\',
        '\'' | '"' if kind == delimiter => kind,
        'x' => {
            let value = Unit::Byte(u8::try_from(digits(rest, 2, 16)?).ok()?);
            return Some(Unquoted { value, rest: rest.get(2..)? });
        }
        '0'..='7' => {
            let value = Unit::Byte(u8::try_from(digits(text, 3, 8)?).ok()?);
            return Some(Unquoted { value, rest: text.get(3..)? });
        }
        'u' | 'U' => {
            let count = if kind == 'u' { 4 } else { 8 };
            let value = Unit::Char(char::from_u32(digits(rest, count, 16)?)?);
            return Some(Unquoted { value, rest: rest.get(count..)? });
        }
        _ => return None,
    };
    Some(Unquoted { value: Unit::Char(c), rest })
}

/// Reads exactly `count` digits.
fn digits(text: &str, count: usize, radix: u32) -> Option<u32> {
    let digits = text.get(..count)?;
    let is_number = digits.chars().all(|c| c.is_digit(radix));
    is_number.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}
