//! Numeric literals, which have a value of each type that can represent them, as Go's constants do.

use super::super::text::{Unit, is_underscore_ok, parse_float, quote, unquote_char};
use super::token::TokenKind;

/// A numeric literal and its values.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::template) struct Number {
    pub(in crate::template) literal: String,
    pub(in crate::template) int: Option<i64>,
    pub(in crate::template) uint: Option<u64>,
    pub(in crate::template) float: Option<f64>,
    /// Real and imaginary part.
    pub(in crate::template) complex: Option<[f64; 2]>,
}

impl Number {
    /// Reads a literal.
    ///
    /// # Errors
    /// Go's text.
    pub(super) fn parse(literal: &str, kind: TokenKind) -> Result<Number, String> {
        let mut number =
            Number { literal: literal.to_owned(), int: None, uint: None, float: None, complex: None };
        match kind {
            TokenKind::CharConstant => number.set_char()?,
            TokenKind::Complex => number.set_complex(complex(literal)?),
            _ => match literal.strip_suffix('i').and_then(|text| parse_float(text).ok()) {
                Some(imaginary) => number.set_complex([0.0, imaginary]),
                None => number.set_real()?,
            },
        }
        Ok(number)
    }

    /// Returns true if the literal is a floating constant by its syntax.
    pub(in crate::template) fn is_float_literal(&self) -> bool {
        let literal = &self.literal;
        let is_hex_int = literal.len() > 2
            && (literal.starts_with("0x") || literal.starts_with("0X"))
            && !literal.contains(['p', 'P']);
        self.float.is_some()
            && !is_hex_int
            && !literal.starts_with('\'')
            && literal.contains(['.', 'e', 'E', 'p', 'P'])
    }

    fn set_char(&mut self) -> Result<(), String> {
        let inside = self.literal.strip_prefix('\'').unwrap_or("");
        let unquoted = unquote_char(inside, '\'').ok_or("invalid syntax")?;
        if unquoted.rest != "'" {
            return Err(format!("malformed character constant: {}", self.literal));
        }
        let code = match unquoted.value {
            Unit::Byte(byte) => u32::from(byte),
            Unit::Char(c) => u32::from(c),
        };
        self.int = Some(i64::from(code));
        self.uint = Some(u64::from(code));
        self.float = Some(f64::from(code));
        Ok(())
    }

    /// Sets the values of a complex number; without an imaginary part it is a real one, too.
    fn set_complex(&mut self, value: [f64; 2]) {
        self.complex = Some(value);
        let [real, imaginary] = value;
        if imaginary == 0.0 {
            self.float = Some(real);
            self.int = int_of(real);
            self.uint = uint_of(real);
        }
    }

    fn set_real(&mut self) -> Result<(), String> {
        let literal = &self.literal;
        self.uint = parse_uint(literal);
        self.int = parse_int(literal);
        if self.int == Some(0) {
            self.uint = Some(0);
        }
        self.float = self.int.map(|value| value as f64).or(self.uint.map(|value| value as f64));
        if self.float.is_some() {
            return Ok(());
        }
        let Ok(value) = parse_float(literal) else {
            return Err(format!("illegal number syntax: {}", quote(literal.as_bytes())));
        };
        if !literal.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", quote(literal.as_bytes())));
        }
        self.float = Some(value);
        self.int = int_of(value);
        self.uint = uint_of(value);
        Ok(())
    }
}

fn int_of(value: f64) -> Option<i64> {
    let fits = value.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(&value);
    fits.then_some(value as i64)
}

fn uint_of(value: f64) -> Option<u64> {
    let fits = value.fract() == 0.0 && (0.0..2f64.powi(64)).contains(&value);
    fits.then_some(value as u64)
}

/// Reads an integer with Go's prefixes and underscores, without a sign.
fn parse_uint(text: &str) -> Option<u64> {
    if !is_underscore_ok(text) {
        return None;
    }
    let digits = text.replace('_', "");
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)?),
        [b'0', b'o', ..] => (8, lower.get(2..)?),
        [b'0', b'b', ..] => (2, lower.get(2..)?),
        [b'0', _, ..] => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    is_number.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

fn parse_int(text: &str) -> Option<i64> {
    if let Some(magnitude) = text.strip_prefix('-') {
        return 0i64.checked_sub_unsigned(parse_uint(magnitude)?);
    }
    i64::try_from(parse_uint(text.strip_prefix('+').unwrap_or(text))?).ok()
}

/// Reads a real and an imaginary part: `1+2i`.
fn complex(literal: &str) -> Result<[f64; 2], String> {
    let invalid = || "syntax error scanning complex number".to_owned();
    let parts = literal.strip_suffix('i').ok_or_else(invalid)?;
    // The sign of the imaginary part follows no exponent letter.
    let sign_at = |at: &usize| !parts.get(..*at).is_some_and(|before| before.ends_with(['e', 'E', 'p', 'P']));
    let at = parts.rmatch_indices(['+', '-']).map(|(at, _)| at).find(sign_at).ok_or_else(invalid)?;
    let (real, imaginary) = parts.split_at_checked(at).ok_or_else(invalid)?;
    let part = |text: &str| parse_float(text).map_err(|_| invalid());
    Ok([part(real)?, part(imaginary)?])
}
