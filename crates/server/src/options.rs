//! Options of the server with their defaults. Options of the store are in `tsdb`.
//!
//! Not here: names of flags and file keys, parsing (the binary `chronolith`).

mod address;
mod allowed_hosts;
mod cors_origin;
mod nodes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronolith_model::Labels;
use chronolith_service::ServiceOptions;
use chronolith_tsdb::{BucketOptions, LimitsTable};

pub use self::address::{ExternalUrl, RoutePrefix};
pub use self::allowed_hosts::AllowedHosts;
pub use self::cors_origin::CorsOrigin;
pub use self::nodes::NodeOptions;
use crate::version::BuildInfo;

/// Everything a server is started with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// `host:port` to listen on; port 0 takes a free one.
    pub listen: String,
    /// Access of pages to the API, requests that control the process, and its shutdown.
    pub web: WebOptions,
    /// Bucket with blocks of all tenants.
    pub bucket: Option<BucketOptions>,
    /// Writes and queries; with multi-tenancy `X-Scope-OrgID` names the tenant.
    pub service: ServiceOptions,
    /// Notifications of alerts.
    pub notifier: NotifierOptions,
    /// Calls between the nodes of a cluster.
    pub nodes: NodeOptions,
    /// True if each HTTP request is logged.
    pub access_log: bool,
    /// Interval at which the server stores its own metrics; 0 = never.
    pub self_scrape_interval_ms: u64,
    /// Settings for `/api/v1/status/flags` and `/api/v1/status/settings`.
    pub shown: Vec<ShownSetting>,
    /// The configuration file for `/api/v1/status/config`.
    pub config_yaml: String,
}

impl ServerOptions {
    /// Defaults over `data_dir`.
    #[must_use]
    pub fn new(data_dir: PathBuf) -> ServerOptions {
        ServerOptions {
            listen: "127.0.0.1:9595".to_owned(),
            web: WebOptions { rules_api: true, ..WebOptions::default() },
            bucket: None,
            service: ServiceOptions::new(data_dir),
            notifier: NotifierOptions::default(),
            nodes: NodeOptions::default(),
            access_log: false,
            self_scrape_interval_ms: 10_000,
            shown: Vec::new(),
            config_yaml: String::new(),
        }
    }
}

/// Notifications of alerts.
#[derive(Debug, Clone)]
pub struct NotifierOptions {
    /// File with the `alerting:` block of Prometheus; `None`: there are no Alertmanagers.
    pub config_file: Option<PathBuf>,
    /// Labels of all alerts that have none of the name.
    pub external_labels: Labels,
}

impl Default for NotifierOptions {
    fn default() -> NotifierOptions {
        NotifierOptions { config_file: None, external_labels: Labels::empty() }
    }
}

/// The HTTP side as a whole.
#[derive(Debug, Clone, Default)]
pub struct WebOptions {
    /// Prometheus's web configuration file; `None`: no TLS, no users, no rate limit.
    pub config_file: Option<PathBuf>,
    /// URL by which clients reach the server; `None` = not known.
    pub external_url: Option<ExternalUrl>,
    /// Prefix of all paths; `None` = the path of `external_url`.
    pub route_prefix: Option<RoutePrefix>,
    /// Origins whose pages may use the API; `None` = its own only.
    pub cors_origin: Option<CorsOrigin>,
    /// Hosts that requests may name; `None` = all.
    pub allowed_hosts: Option<AllowedHosts>,
    /// Commit of the binary, for status endpoints and metrics.
    pub build: BuildInfo,
    /// True if the admin API answers.
    pub admin_api: bool,
    /// True if no listener that other hosts reach may be open without credentials.
    pub access_required: bool,
    /// True if `/-/reload` answers.
    pub lifecycle: bool,
    /// True if `/config/v1/rules` answers.
    pub rules_api: bool,
    /// True if `/api/v1/status/buildinfo` describes a Grafana Mimir.
    pub mimir_buildinfo: bool,
    /// Time for which `/-/ready` says no before the listener closes.
    pub shutdown_delay: Duration,
}

impl WebOptions {
    /// Prefix of all paths, if there is one.
    pub(crate) fn prefix(&self) -> Option<&RoutePrefix> {
        let of_url = self.external_url.as_ref().map(ExternalUrl::path);
        self.route_prefix.as_ref().or(of_url).filter(|prefix| !prefix.as_str().is_empty())
    }

    /// URL of the API for clients, or its path if the URL is not known.
    pub(crate) fn base_url(&self) -> String {
        match (&self.external_url, self.prefix()) {
            (Some(url), _) => url.as_str().to_owned(),
            (None, Some(prefix)) => prefix.as_str().to_owned(),
            (None, None) => "/".to_owned(),
        }
    }
}

/// A setting as status endpoints show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownSetting {
    /// As in the configuration file.
    pub name: String,
    /// Text of the value; a fixed text for a secret that is set.
    pub value: String,
    /// Text of the default; `None` for a limit of one tenant, whose default is the limit of all.
    pub default: Option<String>,
    /// Source of the value: `default`, `flag`, `environment variable NAME` or `FILE:LINE`.
    pub origin: String,
}

/// Settings that a reload of the configuration file changes in a running server.
#[derive(Debug, Clone)]
pub struct Reloaded {
    /// Limits of all tenants.
    pub limits: LimitsTable,
    /// As [`ServerOptions::shown`].
    pub shown: Vec<ShownSetting>,
    /// As [`ServerOptions::config_yaml`].
    pub config_yaml: String,
}

/// Reads the configuration again; the text of an error is shown to the caller of `/-/reload`.
pub type Reload = Arc<dyn Fn() -> Result<Reloaded, String> + Send + Sync>;
