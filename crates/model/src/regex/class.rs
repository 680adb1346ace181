//! Character classes: `[...]`, `\d`, `[:alpha:]`, and escapes of single characters.
//!
//! Invariants: `\d`, `\s`, `\w` and the POSIX classes are ASCII, as in Go; in `[...]`, `&&`, `--` and `~~`
//! are characters like others. Not here: `\p` (`unicode`).

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir};

use super::class_set::{AsciiRanges, ClassSet};
use super::error::{RegexError, RegexErrorKind, error};
use super::unicode;

/// Returns the class of `.`.
pub(super) fn dot(matches_newline: bool) -> Hir {
    let ranges: &[(char, char)] = match matches_newline {
        true => &[('\0', char::MAX)],
        false => &[('\0', '\x09'), ('\x0b', char::MAX)],
    };
    let ranges = ranges.iter().map(|&(a, b)| ClassUnicodeRange::new(a, b));
    Hir::class(Class::Unicode(ClassUnicode::new(ranges)))
}

/// `\d \D \s \S \w \W` at the start of `rest`, and what follows.
pub(super) fn perl(rest: &str, fold: bool) -> Option<(ClassSet, &str)> {
    let mut chars = rest.chars();
    if chars.next() != Some('\\') {
        return None;
    }
    let letter = chars.next()?;
    let ranges: AsciiRanges = match letter.to_ascii_lowercase() {
        'd' => &[('0', '9')],
        's' => &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')],
        'w' => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
        _ => return None,
    };
    let set = ClassSet::from_ascii(ranges).folded_if(fold).negated_if(letter.is_ascii_uppercase());
    Some((set, chars.as_str()))
}

/// `[:name:]` or `[:^name:]` at the start of `rest`, and what follows; `None` if it is something else.
fn posix(rest: &str, fold: bool) -> Result<Option<(ClassSet, &str)>, RegexError> {
    let Some((name, after)) = rest.strip_prefix("[:").and_then(|inner| inner.split_once(":]")) else {
        return Ok(None);
    };
    let (bare, negate) = name.strip_prefix('^').map_or((name, false), |bare| (bare, true));
    let ranges: AsciiRanges = match bare {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\x7f')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return Err(error(RegexErrorKind::InvalidCharRange, rest, after)),
    };
    Ok(Some((ClassSet::from_ascii(ranges).folded_if(fold).negated_if(negate), after)))
}

/// `[...]` at the start of `whole`, and what follows.
pub(super) fn bracketed(whole: &str, fold: bool) -> Result<(ClassSet, &str), RegexError> {
    let inner = whole.strip_prefix('[').unwrap_or(whole);
    let (mut rest, negate) = inner.strip_prefix('^').map_or((inner, false), |after| (after, true));
    let mut set = ClassSet::empty();
    let mut is_first = true;
    loop {
        // As the first character, `]` is one of the set.
        if let (Some(after), false) = (rest.strip_prefix(']'), is_first) {
            return Ok((set.negated_if(negate), after));
        }
        is_first = false;
        let named = match posix(rest, fold)? {
            Some(found) => Some(found),
            None => unicode::escape(rest, fold)?.or_else(|| perl(rest, fold)),
        };
        if let Some((part, after)) = named {
            set.add(&part);
            rest = after;
            continue;
        }
        let (low, after_low) = class_char(rest, whole)?;
        let (mut high, mut after) = (low, after_low);
        // A minus before the closing bracket is a character.
        if let Some(upper) = after_low.strip_prefix('-').filter(|upper| !upper.is_empty())
            && !upper.starts_with(']')
        {
            (high, after) = class_char(upper, whole)?;
        }
        if high < low {
            return Err(error(RegexErrorKind::InvalidCharRange, rest, after));
        }
        set.add(&code_range(low, high).folded_if(fold));
        rest = after;
    }
}

/// One character of a class, as it is or escaped.
fn class_char<'a>(rest: &'a str, whole: &str) -> Result<(u32, &'a str), RegexError> {
    let mut chars = rest.chars();
    match chars.next() {
        None => Err(RegexError::new(RegexErrorKind::MissingBracket, whole)),
        Some('\\') => char_escape(rest),
        Some(c) => Ok((u32::from(c), chars.as_str())),
    }
}

/// All characters between two code points; surrogates are none.
fn code_range(low: u32, high: u32) -> ClassSet {
    const SURROGATE_FIRST: u32 = 0xd800;
    const SURROGATE_LAST: u32 = 0xdfff;
    let low = if (SURROGATE_FIRST..=SURROGATE_LAST).contains(&low) { SURROGATE_LAST + 1 } else { low };
    let high = if (SURROGATE_FIRST..=SURROGATE_LAST).contains(&high) { SURROGATE_FIRST - 1 } else { high };
    match (char::from_u32(low), char::from_u32(high)) {
        (Some(a), Some(b)) if a <= b => ClassSet::new(ClassUnicode::new([ClassUnicodeRange::new(a, b)])),
        _ => ClassSet::empty(),
    }
}

/// The code point that an escape at the start of `rest` names, and what follows.
pub(super) fn char_escape(rest: &str) -> Result<(u32, &str), RegexError> {
    let mut chars = rest.chars();
    chars.next();
    let Some(c) = chars.next() else {
        return Err(RegexError::new(RegexErrorKind::TrailingBackslash, ""));
    };
    let after = chars.as_str();
    let code = match c {
        'a' => 0x07,
        'f' => 0x0c,
        'n' => 0x0a,
        'r' => 0x0d,
        't' => 0x09,
        'v' => 0x0b,
        'x' => return hex(rest, after),
        // One digit other than zero would be a back-reference.
        '1'..='7' if !after.starts_with(|c: char| c.is_digit(8)) => {
            return Err(error(RegexErrorKind::InvalidEscape, rest, after));
        }
        '0'..='7' => return Ok(octal(c, after)),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => u32::from(c),
        _ => return Err(error(RegexErrorKind::InvalidEscape, rest, after)),
    };
    Ok((code, after))
}

/// Up to three octal digits, of which `first` is read.
fn octal(first: char, after: &str) -> (u32, &str) {
    let more = after.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
    let digits = std::iter::once(first).chain(after.chars().take(more));
    let code = digits.fold(0, |code, digit| code * 8 + digit.to_digit(8).unwrap_or(0));
    (code, after.get(more..).unwrap_or(""))
}

/// `\x41` or `\x{1F600}`; `rest` starts with the backslash, `after` follows the `x`.
fn hex<'a>(rest: &'a str, after: &'a str) -> Result<(u32, &'a str), RegexError> {
    let mut chars = after.chars();
    let first = chars.next();
    if first != Some('{') {
        let second = chars.next();
        let digit = |c: Option<char>| c.and_then(|c| c.to_digit(16));
        return match (digit(first), digit(second)) {
            (Some(high), Some(low)) => Ok((high * 16 + low, chars.as_str())),
            _ => Err(error(RegexErrorKind::InvalidEscape, rest, chars.as_str())),
        };
    }
    let (mut code, mut digit_count) = (0u32, 0u32);
    while let Some(c) = chars.next() {
        match c.to_digit(16) {
            Some(digit) => code = code * 16 + digit,
            None if c == '}' && digit_count > 0 => return Ok((code, chars.as_str())),
            None => break,
        }
        digit_count = digit_count.saturating_add(1);
        if code > u32::from(char::MAX) {
            break;
        }
    }
    Err(error(RegexErrorKind::InvalidEscape, rest, chars.as_str()))
}
