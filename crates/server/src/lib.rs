//! HTTP server of Chronolith: Prometheus's API, remote write and remote read, the APIs of InfluxDB and
//! Graphite, the server's own metrics, start and shutdown.
//!
//! Invariants: no request uses memory without a budget, waits without a deadline or queues without a bound;
//! HTTP status codes are chosen here and in no crate below.
//! Not here: permits, limits and counters of writes and queries (`service`), storage (`tsdb`), evaluation of
//! queries (`promql`), decoding of protocol messages (`ingest`), flags and the settings file (the binary
//! `chronolith`).

mod connections;
mod exposition;
mod http;
mod json;
pub mod limits;
mod metrics;
mod notifier;
pub mod options;
mod peers;
mod process;
pub mod serve;
pub mod size;
mod version;
mod web;
mod web_config;

pub use chronolith_service::access::directory::{hash_of_token, new_token};
pub use chronolith_service::access::file::check_access_file;
pub use chronolith_service::evaluation::rules::files::check_rule_files;
pub use chronolith_service::options::{
    AddressRanges, CarbonListener, CarbonOptions, CarbonProtocol, Features, InfluxOptions, QueryOptions,
    RuleFiles, RuleOptions, UdpListener, WriteOptions,
};
pub use notifier::check_alerting_config;
pub use options::{
    AllowedHosts, CorsOrigin, ExternalUrl, NodeOptions, NotifierOptions, Reload, Reloaded, RoutePrefix,
    ServerOptions, ShownSetting,
};
pub use peers::ask_owners;
pub use serve::{RunError, Server};
pub use version::{BuildInfo, VERSION};
pub use web_config::{asks_for_certificate, asks_for_login, check_carbon_tls, check_web_config};
