//! Tenants: ids, limits and storage policies.
//! Invariants: a tenant id is safe as a directory name, and no name of a store that no client names.
//! Not here: authentication, stores (`store`).

use std::fmt;
use std::sync::Arc;

/// Bytes of the longest tenant id.
pub const TENANT_ID_BYTES_MAX: usize = 150;

/// Prefix that no id has: of names that clients cannot give.
pub(crate) const RESERVED_PREFIX: &str = "__";

/// A validated tenant id; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Arc<str>);

/// Reason why a tenant id is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TenantIdError {
    /// Empty id.
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
    /// [`TenantIdError`].
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
        if id == "." || id == ".." || id.starts_with(RESERVED_PREFIX) {
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

/// Weight of a tenant whose limits set none.
pub const WEIGHT_DEFAULT: u32 = 10;
/// Largest weight of a tenant.
pub const WEIGHT_MAX: u32 = 100;

/// Policy for a second value of a series and timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DuplicatePolicy {
    /// The first value stays; a different one is rejected (default: remote write, OTLP).
    #[default]
    KeepFirst,
    /// The last value replaces earlier ones (line protocol, Graphite).
    LastWins,
}

/// Policy for samples of a series that a limit of series refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverflowPolicy {
    /// The samples are rejected.
    #[default]
    Reject,
    /// The samples are added to the overflow series of their metric.
    Fold,
}

/// Encoding of float samples in new blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockEncoding {
    /// Smaller and faster to read; only Chronolith reads it.
    #[default]
    Dense,
    /// XOR, so that Prometheus, Thanos and Mimir read the block.
    Prometheus,
}

/// Limits of the store of a retention policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatabaseLimits {
    /// Series in the head; 0 = as many as the tenant may have.
    pub series_max: usize,
    /// Values of one tag of a measurement in the head; 0 = no limit.
    pub tag_values_max: usize,
    /// Width of the aligned shard groups within which a field has one type, in milliseconds; 0 = the whole
    /// store is one.
    pub shard_group_ms: i64,
}

/// Limits of the writes of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestionLimits {
    /// Samples per second, native histograms included, that requests may write; 0 = no limit.
    pub rate: u64,
    /// Burst of samples above the rate; 0 = ten seconds of the rate.
    pub burst: u64,
    /// Bytes of unpacked requests per second; 0 = no limit.
    pub bytes_rate: u64,
    /// Burst of bytes above the rate; 0 = ten seconds of the rate.
    pub bytes_burst: u64,
    /// Series of one metric in the head; 0 = no limit.
    pub metric_series_max: usize,
    /// Values of one label other than the name in the head; 0 = no limit.
    pub label_values_max: usize,
    /// Series beyond the limit of the tenant or of a metric.
    pub overflow: OverflowPolicy,
    /// Series that are folded at the same time; samples of further ones are rejected.
    pub overflow_series_max: usize,
    /// Bytes of the native histograms of folded series, and of their sums, from which on series get no first
    /// and no larger histogram; from twice as many on, none.
    pub overflow_histogram_bytes_max: usize,
}

impl Default for IngestionLimits {
    fn default() -> Self {
        IngestionLimits {
            rate: 0,
            burst: 0,
            bytes_rate: 0,
            bytes_burst: 0,
            metric_series_max: 0,
            label_values_max: 0,
            overflow: OverflowPolicy::Reject,
            overflow_series_max: 1_000_000,
            overflow_histogram_bytes_max: 64 << 20,
        }
    }
}

/// Limits of what one query reads from blocks in object storage; 0 = no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FetchLimits {
    /// Bytes of the ranges of blocks that its selections read.
    pub bytes_max: u64,
    /// Series that its selections return, each once per selection.
    pub series_max: u64,
    /// Chunks of these series in each block.
    pub chunks_max: u64,
}

