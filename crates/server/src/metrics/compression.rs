//! Metrics of compressed responses.

use super::counter::Counter;
use super::definition::Metric;

#[derive(Default)]
pub(crate) struct CompressionMetrics {
    pub(crate) input_bytes: Counter,
    pub(crate) output_bytes: Counter,
    pub(crate) cpu_ns: Counter,
}

pub(super) static COMPRESSION: &[Metric<CompressionMetrics>] = &[
    Metric::counter(
        "chronolith_http_compression_input_bytes_total",
        "Bytes of responses before their compression.",
        |compression| compression.input_bytes.as_f64(),
    ),
    Metric::counter(
        "chronolith_http_compression_output_bytes_total",
        "Bytes of responses after their compression.",
        |compression| compression.output_bytes.as_f64(),
    ),
    Metric::counter(
        "chronolith_http_compression_cpu_seconds_total",
        "CPU time of the compression of responses.",
        |compression| compression.cpu_ns.as_f64() / 1e9,
    ),
];
