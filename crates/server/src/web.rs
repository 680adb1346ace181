//! State of the HTTP side around a service: options, the shown configuration, counters, connections.
//! Not here: state of calls (`service`), handlers (`http`), sockets (`serve`).

mod carbon_tls;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::http::HeaderValue;
use chronolith_base::Env;
use chronolith_cluster::options::Role;
use chronolith_service::Service;
use chronolith_service::access::jwt::providers::FetchReport;
use chronolith_service::audit::{AuditOutcome, AuditSubject};
use parking_lot::RwLock;
use serde_json::{Value, json};

pub(crate) use self::carbon_tls::CarbonTls;
use crate::connections::Connections;
use crate::limits::INVALID_REQUEST_LOG_PAUSE_NS;
use crate::metrics::Metrics;
use crate::notifier::Notifier;
use crate::options::{Reload, ServerOptions, ShownSetting};
use crate::peers::{NodeClient, NodeToken, QueryNode};
use crate::web_config::{InUse, UsedBy, WebConfigFile};

/// State that handlers, background threads and metrics share.
pub(crate) struct Web {
    pub(crate) service: Arc<Service>,
    pub(crate) options: ServerOptions,
    pub(crate) configuration: Configuration,
    pub(crate) metrics: Metrics,
    pub(crate) connections: Connections,
    notifier: Notifier,
    web_config: Option<WebConfigFile>,
    carbon_tls: Option<CarbonTls>,
    /// `None` without `--cluster.node-token-file`.
    node_token: RwLock<Option<NodeToken>>,
    /// Client of other nodes; empty on a server that calls none.
    node_client: OnceLock<Arc<NodeClient>>,
    /// Empty on a server that asks no owners.
    query_node: OnceLock<Arc<QueryNode>>,
    /// Time of the last log line about a request that is not valid HTTP, ns; 0 = never.
    invalid_logged_ns: AtomicU64,
}

/// Settings of the running server, which a reload replaces.
pub(crate) struct Configuration {
    pub(crate) shown: RwLock<Shown>,
    /// Reads the configuration again; `None` without a configuration file.
    pub(crate) reload: Option<Reload>,
}

/// Settings as the status pages show them.
pub(crate) struct Shown {
    pub(crate) settings: Vec<ShownSetting>,
    pub(crate) config_yaml: String,
    pub(crate) reloaded_ms: i64,
    pub(crate) reload_ok: bool,
}

impl Web {
    pub(crate) fn new(env: Env, options: ServerOptions, reload: Option<Reload>) -> Web {
        let started_ms = env.clock.now_ms();
        let shown = RwLock::new(Shown {
            settings: options.shown.clone(),
            config_yaml: options.config_yaml.clone(),
            reloaded_ms: started_ms,
            reload_ok: true,
        });
        let web_config = options.web.config_file.clone();
        let carbon_tls = options.service.write.carbon.tls_file.clone();
        let service = Arc::new(Service::new(env.clone(), options.service.clone()));
        Web {
            configuration: Configuration { shown, reload },
            metrics: Metrics::default(),
            connections: Connections::new(&*env.disk),
            notifier: Notifier::new(options.notifier.clone(), env.clock.clone()),
            node_token: RwLock::default(),
            node_client: OnceLock::new(),
            query_node: OnceLock::new(),
            invalid_logged_ns: AtomicU64::new(0),
            web_config: web_config.map(|path| WebConfigFile::new(path, UsedBy::Http)),
            carbon_tls: carbon_tls.map(|path| CarbonTls::new(path, &*env.disk)),
            service,
            options,
        }
    }

    /// The file of `--web.config.file`, if there is one.
    pub(crate) fn web_config(&self) -> Option<&WebConfigFile> {
        self.web_config.as_ref()
    }

    /// TLS of carbon listeners; `None`: their connections are not encrypted.
    pub(crate) fn carbon_tls(&self) -> Option<&CarbonTls> {
        self.carbon_tls.as_ref()
    }

