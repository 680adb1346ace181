//! Text form of a response: the header `Accept` of a request with statements.
//!
//! Invariants: a larger quality wins, of equal ones the earlier; ranges that cannot be parsed are skipped, as
//! in InfluxDB 1.8.
//! Not here: the printers of the forms (`printer`).

use axum::http::{HeaderMap, header};

use super::super::printer::{CsvPrinter, Epoch, JsonPrinter, MsgpackPrinter, Printer};

/// Text form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    /// CSV, and the media type that the client calls it.
    Csv(&'static str),
    Msgpack,
}

impl Format {
    /// Returns the form that the client prefers of those that there are, JSON if it accepts none.
    pub(super) fn of(headers: &HeaderMap) -> Format {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        preferred(accepted).unwrap_or(Format::Json)
    }

    pub(super) fn printer(self, epoch: Epoch, is_pretty: bool) -> Box<dyn Printer> {
        match self {
            Format::Json => Box::new(JsonPrinter::new(epoch, is_pretty)),
            Format::Csv(_) => Box::new(CsvPrinter::new(epoch)),
            Format::Msgpack => Box::new(MsgpackPrinter::new(epoch)),
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Csv(media_type) => media_type,
            Format::Msgpack => "application/x-msgpack",
        }
    }
}

/// Media types of results, in the order in which wildcards take them.
const MEDIA_TYPES: [(&str, Format); 4] = [
    ("application/json", Format::Json),
    ("application/csv", Format::Csv("application/csv")),
    ("text/csv", Format::Csv("text/csv")),
    ("application/x-msgpack", Format::Msgpack),
];

/// Returns the form of the most preferred media range that names one; `None` if there is no such range.
fn preferred<'a>(values: impl Iterator<Item = &'a str>) -> Option<Format> {
    let ranges = values.flat_map(|value| value.split(',')).filter_map(range);
    let mut found: Vec<(f64, Format)> = ranges.collect();
    // Stable: the earlier one of equal qualities stays in front.
    found.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    found.first().map(|(_, format)| *format)
}

/// Reads a media range: its quality and the form that it names.
fn range(text: &str) -> Option<(f64, Format)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next()?.to_ascii_lowercase();
    let (kind, subtype) = if name == "*" { ("*", "*") } else { name.split_once('/')? };
    let is_named = |media_type: &str| {
        let (of_kind, of_subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
        matches!(kind, "*") || kind == of_kind && (subtype == "*" || subtype == of_subtype)
    };
    let (_, format) = MEDIA_TYPES.iter().find(|(media_type, _)| is_named(media_type))?;
    let quality = parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.trim() == "q");
    let quality = quality.map_or(1.0, |(_, value)| value.trim().parse().unwrap_or(0.0));
    Some((quality, *format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &[&str], want: Option<Format>) {
        assert_eq!(preferred(accept.iter().copied()), want, "{accept:?}");
    }

    #[test]
    fn the_preferred_known_media_type_is_taken() {
        let csv = Some(Format::Csv("application/csv"));
        check(&[], None);
        check(&["image/png"], None);
        check(&["application/csv"], csv);
        check(&["text/csv; charset=utf-8"], Some(Format::Csv("text/csv")));
        check(&["text/*"], Some(Format::Csv("text/csv")));
        check(&["*/*"], Some(Format::Json));
        check(&["*"], Some(Format::Json));
        check(&["text/html, application/csv;q=0.9, */*;q=0.1"], csv);
        check(&["application/csv;q=0.5, application/x-msgpack"], Some(Format::Msgpack));
        check(&["application/csv, application/json"], csv);
        check(&["text/html", "application/csv"], csv);
        check(&["application/csv;q=x, application/json;q=0.1"], Some(Format::Json));
        check(&["json, ;, /, application/csv"], csv);
    }
}
