//! Carbon input: parts that its listeners and HTTP requests share.
//!
//! Invariant: refused points are counted per input, and the newest of each reason is kept.
//! Not here: the append (`append`), rules of paths (`rules`), sockets (`server::serve::carbon`), requests
//! (`server::http::graphite`).

pub mod append;
pub mod rules;

use std::sync::Arc;

use crate::counter::Counter;
use crate::limits::CARBON_THREADS_MAX;
use crate::options::CarbonListener;
use chronolith_ingest::carbon::{Refused, RefusedReason};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use rules::PathRules;

/// Name of the input that HTTP requests are.
const HTTP_INPUT: &str = "http";

/// Parts that all inputs share.
pub struct CarbonContext {
    /// Permits of the threads that decode, append and wait for the disk on behalf of listeners.
    pub threads: Arc<Semaphore>,
    /// Inputs of the listeners in order of the settings, then the input of HTTP requests.
    inputs: Vec<Arc<CarbonInput>>,
    rules: RwLock<Arc<PathRules>>,
}

/// Counters of one listener, or of all HTTP requests.
pub struct CarbonInput {
    /// Protocol and address as set, or `http`.
    pub name: String,
    /// Appended points.
    pub points: Counter,
    /// Connections since the start.
    pub connections_opened: Counter,
    /// Connections that have ended.
    pub connections_closed: Counter,
    /// Connections closed at once since too many are open.
    pub connections_refused: Counter,
    /// Connections closed at once since their address is not allowed.
    pub connections_not_allowed: Counter,
    /// Datagrams dropped since their address is not allowed.
    pub datagrams_not_allowed: Counter,
    /// Connections whose bytes are gzip.
    pub gzip_connections: Counter,
    /// Connections that were reset since points of them are not stored.
    pub connections_reset: Counter,
    /// Points of these connections that the store refused or may not have made durable.
    pub points_not_stored: Counter,
    refused: Mutex<Refused>,
}

/// Newest refused point of a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestRefused {
    /// Name of the input.
    pub input: String,
    /// Reason of the refusal.
    pub reason: RefusedReason,
    /// Points refused for it since the start.
    pub count: u64,
    /// Text of the newest one.
    pub text: String,
    /// Clock when it was refused.
    pub time_ms: i64,
}

impl CarbonContext {
    /// Inputs without counts, and no rules.
    pub fn new(listeners: &[CarbonListener]) -> CarbonContext {
        let names = listeners.iter().map(CarbonListener::name).chain([HTTP_INPUT.to_owned()]);
        let inputs = names.map(|name| Arc::new(CarbonInput::new(name))).collect();
        let threads = Arc::new(Semaphore::new(CARBON_THREADS_MAX));
        CarbonContext { threads, inputs, rules: RwLock::default() }
    }

    /// Returns the input of the listener at `idx` of the settings.
    pub fn of_listener(&self, idx: usize) -> Arc<CarbonInput> {
        self.inputs[idx].clone()
    }

    /// Returns the input of HTTP requests.
    pub fn of_http(&self) -> &Arc<CarbonInput> {
        &self.inputs[self.inputs.len() - 1]
    }

    /// Returns the rules of paths in effect.
    pub fn rules(&self) -> Arc<PathRules> {
        self.rules.read().clone()
    }

    /// Replaces the rules of paths, for points that arrive from now on.
    pub fn set_rules(&self, rules: PathRules) {
        *self.rules.write() = Arc::new(rules);
    }

    /// Number of open connections of all listeners.
    pub fn open_connections(&self) -> usize {
        self.inputs.iter().map(|input| input.open_connections()).sum()
    }

    /// Inputs of the listeners in order of the settings, then the input of HTTP requests.
    pub fn inputs(&self) -> &[Arc<CarbonInput>] {
        &self.inputs
    }
}

impl CarbonInput {
    fn new(name: String) -> CarbonInput {
        CarbonInput {
            name,
            points: Counter::default(),
            connections_opened: Counter::default(),
            connections_closed: Counter::default(),
            connections_refused: Counter::default(),
            connections_not_allowed: Counter::default(),
            datagrams_not_allowed: Counter::default(),
            gzip_connections: Counter::default(),
            connections_reset: Counter::default(),
            points_not_stored: Counter::default(),
            refused: Mutex::default(),
        }
    }

    /// Number of open connections.
    pub fn open_connections(&self) -> usize {
        (self.connections_opened.as_f64() - self.connections_closed.as_f64()).max(0.0) as usize
    }

    /// Number of points that were refused for a reason.
    pub fn refused_count(&self, reason: RefusedReason) -> u64 {
        self.refused.lock().count(reason)
    }

    /// Counts refused points and keeps the newest of each reason.
    pub fn add_refused(&self, refused: Refused) {
        self.refused.lock().add(refused);
    }

    /// Returns the newest refused points, one per reason.
    pub fn newest_refused(&self) -> Vec<NewestRefused> {
        let refused = self.refused.lock();
        let newest = RefusedReason::ALL.into_iter().filter_map(|reason| {
            let line = refused.newest(reason)?;
            Some(NewestRefused {
                input: self.name.clone(),
                reason,
                count: refused.count(reason),
                text: line.text.clone(),
                time_ms: line.time_ms,
            })
        });
        newest.collect()
    }
}
