//! Who owns data, and what they may use.
//! Holds: a tenant id is safe as a directory name. Not here: authentication.

use std::fmt;
use std::sync::Arc;

/// Longest tenant id in bytes.
pub const TENANT_ID_BYTES_MAX: usize = 150;

/// A validated tenant id; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

/// Why a tenant id is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TenantIdError {
    /// Nothing given.
    #[error("tenant id is empty")]
    Empty,
    /// Too many bytes.
    #[error("tenant id is {found} bytes long, at most {TENANT_ID_BYTES_MAX} are allowed")]
    TooLong {
        /// Bytes given.
        found: usize,
    },
    /// A character that is not allowed.
    #[error("tenant id has the character {found:?}; letters, digits and !-_.*'() are allowed")]
    Character {
        /// The first such character.
        found: char,
    },
    /// A name that means a directory.
    #[error("tenant id must not be \".\" or \"..\" or start with \"__\"")]
    Reserved,
}

impl TenantId {
    /// The tenant of a server without multi-tenancy.
    #[must_use]
    pub fn anonymous() -> TenantId {
        TenantId(Arc::from("anonymous"))
    }

    /// Checks length, characters and reserved names.
    ///
    /// # Errors
    /// [`TenantIdError`] says what is wrong.
    pub fn new(id: &str) -> Result<TenantId, TenantIdError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "!-_.*'()".contains(c);
        if id.is_empty() {
            return Err(TenantIdError::Empty);
        }
        if id.len() > TENANT_ID_BYTES_MAX {
            return Err(TenantIdError::TooLong { found: id.len() });
        }
        if let Some(found) = id.chars().find(|&c| !allowed(c)) {
            return Err(TenantIdError::Character { found });
        }
        if id == "." || id == ".." || id.starts_with("__") {
            return Err(TenantIdError::Reserved);
        }
        Ok(TenantId(Arc::from(id)))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What happens to a second value for a series and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DuplicatePolicy {
    /// The value that was written first stays; a different one is rejected (default: remote write, OTLP).
    #[default]
    KeepFirst,
    /// The value that was written last replaces the earlier one (line protocol, Graphite).
    LastWins,
}

/// How float samples of new blocks are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockEncoding {
    /// Smaller and faster to read; only Chronolith reads it.
    #[default]
    Dense,
    /// XOR, so that Prometheus, Thanos and Mimir read the block as it lies.
    Prometheus,
}

/// What one tenant may write, and its share of the permits and memory for queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLimits {
    /// Series in the head; further ones are rejected.
    pub series_max: usize,
    /// Labels of one series, the name included.
    pub label_count_max: usize,
    /// Bytes of a label name.
    pub label_name_bytes_max: usize,
    /// Bytes of a label value.
    pub label_value_bytes_max: usize,
    /// How far a sample may lie ahead of the server's clock; 0 = no limit.
    pub future_ms_max: i64,
    /// Age from which samples are rejected and blocks removed; 0 = keep all.
    pub retention_ms: i64,
    /// How far a sample may lie behind the newest one of its tenant; 0 = as far as the retention allows.
    pub out_of_order_ms: i64,
    /// What happens to a second value for a series and time.
    pub duplicates: DuplicatePolicy,
    /// How float samples of new blocks are encoded.
    pub block_encoding: BlockEncoding,
    /// Samples per second, native histograms included, that requests may bring; 0 = no limit.
    pub ingestion_rate: u64,
    /// Samples that requests may bring at once; 0 = ten seconds of the rate.
    pub ingestion_burst: u64,
    /// Queries of this tenant at once; 0 = the share of a tenant, which the server chooses.
    pub query_concurrency_max: usize,
    /// Memory of all queries of this tenant together; 0 = the share of a tenant, which the server chooses.
    pub query_memory_bytes_max: u64,
}

impl Default for TenantLimits {
    fn default() -> Self {
        TenantLimits {
            series_max: 50_000_000,
            label_count_max: 128,
            label_name_bytes_max: 1024,
            label_value_bytes_max: 16 * 1024,
            future_ms_max: 10 * 60 * 1000,
            retention_ms: 0,
            out_of_order_ms: 0,
            duplicates: DuplicatePolicy::KeepFirst,
            block_encoding: BlockEncoding::Dense,
            ingestion_rate: 0,
            ingestion_burst: 0,
            query_concurrency_max: 0,
            query_memory_bytes_max: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_could_leave_the_directory_are_refused() {
        for bad in ["", ".", "..", "a/b", "../x", "a\0", "a b", "ä", "__x", "a\\b"] {
            assert!(TenantId::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "team-1_x.y", "1", "(a)!*'", "..."] {
            assert_eq!(TenantId::new(good).unwrap().as_str(), good);
        }
        assert!(TenantId::new(&"a".repeat(TENANT_ID_BYTES_MAX + 1)).is_err());
    }
}
