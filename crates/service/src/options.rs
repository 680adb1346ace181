//! Options of the service with their defaults. Options of the store are in `tsdb`.
//!
//! Not here: names of flags and file keys, parsing (the binary `chronolith`); sockets and pages (`server`).

mod address_ranges;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use chronolith_cluster::options::ClusterOptions;
use chronolith_model::TenantId;
use chronolith_rules::group::GroupDefaults;
use chronolith_tsdb::{HeadMemory, HeadMemoryOptions, TsdbOptions};

pub use self::address_ranges::AddressRanges;
use crate::access::control::AccessOptions;
use crate::audit::AuditOptions;

/// Options of the service.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// True if there is more than one tenant; otherwise all requests belong to `anonymous`.
    pub multitenancy: bool,
    /// True if the store of a data directory is read alone.
    pub is_read_only: bool,
    /// Roles and the replicated log.
    pub cluster: ClusterOptions,
    /// Access control.
    pub access: AccessOptions,
    /// The audit log.
    pub audit: AuditOptions,
    /// The store.
    pub tsdb: TsdbOptions,
    /// Queries.
    pub query: QueryOptions,
    /// Remote read.
    pub remote_read: RemoteReadOptions,
    /// Writes.
    pub write: WriteOptions,
    /// The InfluxDB API.
    pub influx: InfluxOptions,
    /// Recording and alerting rules.
    pub rules: RuleOptions,
    /// Tenants with metrics of their own; the others are summed.
    pub tenant_metrics_max: usize,
    /// Experimental parts that are on.
    pub features: Features,
}

impl ServiceOptions {
    /// Defaults over `data_dir`.
    #[must_use]
    pub fn new(data_dir: PathBuf) -> ServiceOptions {
        ServiceOptions {
            multitenancy: false,
            is_read_only: false,
            cluster: ClusterOptions::default(),
            access: AccessOptions::default(),
            audit: AuditOptions::default(),
            tsdb: TsdbOptions {
                head_memory: HeadMemoryOptions { limit: HeadMemory::Percent(50), tenant_percent: 25 },
                ..TsdbOptions::new(data_dir)
            },
            query: QueryOptions::default(),
            remote_read: RemoteReadOptions::default(),
            write: WriteOptions::default(),
            influx: InfluxOptions::default(),
            rules: RuleOptions::default(),
            tenant_metrics_max: 100,
            features: Features::default(),
        }
    }

    /// Returns the options of the storage. Without tenants of requests, databases share the head as one user.
    #[must_use]
    pub fn tsdb_options(&self) -> TsdbOptions {
        let mut options = self.tsdb.clone();
        if !self.multitenancy {
            options.head_memory.tenant_percent = 100;
        }
        options
    }
}

/// Limits of queries.
#[derive(Debug, Clone)]
pub struct QueryOptions {
    /// Longest run; `timeout` of a request may only shorten it.
    pub timeout_ms: u64,
    /// Queries that run at once.
    pub concurrency: usize,
    /// Samples one query may hold at once.
    pub samples_max: u64,
    /// Memory of one query, its response included.
    pub memory_bytes_max: u64,
    /// Memory of all queries together.
    pub memory_total_bytes_max: u64,
    /// Lookback of instant selectors.
    pub lookback_ms: i64,
    /// Queries that take longer are written to the log with their plan; 0 = none.
    pub log_slow_ms: u64,
    /// File of the query log.
    pub log_file: Option<PathBuf>,
    /// Samples, in bytes, that one query may read by estimate before it starts.
    pub read_bytes_max: u64,
    /// Memory of results of range queries that are kept; 0 = none.
    pub cache_bytes_max: u64,
    /// Start and end of a range query are rounded down to multiples of its step.
    pub align_steps: bool,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            timeout_ms: 120_000,
            concurrency: 20,
            samples_max: 50_000_000,
            memory_bytes_max: 1 << 30,
            memory_total_bytes_max: 2 << 30,
            lookback_ms: 300_000,
            log_slow_ms: 0,
            log_file: None,
            read_bytes_max: 64 << 30,
            cache_bytes_max: 64 << 20,
            align_steps: false,
        }
    }
}

