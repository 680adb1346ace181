//! Metrics of writes.

use chronolith_model::{ExemplarReject, Reject, WriteOutcome};
use chronolith_tsdb::WriteError;

use super::definition::Metric;
use crate::counter::{Counter, Seconds};

/// Counters of writes.
#[derive(Default)]
pub struct WriteMetrics {
    samples_accepted: Counter,
    samples_repeated: Counter,
    samples_rejected: [Counter; Reject::COUNT],
    series_created: Counter,
    exemplars_accepted: Counter,
    exemplars_rejected: [Counter; ExemplarReject::ALL.len()],
    /// Texts of metadata that are not UTF-8.
    pub metadata_rejected: Counter,
    /// Samples with a start time.
    pub start_times: Counter,
    /// Bytes as sent.
    pub bytes_compressed: Counter,
    /// Bytes unpacked.
    pub bytes_decompressed: Counter,
    /// Time to unpack and decode.
    pub decode: Seconds,
    /// Time to append and to be durable.
    pub append: Seconds,
    /// Batches that the store refused.
    pub failures: Counter,
    /// Requests that a limit refused, by [`REFUSED_REASONS`].
    requests_refused: [Counter; REFUSED_REASONS.len()],
}

/// Reasons for which a limit refuses a whole write request.
const REFUSED_REASONS: [&str; 7] = [
    "head_memory",
    "head_memory_never_fits",
    "ingestion_rate",
    "ingestion_burst",
    "head_memory_tenant_share",
    "ingestion_bytes_rate",
    "ingestion_bytes_burst",
];

/// Declarations.
pub static WRITE: &[Metric<WriteMetrics>] = &[
    Metric::counter(
        "chronolith_write_samples_accepted_total",
        "Samples stored, repeats included.",
        |write| write.samples_accepted.as_f64(),
    ),
    Metric::counter(
        "chronolith_write_samples_repeated_total",
        "Samples that were stored already.",
        |write| write.samples_repeated.as_f64(),
    ),
    Metric::counters(
        "chronolith_write_samples_rejected_total",
        &["reason"],
        "Samples refused, by reason.",
        |write, samples| {
            for (kind, count) in Reject::ALL.iter().zip(&write.samples_rejected) {
                samples.push(&[kind.reason()], count.as_f64());
            }
        },
    ),
    Metric::counters(
        "chronolith_write_requests_refused_total",
        &["reason"],
        "Write requests that a limit refused as a whole, by reason.",
        |write, samples| {
            for (reason, count) in REFUSED_REASONS.iter().zip(&write.requests_refused) {
                samples.push(&[reason], count.as_f64());
            }
        },
    ),
    Metric::counter("chronolith_write_series_created_total", "Series seen for the first time.", |write| {
        write.series_created.as_f64()
    }),
    Metric::counter(
        "chronolith_write_exemplars_accepted_total",
        "Exemplars kept, repeats included.",
        |write| write.exemplars_accepted.as_f64(),
    ),
    Metric::counters(
        "chronolith_write_exemplars_rejected_total",
        &["reason"],
        "Exemplars not stored, by reason; the samples of their requests are stored.",
        |write, samples| {
            for (kind, count) in ExemplarReject::ALL.iter().zip(&write.exemplars_rejected) {
                samples.push(&[kind.reason()], count.as_f64());
            }
        },
    ),
    Metric::counter(
        "chronolith_write_metadata_rejected_total",
        "Names, help texts and units that are not UTF-8; the samples of their requests are stored.",
        |write| write.metadata_rejected.as_f64(),
    ),
    Metric::counter("chronolith_write_start_times_total", "Samples that came with a start time.", |write| {
        write.start_times.as_f64()
    }),
    Metric::counter("chronolith_write_compressed_bytes_total", "Bytes of write requests as sent.", |write| {
        write.bytes_compressed.as_f64()
    }),
    Metric::counter(
        "chronolith_write_decompressed_bytes_total",
        "Bytes of write requests unpacked.",
        |write| write.bytes_decompressed.as_f64(),
    ),
    Metric::counter("chronolith_write_failures_total", "Batches refused by the store.", |write| {
        write.failures.as_f64()
    }),
    Metric::histograms(
        "chronolith_write_decode_duration_seconds",
        &[],
        "Time to unpack and decode a batch.",
        |write, samples| samples.push_histogram(&[], &write.decode),
    ),
    Metric::histograms(
        "chronolith_write_append_duration_seconds",
        &[],
        "Time to append a batch and make it durable.",
        |write, samples| samples.push_histogram(&[], &write.append),
    ),
];

impl WriteMetrics {
    /// Counts a request that a limit refused; returns the reason.
    pub fn count_refused(&self, error: &WriteError) -> Option<&'static str> {
        let idx = match error {
            WriteError::HeadFull { .. } => 0,
            WriteError::NeverFits { .. } => 1,
            WriteError::RateLimited { .. } => 2,
            WriteError::BurstExceeded { .. } => 3,
            WriteError::TenantFull { .. } | WriteError::NeverFitsShare { .. } => 4,
            WriteError::BytesRateLimited { .. } => 5,
            WriteError::BytesBurstExceeded { .. } => 6,
            _ => return None,
        };
        self.requests_refused[idx].add(1);
        Some(REFUSED_REASONS[idx])
    }

    /// Counts a durable write.
    pub fn count(&self, outcome: &WriteOutcome) {
        self.samples_accepted.add(outcome.accepted_count);
        self.samples_repeated.add(outcome.repeated_count);
        self.series_created.add(outcome.series_created_count);
        self.exemplars_accepted.add(outcome.exemplars_accepted);
        for (counter, kind) in self.exemplars_rejected.iter().zip(ExemplarReject::ALL) {
            counter.add(outcome.exemplars_rejected.of(kind));
        }
        for (counter, count) in self.samples_rejected.iter().zip(outcome.rejected) {
            counter.add(count);
        }
    }

    /// Samples refused for any reason.
    pub fn samples_rejected_count(&self) -> u64 {
        self.samples_rejected.iter().map(Counter::get).sum()
    }
}
