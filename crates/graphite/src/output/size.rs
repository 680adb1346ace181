//! Size of an answer before it is printed, so that its memory can be reserved.
//!
//! Invariant: no answer takes more, but for whole numbers beyond 10^20 and escapes in tags.

use crate::series::Series;

/// Repetition of names and points in a format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layout {
    /// The name and the tags once, and all points.
    NamePerSeries,
    /// The name next to each point.
    NamePerPoint,
    /// The name in a legend, and as many points as the picture shows.
    Picture {
        /// Pixels of a row.
        width: f64,
    },
}

/// Bytes of an empty point with its time.
const EMPTY_POINT_BYTES: usize = 28;
/// Bytes of a value in addition to an empty point.
const VALUE_BYTES: usize = 24;
/// Bytes of a point of a line, whose two coordinates are drawn in each of up to two corners.
const DRAWN_POINT_BYTES: usize = 48;
/// Points of a line per pixel.
const DRAWN_POINTS_PER_PIXEL: f64 = 2.0;
/// Bytes around the points of a series.
const SERIES_BYTES: usize = 512;
/// Bytes of an escaped character per byte.
const ESCAPE_FACTOR: usize = 6;

/// Returns the bytes that an answer takes, at most.
#[must_use]
pub fn bytes_max(list: &[Series], layout: Layout) -> u64 {
    list.iter().map(|series| series_bytes_max(series, layout) as u64).sum()
}

/// Returns the bytes of values that series share, and that are copied when each is consolidated.
#[must_use]
pub fn shared_bytes(list: &[Series]) -> u64 {
    list.iter().map(Series::shared_value_bytes).sum()
}

fn series_bytes_max(series: &Series, layout: Layout) -> usize {
    let point_count = series.values.len().div_ceil(series.values_per_point.max(1));
    // Consolidation may fill every point.
    let value_count = match series.values_per_point {
        0 | 1 => series.values.iter().filter(|value| !value.is_nan()).count(),
        _ => point_count,
    };
    let point_bytes = point_count.saturating_mul(EMPTY_POINT_BYTES) + value_count.saturating_mul(VALUE_BYTES);
    let name_bytes = series.name.len().saturating_mul(escape_factor(&series.name));
    let bytes = match layout {
        Layout::NamePerSeries => {
            let tags = series.tags.iter().map(|(key, value)| {
                (key.len() + value.len()).saturating_mul(escape_factor(value).max(escape_factor(key)))
            });
            point_bytes + name_bytes + tags.sum::<usize>()
        }
        Layout::NamePerPoint => point_bytes.saturating_add(point_count.saturating_mul(series.name.len() + 4)),
        Layout::Picture { width } => {
            let shown = point_count.min((width * DRAWN_POINTS_PER_PIXEL).max(1.0) as usize);
            shown.saturating_mul(DRAWN_POINT_BYTES) + name_bytes
        }
    };
    bytes.saturating_add(SERIES_BYTES)
}

/// Plain text takes a byte per byte.
fn escape_factor(text: &str) -> usize {
    let is_plain = text
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&'));
    if is_plain { 1 } else { ESCAPE_FACTOR }
}
