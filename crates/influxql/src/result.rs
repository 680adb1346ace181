//! Results of statements, as their printers take them.
//!
//! Not here: their text forms (`server`).

use crate::time::TimeZone;

/// Value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// Nanoseconds since 1970.
    Time(i64),
    /// A float.
    Float(f64),
    /// An integer.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A boolean.
    Boolean(bool),
    /// A text: any bytes.
    Text(&'a [u8]),
}

impl<'a> Cell<'a> {
    /// A text.
    #[must_use]
    pub fn text(text: &'a str) -> Cell<'a> {
        Cell::Text(text.as_bytes())
    }
}

/// Name, tags and columns of a series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeriesHeader {
    /// Measurement, or what SHOW returns; may be empty.
    pub name: String,
    /// Tags of the group.
    pub tags: Vec<(String, String)>,
    /// Names of the columns, the time first where there is one.
    pub columns: Vec<String>,
    /// Zone of times as text; `None`: UTC.
    pub zone: Option<TimeZone>,
}

impl SeriesHeader {
    /// A series without tags.
    #[must_use]
    pub fn new(name: &str, columns: &[&str]) -> SeriesHeader {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        SeriesHeader { name: name.to_owned(), columns, ..SeriesHeader::default() }
    }
}

/// Note of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `warning`
    pub level: &'static str,
    /// Text of the message.
    pub text: String,
}

/// Takes the rows of one statement.
pub trait ResultSink {
    /// Starts a series.
    ///
    /// # Errors
    /// [`SinkClosed`] if no more rows are wanted.
    fn series(&mut self, header: &SeriesHeader) -> Result<(), SinkClosed>;

    /// Adds a row to the series.
    ///
    /// # Errors
    /// [`SinkClosed`] if no more rows are wanted.
    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), SinkClosed>;
}

/// The reader of the results has left, or has all the rows that it may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkClosed;
