//! Metrics and series descriptions: `name{label="value"} 1 2+3x4 _ stale {{sum:1}}`, the notation of input
//! series in unit tests of rules.
//!
//! Invariants: a text is accepted exactly if Prometheus accepts it and its values are at most
//! [`SEQUENCE_VALUES_MAX`]; no more of them are ever allocated.
//! Not here: histograms (`histogram`), times of the values (the caller).

use std::sync::Arc;

use chronolith_model::FloatHistogram;
use chronolith_model::sample::STALE_NAN;

use crate::parser::grammar::{Context, Parser, unexpected};
use crate::parser::lexer::Failure;
use crate::parser::number::parse_number;
use crate::parser::options::ParserOptions;
use crate::parser::selector::{NAME_LABEL, text_of};
use crate::parser::token::TokenKind;

mod histogram;

/// Values of one series description.
pub const SEQUENCE_VALUES_MAX: usize = 1_000_000;

const PLAIN: Context = Context { place: "", expected: "" };
const LABEL: Context = Context { place: "label set", expected: "identifier or \"}\"" };
const LABEL_ASSIGN: Context = Context { place: "label set", expected: "\"=\"" };
const LABEL_VALUE: Context = Context { place: "label set", expected: "string" };
const LABEL_NEXT: Context = Context { place: "label set", expected: "\",\" or \"}\"" };

/// One value of a series, a step after the value before.
#[derive(Debug, Clone, PartialEq)]
pub enum SequenceValue {
    /// No sample (`_`).
    Gap,
    /// A float; the staleness marker for `stale`.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<FloatHistogram>),
}

/// A series and its values.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesDescription {
    /// As [`parse_metric`](crate::parser::parse_metric) returns them.
    pub labels: Vec<(String, String)>,
    /// Values in the order of their times.
    pub values: Vec<SequenceValue>,
}

/// Reads a metric.
pub(super) fn metric(text: &str, options: ParserOptions) -> Result<Vec<(String, String)>, Failure> {
    let mut parser = Parser::new(text, options);
    let name = match parser.peek()? {
        token if token.is_metric_name() => Some(parser.bump()?.text),
        _ => None,
    };
    let labels = if parser.take(TokenKind::LeftBrace)? { label_set(&mut parser)?.labels } else { Vec::new() };
    let next = parser.bump()?;
    match next.kind {
        TokenKind::End => Ok(named(name, labels)),
        _ => Err(unexpected(&next, PLAIN)),
    }
}

/// Reads a series description.
pub(super) fn series_description(text: &str, options: ParserOptions) -> Result<SeriesDescription, Failure> {
    let mut parser = Parser::new(text, options);
    let first = parser.bump()?;
    let is_named = first.is_metric_name();
    // Blanks after the name end the metric.
    let has_braces = first.kind == TokenKind::LeftBrace
        || (is_named
            && text.as_bytes().get(first.end()) == Some(&b'{')
            && parser.take(TokenKind::LeftBrace)?);
    if !is_named && !has_braces {
        return Err(unexpected(&first, PLAIN));
    }
    let set =
        if has_braces { label_set(&mut parser)? } else { LabelSet { labels: Vec::new(), end: first.end() } };
    let labels = named(is_named.then_some(first.text), set.labels);
    let mut values = SequenceParser { text, pos: set.end, values: Vec::new() };
    values.parse()?;
    Ok(SeriesDescription { labels, values: values.values })
}

/// Labels in braces.
struct LabelSet {
    labels: Vec<(String, String)>,
    /// Byte after the closing brace.
    end: usize,
}

/// Sets the name, which removes empty labels, and sorts.
fn named(name: Option<&str>, mut labels: Vec<(String, String)>) -> Vec<(String, String)> {
    if let Some(name) = name {
        labels.retain(|(label, value)| label != NAME_LABEL && !value.is_empty());
        labels.push((NAME_LABEL.to_owned(), name.to_owned()));
    }
    labels.sort();
    labels
}

