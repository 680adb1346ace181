//! CSV: columns `name`, `tags` and the columns of the series; times are integers.

use chronolith_influxql::result::{Cell, Message, SeriesHeader};
use chronolith_model::decimal::decimal;

use super::output::{Epoch, Printer};

/// Prints a response as CSV.
pub(in crate::http::influx) struct CsvPrinter {
    epoch: Epoch,
    out: Vec<u8>,
    /// Statement whose header was printed last.
    printed_id: Option<usize>,
    statement_id: usize,
    columns: Vec<String>,
    /// Columns `name` and `tags` of each row.
    prefix: Vec<u8>,
}

impl CsvPrinter {
    pub(in crate::http::influx) fn new(epoch: Epoch) -> CsvPrinter {
        CsvPrinter {
            epoch,
            out: Vec::new(),
            printed_id: None,
            statement_id: 0,
            columns: Vec::new(),
            prefix: Vec::new(),
        }
    }

    fn header(&mut self, columns: &[String]) {
        self.out.extend_from_slice(b"name,tags");
        for column in columns {
            self.out.push(b',');
            put_field(&mut self.out, column.as_bytes());
        }
        self.out.push(b'\n');
        self.columns = columns.to_vec();
    }
}

impl Printer for CsvPrinter {
    fn begin_result(&mut self, statement_id: usize) {
        self.statement_id = statement_id;
    }

    fn begin_series(&mut self, header: &SeriesHeader) {
        let is_new_statement = self.printed_id != Some(self.statement_id);
        if is_new_statement || self.columns != header.columns {
            if self.printed_id.is_some() {
                self.out.push(b'\n');
            }
            self.printed_id = Some(self.statement_id);
            self.header(&header.columns);
        }
        self.prefix.clear();
        put_field(&mut self.prefix, header.name.as_bytes());
        self.prefix.push(b',');
        put_field(&mut self.prefix, &tag_text(&header.tags));
    }

    fn row(&mut self, cells: &[Cell<'_>]) {
        self.out.extend_from_slice(&self.prefix);
        for cell in cells {
            self.out.push(b',');
            match *cell {
                Cell::Null => {}
                Cell::Time(time_ns) => {
                    let time = self.epoch.integer(time_ns).unwrap_or(time_ns);
                    self.out.extend_from_slice(time.to_string().as_bytes());
                }
                Cell::Integer(value) => self.out.extend_from_slice(value.to_string().as_bytes()),
                Cell::Float(value) if value.is_infinite() => {
                    self.out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
                }
                Cell::Float(value) => self.out.extend_from_slice(decimal(value).as_bytes()),
                Cell::Unsigned(value) => self.out.extend_from_slice(value.to_string().as_bytes()),
                Cell::Boolean(value) => self.out.extend_from_slice(value.to_string().as_bytes()),
                Cell::Text(text) => put_field(&mut self.out, text),
            }
        }
        self.out.push(b'\n');
    }

    fn end_series(&mut self, _is_partial: bool) {}

    /// Ends a statement. InfluxDB prints neither messages nor errors of statements as CSV; an error is
    /// printed as the error of a request, so that it is not lost.
    fn end_result(&mut self, _messages: &[Message], _is_partial: bool, error: Option<&str>) {
        if let Some(error) = error {
            self.error(error);
        }
    }

    fn end(&mut self) {}

    fn error(&mut self, text: &str) {
        self.out.extend_from_slice(b"error\n");
        put_field(&mut self.out, text.as_bytes());
        self.out.push(b'\n');
    }

    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn buffered_bytes(&self) -> usize {
        self.out.capacity()
    }
}

/// Tags as in a series key: sorted, `key=value` joined by commas, with escapes.
fn tag_text(tags: &[(String, String)]) -> Vec<u8> {
    let escaped = |text: &str| text.replace(',', "\\,").replace('=', "\\=").replace(' ', "\\ ");
    let mut pairs: Vec<&(String, String)> = tags.iter().filter(|(_, value)| !value.is_empty()).collect();
    pairs.sort();
    let pairs: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
    pairs.join(",").into_bytes()
}

/// Appends a field, quoted where Go's `encoding/csv` quotes it.
fn put_field(out: &mut Vec<u8>, text: &[u8]) {
    let starts_with_blank =
        std::str::from_utf8(text).is_ok_and(|text| text.chars().next().is_some_and(char::is_whitespace));
    let needs_quotes = text == b"\\."
        || starts_with_blank
        || text.iter().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n'));
    if !needs_quotes {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for &byte in text {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
