//! Options of a process of a cluster: its roles, the log, the gateway, the owner.
//!
//! Invariants: a server of its own has no log; other roles have one.
//! Not here: names of settings (the binary `chronolith`), options of the bucket (`tsdb`).

mod address;
mod role;
mod security;

use std::ops::Range;
use std::time::Duration;

use chronolith_model::partition::{PARTITIONS_MAX, partition_series_max, tenant_partition_count};
use chronolith_model::{DatabaseLimits, TenantLimits};

pub use self::address::LogAddress;
pub use self::role::{Role, Roles};
pub use self::security::{LogLogin, LogSecurity, LogTls, SaslMechanism};

/// Series of `series-limit` per partition of a tenant, unless it is set: an owner of this many series starts
/// within minutes without its directory.
const PARTITION_SERIES: u64 = 10_000_000;
/// Lag of an owner that is ready, unless it is set.
pub(crate) const READY_LAG: Duration = Duration::from_secs(2);
/// Age from which the role store compacts blocks, unless it is set: owners publish a window an hour after its
/// end, and may lag.
const COMPACTION_DELAY: Duration = Duration::from_secs(3 * 3600);

/// Options of a process.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Work of the process.
    pub roles: Roles,
    /// The log; `None`: the process is a server of its own.
    pub log: Option<LogOptions>,
    /// Division of tenants among partitions, and form of records.
    pub gateway: GatewayOptions,
    /// The partition of an owner.
    pub owner: PartitionOptions,
    /// Maintenance of the bucket.
    pub maintenance: MaintenanceOptions,
}

/// Maintenance of the bucket by the role `store`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaintenanceOptions {
    /// Age of the newest sample of a block from which it is compacted.
    pub compaction_delay: Duration,
}

impl Default for MaintenanceOptions {
    fn default() -> MaintenanceOptions {
        MaintenanceOptions { compaction_delay: COMPACTION_DELAY }
    }
}

/// The partition of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionOptions {
    /// Number; `None` if none is named.
    pub partition: Option<PartitionChoice>,
    /// Lag below which recent data is complete enough for queries.
    pub ready_lag: Duration,
    /// Offsets whose loss the operator has accepted.
    pub accepted_gap: Option<Range<u64>>,
}

impl Default for PartitionOptions {
    fn default() -> PartitionOptions {
        PartitionOptions { partition: None, ready_lag: READY_LAG, accepted_gap: None }
    }
}

/// Choice of the partition of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionChoice {
    /// The number at the end of the host name, as a StatefulSet of Kubernetes has it.
    Auto,
    /// This one.
    Number(u32),
}

impl PartitionChoice {
    /// Returns the number of the partition on a machine called `host_name`; `None` if it has to be the number
    /// at the end of that name, and there is none below [`PARTITIONS_MAX`].
    #[must_use]
    pub fn number(self, host_name: &str) -> Option<u32> {
        match self {
            PartitionChoice::Number(number) => Some(number),
            PartitionChoice::Auto => {
                // The rest of a fully qualified name is the name of a domain.
                let host = host_name.split('.').next().unwrap_or("").trim();
                let prefix = host.trim_end_matches(|c: char| c.is_ascii_digit());
                let digits = host.strip_prefix(prefix).unwrap_or("");
                digits.parse().ok().filter(|number| (*number as usize) < PARTITIONS_MAX)
            }
        }
    }
}

/// Division of tenants among partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayOptions {
    /// Partitions of a tenant at least.
    pub tenant_partitions_min: usize,
    /// Series of the `series-limit` of a tenant per partition.
    pub partition_series: u64,
    /// Records are packed by LZ4.
    pub packs_records: bool,
}

impl Default for GatewayOptions {
    fn default() -> GatewayOptions {
        GatewayOptions { tenant_partitions_min: 1, partition_series: PARTITION_SERIES, packs_records: true }
    }
}

impl GatewayOptions {
    /// Returns the number of partitions of a tenant with this `series-limit`, of `accepting_count` ones.
    #[must_use]
    pub fn tenant_partition_count(&self, series_max: usize, accepting_count: usize) -> usize {
        tenant_partition_count(
            series_max as u64,
            self.partition_series,
            self.tenant_partitions_min,
            accepting_count,
        )
    }

    /// Returns the limits of a tenant at the owner of one of its partitions: limits of series are divided.
    #[must_use]
    pub fn partition_limits(&self, of_tenant: TenantLimits, accepting_count: usize) -> TenantLimits {
        let count = self.tenant_partition_count(of_tenant.series_max, accepting_count);
        let series_max = partition_series_max(of_tenant.series_max, count);
        let of_database = partition_series_max(of_tenant.databases.series_max, count);
        let databases = DatabaseLimits { series_max: of_database, ..of_tenant.databases };
        TenantLimits { series_max, databases, ..of_tenant }
    }
}

/// Codec of the batches of a log of Kafka's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Batches as they are.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// A log to create if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewTopic {
    /// At least 1.
    pub partition_count: u32,
    /// Copies of a partition, at least 1; a directory has one.
    pub replication_factor: u16,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Location.
    pub address: LogAddress,
    /// Creates the log if it is missing.
    pub new_topic: Option<NewTopic>,
    /// Longest time from an append to its acknowledgement.
    pub ack_timeout: Duration,
    /// Longest wait for more records of a batch, of Kafka's protocol alone.
    pub linger: Duration,
    /// LZ4 packs records, whatever the log; zstd is the codec of batches, of Kafka's protocol alone.
    pub compression: Compression,
    /// Encryption and login, of Kafka's protocol alone.
    pub security: LogSecurity,
}

impl LogOptions {
    /// Returns the default options for an address.
    #[must_use]
    pub fn new(address: LogAddress) -> LogOptions {
        LogOptions {
            address,
            new_topic: None,
            ack_timeout: Duration::from_secs(10),
            linger: Duration::from_millis(5),
            compression: Compression::Lz4,
            security: LogSecurity::default(),
        }
    }
}

#[cfg(test)]
mod tests;
