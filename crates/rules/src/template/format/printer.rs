//! Values by verb: text, numbers, composites, and errors in place of them.

use super::super::histogram::histogram_fields;
use super::super::text::{
    can_backquote, quote, quote_ascii, quote_rune, quote_rune_ascii, rune_count, truncate,
};
use super::super::value::{Field, List, Map, Value};
use super::flags::Flags;
use super::float;
use super::integer::Integer;
use super::stringer::{stringer, time_fields};

/// Printed for each pointer that has no other text.
const ADDRESS: u64 = 0xc0_0000_0000;

/// Text that is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) struct TooLong;

/// Prints values, and nothing beyond the limit of bytes.
pub(super) struct Printer {
    out: Vec<u8>,
    bytes_max: usize,
    pub(super) is_too_long: bool,
    pub(super) flags: Flags,
    /// True within the text of an error, where no value prints itself.
    is_in_error: bool,
}

impl Printer {
    pub(super) fn new(bytes_max: usize) -> Printer {
        let flags = Flags::default();
        Printer { out: Vec::new(), bytes_max, is_too_long: false, flags, is_in_error: false }
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, TooLong> {
        if self.is_too_long { Err(TooLong) } else { Ok(self.out) }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.out.len() + bytes.len() > self.bytes_max;
        if !self.is_too_long {
            self.out.extend_from_slice(bytes);
        }
    }

    pub(super) fn put_char(&mut self, c: char) {
        self.put(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn put_padding(&mut self, count: usize) {
        self.is_too_long |= self.out.len() + count > self.bytes_max;
        if !self.is_too_long {
            let byte = if self.flags.zero && !self.flags.minus { b'0' } else { b' ' };
            self.out.resize(self.out.len() + count, byte);
        }
    }

    /// Writes `bytes`, padded to the width.
    fn pad(&mut self, bytes: &[u8]) {
        let width = self.flags.width.unwrap_or(0);
        let missing = if width == 0 { 0 } else { width.saturating_sub(rune_count(bytes)) };
        if self.flags.minus {
            self.put(bytes);
            self.put_padding(missing);
        } else {
            self.put_padding(missing);
            self.put(bytes);
        }
    }

    /// As [`pad`](Self::pad), never with zeros.
    fn pad_with_spaces(&mut self, bytes: &[u8]) {
        let zero = std::mem::take(&mut self.flags.zero);
        self.pad(bytes);
        self.flags.zero = zero;
    }

    /// Prints a value at the top level.
    pub(super) fn argument(&mut self, value: &Value, verb: char) {
        match (value, verb) {
            (Value::Nil, 'T' | 'v') => self.pad(b"<nil>"),
            (value, 'T') => self.string(value.type_name().as_bytes(), 's', value),
            (value, 'p') => self.pointer(value, 'p'),
            (value, verb) => {
                if !self.by_method(value, verb) {
                    self.value(value, verb, 0);
                }
            }
        }
    }

    /// Prints a value that has a text of its own; returns false for all others.
    fn by_method(&mut self, value: &Value, verb: char) -> bool {
        if self.is_in_error {
            return false;
        }
        if verb == 'w' {
            self.bad_verb(value, verb);
            return true;
        }
        if self.flags.sharp_v {
            let Value::Time(time) = value.target() else { return false };
            self.pad(truncated(time.go_text().as_bytes(), self.flags.precision));
            return true;
        }
        if !matches!(verb, 'v' | 's' | 'x' | 'X' | 'q') {
            return false;
        }
        let Some(text) = stringer(value) else { return false };
        self.string(text.as_bytes(), verb, value);
        true
    }

    /// Prints a value without regard to a text of its own; values within it may have one.
    fn value(&mut self, value: &Value, verb: char, depth: usize) {
        if self.is_too_long || (depth > 0 && self.by_method(value, verb)) {
            return;
        }
        match value {
            Value::Nil if depth > 0 && self.flags.sharp_v => self.put(b"interface {}(nil)"),
            Value::Nil if depth > 0 => self.put(b"<nil>"),
            Value::Nil => self.bad_verb(value, verb),
            Value::Bool(is_true) => match verb {
                't' | 'v' => self.pad(if *is_true { b"true" } else { b"false" }),
                _ => self.bad_verb(value, verb),
            },
            Value::Int(_, number) => self.int(Integer::signed(*number), verb, value),
            Value::Uint(_, number) => self.int(Integer::unsigned(*number), verb, value),
            Value::Float(number) => self.float(*number, verb, value),
            Value::Complex(parts) => self.complex(*parts, verb, value),
            Value::Text(text) | Value::Html(text) => self.string(text, verb, value),
            Value::Map(map) => self.map(value, map, verb, depth),
            Value::List(list) => self.list(list, verb, depth),
            Value::Struct(fields) => self.fields(value, &fields.fields, verb, depth),
            Value::Histogram(histogram) => {
                self.fields(value, &histogram_fields(histogram), verb, depth);
            }
            Value::Time(time) => self.fields(value, &time_fields(*time), verb, depth),
            Value::NilPointer(_) => self.pointer(value, verb),
            Value::Pointer(target) => match target.as_ref() {
                Value::Struct(_) | Value::Histogram(_) | Value::Time(_) | Value::Map(_) | Value::List(_)
                    if depth == 0 =>
                {
                    self.put(b"&");
                    self.value(target, verb, depth + 1);
                }
                _ => self.pointer(value, verb),
            },
        }
    }

    fn int(&mut self, number: Integer, verb: char, value: &Value) {
        if self.flags.precision.max(self.flags.width).unwrap_or(0) > self.bytes_max {
            self.is_too_long = true;
            return;
        }
        let flags = self.flags;
        match verb {
            'c' => self.pad(number.character().encode_utf8(&mut [0; 4]).as_bytes()),
            'q' if flags.plus => self.pad(quote_rune_ascii(number.character()).as_bytes()),
            'q' => self.pad(quote_rune(number.character()).as_bytes()),
            verb => match number.text(verb, &flags) {
                Some(text) => self.pad_with_spaces(text.as_bytes()),
                None => self.bad_verb(value, verb),
            },
        }
    }

    fn float(&mut self, number: f64, verb: char, value: &Value) {
        let flags = self.flags;
        if flags.precision.unwrap_or(0) > self.bytes_max {
            self.is_too_long = true;
            return;
        }
        let Some(unsigned) = float::unsigned_text(number.abs(), verb, &flags) else {
            self.bad_verb(value, verb);
            return;
        };
        let sign = flags.sign(number.is_sign_negative() && !number.is_nan());
        if !number.is_finite() {
            // An infinity always has a sign.
            let sign = if number.is_infinite() && sign.is_empty() { "+" } else { sign };
            self.pad_with_spaces(format!("{sign}{unsigned}").as_bytes());
            return;
        }
        let missing = flags.width.unwrap_or(0).saturating_sub(sign.len() + unsigned.len());
        if !sign.is_empty() && flags.zero && !flags.minus && missing > 0 {
            self.put(sign.as_bytes());
            self.put_padding(missing);
            self.put(unsigned.as_bytes());
            return;
        }
        self.pad(format!("{sign}{unsigned}").as_bytes());
    }

    /// Prints a complex number: `(1+2i)`.
    fn complex(&mut self, parts: [f64; 2], verb: char, value: &Value) {
        let [real, imaginary] = parts;
        if float::unsigned_text(0.0, verb, &Flags::default()).is_none() {
            self.bad_verb(value, verb);
            return;
        }
        self.put(b"(");
        self.float(real, verb, value);
        let plus = std::mem::replace(&mut self.flags.plus, true);
        self.float(imaginary, verb, value);
        self.flags.plus = plus;
        self.put(b"i)");
    }

    fn map(&mut self, value: &Value, map: &Map, verb: char, depth: usize) {
        let type_name = if self.flags.sharp_v { value.type_name() } else { String::new() };
        self.put(type_name.as_bytes());
        self.put(if self.flags.sharp_v { b"{" } else { b"map[" });
        for (idx, (key, element)) in map.entries.iter().enumerate() {
            self.separator(idx);
            self.value(&Value::text(key), verb, depth + 1);
            self.put(b":");
            self.value(element, verb, depth + 1);
        }
        self.put(if self.flags.sharp_v { b"}" } else { b"]" });
    }

    fn list(&mut self, list: &List, verb: char, depth: usize) {
        let type_name = if self.flags.sharp_v { list.type_name } else { "" };
        self.put(type_name.as_bytes());
        self.put(if self.flags.sharp_v { b"{" } else { b"[" });
        for (idx, element) in list.elements.iter().enumerate() {
            self.separator(idx);
            self.value(element, verb, depth + 1);
        }
        self.put(if self.flags.sharp_v { b"}" } else { b"]" });
    }

    fn separator(&mut self, idx: usize) {
        if idx > 0 {
            self.put(if self.flags.sharp_v { b", " } else { b" " });
        }
    }

    fn fields(&mut self, value: &Value, fields: &[Field], verb: char, depth: usize) {
        if self.flags.sharp_v {
            self.put(value.type_name().as_bytes());
        }
        self.put(b"{");
        for (idx, field) in fields.iter().enumerate() {
            self.separator(idx);
            if self.flags.plus_v || self.flags.sharp_v {
                self.put(field.name.as_bytes());
                self.put(b":");
            }
            self.value(&field.value, verb, depth + 1);
        }
        self.put(b"}");
    }

    fn pointer(&mut self, value: &Value, verb: char) {
        let address = match value {
            Value::NilPointer(_) => 0,
            Value::Pointer(_) | Value::Map(_) | Value::List(_) => ADDRESS,
            _ => return self.bad_verb(value, verb),
        };
        match verb {
            'v' if address == 0 => self.pad(b"<nil>"),
            'v' if self.flags.sharp_v => {
                self.put(format!("({})(", value.type_name()).as_bytes());
                self.address(true);
                self.put(b")");
            }
            'v' | 'p' => self.address(!self.flags.sharp),
            'b' | 'o' | 'd' | 'x' | 'X' => self.int(Integer::unsigned(address), verb, value),
            _ => self.bad_verb(value, verb),
        }
    }

    fn address(&mut self, has_prefix: bool) {
        let flags = Flags { sharp: has_prefix, ..self.flags };
        self.pad_with_spaces(Integer::unsigned(ADDRESS).text('x', &flags).unwrap_or_default().as_bytes());
    }

    fn string(&mut self, text: &[u8], verb: char, value: &Value) {
        match verb {
            'v' if self.flags.sharp_v => self.quoted(text),
            'v' | 's' => self.pad(truncated(text, self.flags.precision)),
            'x' => self.hex(text, false),
            'X' => self.hex(text, true),
            'q' => self.quoted(text),
            _ => self.bad_verb(value, verb),
        }
    }

    fn quoted(&mut self, text: &[u8]) {
        let text = truncated(text, self.flags.precision);
        let quoted = if self.flags.sharp && can_backquote(text) {
            format!("`{}`", String::from_utf8_lossy(text))
        } else if self.flags.plus {
            quote_ascii(text)
        } else {
            quote(text)
        };
        self.pad(quoted.as_bytes());
    }

    /// Prints bytes as pairs of digits; the precision is the number of bytes.
    fn hex(&mut self, text: &[u8], is_upper: bool) {
        let text = self.flags.precision.and_then(|len| text.get(..len)).unwrap_or(text);
        let prefix = match (self.flags.sharp, is_upper) {
            (false, _) => "",
            (true, false) => "0x",
            (true, true) => "0X",
        };
        if text.len() > self.bytes_max {
            self.is_too_long = true;
            return;
        }
        let mut out = String::with_capacity(2 * text.len());
        for (idx, byte) in text.iter().enumerate() {
            if idx > 0 && self.flags.space {
                out.push(' ');
            }
            if idx == 0 || self.flags.space {
                out.push_str(prefix);
            }
            let digits = if is_upper { format!("{byte:02X}") } else { format!("{byte:02x}") };
            out.push_str(&digits);
        }
        self.pad(out.as_bytes());
    }

    /// Prints a value that `verb` does not suit: `%!d(string=text)`.
    fn bad_verb(&mut self, value: &Value, verb: char) {
        let was_in_error = std::mem::replace(&mut self.is_in_error, true);
        self.put(b"%!");
        self.put_char(verb);
        self.put(b"(");
        match value {
            Value::Nil => self.put(b"<nil>"),
            value => {
                self.put(value.type_name().as_bytes());
                self.put(b"=");
                self.value(value, 'v', 0);
            }
        }
        self.put(b")");
        self.is_in_error = was_in_error;
    }
}

fn truncated(text: &[u8], precision: Option<usize>) -> &[u8] {
    precision.map_or(text, |rune_count| truncate(text, rune_count))
}
