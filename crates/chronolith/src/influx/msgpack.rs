//! Reader of MessagePack responses of `/query`: rows are handed on as they come, so a response of any length
//! needs the memory of one row.
//!
//! Invariants: bytes never panic; numbers and texts keep their exact value; a response that ends early is an
//! error.
//! Not here: HTTP (`server`).

use std::io::{self, BufRead, Read};

/// Bytes of one text or name at most.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Items of a list that is kept at most: columns and tags.
const LIST_LEN_MAX: usize = 1 << 20;
/// Extension of times: 8 bytes of seconds and 4 of nanoseconds, big-endian.
const TIME_EXTENSION: u8 = 5;
/// Nesting of skipped values at most.
const DEPTH_MAX: u32 = 32;

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell {
    Null,
    Boolean(bool),
    /// An integer that fits `i64`, or a time in nanoseconds.
    Integer(i64),
    /// An integer that does not fit `i64`.
    Unsigned(u64),
    Float(f64),
    /// Bytes within [`Row::texts`].
    Text {
        start: usize,
        end: usize,
    },
}

/// Values of a row; the texts among them share one buffer.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(super) cells: Vec<Cell>,
    pub(super) texts: Vec<u8>,
}

impl Row {
    /// Returns the bytes of a text; empty for other values.
    pub(crate) fn text(&self, cell: Cell) -> &[u8] {
        match cell {
            Cell::Text { start, end } => self.texts.get(start..end).unwrap_or(&[]),
            _ => &[],
        }
    }
}

/// Name, tags and columns of the rows that follow.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SeriesHead {
    pub(super) name: Vec<u8>,
    /// In the order of the response; a tag that the series does not have is empty.
    pub(super) tags: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) columns: Vec<Vec<u8>>,
}

/// Receiver of the rows of a response.
pub(crate) trait RowSink {
    /// Starts the rows of a series; a long series is started several times.
    fn series(&mut self, head: &SeriesHead) -> anyhow::Result<()>;

    fn row(&mut self, row: &Row) -> anyhow::Result<()>;
}

/// Reason why a response was not read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseError {
    /// The server refused or ended the statement.
    #[error("{0}")]
    Statement(String),
    /// The connection failed, or the bytes are no response.
    #[error("reading the response")]
    Transport(#[from] io::Error),
    /// The receiver of the rows failed.
    #[error(transparent)]
    Sink(anyhow::Error),
}

/// Reads all documents of a response, which has one statement.
pub(crate) fn read_response(input: impl Read, sink: &mut dyn RowSink) -> Result<(), ResponseError> {
    let mut reader = ResponseReader {
        input: io::BufReader::with_capacity(1 << 16, input),
        sink,
        head: SeriesHead::default(),
        row: Row::default(),
        is_partial: false,
    };
    while !reader.input.fill_buf()?.is_empty() {
        reader.document()?;
    }
    if reader.is_partial {
        return Err(invalid("the response ends although more rows were announced").into());
    }
    Ok(())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

struct ResponseReader<'a, R> {
    input: io::BufReader<R>,
    sink: &'a mut dyn RowSink,
    head: SeriesHead,
    row: Row,
    /// Set while the last result announced more rows.
    is_partial: bool,
}

