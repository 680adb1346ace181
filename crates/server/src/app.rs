//! What all handlers share. Holds: `store` is set once, when the replay is done; before that only the
//! endpoints that need no store answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_base::Env;
use chronolith_promql::engine::{Engine, EngineOptions, NameRemoval};
use chronolith_promql::parser::ParserOptions;
use chronolith_tsdb::{LimitsTable, ReplayProgress, Tsdb};
use parking_lot::RwLock;

use crate::admission::Admission;
use crate::admission::small::SmallQueries;
use crate::admission::threads::QueryThreads;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::query::active::ActiveQueries;
use crate::http::query::range_cache::RangeCache;
use crate::http::write::batches::BatchPool;
use crate::http::{QueryLog, RejectLog, SlowLog};
use crate::limits::INVALID_REQUEST_LOG_PAUSE_NS;
use crate::metrics::Metrics;
use crate::metrics::tenants::TenantMetrics;
use crate::options::{Features, Reload, ServerOptions};
use crate::serve::connections::Connections;

/// Everything behind the handlers.
pub(crate) struct App {
    pub(crate) env: Env,
    pub(crate) options: ServerOptions,
    pub(crate) store: OnceLock<Arc<Tsdb>>,
    pub(crate) replay: Arc<ReplayProgress>,
    pub(crate) engine: Engine,
    pub(crate) parser: ParserOptions,
    pub(crate) metrics: Metrics,
    pub(crate) admission: Admission,
    pub(crate) query_threads: QueryThreads,
    pub(crate) small: SmallQueries,
    pub(crate) active: ActiveQueries,
    pub(crate) slow_log: SlowLog,
    pub(crate) query_log: QueryLog,
    pub(crate) reject_log: RejectLog,
    pub(crate) tenant_metrics: TenantMetrics,
    pub(crate) range_cache: RangeCache,
    pub(crate) batches: BatchPool,
    pub(crate) connections: Connections,
    pub(crate) started_ms: i64,
    pub(crate) shown: RwLock<Shown>,
    pub(crate) reload: Option<Reload>,
    /// When a request that is not valid HTTP was last logged; 0 = never.
    invalid_logged_ns: AtomicU64,
    /// Readiness is withdrawn, everything is still answered.
    /// Why the store could not be opened.
    start_failure: OnceLock<String>,
    pub(crate) draining: AtomicBool,
    /// The store is being closed.
    pub(crate) stopping: AtomicBool,
}

/// Settings as the status pages show them; a reload replaces them.
pub(crate) struct Shown {
    pub(crate) limits: LimitsTable,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) config_yaml: String,
    pub(crate) reloaded_ms: i64,
    pub(crate) reload_ok: bool,
}

/// Progress of the replay at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplaySnapshot {
    pub(crate) segment_first: u64,
    pub(crate) segment_last: u64,
    pub(crate) segment_now: u64,
    pub(crate) bytes_done: u64,
    pub(crate) bytes_total: u64,
}

impl App {
    pub(crate) fn new(env: Env, options: ServerOptions, reload: Option<Reload>) -> App {
        let started_ms = env.clock.now_ms();
        let parser = parser_options(options.features);
        let engine = Engine::new(engine_options(&options, parser));
        App {
            store: OnceLock::new(),
            replay: Arc::new(ReplayProgress::default()),
            engine,
            parser,
            metrics: Metrics::default(),
            admission: Admission::new(&options, &env.clock),
            query_threads: QueryThreads::default(),
            small: SmallQueries::default(),
            active: ActiveQueries::default(),
            slow_log: SlowLog::default(),
            query_log: QueryLog::new(options.query.log_file.clone()),
            reject_log: RejectLog::default(),
            tenant_metrics: TenantMetrics::new(options.tenant_metrics_max),
            range_cache: RangeCache::new(options.query.cache_bytes_max),
            batches: BatchPool::default(),
            connections: Connections::new(&*env.disk),
            started_ms,
            shown: RwLock::new(Shown {
                limits: options.tsdb.limits.clone(),
                settings: options.shown.clone(),
                config_yaml: options.config_yaml.clone(),
                reloaded_ms: started_ms,
                reload_ok: true,
            }),
            reload,
            invalid_logged_ns: AtomicU64::new(0),
            start_failure: OnceLock::new(),
            draining: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            env,
            options,
        }
    }

