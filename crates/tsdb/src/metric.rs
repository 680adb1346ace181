//! Metrics without labels: name, type, help text and value.
//!
//! Invariants: the name of a counter ends in `_total`, a gauge's does not.
//! Not here: text formats, metrics with labels (`server::metrics`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Value of a metric; any thread may read and change it.
#[derive(Debug, Default)]
pub(crate) struct MetricValue(AtomicU64);

impl MetricValue {
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn as_f64(&self) -> f64 {
        self.get() as f64
    }
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only goes up, and starts at 0 with the process.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One metric without labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Without the prefix `chronolith_`; the unit is its last word, before `_total`.
    pub name: &'static str,
    /// Type.
    pub kind: MetricKind,
    /// One sentence.
    pub help: &'static str,
    /// In the base unit (seconds, bytes).
    pub value: f64,
}

impl Metric {
    /// A counter.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str, value: f64) -> Metric {
        debug_assert!(name.ends_with("_total"), "counters end in _total: {name}");
        Metric { name, kind: MetricKind::Counter, help, value }
    }

    /// A gauge.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
        debug_assert!(!name.ends_with("_total"), "only counters end in _total: {name}");
        Metric { name, kind: MetricKind::Gauge, help, value }
    }
}
