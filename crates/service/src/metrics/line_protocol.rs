//! Metrics of the line protocol: lines that are not stored, by reason.

use chronolith_ingest::line_protocol::{DropReason, ParseReason, Refused};

use super::definition::Metric;
use crate::counter::Counter;

/// Counters of lines and datagrams.
#[derive(Default)]
pub struct LineProtocolMetrics {
    unparsable: [Counter; ParseReason::COUNT],
    dropped: [Counter; DropReason::COUNT],
    /// Samples of remote write that InfluxDB has no value for.
    left_out: Counter,
    /// Datagrams received.
    pub datagrams: Counter,
    /// Datagrams lost before they were parsed.
    pub datagrams_dropped: Counter,
}

/// Declarations.
pub static LINE_PROTOCOL: &[Metric<LineProtocolMetrics>] = &[
    Metric::counters(
        "chronolith_line_protocol_parse_errors_total",
        &["reason"],
        "Lines that could not be parsed, by reason.",
        |lines, samples| {
            for (reason, count) in ParseReason::ALL.iter().zip(&lines.unparsable) {
                samples.push(&[reason.label()], count.as_f64());
            }
        },
    ),
    Metric::counters(
        "chronolith_line_protocol_points_dropped_total",
        &["reason"],
        "Lines that were parsed and dropped before they reached the store, by reason.",
        |lines, samples| {
            for (reason, count) in DropReason::ALL.iter().zip(&lines.dropped) {
                samples.push(&[reason.label()], count.as_f64());
            }
        },
    ),
    Metric::counter(
        "chronolith_prom_write_samples_dropped_total",
        "Samples of remote write into a database that are NaN, infinite or histograms, which it cannot store.",
        |lines| lines.left_out.as_f64(),
    ),
    Metric::counter("chronolith_udp_datagrams_total", "Datagrams received by UDP listeners.", |lines| {
        lines.datagrams.as_f64()
    }),
    Metric::counter(
        "chronolith_udp_datagrams_dropped_total",
        "Datagrams dropped because the queue was full or a receive failed.",
        |lines| lines.datagrams_dropped.as_f64(),
    ),
];

impl LineProtocolMetrics {
    /// Counts samples of remote write that are not stored.
    pub fn note_left_out(&self, count: u64) {
        if count > 0 {
            self.left_out.add(count);
        }
    }

    /// Counts the refused lines of a request.
    pub fn count(&self, refused: &Refused) {
        let unparsable = self.unparsable.iter().zip(refused.unparsable);
        let dropped = self.dropped.iter().zip(refused.dropped);
        unparsable
            .chain(dropped)
            .filter(|(_, count)| *count > 0)
            .for_each(|(counter, count)| counter.add(count));
    }
}