    /// The store.
    ///
    /// # Errors
    /// `unavailable` while the replay runs or the server stops.
    pub(crate) fn store(&self) -> Result<&Arc<Tsdb>, ApiError> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(ApiError::new(ErrorKind::Unavailable, "server is shutting down"));
        }
        let starting =
            || ApiError::new(ErrorKind::Unavailable, format!("Service Unavailable: {}", self.replay_text()));
        self.store.get().ok_or_else(starting)
    }

    /// Notes why the store could not be opened: nothing but a restart helps.
    pub(crate) fn note_start_failure(&self, why: String) {
        tracing::error!(why, "start failed");
        let _ = self.start_failure.set(why);
    }

    /// Takes the store into use, with the limits of the latest reload.
    ///
    /// # Panics
    /// If there is one already.
    pub(crate) fn set_store(&self, store: Arc<Tsdb>) {
        // The lock is held over both steps so that a reload comes before or after them, not between.
        let shown = self.shown.read();
        store.set_limits(shown.limits.clone());
        assert!(self.store.set(store).is_ok(), "the store is opened once");
    }

    /// Why a load balancer should send nothing here: the server starts, stops, or cannot write. `None` = ready.
    pub(crate) fn unready_reason(&self) -> Option<String> {
        if self.draining.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed) {
            return Some("server is shutting down".to_owned());
        }
        if let Some(why) = self.start_failure.get() {
            return Some(why.clone());
        }
        let Some(store) = self.store.get() else { return Some(self.replay_text()) };
        store.failure().map(|failure| failure.to_string())
    }

    /// Why only a restart helps, if that is so.
    pub(crate) fn failure(&self) -> Option<String> {
        let of_store =
            || self.store.get().and_then(|store| store.failure()).map(|failure| failure.to_string());
        self.start_failure.get().cloned().or_else(of_store)
    }

    /// Returns true if queries and writes are answered.
    pub(crate) fn is_ready(&self) -> bool {
        self.unready_reason().is_none()
    }

    /// Counts and logs a request that the HTTP parser has refused; no handler has seen it.
    pub(crate) fn note_invalid_request(&self, status: u16) {
        self.metrics.http.count_request("invalid", status, 0, 0);
        let now_ns = self.env.clock.mono_ns().max(1);
        let is_due = |last: u64| {
            (last == 0 || now_ns.saturating_sub(last) >= INVALID_REQUEST_LOG_PAUSE_NS).then_some(now_ns)
        };
        if self.invalid_logged_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_ok() {
            tracing::warn!(status, "refused a request that is not valid HTTP; at most one line per second");
        }
    }

    /// Progress of the replay.
    pub(crate) fn replay_snapshot(&self) -> ReplaySnapshot {
        let load = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
        ReplaySnapshot {
            segment_first: load(&self.replay.segment_first),
            segment_last: load(&self.replay.segment_last),
            segment_now: load(&self.replay.segment_now),
            bytes_done: load(&self.replay.bytes_done),
            bytes_total: load(&self.replay.bytes_total),
        }
    }

    /// Progress of the replay for people.
    pub(crate) fn replay_text(&self) -> String {
        let at = self.replay_snapshot();
        format!(
            "replaying the write-ahead log, segment {} of {} to {}, {} of {} MiB",
            at.segment_now,
            at.segment_first,
            at.segment_last,
            at.bytes_done >> 20,
            at.bytes_total >> 20
        )
    }
}

fn parser_options(features: Features) -> ParserOptions {
    ParserOptions {
        experimental_functions: features.experimental_functions,
        binop_fill_modifiers: features.binop_fill_modifiers,
    }
}

fn engine_options(options: &ServerOptions, parser: ParserOptions) -> EngineOptions {
    let query = &options.query;
    let name_removal =
        if options.features.delayed_name_removal { NameRemoval::Delayed } else { NameRemoval::Immediate };
    EngineOptions {
        lookback_ms: query.lookback_ms,
        samples_max: query.samples_max,
        query_memory_bytes_max: query.memory_bytes_max,
        read_bytes_max: query.read_bytes_max,
        timeout_ms: query.timeout_ms,
        name_removal,
        parser,
        threads: chronolith_base::thread::core_count(),
        start_times: options.features.start_timestamps,
        type_and_unit_labels: options.features.type_and_unit_labels,
        ..EngineOptions::default()
    }
}
