//! JSON as Go's `encoding/json` writes it, on one line or with an indent of four blanks.

use chronolith_influxql::result::{Cell, Message, SeriesHeader};
use chronolith_influxql::time::TimeZone;
use chronolith_model::decimal::scientific;

use super::output::{Epoch, Printer, put_rfc3339};
use crate::json;

/// Prints a response as JSON.
pub(in crate::http::influx) struct JsonPrinter {
    out: Vec<u8>,
    epoch: Epoch,
    /// Zone of times of the series.
    zone: Option<TimeZone>,
    is_pretty: bool,
    /// Per open object or list: whether it has an item.
    open: Vec<bool>,
    /// True while the list of series of the current result is open.
    has_series: bool,
    /// True while the list of rows of the current series is open: a series without rows has none.
    has_rows: bool,
}

impl JsonPrinter {
    pub(in crate::http::influx) fn new(epoch: Epoch, is_pretty: bool) -> JsonPrinter {
        JsonPrinter {
            out: Vec::new(),
            epoch,
            zone: None,
            is_pretty,
            open: Vec::new(),
            has_series: false,
            has_rows: false,
        }
    }

    fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.open.push(false);
    }

    fn close(&mut self, bracket: u8) {
        let has_items = self.open.pop().unwrap_or(false);
        if has_items {
            self.new_line();
        }
        self.out.push(bracket);
    }

    /// Starts an item of the innermost list or object.
    fn item(&mut self) {
        if let Some(has_items) = self.open.last_mut() {
            let is_first = !std::mem::replace(has_items, true);
            if !is_first {
                self.out.push(b',');
            }
            self.new_line();
        }
    }

    fn new_line(&mut self) {
        if self.is_pretty {
            self.out.push(b'\n');
            let indent = 4 * self.open.len();
            self.out.resize(self.out.len() + indent, b' ');
        }
    }

    fn key(&mut self, name: &str) {
        self.item();
        put_string(&mut self.out, name.as_bytes());
        self.out.push(b':');
        if self.is_pretty {
            self.out.push(b' ');
        }
    }

    fn texts<'a>(&mut self, texts: impl Iterator<Item = &'a str>) {
        self.open(b'[');
        for text in texts {
            self.item();
            put_string(&mut self.out, text.as_bytes());
        }
        self.close(b']');
    }

    /// Opens the document if it is not open.
    fn begin(&mut self) {
        if self.open.is_empty() {
            self.open(b'{');
            self.key("results");
            self.open(b'[');
        }
    }

    fn cell(&mut self, cell: &Cell<'_>) {
        let out = &mut self.out;
        match *cell {
            Cell::Null => out.extend_from_slice(b"null"),
            Cell::Time(time_ns) => match self.epoch.integer(time_ns) {
                None => {
                    out.push(b'"');
                    put_rfc3339(out, time_ns, self.zone.as_ref());
                    out.push(b'"');
                }
                Some(time) => put_integer(out, time),
            },
            Cell::Float(value) => put_float(out, value),
            Cell::Integer(value) => put_integer(out, value),
            Cell::Unsigned(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Cell::Boolean(true) => out.extend_from_slice(b"true"),
            Cell::Boolean(false) => out.extend_from_slice(b"false"),
            Cell::Text(text) => put_string(out, text),
        }
    }
}

impl Printer for JsonPrinter {
    fn begin_result(&mut self, statement_id: usize) {
        self.begin();
        self.item();
        self.open(b'{');
        self.key("statement_id");
        put_integer(&mut self.out, i64::try_from(statement_id).unwrap_or(i64::MAX));
        self.has_series = false;
    }

    fn begin_series(&mut self, header: &SeriesHeader) {
        self.zone.clone_from(&header.zone);
        if !self.has_series {
            self.has_series = true;
            self.key("series");
            self.open(b'[');
        }
        self.item();
        self.open(b'{');
        if !header.name.is_empty() {
            self.key("name");
            put_string(&mut self.out, header.name.as_bytes());
        }
        if !header.tags.is_empty() {
            self.key("tags");
            self.open(b'{');
            let mut tags: Vec<&(String, String)> = header.tags.iter().collect();
            tags.sort();
            for (name, value) in tags {
                self.key(name);
                put_string(&mut self.out, value.as_bytes());
            }
            self.close(b'}');
        }
        self.key("columns");
        self.texts(header.columns.iter().map(String::as_str));
        self.has_rows = false;
    }

    fn row(&mut self, cells: &[Cell<'_>]) {
        if !self.has_rows {
            self.has_rows = true;
            self.key("values");
            self.open(b'[');
        }
        self.item();
        self.open(b'[');
        for cell in cells {
            self.item();
            self.cell(cell);
        }
        self.close(b']');
    }

    fn end_series(&mut self, is_partial: bool) {
        if self.has_rows {
            self.close(b']');
        }
        if is_partial {
            self.key("partial");
            self.out.extend_from_slice(b"true");
        }
        self.close(b'}');
    }

    fn end_result(&mut self, messages: &[Message], is_partial: bool, error: Option<&str>) {
        if self.has_series {
            self.close(b']');
        }
        if !messages.is_empty() {
            self.key("messages");
            self.open(b'[');
            for message in messages {
                self.item();
                self.open(b'{');
                self.key("level");
                put_string(&mut self.out, message.level.as_bytes());
                self.key("text");
                put_string(&mut self.out, message.text.as_bytes());
                self.close(b'}');
            }
            self.close(b']');
        }
        if is_partial {
            self.key("partial");
            self.out.extend_from_slice(b"true");
        }
        if let Some(error) = error {
            self.key("error");
            put_string(&mut self.out, error.as_bytes());
        }
        self.close(b'}');
    }

    fn end(&mut self) {
        self.begin();
        self.close(b']');
        self.close(b'}');
        self.out.push(b'\n');
    }

    fn error(&mut self, text: &str) {
        self.open.clear();
        self.open(b'{');
        self.key("error");
        put_string(&mut self.out, text.as_bytes());
        self.close(b'}');
        self.out.push(b'\n');
    }

    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn buffered_bytes(&self) -> usize {
        self.out.capacity()
    }
}

fn put_integer(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(value.to_string().as_bytes());
}

/// Appends a float in the shortest form that reads back, as Go does: with an exponent below 1e-6 and from
/// 1e21 on. JSON has no infinities and no NaN; those are null.
fn put_float(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        out.extend_from_slice(b"null");
        return;
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = scientific(value);
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                out.extend_from_slice(format!("{digits}e+{exponent}").as_bytes());
            }
            _ => out.extend_from_slice(text.as_bytes()),
        }
        return;
    }
    json::put_float(out, value);
}

/// Appends a quoted text. Bytes that are not UTF-8 become U+FFFD; `<`, `>`, `&` and the line separators
/// U+2028 and U+2029 are escaped, as Go does.
fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        put_valid(out, chunk.valid());
        if !chunk.invalid().is_empty() {
            chunk.invalid().iter().for_each(|_| out.extend_from_slice(b"\\ufffd"));
        }
    }
    out.push(b'"');
}

fn put_valid(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: &u8| !matches!(byte, 0..0x20 | b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2);
    if text.as_bytes().iter().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}
