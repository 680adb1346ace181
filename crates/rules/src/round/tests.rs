//! Rounds over answers that the tests choose: samples, staleness markers, alerts, failures, restarts.

mod alerts;
mod environment;
mod records;
mod restart;
