//! Metrics of answers to selects of other nodes.

use chronolith_service::counter::{Counter, Seconds};
use chronolith_service::metrics::definition::Metric;

use super::StreamMetrics;

/// Result of a select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectResult {
    /// The answer was sent to its end.
    Complete,
    /// The answer ends with a failure.
    Failed,
    /// There is no answer: a limit, another version, damage, no store.
    Refused,
    /// The call has not the token.
    Unauthorized,
}

impl SelectResult {
    const ALL: [SelectResult; 4] =
        [SelectResult::Complete, SelectResult::Failed, SelectResult::Refused, SelectResult::Unauthorized];

    fn name(self) -> &'static str {
        match self {
            SelectResult::Complete => "complete",
            SelectResult::Failed => "failed",
            SelectResult::Refused => "refused",
            SelectResult::Unauthorized => "unauthorized",
        }
    }
}

#[derive(Default)]
pub(crate) struct SelectMetrics {
    results: [Counter; SelectResult::ALL.len()],
    /// Times of answers, the wait for a permit included.
    seconds: Seconds,
    stream: StreamMetrics,
}

impl SelectMetrics {
    pub(crate) fn count(&self, result: SelectResult) {
        self.results[result as usize].add(1);
    }

    pub(crate) fn result_count(&self, result: SelectResult) -> u64 {
        self.results[result as usize].get()
    }

    /// Counts the time of an answer, the wait for a permit included.
    pub(crate) fn observe_ns(&self, ns: u64) {
        self.seconds.observe_ns(ns);
    }

    pub(crate) fn stream(&self) -> &StreamMetrics {
        &self.stream
    }
}

pub(crate) static SELECT: &[Metric<SelectMetrics>] = &[
    Metric::counters(
        "chronolith_select_calls_total",
        &["result"],
        "Selects of other nodes by result; aborted ones are apart.",
        |select, samples| {
            for result in SelectResult::ALL {
                samples.push(&[result.name()], select.result_count(result) as f64);
            }
        },
    ),
    Metric::counter(
        "chronolith_select_aborted_total",
        "Answers to selects that an error or the end of the connection cut.",
        |select| select.stream.aborted.as_f64(),
    ),
    Metric::counter("chronolith_select_sent_bytes_total", "Bytes of answers to selects.", |select| {
        select.stream.bytes.as_f64()
    }),
    Metric::histograms(
        "chronolith_select_duration_seconds",
        &[],
        "Time from a select to the end of its answer, the wait for a permit included.",
        |select, samples| samples.push_histogram(&[], &select.seconds),
    ),
];
