//! Response of a request with statements: rows become text and are sent, whole or in chunks.
//!
//! Invariants: of a response that is not chunked at most `row_count_max` rows are printed; a series that is
//! cut has the mark `partial`.

use chronolith_base::Reservation;
use chronolith_influxql::result::{Cell, Message, ResultSink, SeriesHeader, SinkClosed};
use chronolith_model::{QueryError, ReadContext};

use super::super::printer::Printer;
use super::request::QueryRequest;
use crate::http::error::ApiError;
use crate::http::stream::Parts;
use crate::limits::ANSWER_PART_BYTES;

/// Prints and sends the rows of a request.
pub(super) struct ResponseSink<'a> {
    printer: Box<dyn Printer>,
    parts: &'a Parts,
    ctx: &'a ReadContext,
    /// Memory of what the printer keeps beyond a part.
    held: Option<Reservation>,
    chunk_rows: Option<usize>,
    /// Rows that may still be printed; `None` for all.
    rows_left: Option<usize>,
    statement_id: usize,
    header: SeriesHeader,
    /// Rows of the open series in the chunk; `None` without an open series.
    series_rows: Option<usize>,
    failure: Option<ApiError>,
}

impl<'a> ResponseSink<'a> {
    pub(super) fn new(
        request: &QueryRequest,
        parts: &'a Parts,
        ctx: &'a ReadContext,
        row_count_max: usize,
    ) -> ResponseSink<'a> {
        let is_limited = row_count_max > 0 && request.chunk_rows.is_none();
        ResponseSink {
            printer: request.printer(),
            parts,
            ctx,
            held: None,
            chunk_rows: request.chunk_rows,
            rows_left: is_limited.then_some(row_count_max),
            statement_id: 0,
            header: SeriesHeader::default(),
            series_rows: None,
            failure: None,
        }
    }

    /// Starts the result of a statement.
    pub(super) fn begin(&mut self, statement_id: usize) {
        self.statement_id = statement_id;
        self.series_rows = None;
        self.printer.begin_result(statement_id);
    }

    /// Ends the result of a statement.
    pub(super) fn end(&mut self, messages: &[Message], error: Option<&str>) -> Result<(), ApiError> {
        if self.series_rows.take().is_some() {
            self.printer.end_series(self.is_full() && self.was_cut());
        }
        self.printer.end_result(messages, false, error);
        if self.chunk_rows.is_some() {
            self.printer.end();
            self.send()?;
        }
        Ok(())
    }

    /// Ends the response.
    pub(super) fn finish(mut self) -> Result<(), ApiError> {
        if self.chunk_rows.is_none() {
            self.printer.end();
        }
        self.send()
    }

    /// Returns true once as many rows are printed as may be.
    pub(super) fn is_full(&self) -> bool {
        self.rows_left == Some(0)
    }

    /// Returns the error of sending, if that is why the rows ended; no error if the rest is cut.
    pub(super) fn take_failure(&mut self) -> Result<Option<String>, ApiError> {
        self.failure.take().map_or(Ok(None), Err)
    }

    fn was_cut(&self) -> bool {
        self.header.name.is_empty() || self.rows_left == Some(0)
    }

    fn send(&mut self) -> Result<(), ApiError> {
        let bytes = std::mem::take(self.printer.out());
        if bytes.is_empty() { Ok(()) } else { self.parts.send(bytes, self.ctx) }
    }

    /// Sends the printed bytes if they fill a part, and reserves memory for them otherwise.
    fn settle(&mut self) -> Result<(), SinkClosed> {
        if self.printer.out().len() >= ANSWER_PART_BYTES {
            if let Err(error) = self.send() {
                self.failure = Some(error);
                return Err(SinkClosed);
            }
        } else {
            let kept = self.printer.buffered_bytes();
            if kept > 2 * ANSWER_PART_BYTES {
                return self.hold(kept as u64);
            }
        }
        Ok(())
    }

    fn hold(&mut self, bytes: u64) -> Result<(), SinkClosed> {
        let held_bytes = self.held.as_ref().map_or(0, Reservation::bytes);
        if held_bytes >= bytes {
            return Ok(());
        }
        let grown = match &mut self.held {
            Some(held) => held.grow(bytes - held_bytes),
            held => self.ctx.budget.reserve(bytes).map(|new| *held = Some(new)),
        };
        grown.map_err(|full| {
            self.failure = Some(QueryError::from(full).into());
            SinkClosed
        })
    }

    /// Ends a chunk and starts the next one.
    fn next_chunk(&mut self, is_same_series: bool) -> Result<(), SinkClosed> {
        self.printer.end_series(is_same_series);
        self.printer.end_result(&[], true, None);
        self.printer.end();
        if let Err(error) = self.send() {
            self.failure = Some(error);
            return Err(SinkClosed);
        }
        self.printer.begin_result(self.statement_id);
        Ok(())
    }
}

impl ResultSink for ResponseSink<'_> {
    fn series(&mut self, header: &SeriesHeader) -> Result<(), SinkClosed> {
        if self.is_full() {
            return Err(SinkClosed);
        }
        if self.series_rows.take().is_some() {
            match self.chunk_rows {
                Some(_) => self.next_chunk(false)?,
                None => self.printer.end_series(false),
            }
        }
        self.header.clone_from(header);
        self.printer.begin_series(header);
        self.series_rows = Some(0);
        Ok(())
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), SinkClosed> {
        if let Some(left) = &mut self.rows_left {
            if *left == 0 {
                return Err(SinkClosed);
            }
            *left -= 1;
        }
        let rows = self.series_rows.unwrap_or(0);
        if self.chunk_rows.is_some_and(|max| rows >= max) {
            self.next_chunk(true)?;
            self.printer.begin_series(&self.header);
            self.series_rows = Some(0);
        }
        self.printer.row(cells);
        self.series_rows = self.series_rows.map(|rows| rows + 1);
        self.settle()
    }
}
