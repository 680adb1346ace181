//! Tokens of a target: white space, words, numbers, quoted text, path expressions.
//!
//! Invariant: each method either advances past one token and returns it, or leaves the position unchanged.
//! Not here: expressions (`parser`).

use super::tree::Literal;

/// Position within a target.
pub(super) struct Scanner<'a> {
    text: &'a str,
    position: usize,
    /// Bytes that tokens were looked for in, found or not.
    read_bytes: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Scanner { text, position: 0, read_bytes: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Bytes that were read, including bytes of failed attempts.
    pub(super) fn read_bytes(&self) -> usize {
        self.read_bytes
    }

    /// Goes back to a position that [`Self::position`] returned.
    pub(super) fn rewind(&mut self, position: usize) {
        self.position = position;
    }

    /// Returns a part of the text; a copy of it counts as read.
    pub(super) fn slice(&mut self, start: usize, end: usize) -> &'a str {
        self.read_bytes += end.saturating_sub(start);
        self.text.get(start..end).unwrap_or("")
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn skip_space(&mut self) {
        let len = space_len(self.rest());
        self.position += len;
        self.read_bytes += len;
    }

    /// Skips white space and `symbol`; returns true if it was there.
    pub(super) fn symbol(&mut self, symbol: char) -> bool {
        let start = self.position;
        self.skip_space();
        if self.peek() == Some(symbol) {
            self.position += symbol.len_utf8();
            return true;
        }
        self.position = start;
        false
    }

    /// A name of a function or argument: a letter or `_`, then letters, digits, `_`.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        let start = self.position;
        self.skip_space();
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            self.position = start;
            return None;
        }
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        self.position += end;
        self.read_bytes += end;
        rest.get(..end)
    }

    /// Reads one of the constants without quotes: `true`, `false`, `none`, `inf`, in any case.
    pub(super) fn keyword(&mut self, keyword: &str) -> bool {
        let start = self.position;
        self.skip_space();
        let rest = self.rest();
        let matches = rest.get(..keyword.len()).is_some_and(|word| word.eq_ignore_ascii_case(keyword))
            && !rest.get(keyword.len()..).is_some_and(|next| {
                next.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$')
            });
        if matches {
            self.position += keyword.len();
        } else {
            self.position = start;
        }
        matches
    }

    /// A number, only where `,`, `)` or the end follows: nodes of a path may begin with digits.
    pub(super) fn number(&mut self) -> Option<Literal> {
        let start = self.position;
        self.skip_space();
        let rest = self.rest();
        let integer_end = integer_len(rest)?.0;
        let fraction_end = rest.get(integer_end..).and_then(fraction_len).map(|len| integer_end + len);
        let mantissa_end = fraction_end.unwrap_or(integer_end);
        let exponent_end = rest.get(mantissa_end..).and_then(exponent_len).map(|len| mantissa_end + len);
        self.read_bytes += exponent_end.unwrap_or(mantissa_end);
        for end in [exponent_end, fraction_end, Some(integer_end)].into_iter().flatten() {
            let after = rest.get(end..).unwrap_or("");
            self.read_bytes += space_len(after);
            if ends_argument(after) {
                self.position += end;
                let text = rest.get(..end).unwrap_or("");
                return Some(match text.parse::<i64>() {
                    Ok(value) => Literal::Int(value),
                    Err(_) => Literal::Float(text.parse().unwrap_or(f64::INFINITY)),
                });
            }
        }
        self.position = start;
        None
    }

    /// Text in either kind of quotes, without them; escapes stay.
    pub(super) fn quoted(&mut self) -> Option<&'a str> {
        let start = self.position;
        self.skip_space();
        let rest = self.rest();
        let quote = rest.chars().next().filter(|c| *c == '"' || *c == '\'')?;
        let end = quoted_len(rest, quote);
        self.read_bytes += end.unwrap_or(rest.len());
        match end {
            Some(end) => {
                self.position += end + 1;
                rest.get(1..end)
            }
            None => {
                self.position = start;
                None
            }
        }
    }

    /// A path expression: elements of characters, escapes and `{a,b}`, joined by dots. Escapes are removed.
    pub(super) fn path(&mut self) -> Option<String> {
        let start = self.position;
        self.skip_space();
        let mut path = String::new();
        if !self.path_element(&mut path) {
            self.position = start;
            return None;
        }
        while self.peek() == Some('.') {
            let dot = self.position;
            self.position += 1;
            let len = path.len();
            path.push('.');
            if !self.path_element(&mut path) {
                path.truncate(len);
                self.position = dot;
                break;
            }
        }
        self.read_bytes += self.position - start;
        Some(path)
    }

    fn path_element(&mut self, out: &mut String) -> bool {
        let mut is_found = false;
        while self.path_part(out) || self.braces(out) {
            is_found = true;
        }
        is_found
    }

    fn path_part(&mut self, out: &mut String) -> bool {
        let len = out.len();
        while let Some(c) = self.peek() {
            if is_path_char(c) {
                out.push(c);
                self.position += 1;
                continue;
            }
            let escaped = self.rest().chars().nth(1).filter(|next| c == '\\' && is_escapable(*next));
            let Some(escaped) = escaped else { break };
            out.push(escaped);
            self.position += 2;
        }
        out.len() > len
    }

    fn braces(&mut self, out: &mut String) -> bool {
        let start = self.position;
        let len = out.len();
        if self.peek() != Some('{') {
            return false;
        }
        let mut separator = '{';
        while self.peek() == Some(separator) {
            out.push(separator);
            self.position += 1;
            if !self.path_part(out) {
                break;
            }
            if self.peek() == Some('}') {
                out.push('}');
                self.position += 1;
                return true;
            }
            separator = ',';
        }
        out.truncate(len);
        self.read_bytes += self.position - start;
        self.position = start;
        false
    }
}

/// Characters with a meaning in the grammar.
const SYMBOLS: &str = "(){},.'\"\\|";

fn is_path_char(c: char) -> bool {
    c.is_ascii_graphic() && !SYMBOLS.contains(c)
}

fn is_escapable(c: char) -> bool {
    c == '=' || SYMBOLS.contains(c)
}

/// Bytes of white space at the start.
fn space_len(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len()
}

fn ends_argument(rest: &str) -> bool {
    let rest = rest.get(space_len(rest)..).unwrap_or("");
    rest.is_empty() || rest.starts_with([',', ')'])
}

/// Length of `-?digits`, and of the digits.
fn integer_len(text: &str) -> Option<(usize, usize)> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    (count > 0).then(|| (text.len() - digits.len() + count, count))
}

fn fraction_len(text: &str) -> Option<usize> {
    let count = text.strip_prefix('.')?.bytes().take_while(u8::is_ascii_digit).count();
    (count > 0).then_some(count + 1)
}

fn exponent_len(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(['e', 'E'])?;
    integer_len(rest).map(|len| len.0 + 1)
}

/// Offset of the closing quote: a backslash takes the next character with it, a doubled quote is text.
fn quoted_len(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((offset, c)) = chars.next() {
        match c {
            '\n' | '\r' => return None,
            '\\' => {
                chars.next()?;
            }
            c if c == quote => {
                if chars.peek().is_some_and(|(_, next)| *next == quote)
                    && text.get(offset + 2..).is_some_and(|rest| rest.contains(quote))
                {
                    chars.next();
                    continue;
                }
                return Some(offset);
            }
            _ => {}
        }
    }
    None
}