/// Limits of what one query selects, wherever it is stored; 0 = no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SelectionLimits {
    /// Series that its selections return, each once per selection.
    pub series_max: u64,
    /// Samples that it reads of them.
    pub samples_max: u64,
    /// Width of the time range of one selection in milliseconds.
    pub range_ms: i64,
}

/// Limits of one request of Graphite's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphiteLimits {
    /// Series that its targets fetch.
    pub series_max: u64,
    /// Points that it fetches or computes.
    pub points_max: u64,
    /// Points per request above which coarser archives are read, where a path has some.
    pub points_soft: u64,
    /// Targets, including targets of templates and of functions that evaluate other targets.
    pub targets_max: u64,
    /// Nodes and series that a search returns.
    pub nodes_max: u64,
    /// Series, keys or values that a request for tags returns.
    pub tag_results_max: u64,
}

impl Default for GraphiteLimits {
    fn default() -> Self {
        GraphiteLimits {
            series_max: 250_000,
            points_max: 200_000_000,
            points_soft: 20_000_000,
            targets_max: 20_000,
            nodes_max: 250_000,
            tag_results_max: 250_000,
        }
    }
}

/// Limits of the events and meta tag rules of one tenant. Bytes are bytes of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnotationLimits {
    /// Bytes of one event; at most [`ANNOTATION_FRAME_BYTES_MAX`].
    pub event_bytes_max: usize,
    /// Events above which those with the earliest times leave.
    pub event_count_max: usize,
    /// Bytes of all events above which those with the earliest times leave.
    pub all_events_bytes_max: usize,
    /// Meta tag rules.
    pub rule_count_max: usize,
    /// Bytes of all rules; at most [`ANNOTATION_FRAME_BYTES_MAX`].
    pub all_rules_bytes_max: usize,
}

/// Bytes of one event, and of all rules of a tenant, that a limit may allow: each is one frame of a file.
pub const ANNOTATION_FRAME_BYTES_MAX: usize = 8 << 20;
/// Meta tag rules of a tenant that a limit may allow: a request parses all of them.
pub const META_TAG_RULES_MAX: usize = 100_000;

impl AnnotationLimits {
    /// The defaults.
    pub const DEFAULT: AnnotationLimits = AnnotationLimits {
        event_bytes_max: 64 << 10,
        event_count_max: 100_000,
        all_events_bytes_max: 64 << 20,
        rule_count_max: 1000,
        all_rules_bytes_max: 1 << 20,
    };
}

impl Default for AnnotationLimits {
    fn default() -> Self {
        AnnotationLimits::DEFAULT
    }
}

/// Limits of the rules of one tenant, which are queries of the server itself. 0 = no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleLimits {
    /// Groups of all files and namespaces together.
    pub groups_max: usize,
    /// Rules of one group.
    pub group_rules_max: usize,
    /// Series in the result of one rule.
    pub series_max: usize,
}

impl Default for RuleLimits {
    fn default() -> Self {
        RuleLimits { groups_max: 2000, group_rules_max: 2000, series_max: 200_000 }
    }
}

/// Limits of the queries of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryLimits {
    /// Concurrent queries; 0 = the quota of a tenant, which the server chooses.
    pub concurrency_max: usize,
    /// Memory of all queries together; 0 = the quota of a tenant, which the server chooses.
    pub memory_bytes_max: u64,
    /// Age from which queries see no samples, in milliseconds; 0 = they see all.
    pub lookback_ms: i64,
    /// Limits of what one query selects.
    pub selection: SelectionLimits,
    /// Limits of one query that reads blocks in object storage.
    pub fetch: FetchLimits,
    /// Limits of one request of Graphite's API.
    pub graphite: GraphiteLimits,
    /// Limits of rules.
    pub rules: RuleLimits,
}

/// The smaller of two limits of which 0 is none.
fn smaller<T: Ord + Default>(a: T, b: T) -> T {
    let none = T::default();
    if a == none || (b != none && b < a) { b } else { a }
}

