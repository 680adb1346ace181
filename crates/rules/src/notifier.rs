//! Notifications of alerts: the `alerting:` block of a Prometheus file.
//!
//! Invariants: nothing here has a clock, a socket or a thread. Texts of errors and `Debug` show no password,
//! token or key.
//! Not here: sending over HTTP, reading of files (`server::notifier`), the state of alerts.

pub mod config;