    /// Reads the web configuration file, if there is one, and uses what has changed. Returns true if other
    /// settings are in use now.
    ///
    /// # Errors
    /// As [`WebConfigFile::read`].
    pub(crate) fn read_web_config(&self) -> Result<bool, String> {
        let Some(file) = &self.web_config else { return Ok(false) };
        let is_changed = file.read(&self.service.env)?;
        if is_changed {
            self.service.access.set_web_users(file.current().config().users());
        }
        Ok(is_changed)
    }

    /// Reads the token of the nodes, if there is one, and the authorities of their certificates, and uses
    /// both for later calls. Called before the first request, and by each reload.
    ///
    /// # Errors
    /// As [`NodeToken::read`] and [`NodeClient::replace`]; those before stay in use.
    pub(crate) fn read_node_token(&self) -> Result<(), String> {
        let nodes = &self.options.nodes;
        let Some(path) = &nodes.token_file else { return Ok(()) };
        let disk = &*self.service.env.disk;
        let token = NodeToken::read(path, disk)?;
        if let Some(client) = self.node_client.get() {
            client.replace(nodes, &token, disk)?;
        }
        *self.node_token.write() = Some(token);
        Ok(())
    }

    /// Returns true if a header `Authorization` has a token of the nodes; never on a server without one.
    pub(crate) fn is_node(&self, authorization: Option<&HeaderValue>) -> bool {
        self.node_token.read().as_ref().is_some_and(|token| token.is_in(authorization))
    }

    /// Returns true if the server is a node of a cluster.
    pub(crate) fn has_node_token(&self) -> bool {
        self.node_token.read().is_some()
    }

    /// Returns the client of other nodes, which is made by the first call.
    ///
    /// # Errors
    /// The text names the setting that cannot be used.
    pub(crate) fn open_node_client(&self) -> Result<Arc<NodeClient>, String> {
        // Held until the client is there: a reload comes before or after it, not between.
        let token = self.node_token.write();
        let token =
            token.as_ref().ok_or("owners: expected cluster.node-token-file, with which owners are asked")?;
        let client = NodeClient::new(&self.options.nodes, token, &*self.service.env.disk)?;
        Ok(self.node_client.get_or_init(|| Arc::new(client)).clone())
    }

    /// Returns true if queries ask owners: a gateway without the role query asks them for series counts.
    pub(crate) fn is_query_node(&self) -> bool {
        let roles = self.service.lifecycle.roles.roles();
        let is_other = roles.has(Role::Gateway) || roles.has(Role::Owner);
        self.options.nodes.owners.is_some() && (roles.has(Role::Query) || !is_other)
    }

    /// Sets the owners that queries ask. Called once.
    pub(crate) fn set_query_node(&self, node: Arc<QueryNode>) {
        self.query_node.get_or_init(|| node);
    }

    /// Owners that queries ask, on a query node.
    pub(crate) fn query_node(&self) -> Option<&Arc<QueryNode>> {
        self.query_node.get()
    }

    /// Reads the access file again if it has changed, and uses it. The outcome is logged.
    pub(crate) fn refresh_access(&self) {
        let read = self.service.access.read(&self.service.env);
        match &read {
            Ok(false) => return,
            Ok(true) => {
                let principals = self.service.access.directory().principal_count();
                tracing::info!(principals, "access file read");
            }
            Err(error) => {
                tracing::error!(error, "access file or its keys not used, the previous ones stay in use");
            }
        }
        let principals = self.service.access.directory().principal_count();
        self.audit_file("access file read", read.err(), [("principals", json!(principals))]);
    }

