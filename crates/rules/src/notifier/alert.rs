//! An alert as Alertmanagers get it.

use std::sync::Arc;

use chronolith_model::Labels;
use chronolith_model::relabel::{RelabelRule, relabel};

/// A firing or resolved alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Labels, which identify it.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// Time from which it fires, ms since 1970.
    pub starts_at_ms: i64,
    /// End, past or future.
    pub end: AlertEnd,
    /// Link to its expression; empty = none.
    pub generator_url: String,
}

/// End of an alert, ms since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertEnd {
    /// The alert fires. An Alertmanager that gets nothing more takes it for resolved from this time on.
    ValidUntilMs(i64),
    /// The alert has been resolved.
    ResolvedAtMs(i64),
}

impl AlertEnd {
    /// `endsAt` of the API.
    #[must_use]
    pub fn ms(self) -> i64 {
        match self {
            AlertEnd::ValidUntilMs(ms) | AlertEnd::ResolvedAtMs(ms) => ms,
        }
    }

    /// Returns true if the alert has been resolved.
    #[must_use]
    pub fn is_resolved(self) -> bool {
        matches!(self, AlertEnd::ResolvedAtMs(_))
    }
}

/// Adds `external_labels` where an alert has no label of the name, and applies `rules`; alerts that a rule
/// drops are left out. Cost: an alert whose labels do not change is not copied.
#[must_use]
pub fn relabel_alerts(
    rules: &[RelabelRule],
    external_labels: &Labels,
    alerts: &[Arc<Alert>],
) -> Vec<Arc<Alert>> {
    if rules.is_empty() && external_labels.is_empty() {
        return alerts.to_vec();
    }
    let relabelled = |alert: &Arc<Alert>| {
        let mut builder = alert.labels.to_builder();
        for (name, value) in external_labels.iter() {
            if alert.labels.get(name).is_none() {
                builder.set(name, value);
            }
        }
        if !relabel(rules, &mut builder) {
            return None;
        }
        let labels = builder.finish();
        if labels == alert.labels {
            return Some(alert.clone());
        }
        Some(Arc::new(Alert { labels, ..Alert::clone(alert) }))
    };
    alerts.iter().filter_map(relabelled).collect()
}

/// Returns the link to the table of an expression, which Prometheus sends as `generatorURL`.
#[must_use]
pub fn generator_url(external_url: &str, expr: &str) -> String {
    let mut url = format!("{external_url}/graph?g0.expr=");
    for byte in expr.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => url.push(char::from(byte)),
            b' ' => url.push('+'),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url.push_str("&g0.tab=1");
    url
}
