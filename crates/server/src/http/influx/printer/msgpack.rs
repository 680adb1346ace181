//! MessagePack: the structure of JSON, times as extension 5 (seconds and nanoseconds) or integers.

use chronolith_influxql::result::{Cell, Message, SeriesHeader};

use super::output::{Epoch, Printer};

/// Extension type of times: 8 bytes of seconds and 4 of nanoseconds, big-endian.
const TIME_EXTENSION: u8 = 5;

/// Prints a response as MessagePack. Keeps a document until it ends.
pub(in crate::http::influx) struct MsgpackPrinter {
    epoch: Epoch,
    out: Vec<u8>,
    results: List,
    statement_id: usize,
    series: List,
    header: Vec<u8>,
    header_keys: usize,
    rows: List,
}

/// Items of a list, and their number.
#[derive(Default)]
struct List {
    count: usize,
    bytes: Vec<u8>,
}

impl List {
    fn put_into(&mut self, out: &mut Vec<u8>) {
        put_array_header(out, self.count);
        out.append(&mut self.bytes);
        self.count = 0;
    }
}

impl MsgpackPrinter {
    pub(in crate::http::influx) fn new(epoch: Epoch) -> MsgpackPrinter {
        MsgpackPrinter {
            epoch,
            out: Vec::new(),
            results: List::default(),
            statement_id: 0,
            series: List::default(),
            header: Vec::new(),
            header_keys: 0,
            rows: List::default(),
        }
    }
}

impl Printer for MsgpackPrinter {
    fn begin_result(&mut self, statement_id: usize) {
        self.statement_id = statement_id;
    }

    fn begin_series(&mut self, header: &SeriesHeader) {
        let out = &mut self.header;
        out.clear();
        self.header_keys = 2;
        if !header.name.is_empty() {
            self.header_keys += 1;
            put_text(out, b"name");
            put_text(out, header.name.as_bytes());
        }
        if !header.tags.is_empty() {
            self.header_keys += 1;
            put_text(out, b"tags");
            put_map_header(out, header.tags.len());
            for (name, value) in &header.tags {
                put_text(out, name.as_bytes());
                put_text(out, value.as_bytes());
            }
        }
        put_text(out, b"columns");
        put_array_header(out, header.columns.len());
        header.columns.iter().for_each(|column| put_text(out, column.as_bytes()));
        put_text(out, b"values");
    }

    fn row(&mut self, cells: &[Cell<'_>]) {
        self.rows.count += 1;
        let out = &mut self.rows.bytes;
        put_array_header(out, cells.len());
        for cell in cells {
            match *cell {
                Cell::Null => out.push(0xc0),
                Cell::Time(time_ns) => match self.epoch.integer(time_ns) {
                    None => put_time(out, time_ns),
                    Some(time) => put_integer(out, time),
                },
                Cell::Float(value) => put_fixed(out, 0xcb, &value.to_be_bytes()),
                Cell::Integer(value) => put_integer(out, value),
                Cell::Unsigned(value) => put_unsigned(out, value),
                Cell::Boolean(value) => out.push(if value { 0xc3 } else { 0xc2 }),
                Cell::Text(text) => put_text(out, text),
            }
        }
    }

    fn end_series(&mut self, is_partial: bool) {
        self.series.count += 1;
        let out = &mut self.series.bytes;
        put_map_header(out, self.header_keys + usize::from(is_partial));
        out.append(&mut self.header);
        self.rows.put_into(out);
        if is_partial {
            put_text(out, b"partial");
            out.push(0xc3);
        }
    }

    fn end_result(&mut self, messages: &[Message], is_partial: bool, error: Option<&str>) {
        self.results.count += 1;
        let out = &mut self.results.bytes;
        if let Some(error) = error {
            self.series = List::default();
            put_map_header(out, 1);
            put_text(out, b"error");
            put_text(out, error.as_bytes());
            return;
        }
        put_map_header(out, 2 + usize::from(!messages.is_empty()) + usize::from(is_partial));
        put_text(out, b"statement_id");
        put_integer(out, i64::try_from(self.statement_id).unwrap_or(i64::MAX));
        if !messages.is_empty() {
            put_text(out, b"messages");
            put_array_header(out, messages.len());
            for message in messages {
                put_map_header(out, 2);
                put_text(out, b"level");
                put_text(out, message.level.as_bytes());
                put_text(out, b"text");
                put_text(out, message.text.as_bytes());
            }
        }
        put_text(out, b"series");
        self.series.put_into(out);
        if is_partial {
            put_text(out, b"partial");
            out.push(0xc3);
        }
    }

    fn end(&mut self) {
        put_map_header(&mut self.out, 1);
        put_text(&mut self.out, b"results");
        self.results.put_into(&mut self.out);
    }

    fn error(&mut self, text: &str) {
        put_map_header(&mut self.out, 1);
        put_text(&mut self.out, b"error");
        put_text(&mut self.out, text.as_bytes());
    }

    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn buffered_bytes(&self) -> usize {
        let lists = [&self.results, &self.series, &self.rows];
        self.out.capacity() + lists.iter().map(|list| list.bytes.capacity()).sum::<usize>()
    }
}

fn put_fixed(out: &mut Vec<u8>, code: u8, bytes: &[u8]) {
    out.push(code);
    out.extend_from_slice(bytes);
}

/// Appends a length: in the code itself below `short`, else as 16 or 32 bits.
fn put_length(out: &mut Vec<u8>, len: usize, fixed: u8, short: usize, codes: [u8; 2]) {
    if len < short {
        out.push(fixed | len as u8);
    } else if let Ok(len) = u16::try_from(len) {
        put_fixed(out, codes[0], &len.to_be_bytes());
    } else {
        put_fixed(out, codes[1], &u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    }
}

fn put_map_header(out: &mut Vec<u8>, len: usize) {
    put_length(out, len, 0x80, 16, [0xde, 0xdf]);
}

fn put_array_header(out: &mut Vec<u8>, len: usize) {
    put_length(out, len, 0x90, 16, [0xdc, 0xdd]);
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(len) if len >= 32 => put_fixed(out, 0xd9, &[len]),
        _ => put_length(out, text.len(), 0xa0, 32, [0xda, 0xdb]),
    }
    out.extend_from_slice(text);
}

fn put_unsigned(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x7f => out.push(value as u8),
        0x80..=0xff => put_fixed(out, 0xcc, &[value as u8]),
        0x100..=0xffff => put_fixed(out, 0xcd, &(value as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => put_fixed(out, 0xce, &(value as u32).to_be_bytes()),
        _ => put_fixed(out, 0xcf, &value.to_be_bytes()),
    }
}

fn put_integer(out: &mut Vec<u8>, value: i64) {
    // Integers have signed codes, as in InfluxDB, also where they are positive.
    match value {
        -32..=0x7f => out.push(value as u8),
        -0x80..=-33 => put_fixed(out, 0xd0, &[value as u8]),
        -0x8000..=0x7fff => put_fixed(out, 0xd1, &(value as i16).to_be_bytes()),
        -0x8000_0000..=0x7fff_ffff => put_fixed(out, 0xd2, &(value as i32).to_be_bytes()),
        _ => put_fixed(out, 0xd3, &value.to_be_bytes()),
    }
}

fn put_time(out: &mut Vec<u8>, time_ns: i64) {
    out.extend_from_slice(&[0xc7, 12, TIME_EXTENSION]);
    out.extend_from_slice(&time_ns.div_euclid(1_000_000_000).to_be_bytes());
    out.extend_from_slice(&(time_ns.rem_euclid(1_000_000_000) as u32).to_be_bytes());
}