    /// Uses the keys of issuers that have been fetched. Changes and new failures are logged.
    pub(crate) fn take_fetched_keys(&self) {
        for FetchReport { issuer, keys } in self.service.access.take_fetched_keys(&self.service.env) {
            match &keys {
                Ok(keys) => tracing::info!(issuer, keys, "keys of the issuer fetched"),
                Err(error) => {
                    tracing::error!(
                        issuer,
                        error,
                        "keys of the issuer not fetched, those in use stay in use"
                    );
                }
            }
            let counts = [("issuer", json!(issuer)), ("keys", json!(keys.as_ref().ok()))];
            self.audit_file("keys of an issuer fetched", keys.err(), counts);
        }
    }

    /// Reads the web configuration file and its certificates again if one of them has changed, and uses them.
    /// The outcome is logged.
    pub(crate) fn refresh_web_config(&self) {
        let read = self.read_web_config();
        match &read {
            Ok(false) => return,
            Ok(true) => tracing::info!("web configuration file read"),
            Err(error) => {
                tracing::error!(error, "web configuration file not used, the previous one stays in use");
            }
        }
        let Some(in_use) = self.web_config.as_ref().map(WebConfigFile::current) else { return };
        let counts = [
            ("users", json!(in_use.config().users().len())),
            ("certificateExpirySeconds", certificate_expiry(&in_use)),
        ];
        self.audit_file("web configuration file read", read.err(), counts);
    }

    /// Reads the file of `--carbon.tls` and its certificates again if one of them has changed, and uses them.
    /// The outcome is logged.
    pub(crate) fn refresh_carbon_tls(&self) {
        let Some(tls) = &self.carbon_tls else { return };
        let read = tls.read(&self.service.env);
        match &read {
            Ok(false) => return,
            Ok(true) => tracing::info!("carbon TLS file read"),
            Err(error) => tracing::error!(error, "carbon TLS file not used, the previous one stays in use"),
        }
        let counts = [("certificateExpirySeconds", certificate_expiry(&tls.current()))];
        self.audit_file("carbon TLS file read", read.err(), counts);
    }

    /// Sender of alerts.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Reads the alerting configuration and the files that it names again if one of them has changed, and
    /// uses them. The outcome is logged.
    pub(crate) fn refresh_notifier(&self) {
        let read = self.notifier.read(&self.service.env);
        let (alertmanagers, _) = self.notifier.summary();
        match &read {
            Ok(false) => return,
            Ok(true) => tracing::info!(alertmanagers, "alerting configuration read"),
            Err(error) => {
                tracing::error!(error, "alerting configuration not used, the previous one stays in use");
            }
        }
        let counts = [("alertmanagers", json!(alertmanagers))];
        self.audit_file("alerting configuration read", read.err(), counts);
    }

    /// Writes the line of a file or of keys that were read again. They are used in any case: their author has
    /// changed them already, and a full disk must not keep a principal from being removed.
    fn audit_file<const N: usize>(&self, action: &str, error: Option<String>, counts: [(&str, Value); N]) {
        let subject = AuditSubject { action: action.to_owned(), ..AuditSubject::default() };
        let counts = counts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let status = if error.is_none() { 200 } else { 500 };
        self.service.audit.end(&self.service.env, &subject, AuditOutcome { status, error, counts });
    }

    /// Counts and logs a request that the HTTP parser has refused; no handler has seen it.
    pub(crate) fn note_invalid_request(&self, status: u16) {
        self.metrics.http.count_request("invalid", status, 0, 0);
        let now_ns = self.service.env.clock.mono_ns().max(1);
        let is_due = |last: u64| {
            (last == 0 || now_ns.saturating_sub(last) >= INVALID_REQUEST_LOG_PAUSE_NS).then_some(now_ns)
        };
        if self.invalid_logged_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_ok() {
            tracing::warn!(status, "malformed HTTP request refused; at most one such line per second");
        }
    }
}

/// End of the server certificate's validity, s since 1970; null without TLS.
fn certificate_expiry(in_use: &InUse) -> Value {
    json!(in_use.tls().map(|tls| tls.expires_s()))
}
