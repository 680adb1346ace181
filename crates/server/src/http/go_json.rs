//! Check of JSON text that a client sends for a Go type, with the messages of Go's `encoding/json`.
//!
//! Invariants: the text is walked in a loop with a stack of its own, so nesting cannot overflow the stack of
//! the thread.
//! Not here: values, which no caller needs.

use chronolith_model::quote::write_quoted;

/// Nesting that Go's decoder accepts.
const DEPTH_MAX: usize = 10_000;

/// Part of the text that may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    Separator,
}

/// Checks that `text` decodes to Go's `map[string]string`.
///
/// # Errors
/// The message of Go's decoder. As there, a fault of syntax comes before one of types, wherever it is.
pub(super) fn check_string_map(text: &str) -> Result<(), String> {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, open: Vec::new(), type_fault: None };
    scan.run()?;
    match scan.type_fault {
        None => Ok(()),
        Some((kind, wanted)) => Err(format!("json: cannot unmarshal {kind} into Go value of type {wanted}")),
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Opening brackets that are not closed.
    open: Vec<u8>,
    /// Kind of the first value that has not the type it should have, and that type.
    type_fault: Option<(&'static str, &'static str)>,
}

impl Scan<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut expected = Expected::Value;
        loop {
            while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            let Some(&byte) = self.bytes.get(self.at) else {
                let is_complete = expected == Expected::Separator && self.open.is_empty();
                return if is_complete { Ok(()) } else { Err(end()) };
            };
            expected = match (expected, byte) {
                (Expected::ValueOrEnd, b']') | (Expected::KeyOrEnd, b'}') => self.close(),
                (Expected::Value | Expected::ValueOrEnd, _) => self.value(byte)?,
                (Expected::Key | Expected::KeyOrEnd, b'"') => {
                    self.string()?;
                    Expected::Colon
                }
                (Expected::Key | Expected::KeyOrEnd, _) => {
                    return Err(invalid(byte, "looking for beginning of object key string"));
                }
                (Expected::Colon, b':') => self.advance(Expected::Value),
                (Expected::Colon, _) => return Err(invalid(byte, "after object key")),
                (Expected::Separator, _) => self.separator(byte)?,
            };
        }
    }

    fn advance(&mut self, next: Expected) -> Expected {
        self.at += 1;
        next
    }

    fn close(&mut self) -> Expected {
        self.open.pop();
        self.advance(Expected::Separator)
    }

    fn separator(&mut self, byte: u8) -> Result<Expected, String> {
        match (self.open.last(), byte) {
            (Some(b'{'), b',') => Ok(self.advance(Expected::Key)),
            (Some(b'['), b',') => Ok(self.advance(Expected::Value)),
            (Some(b'{'), b'}') | (Some(b'['), b']') => Ok(self.close()),
            (Some(b'{'), _) => Err(invalid(byte, "after object key:value pair")),
            (Some(_), _) => Err(invalid(byte, "after array element")),
            (None, _) => Err(invalid(byte, "after top-level value")),
        }
    }

    fn value(&mut self, byte: u8) -> Result<Expected, String> {
        let kind = match byte {
            b'{' => "object",
            b'[' => "array",
            b'"' => "string",
            b'-' | b'0'..=b'9' => "number",
            b't' | b'f' => "bool",
            b'n' => "null",
            _ => return Err(invalid(byte, "looking for beginning of value")),
        };
        self.check_type(kind);
        match byte {
            b'{' | b'[' => return self.enter(byte),
            b'"' => self.string()?,
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => self.number()?,
        }
        Ok(Expected::Separator)
    }

    fn enter(&mut self, bracket: u8) -> Result<Expected, String> {
        if self.open.len() >= DEPTH_MAX {
            return Err(invalid(bracket, "exceeded max depth"));
        }
        self.open.push(bracket);
        let next = if bracket == b'{' { Expected::KeyOrEnd } else { Expected::ValueOrEnd };
        Ok(self.advance(next))
    }

    fn check_type(&mut self, kind: &'static str) {
        let fault = match self.open.as_slice() {
            [] if !matches!(kind, "object" | "null") => Some((kind, "map[string]string")),
            [b'{'] if !matches!(kind, "string" | "null") => Some((kind, "string")),
            _ => None,
        };
        if self.type_fault.is_none() {
            self.type_fault = fault;
        }
    }

    /// The next byte; a blank at the end of the text, which Go's decoder adds to complete numbers and words.
    fn next_or_blank(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(b' ')
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            let Some(&byte) = self.bytes.get(self.at) else { return Err(end()) };
            self.at += 1;
            match byte {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                0..0x20 => return Err(invalid(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        let code = self.next_or_blank();
        self.at += 1;
        match code {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => {
                for _ in 0..4 {
                    let digit = self.next_or_blank();
                    if !digit.is_ascii_hexdigit() {
                        return Err(invalid(digit, "in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(invalid(code, "in string escape code")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        for wanted in word.bytes() {
            let byte = self.next_or_blank();
            if byte != wanted {
                let context = format!("in literal {word} (expecting '{}')", char::from(wanted));
                return Err(invalid(byte, &context));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        if self.next_or_blank() == b'-' {
            self.at += 1;
        }
        if self.next_or_blank() == b'0' {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.next_or_blank() == b'.' {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.next_or_blank(), b'e' | b'E') {
            self.at += 1;
            if matches!(self.next_or_blank(), b'+' | b'-') {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digits(&mut self, context: &str) -> Result<(), String> {
        let first = self.next_or_blank();
        if !first.is_ascii_digit() {
            return Err(invalid(first, context));
        }
        while self.next_or_blank().is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }
}

fn end() -> String {
    "unexpected end of JSON input".to_owned()
}

fn invalid(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        // A byte stands for the character of its number, as in Go.
        _ => {
            let mut quoted = String::new();
            // Writing to a String cannot fail.
            let _ = write_quoted(&mut quoted, char::from(byte).encode_utf8(&mut [0; 4]));
            quoted.trim_matches('"').to_owned()
        }
    };
    format!("invalid character '{shown}' {context}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &str) {
        assert_eq!(check_string_map(text).err().as_deref().unwrap_or(""), want, "{text}");
    }

    #[test]
    fn maps_of_strings_are_accepted() {
        for text in ["{}", " {\"a\" : \"b\"}\n", r#"{"a":"","b":"\u00e9\n\/"}"#, "null", r#"{"a":null}"#] {
            check(text, "");
        }
    }

    /// Texts of Prometheus 3.16 for the same `labels` of `targets/relabel_steps`.
    #[test]
    fn faults_have_the_texts_of_go() {
        let in_value = "looking for beginning of value";
        for (text, want) in [
            ("[", "unexpected end of JSON input".to_owned()),
            ("\"é", "unexpected end of JSON input".to_owned()),
            ("{\"a\"}", "invalid character '}' after object key".to_owned()),
            ("{a}", "invalid character 'a' looking for beginning of object key string".to_owned()),
            ("{\"a\":\"b\",}", "invalid character '}' looking for beginning of object key string".to_owned()),
            ("x", format!("invalid character 'x' {in_value}")),
            ("é", format!("invalid character 'Ã' {in_value}")),
            ("'", format!("invalid character '\\'' {in_value}")),
            ("\\", format!("invalid character '\\\\' {in_value}")),
            ("{}x", "invalid character 'x' after top-level value".to_owned()),
            ("tru", "invalid character ' ' in literal true (expecting 'e')".to_owned()),
            ("trux", "invalid character 'x' in literal true (expecting 'e')".to_owned()),
            ("-", "invalid character ' ' in numeric literal".to_owned()),
            ("01", "invalid character '1' after top-level value".to_owned()),
            ("1.", "invalid character ' ' after decimal point in numeric literal".to_owned()),
            ("1e", "invalid character ' ' in exponent of numeric literal".to_owned()),
            (r#""\x""#, "invalid character 'x' in string escape code".to_owned()),
            (r#""\u12g""#, "invalid character 'g' in \\u hexadecimal character escape".to_owned()),
            ("\"\u{1}\"", "invalid character '\\x01' in string literal".to_owned()),
            ("[1 2]", "invalid character '2' after array element".to_owned()),
            ("{\"a\":\"b\" 1}", "invalid character '1' after object key:value pair".to_owned()),
        ] {
            check(text, &want);
        }
    }

    #[test]
    fn types_are_named_as_in_go() {
        let whole =
            |kind: &str| format!("json: cannot unmarshal {kind} into Go value of type map[string]string");
        for (text, kind) in [("[]", "array"), ("1", "number"), ("\"x\"", "string"), ("true", "bool")] {
            check(text, &whole(kind));
        }
        let one = |kind: &str| format!("json: cannot unmarshal {kind} into Go value of type string");
        check(r#"{"a":1}"#, &one("number"));
        check(r#"{"a":[1]}"#, &one("array"));
        check(r#"{"a":{"c":1},"b":2}"#, &one("object"));
        check(r#"{"x":"y","a":false}"#, &one("bool"));
        check(r#"{"a":1e999}"#, &one("number"));
    }

    #[test]
    fn nesting_is_bounded() {
        check(&"[".repeat(DEPTH_MAX), "unexpected end of JSON input");
        check(&"[".repeat(DEPTH_MAX + 1), "invalid character '[' exceeded max depth");
        check(&"{\"a\":".repeat(1_000_000), "invalid character '{' exceeded max depth");
    }
}
