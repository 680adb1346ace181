//! Contract of the printers, and the form of times.

use chronolith_influxql::result::{Cell, Message, SeriesHeader};
use chronolith_influxql::time::{TimeZone, offset_seconds_at};

/// Unit of the times of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::http::influx) enum Epoch {
    /// The form of times that a text form of results has: RFC 3339 in JSON.
    #[default]
    Rfc3339,
    /// Integers: times divided by these nanoseconds.
    Divided(i64),
}

impl Epoch {
    /// Reads the parameter `epoch`.
    pub(in crate::http::influx) fn of(text: Option<&str>) -> Epoch {
        match text.unwrap_or("") {
            "" => Epoch::Rfc3339,
            "u" | "µ" => Epoch::Divided(1_000),
            "ms" => Epoch::Divided(1_000_000),
            "s" => Epoch::Divided(1_000_000_000),
            "m" => Epoch::Divided(60_000_000_000),
            "h" => Epoch::Divided(3_600_000_000_000),
            _ => Epoch::Divided(1),
        }
    }

    /// Returns the integer that stands for a time; `None` for a text.
    pub(in crate::http::influx) fn integer(self, time_ns: i64) -> Option<i64> {
        match self {
            Epoch::Rfc3339 => None,
            Epoch::Divided(unit_ns) => Some(time_ns / unit_ns),
        }
    }
}

/// Encoder of one response. Calls: `begin_result`, then for each series `begin_series`, rows, `end_series`,
/// then `end_result`; at last `end`.
pub(in crate::http::influx) trait Printer: Send {
    /// Starts the result of a statement.
    fn begin_result(&mut self, statement_id: usize);
    /// Starts a series of the result.
    fn begin_series(&mut self, header: &SeriesHeader);
    /// Adds a row to the series.
    fn row(&mut self, cells: &[Cell<'_>]);
    /// Ends the series. `is_partial`: rows of it follow in another chunk, or are cut off.
    fn end_series(&mut self, is_partial: bool);
    /// Ends the result. `is_partial`: more of the statement follows in another chunk.
    fn end_result(&mut self, messages: &[Message], is_partial: bool, error: Option<&str>);
    /// Ends a document: a chunk, or the whole response.
    fn end(&mut self);
    /// Replaces everything by an error of the whole request.
    fn error(&mut self, text: &str);
    /// Bytes that can be sent; the caller takes them.
    fn out(&mut self) -> &mut Vec<u8>;
    /// Bytes in memory.
    fn buffered_bytes(&self) -> usize;
}

/// Appends a time as RFC 3339 in a zone, UTC by default, with as many digits of the second as it needs.
pub(super) fn put_rfc3339(out: &mut Vec<u8>, time_ns: i64, zone: Option<&TimeZone>) {
    let offset = zone.map_or(0, |zone| i64::from(offset_seconds_at(zone, time_ns)));
    let seconds = time_ns.div_euclid(1_000_000_000) + offset;
    let nanos = time_ns.rem_euclid(1_000_000_000);
    let text = chronolith_base::utc::rfc3339_seconds(seconds * 1000);
    out.extend_from_slice(text.trim_end_matches('Z').as_bytes());
    if nanos > 0 {
        let digits = format!("{nanos:09}");
        out.push(b'.');
        out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
    }
    if offset == 0 {
        out.push(b'Z');
        return;
    }
    let minutes = offset.abs() / 60;
    let sign = if offset < 0 { '-' } else { '+' };
    out.extend_from_slice(format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60).as_bytes());
}
