//! Settings of a log in a directory.

use std::path::PathBuf;
use std::time::Duration;

use chronolith_format::replicated_log::directory::VALUE_BYTES_MAX;

use crate::error::LogError;

/// Partitions of a directory: each one has an open file.
const PARTITION_COUNT_MAX: u32 = 1024;

/// Settings of a log in a directory.
#[derive(Debug, Clone)]
pub struct DirOptions {
    /// Directory, made if it does not exist.
    pub dir: PathBuf,
    /// Number of partitions, 1 to 1024. An existing directory must have as many.
    pub partition_count: u32,
    /// Bytes of a segment before the next one begins.
    pub segment_bytes: u64,
    /// Bytes of all segments; appends beyond it are refused until [`DirLog::trim`] removes some.
    pub log_bytes_max: u64,
    /// Bytes of a record.
    pub record_bytes_max: usize,
    /// Bytes of records that wait for their acknowledgement; one partition has at most half of them.
    pub in_flight_bytes_max: u64,
    /// Longest wait for an acknowledgement.
    pub ack_timeout: Duration,
}

impl DirOptions {
    /// Returns the default settings of a log in `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, partition_count: u32) -> DirOptions {
        DirOptions {
            dir: dir.into(),
            partition_count,
            segment_bytes: 64 << 20,
            log_bytes_max: 64 << 30,
            record_bytes_max: 1 << 20,
            in_flight_bytes_max: 64 << 20,
            ack_timeout: Duration::from_secs(10),
        }
    }

    /// Checks that a log can work with these settings.
    ///
    /// # Errors
    /// [`LogError::Setting`].
    pub(super) fn check(&self) -> Result<(), LogError> {
        let wrong = |setting, expected: &str, found: String| {
            Err(LogError::Setting { setting, expected: expected.to_owned(), found })
        };
        if !(1..=PARTITION_COUNT_MAX).contains(&self.partition_count) {
            return wrong("partition_count", "1 to 1024", self.partition_count.to_string());
        }
        if !(1..=VALUE_BYTES_MAX).contains(&self.record_bytes_max) {
            return wrong("record_bytes_max", "1 to 67108864 bytes", self.record_bytes_max.to_string());
        }
        if self.in_flight_bytes_max < self.record_bytes_max as u64 {
            return wrong("in_flight_bytes_max", "at least a record", self.in_flight_bytes_max.to_string());
        }
        Ok(())
    }
}
