//! The samples of one family and clock, and how they are sent: series in groups, half an hour per request, in
//! the order of time, as a sender does that was cut off for a while.

use anyhow::Result;
use chronolith_base::{Clock, SystemClock};

use super::Extent;
use crate::body::Body;
use crate::families::{self, ClockKind, Family};
use crate::http::WriteConnection;
use crate::server::Server;
use crate::traffic::{self, STEP_MS};

const GROUP_SERIES: usize = 40;
const REQUEST_STEPS: usize = 120;
/// A sample this long after the last of the load: blocks in front of it are no longer the newest, which is
/// why servers would leave them alone.
const AFTER_MS: i64 = 60_000;

pub(super) struct Load {
    /// Timestamps and values by series.
    pub(super) samples: Vec<Vec<(i64, f64)>>,
    pub(super) extent: Extent,
}

impl Load {
    pub(super) fn new(family: Family, clock: ClockKind, extent: Extent) -> Load {
        let of_series = |idx| families::samples(family, clock, idx, extent.start_ms, extent.step_count);
        Load { samples: (0..extent.series_count).map(of_series).collect(), extent }
    }

    pub(super) fn sample_count(&self) -> usize {
        self.samples.iter().map(Vec::len).sum()
    }

    /// End of the load, where a window of two hours ends.
    pub(super) fn end_ms(&self) -> i64 {
        self.extent.start_ms + self.extent.step_count as i64 * STEP_MS
    }

    /// Sends everything, then one sample after it and one of this moment.
    pub(super) fn send(&self, server: &Server) -> Result<()> {
        let mut connection = WriteConnection::open(server.port)?;
        for first_step in (0..self.extent.step_count).step_by(REQUEST_STEPS) {
            let time_of = |step: usize| self.extent.start_ms + step as i64 * STEP_MS;
            let from_ms = time_of(first_step);
            let to_ms = time_of(first_step + REQUEST_STEPS);
            for first_series in (0..self.samples.len()).step_by(GROUP_SERIES) {
                connection.post(self.body(first_series, from_ms, to_ms).bytes())?;
            }
        }
        for time_ms in [self.end_ms() + AFTER_MS, SystemClock::new().now_ms()] {
            let body = Body::of_sample(&[("__name__", "behind_the_load".to_owned())], time_ms, 0.0);
            connection.post(body.bytes())?;
        }
        Ok(())
    }

    fn body(&self, first_series: usize, from_ms: i64, to_ms: i64) -> Body {
        let group = self.samples.iter().enumerate().skip(first_series).take(GROUP_SERIES);
        let parts: Vec<(usize, &[(i64, f64)])> =
            group.map(|(idx, samples)| (idx, within(samples, from_ms, to_ms))).collect();
        let mut body = Body::with_counts(parts.iter().map(|(idx, part)| (traffic::labels(*idx), part.len())));
        body.set_each(parts.iter().flat_map(|(_, part)| part.iter().copied()));
        body
    }
}

/// The samples from `from_ms` to before `to_ms`.
pub(super) fn within(samples: &[(i64, f64)], from_ms: i64, to_ms: i64) -> &[(i64, f64)] {
    let start = samples.partition_point(|sample| sample.0 < from_ms);
    let end = samples.partition_point(|sample| sample.0 < to_ms);
    &samples[start..end]
}
