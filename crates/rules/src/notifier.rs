//! Notifications of alerts: the `alerting:` block of a Prometheus file, the Alertmanagers that it names, and
//! the alerts that wait for each of them.
//!
//! Invariants: nothing here has a clock, a socket or a thread; the time comes with each call. Texts of errors
//! and `Debug` show no password, token or key.
//! Not here: sending over HTTP, reading of files (`server::notifier`), the state of alerts.

mod alert;
pub mod config;
pub mod discovery;
mod json;
mod queue;
pub mod resend;

#[cfg(test)]
mod tests;

pub use alert::{Alert, AlertEnd, generator_url, relabel_alerts};
pub use json::body;
pub use queue::{BATCH_ALERTS_MAX, Batch, Failure, Next, QUEUE_ALERTS_MAX, QueueCounts, SendQueue};
