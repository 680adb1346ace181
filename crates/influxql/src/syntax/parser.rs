//! Token buffer of the parser, and the smallest rules: identifiers, literals, lists.
//!
//! Invariants: at most [`BUFFERED`] tokens are put back. A regex is scanned from characters, so that it is
//! found only where no token has been put back.
//! Not here: the rules of statements (`statement` and those it calls).

use super::duration::parse_duration;
use super::error::ParseError;
use super::limits::{NESTING_MAX, QUERY_BYTES_MAX, REGEX_BYTES_MAX, TERMS_MAX};
use super::parameter::{Parameter, Parameters};
use super::scanner::Scanner;
use super::token::{Kind, Position, Token};
use crate::ast::{Regex, in_quotes};

/// Tokens that can be put back.
const BUFFERED: usize = 3;

pub(super) struct Parser {
    scanner: Scanner,
    /// Ring of the tokens that were scanned last; `newest` is the index of the newest one.
    ring: [Token; BUFFERED],
    newest: usize,
    put_back: usize,
    parameters: Parameters,
    nesting: usize,
    terms: usize,
    regex_bytes: usize,
}

impl Parser {
    pub(super) fn new(text: &str, parameters: Parameters) -> Result<Parser, ParseError> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(ParseError::plain(format!(
                "query of {} bytes, at most {QUERY_BYTES_MAX}",
                text.len()
            )));
        }
        let scanner = Scanner::new(text);
        let ring = [(); BUFFERED].map(|()| Token::new(Kind::Illegal, Position::default()));
        Ok(Parser { scanner, ring, newest: 0, put_back: 0, parameters, nesting: 0, terms: 0, regex_bytes: 0 })
    }

    /// Returns the next token, spaces and comments included.
    pub(super) fn scan(&mut self) -> Token {
        if self.put_back > 0 {
            self.put_back -= 1;
            return self.current();
        }
        let token = self.scanner.scan();
        self.push(self.bind(token))
    }

    fn push(&mut self, token: Token) -> Token {
        self.newest = (self.newest + 1) % BUFFERED;
        if let Some(slot) = self.ring.get_mut(self.newest) {
            slot.clone_from(&token);
        }
        token
    }

    /// The token that was returned last.
    pub(super) fn current(&self) -> Token {
        let idx = (self.newest + BUFFERED - self.put_back % BUFFERED) % BUFFERED;
        self.ring.get(idx).cloned().unwrap_or_else(|| Token::new(Kind::End, Position::default()))
    }

    /// Puts the token that was returned last back.
    pub(super) fn unscan(&mut self) {
        self.put_back += 1;
    }

    /// Returns the next token that is no space and no comment.
    pub(super) fn next(&mut self) -> Token {
        loop {
            let token = self.scan();
            if !matches!(token.kind, Kind::Space | Kind::Comment) {
                return token;
            }
        }
    }

    /// Takes the next token if `is_match` holds for it.
    pub(super) fn next_if(&mut self, is_match: impl FnOnce(&Token) -> bool) -> Option<Token> {
        let token = self.next();
        if is_match(&token) {
            return Some(token);
        }
        self.unscan();
        None
    }

    /// Takes the keyword `word`, if it is next.
    pub(super) fn next_keyword(&mut self, word: &str) -> bool {
        self.next_if(|token| token.is_keyword(word)).is_some()
    }

    pub(super) fn expect_keyword(&mut self, word: &str) -> Result<(), ParseError> {
        let token = self.next();
        if token.is_keyword(word) { Ok(()) } else { Err(ParseError::unexpected(&token, &[word])) }
    }

    pub(super) fn expect_keywords(&mut self, words: &[&str]) -> Result<(), ParseError> {
        words.iter().try_for_each(|word| self.expect_keyword(word))
    }

    pub(super) fn expect(&mut self, kind: Kind, expected: &str) -> Result<Token, ParseError> {
        let token = self.next();
        if token.is(kind) { Ok(token) } else { Err(ParseError::unexpected(&token, &[expected])) }
    }

    /// Replaces a bound parameter by the token of its value.
    fn bind(&self, token: Token) -> Token {
        let Some(name) = token.literal.strip_prefix('$').filter(|_| token.is(Kind::Parameter)) else {
            return token;
        };
        let position = token.position;
        let integer = |digits: String| Token::with_text(Kind::Integer, position, digits);
        match self.parameters.get(name) {
            None | Some(Parameter::Invalid(_)) => token,
            Some(Parameter::Number(number)) => Token::with_text(Kind::Float, position, number.to_string()),
            Some(Parameter::Integer(number)) => integer(number.to_string()),
            Some(Parameter::Unsigned(number)) => integer(number.to_string()),
            Some(Parameter::Text(text)) => Token::with_text(Kind::Text, position, text.as_str()),
            Some(Parameter::Boolean(true)) => Token::new(Kind::Keyword("TRUE"), position),
            Some(Parameter::Boolean(false)) => Token::new(Kind::Keyword("FALSE"), position),
            Some(Parameter::Ident(ident)) => Token::with_text(Kind::Ident, position, ident.as_str()),
            Some(Parameter::Regex(regex)) => Token::with_text(Kind::Regex, position, regex.pattern()),
            Some(Parameter::Duration(ns)) => Token::with_text(Kind::Duration, position, format!("{ns}ns")),
        }
    }

    /// The error of a parameter that has no value.
    pub(super) fn unbound(&self, token: &Token) -> ParseError {
        let name = token.literal.trim_start_matches('$');
        match self.parameters.get(name) {
            _ if name.is_empty() => ParseError::plain("empty bound parameter"),
            Some(Parameter::Invalid(message)) => ParseError::plain(message.as_str()),
            _ => ParseError::plain(format!("missing parameter: {name}")),
        }
    }

    pub(super) fn ident(&mut self) -> Result<String, ParseError> {
        Ok(self.expect(Kind::Ident, "identifier")?.literal)
    }

    pub(super) fn idents(&mut self) -> Result<Vec<String>, ParseError> {
        let mut idents = vec![self.ident()?];
        while self.next_if(|token| token.is(Kind::Comma)).is_some() {
            self.count_term()?;
            idents.push(self.ident()?);
        }
        Ok(idents)
    }

    pub(super) fn text(&mut self) -> Result<String, ParseError> {
        Ok(self.expect(Kind::Text, "string")?.literal)
    }

    /// Identifiers with points between them; inner ones may be empty. It ends before a regex and before `:`.
    pub(super) fn segments(&mut self) -> Result<Vec<String>, ParseError> {
        let mut segments = vec![self.ident()?];
        loop {
            if !self.scan().is(Kind::Dot) {
                self.unscan();
                break;
            }
            match self.scanner.peek() {
                '/' | ':' => break,
                '.' => segments.push(String::new()),
                _ => segments.push(self.ident()?),
            }
            self.count_term()?;
        }
        if segments.len() <= 3 {
            return Ok(segments);
        }
        // The name keeps its quotes only if it is no plain identifier; all others get them.
        let last = segments.len() - 1;
        let quote = |(idx, segment): (usize, &String)| {
            if idx == last { crate::ast::quote_ident(segment) } else { in_quotes(segment, '"') }
        };
        let segments: Vec<String> = segments.iter().enumerate().map(quote).collect();
        let message = format!("too many segments in {}", segments.join("."));
        Err(ParseError::at(message, Position::default()))
    }

    /// Returns the regex that follows spaces, if one does.
    pub(super) fn regex(&mut self) -> Result<Option<Regex>, ParseError> {
        if matches!(self.scanner.peek(), ' ' | '\t' | '\n') && !self.scan().is(Kind::Space) {
            self.unscan();
        }
        let token = match self.scanner.peek() {
            // A bound parameter may be a regex.
            '$' => {
                let token = self.scan();
                if !token.is(Kind::Regex) {
                    self.unscan();
                    return Ok(None);
                }
                token
            }
            '/' if self.put_back > 0 => {
                self.put_back -= 1;
                self.current()
            }
            '/' => {
                let token = self.scanner.scan_regex();
                self.push(token)
            }
            _ => return Ok(None),
        };
        match token.kind {
            Kind::BadEscape => {
                Err(ParseError::at(format_args!("bad escape: {}", token.literal), token.position))
            }
            Kind::BadRegex => {
                Err(ParseError::at(format_args!("bad regex: {}", token.literal), token.position))
            }
            Kind::Regex => self.regex_of(token).map(Some),
            _ => Err(ParseError::unexpected(&token, &["regex"])),
        }
    }

    /// Checks the regex of a token; refuses texts whose regexes are too large together.
    pub(super) fn regex_of(&mut self, token: Token) -> Result<Regex, ParseError> {
        let regex = Regex::new(token.literal).map_err(|error| ParseError::at(error, token.position))?;
        self.regex_bytes = self.regex_bytes.saturating_add(regex.program_bytes());
        if self.regex_bytes <= REGEX_BYTES_MAX {
            return Ok(regex);
        }
        let message = format_args!("regexes of more than {REGEX_BYTES_MAX} bytes when compiled");
        Err(ParseError::at(message, token.position))
    }

    /// Returns the character after the tokens that have been scanned.
    pub(super) fn peek_char(&mut self) -> char {
        self.scanner.peek()
    }

    /// An integer in `[min, max]`.
    pub(super) fn integer_in(&mut self, min: i64, max: i64) -> Result<i64, ParseError> {
        let token = self.expect(Kind::Integer, "integer")?;
        let number: i64 = token.literal.parse().map_err(|_| out_of_range("Atoi", &token))?;
        if (min..=max).contains(&number) {
            return Ok(number);
        }
        let message = format!("invalid value {number}: must be {min} <= n <= {max}");
        Err(ParseError::at(message, token.position))
    }

    pub(super) fn unsigned(&mut self) -> Result<u64, ParseError> {
        let token = self.expect(Kind::Integer, "integer")?;
        token.literal.parse().map_err(|_| out_of_range("ParseUint", &token))
    }

    /// A duration or INF, which is 0.
    pub(super) fn duration(&mut self) -> Result<i64, ParseError> {
        let token = self.next();
        if token.is_keyword("INF") {
            return Ok(0);
        }
        if !token.is(Kind::Duration) {
            return Err(ParseError::unexpected(&token, &["duration"]));
        }
        parse_duration(&token.literal).map_err(|error| ParseError::at(error, token.position))
    }

    /// Counts an operand or item of a list; refuses texts with too many of them.
    pub(super) fn count_term(&mut self) -> Result<(), ParseError> {
        self.terms += 1;
        if self.terms <= TERMS_MAX {
            return Ok(());
        }
        Err(ParseError::plain(format!("query has more than {TERMS_MAX} operands")))
    }

    /// Runs `rule` one level deeper.
    pub(super) fn nested<T>(
        &mut self,
        rule: impl FnOnce(&mut Parser) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.nesting == NESTING_MAX {
            return Err(ParseError::plain(format!("query nests more than {NESTING_MAX} levels")));
        }
        self.nesting += 1;
        let result = rule(self);
        self.nesting -= 1;
        result
    }
}

/// The text equals the error of Go's function.
fn out_of_range(function: &str, token: &Token) -> ParseError {
    let message = format!("strconv.{function}: parsing {:?}: value out of range", token.literal);
    ParseError::at(message, token.position)
}