impl QueryLimits {
    /// The smaller of each limit, for a read of two tenants.
    #[must_use]
    pub fn smaller(&self, other: &QueryLimits) -> QueryLimits {
        QueryLimits {
            concurrency_max: smaller(self.concurrency_max, other.concurrency_max),
            memory_bytes_max: smaller(self.memory_bytes_max, other.memory_bytes_max),
            lookback_ms: smaller(self.lookback_ms, other.lookback_ms),
            selection: SelectionLimits {
                series_max: smaller(self.selection.series_max, other.selection.series_max),
                samples_max: smaller(self.selection.samples_max, other.selection.samples_max),
                range_ms: smaller(self.selection.range_ms, other.selection.range_ms),
            },
            fetch: FetchLimits {
                bytes_max: smaller(self.fetch.bytes_max, other.fetch.bytes_max),
                series_max: smaller(self.fetch.series_max, other.fetch.series_max),
                chunks_max: smaller(self.fetch.chunks_max, other.fetch.chunks_max),
            },
            graphite: GraphiteLimits {
                series_max: smaller(self.graphite.series_max, other.graphite.series_max),
                points_max: smaller(self.graphite.points_max, other.graphite.points_max),
                points_soft: smaller(self.graphite.points_soft, other.graphite.points_soft),
                targets_max: smaller(self.graphite.targets_max, other.graphite.targets_max),
                nodes_max: smaller(self.graphite.nodes_max, other.graphite.nodes_max),
                tag_results_max: smaller(self.graphite.tag_results_max, other.graphite.tag_results_max),
            },
            rules: RuleLimits {
                groups_max: smaller(self.rules.groups_max, other.rules.groups_max),
                group_rules_max: smaller(self.rules.group_rules_max, other.rules.group_rules_max),
                series_max: smaller(self.rules.series_max, other.rules.series_max),
            },
        }
    }
}

/// Limits and policies of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLimits {
    /// Series in the head; further ones are rejected.
    pub series_max: usize,
    /// Further limits of the stores of retention policies.
    pub databases: DatabaseLimits,
    /// Labels of one series, the name included.
    pub label_count_max: usize,
    /// Bytes of a label name.
    pub label_name_bytes_max: usize,
    /// Bytes of a label value.
    pub label_value_bytes_max: usize,
    /// Limit of a sample's time ahead of the server's clock, in milliseconds; 0 = no limit.
    pub future_ms_max: i64,
    /// Age from which samples are rejected and blocks removed; 0 = keep all.
    pub retention_ms: i64,
    /// Age from which blocks are removed from the bucket; 0 = keep all.
    pub bucket_retention_ms: i64,
    /// Out-of-order window: limit of a sample's age relative to the newest one of its tenant, in
    /// milliseconds; 0 = up to the retention.
    pub out_of_order_ms: i64,
    /// Policy for a second value of a series and timestamp.
    pub duplicates: DuplicatePolicy,
    /// Encoding of float samples in new blocks.
    pub block_encoding: BlockEncoding,
    /// Part in permits and memory relative to other tenants, from 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Limits of writes.
    pub ingestion: IngestionLimits,
    /// Limits of queries.
    pub queries: QueryLimits,
    /// Limits of events and meta tag rules.
    pub annotations: AnnotationLimits,
}

impl Default for TenantLimits {
    fn default() -> Self {
        TenantLimits {
            series_max: 50_000_000,
            databases: DatabaseLimits::default(),
            label_count_max: 128,
            label_name_bytes_max: 1024,
            label_value_bytes_max: 16 * 1024,
            future_ms_max: 10 * 60 * 1000,
            retention_ms: 0,
            bucket_retention_ms: 0,
            out_of_order_ms: 0,
            duplicates: DuplicatePolicy::KeepFirst,
            block_encoding: BlockEncoding::Dense,
            weight: WEIGHT_DEFAULT,
            ingestion: IngestionLimits::default(),
            queries: QueryLimits::default(),
            annotations: AnnotationLimits::default(),
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
