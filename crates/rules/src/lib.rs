//! Recording and alerting rules: Prometheus's rule files, groups of rules, and rounds of their evaluation.
//!
//! Invariants: evaluation and storage are reached through traits, so a round is a pure function of its state,
//! its time and their answers.
//! Not here: threads, HTTP, reading of files, storage (the caller implements the traits).

pub mod alert;
pub mod backfill;
mod document;
mod faults;
pub mod file;
pub mod glob;
pub mod group;
pub mod lint;
pub mod notifier;
pub mod prometheus_templates;
pub mod repair;
pub mod round;
pub mod rule;
pub mod schedule;
pub mod status;
pub mod template;
pub mod template_engine;
#[cfg(test)]
mod testing;
pub mod unit_test;
mod yaml;
mod yaml_fields;
