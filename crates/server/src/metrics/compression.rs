//! Metrics of compressed responses.

use chronolith_base::thread;
use chronolith_service::counter::Counter;
use chronolith_service::metrics::definition::Metric;

#[derive(Default)]
pub(crate) struct CompressionMetrics {
    pub(crate) input_bytes: Counter,
    pub(crate) output_bytes: Counter,
    pub(crate) cpu_ns: Counter,
}

impl CompressionMetrics {
    /// Runs `compress` and counts its CPU time and its bytes.
    pub(crate) fn measure<T>(
        &self,
        input_bytes: usize,
        compress: impl FnOnce() -> T,
        output_bytes: impl FnOnce(&T) -> usize,
    ) -> T {
        let started_ns = thread::cpu_time_ns();
        let packed = compress();
        self.cpu_ns.add(thread::cpu_time_ns().saturating_sub(started_ns));
        self.input_bytes.add(input_bytes as u64);
        self.output_bytes.add(output_bytes(&packed) as u64);
        packed
    }
}

pub(crate) static COMPRESSION: &[Metric<CompressionMetrics>] = &[
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