impl<R: Read> ResponseReader<'_, R> {
    fn document(&mut self) -> Result<(), ResponseError> {
        for _ in 0..self.map_len()? {
            match &*self.short_text()? {
                b"results" => {
                    for _ in 0..self.array_len()? {
                        self.result()?;
                    }
                }
                b"error" => return Err(self.statement_error()?),
                _ => self.skip(0)?,
            }
        }
        Ok(())
    }

    fn result(&mut self) -> Result<(), ResponseError> {
        self.is_partial = false;
        for _ in 0..self.map_len()? {
            match &*self.short_text()? {
                b"series" => {
                    for _ in 0..self.array_len()? {
                        self.series()?;
                    }
                }
                b"partial" => self.is_partial = self.byte()? == 0xc3,
                b"error" => return Err(self.statement_error()?),
                _ => self.skip(0)?,
            }
        }
        Ok(())
    }

    fn statement_error(&mut self) -> Result<ResponseError, ResponseError> {
        let text = self.text()?;
        Ok(ResponseError::Statement(String::from_utf8_lossy(&text).into_owned()))
    }

    fn series(&mut self) -> Result<(), ResponseError> {
        self.head = SeriesHead::default();
        for _ in 0..self.map_len()? {
            match &*self.short_text()? {
                b"name" => self.head.name = self.text()?,
                b"tags" => {
                    for _ in 0..self.list_len(Self::map_len)? {
                        let tag = (self.text()?, self.text()?);
                        self.head.tags.push(tag);
                    }
                }
                b"columns" => {
                    for _ in 0..self.list_len(Self::array_len)? {
                        let column = self.text()?;
                        self.head.columns.push(column);
                    }
                }
                b"values" => {
                    if self.head.columns.is_empty() {
                        return Err(invalid("rows without names of their columns").into());
                    }
                    self.sink.series(&self.head).map_err(ResponseError::Sink)?;
                    for _ in 0..self.array_len()? {
                        self.read_row()?;
                        self.sink.row(&self.row).map_err(ResponseError::Sink)?;
                    }
                }
                _ => self.skip(0)?,
            }
        }
        Ok(())
    }

    fn list_len(&mut self, len: impl Fn(&mut Self) -> io::Result<usize>) -> io::Result<usize> {
        let len = len(self)?;
        if len > LIST_LEN_MAX { Err(invalid("a list is too long")) } else { Ok(len) }
    }

    fn read_row(&mut self) -> io::Result<()> {
        self.row.cells.clear();
        self.row.texts.clear();
        let count = self.array_len()?;
        if count != self.head.columns.len() {
            return Err(invalid("a row has another number of values than there are columns"));
        }
        for _ in 0..count {
            let code = self.byte()?;
            let cell = self.cell(code)?;
            self.row.cells.push(cell);
        }
        Ok(())
    }

    fn cell(&mut self, code: u8) -> io::Result<Cell> {
        Ok(match code {
            0xc0 => Cell::Null,
            0xc2 => Cell::Boolean(false),
            0xc3 => Cell::Boolean(true),
            0x00..=0x7f => Cell::Integer(code.into()),
            0xe0..=0xff => Cell::Integer(i64::from(code as i8)),
            0xcc => Cell::Integer(i64::from(self.byte()?)),
            0xcd => Cell::Integer(i64::from(u16::from_be_bytes(self.bytes()?))),
            0xce => Cell::Integer(i64::from(u32::from_be_bytes(self.bytes()?))),
            0xcf => {
                let value = u64::from_be_bytes(self.bytes()?);
                i64::try_from(value).map_or(Cell::Unsigned(value), Cell::Integer)
            }
            0xd0 => Cell::Integer(i64::from(self.byte()? as i8)),
            0xd1 => Cell::Integer(i64::from(i16::from_be_bytes(self.bytes()?))),
            0xd2 => Cell::Integer(i64::from(i32::from_be_bytes(self.bytes()?))),
            0xd3 => Cell::Integer(i64::from_be_bytes(self.bytes()?)),
            0xca => Cell::Float(f64::from(f32::from_be_bytes(self.bytes()?))),
            0xcb => Cell::Float(f64::from_be_bytes(self.bytes()?)),
            0xc7 => {
                let [len, kind] = self.bytes()?;
                if len != 12 || kind != TIME_EXTENSION {
                    return Err(invalid("an extension that is no time"));
                }
                let seconds = i64::from_be_bytes(self.bytes()?);
                let below_second_ns = i64::from(u32::from_be_bytes(self.bytes()?));
                Cell::Integer(seconds.wrapping_mul(1_000_000_000).wrapping_add(below_second_ns))
            }
            _ => {
                let len = self.text_len(code)?;
                let start = self.row.texts.len();
                read_exactly(&mut self.input, len, &mut self.row.texts)?;
                Cell::Text { start, end: self.row.texts.len() }
            }
        })
    }

    fn byte(&mut self) -> io::Result<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a text that is a name of the protocol.
    fn short_text(&mut self) -> io::Result<Vec<u8>> {
        self.text()
    }

    fn text(&mut self) -> io::Result<Vec<u8>> {
        let code = self.byte()?;
        let len = self.text_len(code)?;
        let mut text = Vec::new();
        read_exactly(&mut self.input, len, &mut text)?;
        Ok(text)
    }

    fn text_len(&mut self, code: u8) -> io::Result<usize> {
        let len = match code {
            0xa0..=0xbf => usize::from(code & 0x1f),
            0xd9 | 0xc4 => usize::from(self.byte()?),
            0xda | 0xc5 => usize::from(u16::from_be_bytes(self.bytes()?)),
            0xdb | 0xc6 => u32::from_be_bytes(self.bytes()?) as usize,
            _ => return Err(invalid("not a text")),
        };
        if len > TEXT_BYTES_MAX { Err(invalid("a text is too long")) } else { Ok(len) }
    }

    fn array_len(&mut self) -> io::Result<usize> {
        match self.byte()? {
            code @ 0x90..=0x9f => Ok(usize::from(code & 0x0f)),
            0xdc => Ok(usize::from(u16::from_be_bytes(self.bytes()?))),
            0xdd => Ok(u32::from_be_bytes(self.bytes()?) as usize),
            0xc0 => Ok(0),
            _ => Err(invalid("not a list")),
        }
    }

    fn map_len(&mut self) -> io::Result<usize> {
        match self.byte()? {
            code @ 0x80..=0x8f => Ok(usize::from(code & 0x0f)),
            0xde => Ok(usize::from(u16::from_be_bytes(self.bytes()?))),
            0xdf => Ok(u32::from_be_bytes(self.bytes()?) as usize),
            _ => Err(invalid("not MessagePack of InfluxDB")),
        }
    }

    /// Skips a value.
    fn skip(&mut self, depth: u32) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(invalid("values are nested too deep"));
        }
        let code = self.byte()?;
        let (item_count, byte_count) = match code {
            0x90..=0x9f => (usize::from(code & 0x0f), 0),
            0x80..=0x8f => (2 * usize::from(code & 0x0f), 0),
            0xdc => (usize::from(u16::from_be_bytes(self.bytes()?)), 0),
            0xdd => (u32::from_be_bytes(self.bytes()?) as usize, 0),
            0xde => (2 * usize::from(u16::from_be_bytes(self.bytes()?)), 0),
            0xdf => ((u32::from_be_bytes(self.bytes()?) as usize).saturating_mul(2), 0),
            0xd4..=0xd8 => (0, 1 + (1 << (code - 0xd4))),
            _ => {
                self.cell(code)?;
                self.row.texts.clear();
                (0, 0)
            }
        };
        read_exactly(&mut self.input, byte_count, &mut Vec::new())?;
        (0..item_count).try_for_each(|_| self.skip(depth + 1))
    }
}

/// Appends `len` bytes; a length that the input does not have costs no memory.
fn read_exactly(input: &mut impl Read, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let read = input.take(len as u64).read_to_end(out)?;
    if read == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests;