/// Labels up to `}`; the brace that opens them has been taken.
fn label_set(parser: &mut Parser<'_>) -> Result<LabelSet, Failure> {
    let mut labels = Vec::new();
    loop {
        let item = parser.bump()?;
        match item.kind {
            TokenKind::RightBrace if labels.is_empty() => {
                return Ok(LabelSet { labels, end: item.end() });
            }
            TokenKind::Identifier | TokenKind::String if parser.take(TokenKind::Assign)? => {
                let value = parser.bump()?;
                if value.kind != TokenKind::String {
                    return Err(unexpected(&value, LABEL_VALUE));
                }
                labels.push((text_of(&item), text_of(&value)));
            }
            TokenKind::String => labels.push((NAME_LABEL.to_owned(), text_of(&item))),
            TokenKind::Identifier => return Err(unexpected(&parser.peek()?, LABEL_ASSIGN)),
            _ => return Err(unexpected(&item, LABEL)),
        }
        let mut next = parser.bump()?;
        if next.kind == TokenKind::Comma && parser.peek()?.kind == TokenKind::RightBrace {
            next = parser.bump()?;
        }
        match next.kind {
            TokenKind::RightBrace => return Ok(LabelSet { labels, end: next.end() }),
            TokenKind::Comma => {}
            _ => return Err(unexpected(&next, LABEL_NEXT)),
        }
    }
}

/// Position in the values of a description.
struct SequenceParser<'a> {
    text: &'a str,
    pos: usize,
    values: Vec<SequenceValue>,
}

impl<'a> SequenceParser<'a> {
    fn parse(&mut self) -> Result<(), Failure> {
        while self.pos < self.text.len() {
            if !self.take_blanks() {
                return Err(self.unexpected("series values"));
            }
            if self.pos < self.text.len() {
                self.item()?;
            }
        }
        Ok(())
    }

    /// Reads one item: `_`, `_x3`, `1`, `1x3`, `1+2x3`, `stale`, `{{...}}`, `{{...}}x3`, `{{...}}+{{...}}x3`.
    fn item(&mut self) -> Result<(), Failure> {
        match self.peek() {
            Some('_') => {
                self.pos += 1;
                let count = self.times()?.unwrap_or(1);
                self.repeat(count, SequenceValue::Gap)
            }
            Some('{') => self.histograms(),
            _ => self.floats(),
        }
    }

    fn floats(&mut self) -> Result<(), Failure> {
        let mut value = match self.peek() {
            Some('+' | '-') => self.signed_number()?,
            _ if self.rest().strip_prefix("stale").is_some_and(|rest| !rest.starts_with(is_word)) => {
                self.pos += "stale".len();
                STALE_NAN
            }
            _ => self.number()?,
        };
        let step = match self.peek() {
            Some('+' | '-') => Some(self.signed_number()?),
            _ => None,
        };
        let times = self.times()?;
        match (step, times) {
            (None, None) => self.repeat(1, SequenceValue::Float(value)),
            // The first value is one more.
            (None, Some(times)) => self.repeat(times.saturating_add(1), SequenceValue::Float(value)),
            (Some(_), None) => Err(self.unexpected("series values")),
            (Some(step), Some(times)) => {
                let count = self.check_count(times.saturating_add(1))?;
                for _ in 0..count {
                    self.values.push(SequenceValue::Float(value));
                    value += step;
                }
                Ok(())
            }
        }
    }

    fn repeat(&mut self, count: u64, value: SequenceValue) -> Result<(), Failure> {
        let count = self.check_count(count)?;
        self.values.extend(std::iter::repeat_n(value, count));
        Ok(())
    }

    /// Returns `count` if that number of values may follow.
    fn check_count(&self, count: u64) -> Result<usize, Failure> {
        let left = SEQUENCE_VALUES_MAX - self.values.len();
        usize::try_from(count).ok().filter(|&count| count <= left).ok_or_else(|| {
            Failure::new(self.pos, format!("series has more than {SEQUENCE_VALUES_MAX} values"))
        })
    }

