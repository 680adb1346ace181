//! Counters of a log, for its metrics.
//!
//! Not here: names of metrics (`server`).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::LogError;
use crate::position::Record;

/// Counters since a log was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogStats {
    /// Records that were acknowledged.
    pub appended_records: u64,
    /// Bytes of the records that were acknowledged.
    pub appended_bytes: u64,
    /// Appends that ended without the record in the log.
    pub refused_records: u64,
    /// Appends whose record may be in the log.
    pub possibly_written_records: u64,
    /// Records that were read.
    pub read_records: u64,
    /// Bytes of the records that were read.
    pub read_bytes: u64,
    /// Reads that ended with an error.
    pub failed_reads: u64,
    /// Bytes of records that wait for their acknowledgement.
    pub in_flight_bytes: u64,
    /// Limit of the bytes in flight.
    pub in_flight_bytes_max: u64,
    /// Bytes in memory for reads: records that were fetched and not returned yet.
    pub read_buffer_bytes: u64,
    /// Bytes on the local disk; 0 for logs elsewhere.
    pub disk_bytes: u64,
}

/// Counters that appends and reads add to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    appended_records: AtomicU64,
    appended_bytes: AtomicU64,
    refused_records: AtomicU64,
    possibly_written_records: AtomicU64,
    read_records: AtomicU64,
    read_bytes: AtomicU64,
    failed_reads: AtomicU64,
}

impl Counters {
    /// Counts the outcome of an append of `bytes`.
    pub(crate) fn note_append<T>(&self, bytes: usize, outcome: &Result<T, LogError>) {
        match outcome {
            Ok(_) => {
                self.appended_records.fetch_add(1, Ordering::Relaxed);
                self.appended_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(error) if error.may_be_written() => {
                self.possibly_written_records.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                self.refused_records.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Counts the outcome of a read.
    pub(crate) fn note_read(&self, outcome: &Result<Vec<Record>, LogError>) {
        match outcome {
            Ok(records) => {
                self.read_records.fetch_add(records.len() as u64, Ordering::Relaxed);
                let bytes: u64 = records.iter().map(|record| record.value.len() as u64).sum();
                self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(_) => {
                self.failed_reads.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the counters, without bytes in flight and on disk.
    pub(crate) fn stats(&self) -> LogStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            appended_records: load(&self.appended_records),
            appended_bytes: load(&self.appended_bytes),
            refused_records: load(&self.refused_records),
            possibly_written_records: load(&self.possibly_written_records),
            read_records: load(&self.read_records),
            read_bytes: load(&self.read_bytes),
            failed_reads: load(&self.failed_reads),
            ..LogStats::default()
        }
    }
}
