//! Borders of windows: aligned to the epoch plus an offset, in the local time of a zone.
//!
//! Invariants: windows do not overlap; the start of the window of its own start is itself, except next to
//! changes of a zone's offset that are not shorter than a window. Arithmetic saturates at the ends of time.

use chronolith_model::TimeRange;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::plan::{OPEN_END, OPEN_START, Windows};

/// Windows of a plan over its range; one window if the plan has none.
#[derive(Debug, Clone)]
pub(crate) struct WindowBounds {
    pub(crate) range: TimeRange,
    pub(crate) windows: Option<Windows>,
    /// Offsets of the zone within the range.
    offsets: Option<ZoneOffsets>,
}

impl WindowBounds {
    /// Windows over a range; looks up the offsets of their zone.
    pub(crate) fn new(range: TimeRange, windows: Option<Windows>) -> WindowBounds {
        let offsets = windows.as_ref().and_then(|windows| {
            // A border may be one window outside of the range.
            let first = range.start.saturating_sub(windows.width);
            Some(ZoneOffsets::new(windows.zone.as_ref()?, first, range.end.saturating_add(windows.width)))
        });
        WindowBounds { range, windows, offsets }
    }

    /// Start and end of the window of `time`.
    pub(crate) fn window_of(&self, time: i64) -> TimeRange {
        let Some(windows) = &self.windows else { return self.range };
        let width = windows.width.max(1);
        let local = time.saturating_sub(windows.offset);
        let Some(zone) = &self.offsets else {
            let into = local.rem_euclid(width);
            let start = time.saturating_sub(into).max(OPEN_START);
            return TimeRange::new(start, time.saturating_add(width - into));
        };
        let offset = zone.offset_at(time);
        let into = local.saturating_add(offset).rem_euclid(width);
        // The offset may change between the border and the time: the border is where local time is aligned.
        // An end belongs to the window before it, so its offset is the offset of the last instant inside.
        let adjusted = |border: i64, border_offset: i64| {
            let change = offset - border_offset;
            if change != 0 && change.abs() < width { border.saturating_add(change) } else { border }
        };
        let start = time.saturating_sub(into).max(OPEN_START);
        let end = time.saturating_add(width - into);
        TimeRange::new(
            adjusted(start, zone.offset_at(start)),
            adjusted(end, zone.offset_at(end.saturating_sub(1))),
        )
    }

    /// Time that a result without a time of its own has: the start of the window, 0 if it is open.
    pub(crate) fn shown_start(&self, start: i64) -> i64 {
        if start <= OPEN_START { 0 } else { start }
    }

    /// True if each window is directly after the one before and as long.
    pub(crate) fn fixed_width(&self) -> Option<i64> {
        self.windows.as_ref().filter(|windows| windows.zone.is_none()).map(|windows| windows.width.max(1))
    }

    /// Starts of the windows of the range, ascending; `first` and `last` are times of points, used where
    /// the range is open.
    pub(crate) fn starts(&self, first: i64, last: i64) -> WindowStarts<'_> {
        let from = if self.range.start <= OPEN_START { first } else { self.range.start };
        let to = if self.range.end == OPEN_END { last } else { self.range.end - 1 };
        WindowStarts { bounds: self, next: Some(self.window_of(from).start), last: to }
    }

    /// Number of the windows that [`WindowBounds::starts`] returns at most, if they are of one width.
    pub(crate) fn fixed_count(&self, first: i64, last: i64) -> Option<u64> {
        let width = i128::from(self.fixed_width()?);
        let from = if self.range.start <= OPEN_START { first } else { self.range.start };
        let to = if self.range.end == OPEN_END { last } else { self.range.end - 1 };
        let span = i128::from(to) - i128::from(self.window_of(from).start);
        Some(u64::try_from(span / width + 1).unwrap_or(0))
    }

    /// Number of windows of the range, if it has a start.
    pub(crate) fn count(&self) -> Option<u64> {
        let width = self.windows.as_ref()?.width.max(1);
        if self.range.start <= OPEN_START || self.range.is_empty() {
            return None;
        }
        let first = self.window_of(self.range.start).start;
        let last = self.window_of(self.range.end - 1).start;
        let span = i128::from(last) - i128::from(first) + i128::from(width);
        Some((span / i128::from(width)).max(0) as u64)
    }
}

/// Iterator of window starts.
pub(crate) struct WindowStarts<'b> {
    bounds: &'b WindowBounds,
    next: Option<i64>,
    last: i64,
}

impl Iterator for WindowStarts<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let start = self.next?;
        if start > self.last {
            self.next = None;
            return None;
        }
        let end = self.bounds.window_of(start).end;
        self.next = (end > start && end < OPEN_END).then_some(end);
        Some(start)
    }
}

/// Offsets of local time from UTC in ns.
///
/// PERF: a search in a few numbers instead of three lookups in the rules of the zone per window.
#[derive(Debug, Clone)]
struct ZoneOffsets {
    first: i64,
    /// Times of changes, ascending, and the offset from then on.
    changes: Vec<(i64, i64)>,
}

impl ZoneOffsets {
    /// Offsets of a time zone between two times.
    fn new(zone: &TimeZone, first: i64, last: i64) -> ZoneOffsets {
        let timestamp = |time: i64| Timestamp::from_nanosecond(i128::from(time)).unwrap_or_default();
        let nanoseconds = |offset: jiff::tz::Offset| i64::from(offset.seconds()) * 1_000_000_000;
        let changes = zone.following(timestamp(first));
        let changes = changes
            .map(|change| (change.timestamp().as_nanosecond(), nanoseconds(change.offset())))
            .take_while(|(time, _)| *time <= i128::from(last));
        ZoneOffsets {
            first: nanoseconds(zone.to_offset(timestamp(first))),
            changes: changes.map(|(time, offset)| (time as i64, offset)).collect(),
        }
    }

    fn offset_at(&self, time: i64) -> i64 {
        let after = self.changes.partition_point(|(change, _)| *change <= time);
        after.checked_sub(1).map_or(self.first, |idx| self.changes[idx].1)
    }
}
