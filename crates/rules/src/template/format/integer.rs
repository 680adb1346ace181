//! Integers in all bases and as code points.

use super::super::text::{REPLACEMENT, is_printable};
use super::flags::Flags;

/// An integer by sign and magnitude.
#[derive(Debug, Clone, Copy)]
pub(super) struct Integer {
    is_signed: bool,
    is_negative: bool,
    magnitude: u64,
}

impl Integer {
    pub(super) fn signed(value: i64) -> Integer {
        Integer { is_signed: true, is_negative: value < 0, magnitude: value.unsigned_abs() }
    }

    pub(super) fn unsigned(value: u64) -> Integer {
        Integer { is_signed: false, is_negative: false, magnitude: value }
    }

    /// Returns the number in two's complement.
    fn bits(self) -> u64 {
        if self.is_negative { self.magnitude.wrapping_neg() } else { self.magnitude }
    }

    /// Returns the character with this code point.
    pub(super) fn character(self) -> char {
        u32::try_from(self.bits()).ok().and_then(char::from_u32).unwrap_or(REPLACEMENT)
    }

    /// Returns the number with sign and prefix, without padding by spaces; `None` if `verb` is not one of an
    /// integer.
    pub(super) fn text(self, verb: char, flags: &Flags) -> Option<String> {
        let base = match verb {
            'v' if flags.sharp_v && !self.is_signed => {
                return Some(self.digits(16, 'x', &Flags { sharp: true, ..*flags }));
            }
            'v' | 'd' => 10,
            'b' => 2,
            'o' | 'O' => 8,
            'x' | 'X' => 16,
            'U' => return Some(self.code_point(flags)),
            _ => return None,
        };
        Some(self.digits(base, verb, flags))
    }

    /// The precision is the least number of digits.
    fn digits(self, base: u32, verb: char, flags: &Flags) -> String {
        let sign = flags.sign(self.is_negative);
        let digits_min = match flags.precision {
            Some(0) if self.magnitude == 0 => return String::new(),
            Some(precision) => precision,
            None if flags.zero && !flags.minus => flags.width.unwrap_or(0).saturating_sub(sign.len()),
            None => 0,
        };
        let magnitude = self.magnitude;
        let mut digits = match base {
            2 => format!("{magnitude:b}"),
            8 => format!("{magnitude:o}"),
            16 if verb == 'X' => format!("{magnitude:X}"),
            16 => format!("{magnitude:x}"),
            _ => magnitude.to_string(),
        };
        digits.insert_str(0, &"0".repeat(digits_min.saturating_sub(digits.len())));
        let octal = if verb == 'O' { "0o" } else { "" };
        let prefix = match base {
            2 if flags.sharp => "0b",
            8 if flags.sharp && !digits.starts_with('0') => "0",
            16 if flags.sharp && verb == 'X' => "0X",
            16 if flags.sharp => "0x",
            _ => "",
        };
        format!("{sign}{octal}{prefix}{digits}")
    }

    /// `U+0078`, or `U+0078 'x'` with a sharp sign.
    fn code_point(self, flags: &Flags) -> String {
        let digits_min = flags.precision.unwrap_or(0).max(4);
        let digits = format!("{:X}", self.bits());
        let zeros = "0".repeat(digits_min.saturating_sub(digits.len()));
        let c = u32::try_from(self.bits()).ok().and_then(char::from_u32).filter(|&c| is_printable(c));
        match c.filter(|_| flags.sharp) {
            Some(c) => format!("U+{zeros}{digits} '{c}'"),
            None => format!("U+{zeros}{digits}"),
        }
    }
}