/// Limits of remote read; defaults are Prometheus's.
#[derive(Debug, Clone)]
pub struct RemoteReadOptions {
    /// Samples of one query where the answer is one message; 0 = no limit but memory.
    pub samples_max: u64,
    /// Requests that run at once.
    pub concurrency: usize,
    /// Bytes of a frame from which on the next chunk of a series goes to the next frame.
    pub frame_bytes_max: usize,
}

impl Default for RemoteReadOptions {
    fn default() -> Self {
        RemoteReadOptions { samples_max: 50_000_000, concurrency: 10, frame_bytes_max: 1 << 20 }
    }
}

/// Limits of writes.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Largest body as sent.
    pub compressed_bytes_max: usize,
    /// Largest body unpacked.
    pub decompressed_bytes_max: usize,
    /// Requests decoded and appended at once.
    pub concurrency: usize,
    /// Memory of all bodies in flight, packed and unpacked.
    pub memory_bytes_max: u64,
    /// Carbon input.
    pub carbon: CarbonOptions,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            compressed_bytes_max: 32 << 20,
            decompressed_bytes_max: 64 << 20,
            concurrency: 64,
            memory_bytes_max: 512 << 20,
            carbon: CarbonOptions::default(),
        }
    }
}

/// Limits of the InfluxDB API, with InfluxDB's defaults where it has them.
#[derive(Debug, Clone)]
pub struct InfluxOptions {
    /// True if requests need the credentials of a user.
    pub auth_enabled: bool,
    /// Secret of JSON web tokens; empty = none are accepted.
    pub shared_secret: String,
    /// Version in headers and in `/ping`.
    pub version: String,
    /// Database name under which InfluxQL reads the series of other protocols; `None` = not at all.
    pub prometheus_database: Option<String>,
    /// Largest body of a write as sent.
    pub body_bytes_max: usize,
    /// Longest line.
    pub line_bytes_max: usize,
    /// Longest text.
    pub text_bytes_max: usize,
    /// Rows of a response that is not chunked; 0 = no limit.
    pub row_count_max: usize,
    /// Series that a SELECT reads; 0 = no limit.
    pub select_series_max: usize,
    /// Points that a SELECT reads; 0 = no limit.
    pub select_point_max: usize,
    /// Windows of a SELECT; 0 = no limit.
    pub select_bucket_max: usize,
    /// Longest run of a request with statements; 0 = the timeout of all queries.
    pub query_timeout_ms: u64,
    /// Requests with statements of a tenant at once; 0 = no limit.
    pub concurrent_query_max: usize,
    /// True if continuous queries run.
    pub runs_continuous_queries: bool,
    /// UDP listeners.
    pub udp: Vec<UdpListener>,
}

/// A UDP listener for line protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpListener {
    /// `host:port` to listen on.
    pub listen: String,
    /// Database, created if it does not exist.
    pub database: String,
    /// Retention policy; empty = the default one.
    pub policy: String,
    /// Unit of times, as the parameter `precision`.
    pub precision: String,
}

impl Default for InfluxOptions {
    fn default() -> Self {
        InfluxOptions {
            auth_enabled: false,
            shared_secret: String::new(),
            version: "1.8.10".to_owned(),
            prometheus_database: None,
            body_bytes_max: 25_000_000,
            line_bytes_max: 16 << 20,
            text_bytes_max: 1 << 20,
            row_count_max: 0,
            select_series_max: 0,
            select_point_max: 0,
            select_bucket_max: 0,
            query_timeout_ms: 0,
            concurrent_query_max: 0,
            runs_continuous_queries: true,
            udp: Vec::new(),
        }
    }
}

impl InfluxOptions {
    /// Returns the longest run of a request with statements, at most `of_all_ms`, the timeout of all queries.
    #[must_use]
    pub fn query_timeout_ms(&self, of_all_ms: u64) -> u64 {
        if self.query_timeout_ms == 0 { of_all_ms } else { self.query_timeout_ms.min(of_all_ms) }
    }
}

