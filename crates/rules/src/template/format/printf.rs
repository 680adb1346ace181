//! Format strings: flags, width, precision, argument indices and verbs.

use super::super::text::first_rune;
use super::super::value::Value;
use super::flags::Flags;
use super::printer::Printer;

/// Width or precision beyond which it is an error.
const NUMBER_MAX: i64 = 1_000_000;

/// Prints `arguments` as `format` says.
pub(super) fn run(printer: &mut Printer, format: &[u8], arguments: &[Value]) {
    let mut run = Run { printer, rest: format, arguments, next: 0, is_reordered: false, is_index_good: true };
    while run.directive() {}
    run.extra_arguments();
}

struct Run<'p, 'a> {
    printer: &'p mut Printer,
    rest: &'a [u8],
    arguments: &'a [Value],
    /// Index of the next argument.
    next: usize,
    is_reordered: bool,
    is_index_good: bool,
}

/// A number in a format string.
struct Digits {
    /// `None` without digits, or if it is too large.
    value: Option<i64>,
    len: usize,
}

impl Run<'_, '_> {
    /// Prints the text up to a directive, and the directive; returns false at the end of the format.
    fn directive(&mut self) -> bool {
        self.is_index_good = true;
        let text_len = self.rest.iter().position(|&b| b == b'%').unwrap_or(self.rest.len());
        self.printer.put(self.rest.get(..text_len).unwrap_or_default());
        self.advance(text_len);
        if self.rest.is_empty() || self.printer.is_too_long {
            return false;
        }
        self.advance(1);
        self.flags();
        let mut is_after_index = self.argument_index();
        is_after_index = self.width(is_after_index);
        is_after_index = self.precision(is_after_index);
        if !is_after_index {
            self.argument_index();
        }
        self.verb()
    }

    fn advance(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    fn flags(&mut self) {
        let mut flags = Flags::default();
        while let Some(byte) = self.rest.first() {
            match byte {
                b'#' => flags.sharp = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b'-' => flags.minus = true,
                b' ' => flags.space = true,
                _ => break,
            }
            self.advance(1);
        }
        self.printer.flags = flags;
    }

    fn width(&mut self, is_after_index: bool) -> bool {
        if self.rest.first() == Some(&b'*') {
            self.advance(1);
            match self.number_argument() {
                Some(width) => {
                    self.printer.flags.width = usize::try_from(width.unsigned_abs()).ok();
                    if width < 0 {
                        self.printer.flags.minus = true;
                        self.printer.flags.zero = false;
                    }
                }
                None => self.printer.put(b"%!(BADWIDTH)"),
            }
            return false;
        }
        let digits = self.take_digits();
        self.printer.flags.width = digits.value.and_then(|width| usize::try_from(width).ok());
        if is_after_index && digits.value.is_some() {
            self.is_index_good = false;
        }
        is_after_index
    }

    fn precision(&mut self, is_after_index: bool) -> bool {
        if self.rest.first() != Some(&b'.') || self.rest.len() < 2 {
            return is_after_index;
        }
        self.advance(1);
        if is_after_index {
            self.is_index_good = false;
        }
        let is_after_index = self.argument_index();
        if self.rest.first() == Some(&b'*') {
            self.advance(1);
            let precision = self.number_argument().and_then(|precision| usize::try_from(precision).ok());
            self.printer.flags.precision = precision;
            if precision.is_none() {
                self.printer.put(b"%!(BADPREC)");
            }
            return false;
        }
        let digits = self.take_digits();
        self.printer.flags.precision = digits.value.map_or(Some(0), |value| usize::try_from(value).ok());
        is_after_index
    }

    /// Digits at the start of the rest. A number that is too large ends the format.
    fn take_digits(&mut self) -> Digits {
        let digits = parse_digits(self.rest);
        self.advance(digits.len);
        digits
    }

    /// Returns the next argument if it is an integer of a size that a width may have.
    fn number_argument(&mut self) -> Option<i64> {
        let argument = self.arguments.get(self.next)?;
        self.next += 1;
        let number = match argument {
            Value::Int(_, number) => *number,
            Value::Uint(_, number) => i64::try_from(*number).ok()?,
            _ => return None,
        };
        (-NUMBER_MAX..=NUMBER_MAX).contains(&number).then_some(number)
    }

    /// Reads the index of the next argument, `[3]`, where the first is 1. Returns true if there is a
    /// well-formed index.
    fn argument_index(&mut self) -> bool {
        if self.rest.first() != Some(&b'[') {
            return false;
        }
        self.is_reordered = true;
        let close = self.rest.iter().position(|&b| b == b']');
        let Some(close) = close.filter(|_| self.rest.len() >= 3) else {
            self.is_index_good = false;
            self.advance(1);
            return false;
        };
        let inside = self.rest.get(1..close).unwrap_or_default();
        let digits = parse_digits(inside);
        self.advance(close + 1);
        let Some(number) = digits.value.filter(|_| digits.len == inside.len()) else {
            self.is_index_good = false;
            return false;
        };
        match usize::try_from(number - 1).ok().filter(|&idx| idx < self.arguments.len()) {
            Some(idx) => self.next = idx,
            None => self.is_index_good = false,
        }
        true
    }

    /// Returns false at the end of the format.
    fn verb(&mut self) -> bool {
        let Some(rune) = first_rune(self.rest) else {
            self.printer.put(b"%!(NOVERB)");
            return false;
        };
        self.advance(rune.width_bytes);
        let verb = rune.value;
        if verb == '%' {
            self.printer.put(b"%");
            return true;
        }
        let problem: &[u8] = if !self.is_index_good { b"(BADINDEX)" } else { b"(MISSING)" };
        let Some(argument) = self.arguments.get(self.next).filter(|_| self.is_index_good) else {
            self.printer.put(b"%!");
            self.printer.put_char(verb);
            self.printer.put(problem);
            return true;
        };
        if matches!(verb, 'v' | 'w') {
            let flags = &mut self.printer.flags;
            flags.sharp_v = std::mem::take(&mut flags.sharp);
            flags.plus_v = std::mem::take(&mut flags.plus);
        }
        self.printer.argument(argument, verb);
        self.next += 1;
        true
    }

    /// Prints the arguments that no verb used: `%!(EXTRA int=1)`.
    fn extra_arguments(&mut self) {
        let extra = self.arguments.get(self.next..).unwrap_or_default();
        if self.is_reordered || extra.is_empty() {
            return;
        }
        self.printer.flags = Flags::default();
        self.printer.put(b"%!(EXTRA ");
        for (idx, argument) in extra.iter().enumerate() {
            if idx > 0 {
                self.printer.put(b", ");
            }
            if !matches!(argument, Value::Nil) {
                self.printer.put(argument.type_name().as_bytes());
                self.printer.put(b"=");
            }
            self.printer.argument(argument, 'v');
        }
        self.printer.put(b")");
    }
}

fn parse_digits(text: &[u8]) -> Digits {
    let mut value: Option<i64> = None;
    for (idx, byte) in text.iter().enumerate() {
        if !byte.is_ascii_digit() {
            return Digits { value, len: idx };
        }
        let number = value.unwrap_or(0);
        if number > NUMBER_MAX {
            return Digits { value: None, len: text.len() };
        }
        value = Some(number * 10 + i64::from(byte - b'0'));
    }
    Digits { value, len: text.len() }
}
