//! Metrics of streamed responses: remote read, federation, InfluxQL, searches of names, backfills of rules.

use chronolith_service::counter::Counter;
use chronolith_service::metrics::definition::Metric;

/// Streamed answers of one endpoint.
#[derive(Default)]
pub(crate) struct StreamMetrics {
    /// Streams that ended with an error after their first part, or that the client left.
    pub(crate) aborted: Counter,
    pub(crate) bytes: Counter,
}

#[derive(Default)]
pub(crate) struct RemoteReadMetrics {
    /// Requests answered with one message.
    pub(crate) messages: Counter,
    /// Bytes of these messages.
    pub(crate) message_bytes: Counter,
    /// Requests answered with frames.
    pub(crate) streams: Counter,
    pub(crate) stream: StreamMetrics,
    pub(crate) series: Counter,
    pub(crate) samples: Counter,
}

pub(crate) static REMOTE_READ: &[Metric<RemoteReadMetrics>] = &[
    Metric::counters(
        "chronolith_remote_read_requests_total",
        &["response_type"],
        "Remote reads by response type.",
        |read, samples| {
            samples.push(&["samples"], read.messages.as_f64());
            samples.push(&["streamed_xor_chunks"], read.streams.as_f64());
        },
    ),
    Metric::counter(
        "chronolith_remote_read_aborted_total",
        "Streamed responses aborted by an error or a disconnected client.",
        |read| read.stream.aborted.as_f64(),
    ),
    Metric::counter("chronolith_remote_read_series_total", "Series sent by remote read.", |read| {
        read.series.as_f64()
    }),
    Metric::counter("chronolith_remote_read_samples_total", "Samples sent by remote read.", |read| {
        read.samples.as_f64()
    }),
    Metric::counter("chronolith_remote_read_bytes_total", "Bytes of remote read responses.", |read| {
        (read.message_bytes.get() + read.stream.bytes.get()) as f64
    }),
];

pub(crate) static INFLUX_QUERY: &[Metric<StreamMetrics>] = &[
    Metric::counter(
        "chronolith_influx_query_aborted_total",
        "Responses to InfluxQL aborted by an error or a disconnected client.",
        |query| query.aborted.as_f64(),
    ),
    Metric::counter(
        "chronolith_influx_query_bytes_total",
        "Bytes of responses to InfluxQL, before compression.",
        |query| query.bytes.as_f64(),
    ),
];

pub(crate) static SEARCH: &[Metric<StreamMetrics>] = &[
    Metric::counter(
        "chronolith_search_aborted_total",
        "Search responses aborted by an error or a disconnected client.",
        |search| search.aborted.as_f64(),
    ),
    Metric::counter(
        "chronolith_search_bytes_total",
        "Bytes of search responses, before compression.",
        |search| search.bytes.as_f64(),
    ),
];

pub(crate) static FEDERATE: &[Metric<StreamMetrics>] = &[
    Metric::counter(
        "chronolith_federate_aborted_total",
        "Federation responses aborted by an error or a disconnected client.",
        |federate| federate.aborted.as_f64(),
    ),
    Metric::counter(
        "chronolith_federate_bytes_total",
        "Bytes of federation responses, before compression.",
        |federate| federate.bytes.as_f64(),
    ),
];

pub(crate) static BACKFILL: &[Metric<StreamMetrics>] = &[
    Metric::counter(
        "chronolith_rule_backfill_responses_aborted_total",
        "Responses with the progress of a backfill that the client left.",
        |backfill| backfill.aborted.as_f64(),
    ),
    Metric::counter(
        "chronolith_rule_backfill_response_bytes_total",
        "Bytes of responses with the progress of backfills.",
        |backfill| backfill.bytes.as_f64(),
    ),
];