    /// Number of repetitions after `x`, if there is one.
    fn times(&mut self) -> Result<Option<u64>, Failure> {
        if self.peek() != Some('x') {
            return Ok(None);
        }
        self.pos += 1;
        self.unsigned().map(Some)
    }

    fn unsigned(&mut self) -> Result<u64, Failure> {
        let start = self.pos;
        let digits = self.scan_number()?;
        digits
            .parse()
            .map_err(|_| Failure::new(start, format!("invalid repetition in series values: {digits:?}")))
    }

    fn signed_number(&mut self) -> Result<f64, Failure> {
        let sign = if self.peek() == Some('-') { -1.0 } else { 1.0 };
        self.pos += 1;
        Ok(sign * self.number()?)
    }

    /// A number without a sign, `Inf` or `NaN`.
    fn number(&mut self) -> Result<f64, Failure> {
        let start = self.pos;
        let text = match self.peek() {
            Some(c) if c.is_ascii_alphabetic() => {
                let word = self.take_while(is_word);
                if !word.eq_ignore_ascii_case("inf") && !word.eq_ignore_ascii_case("nan") {
                    let message = format!("unexpected identifier {word:?} in series values, expected number");
                    return Err(Failure::new(start, format!("{message} or \"stale\"")));
                }
                word
            }
            _ => self.scan_number()?,
        };
        parse_number(text).map_err(|message| Failure::new(start, message))
    }

    /// Text of a number: digits with at most one dot and one exponent, underscores between digits.
    fn scan_number(&mut self) -> Result<&'a str, Failure> {
        let start = self.pos;
        let bad = |end: usize| Failure::new(start, format!("bad number or duration syntax at byte {end}"));
        let starts = self.peek().is_some_and(|c| c.is_ascii_digit())
            || (self.peek() == Some('.') && self.peek_at(1).is_some_and(|c| c.is_ascii_digit()));
        if !starts {
            return Err(self.unexpected("series values"));
        }
        let mut has_dot = false;
        let mut has_exponent = false;
        while let Some(c) = self.peek() {
            let next = self.peek_at(1);
            match c {
                '0'..='9' => {}
                '.' if !has_dot && next != Some('_') && next != Some('.') => has_dot = true,
                'e' | 'E' if !has_exponent => {
                    has_exponent = true;
                    if matches!(next, Some('+' | '-')) {
                        self.pos += 1;
                    }
                    if self.peek_at(1).is_none_or(|c| ['.', '_', 'e', 'E'].contains(&c)) {
                        return Err(bad(self.pos));
                    }
                }
                '_' if next.is_some_and(|c| !['.', '_', 'e', 'E'].contains(&c)) => {}
                '.' | 'e' | 'E' | '_' => return Err(bad(self.pos)),
                _ => break,
            }
            self.pos += 1;
        }
        match self.peek() {
            Some(c) if c != 'x' && (c.is_ascii_alphanumeric() || c == '_') => Err(bad(self.pos)),
            _ => Ok(self.text.get(start..self.pos).unwrap_or_default()),
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn peek_at(&self, idx: usize) -> Option<char> {
        self.rest().chars().nth(idx)
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.pos += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Skips blanks; returns true if there were any.
    fn take_blanks(&mut self) -> bool {
        !self.take_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r')).is_empty()
    }

    /// Skips `token`; returns true if it was there.
    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.pos += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str, place: &str) -> Result<(), Failure> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected(place)) }
    }

    fn unexpected(&self, place: &str) -> Failure {
        let found = self.peek().map_or_else(|| "end of input".to_owned(), |c| format!("{:?}", c.to_string()));
        Failure::new(self.pos, format!("unexpected {found} in {place}"))
    }
}

/// Returns true for a character of a word, such as `stale`.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

#[cfg(test)]
mod tests;