/// Recording and alerting rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleOptions {
    /// Paths and patterns of rule files.
    pub files: Vec<PathBuf>,
    /// Tenant of the rules of files.
    pub tenant: TenantId,
    /// Interval and query offset of groups that set none.
    pub defaults: GroupDefaults,
    /// Age of the oldest round that is made up after an outage; 0 = none is.
    pub catch_up_ms: i64,
    /// Age of the oldest round that is repaired after out-of-order samples; 0 = none is.
    pub repair_window_ms: i64,
    /// Part of a core that repairs take, in percent.
    pub repair_cpu_percent: u8,
    /// Longest outage over which pending alerts continue.
    pub outage_tolerance_ms: i64,
    /// Time after which a firing alert is sent again.
    pub resend_delay_ms: i64,
    /// Time without a renewal after which another process of a cluster evaluates rules.
    pub lease_duration: Duration,
}

impl Default for RuleOptions {
    fn default() -> Self {
        RuleOptions {
            files: Vec::new(),
            tenant: TenantId::anonymous(),
            defaults: GroupDefaults { interval_ms: 60_000, query_offset_ms: 0 },
            catch_up_ms: 3_600_000,
            repair_window_ms: 3_600_000,
            repair_cpu_percent: 20,
            outage_tolerance_ms: 3_600_000,
            resend_delay_ms: 60_000,
            lease_duration: Duration::from_secs(60),
        }
    }
}

/// Carbon input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarbonOptions {
    /// Listeners, in order of the settings.
    pub listeners: Vec<CarbonListener>,
    /// Time between reading points of a connection and their being durable, in milliseconds.
    pub sync_ms: u64,
    /// Web configuration file whose TLS section the listeners use; `None`: no TLS.
    pub tls_file: Option<PathBuf>,
    /// Addresses from which listeners take connections and datagrams; `None` = all.
    pub allowed: Option<AddressRanges>,
    /// Files of rules for paths.
    pub rules: RuleFiles,
}

impl Default for CarbonOptions {
    fn default() -> Self {
        CarbonOptions {
            listeners: Vec::new(),
            sync_ms: 100,
            tls_file: None,
            allowed: None,
            rules: RuleFiles::default(),
        }
    }
}

/// Graphite's files of rules for paths. A file that is not named has no rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleFiles {
    /// storage-schemas.conf: archives and reorder buffer.
    pub schemas: Option<PathBuf>,
    /// storage-aggregation.conf: methods and xFilesFactor.
    pub aggregation: Option<PathBuf>,
    /// Rewrite rules: other name, labels.
    pub rewrites: Option<PathBuf>,
}

impl RuleFiles {
    /// Returns true if no file is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == RuleFiles::default()
    }
}

/// Protocol of a carbon listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarbonProtocol {
    /// Lines, over TCP and UDP.
    Plaintext,
    /// Pickled frames, over TCP.
    Pickle,
}

/// A carbon listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarbonListener {
    /// `host:port` to listen on.
    pub listen: String,
    /// Wire format of the points.
    pub protocol: CarbonProtocol,
    /// Tenant of the points.
    pub tenant: TenantId,
    /// In front of every path; one that ends a node ends with a dot.
    pub prefix: String,
}

impl CarbonOptions {
    /// Returns true if `address` may send to the listeners.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        self.allowed.as_ref().is_none_or(|ranges| ranges.contains(address))
    }
}

impl CarbonListener {
    /// Returns the value of the `input` label of metrics.
    #[must_use]
    pub fn name(&self) -> String {
        let protocol = match self.protocol {
            CarbonProtocol::Plaintext => "plaintext",
            CarbonProtocol::Pickle => "pickle",
        };
        format!("{protocol} {}", self.listen)
    }
}

/// Experimental parts, by the names Prometheus gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `promql-experimental-functions`
    pub experimental_functions: bool,
    /// `promql-delayed-name-removal`
    pub delayed_name_removal: bool,
    /// `promql-binop-fill-modifiers`
    pub binop_fill_modifiers: bool,
    /// `promql-unquoted-utf8-names`
    pub unquoted_utf8_names: bool,
    /// `use-start-timestamps`
    pub start_timestamps: bool,
    /// `type-and-unit-labels`
    pub type_and_unit_labels: bool,
    /// `query-cost`
    pub query_cost: bool,
}
