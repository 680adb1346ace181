//! Notes of handlers for the line of their request in the audit log: its target and its counts.
//!
//! Invariant: parameters with credentials, and those that the row of the table does not list, are left out.
//! Not here: lines (`audit`).

use std::sync::Arc;

use axum::http::Extensions;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::params::Params;
use super::routing::{Audited, Route, TENANT, Tag};

/// Parameters that are credentials.
const CREDENTIALS: [&str; 2] = ["u", "p"];
/// Parameters with statements of InfluxQL and texts for them, which may have passwords.
const STATEMENTS: [&str; 2] = ["q", "params"];

/// Operation of a row, as the audit log sees it.
#[derive(Clone)]
pub(super) struct AuditPoint {
    pub(super) audited: Audited,
    pub(super) tag: Tag,
    pub(super) route: &'static Route,
}

/// Notes of a handler for the line of its request. They go nowhere if the request has no line.
#[derive(Clone, Default)]
pub(super) struct AuditNotes(Option<Arc<Notes>>);

struct Notes {
    /// Names of parameters that may be in a line.
    parameters: Vec<&'static str>,
    target: Mutex<Map<String, Value>>,
    counts: Mutex<Map<String, Value>>,
}

impl AuditNotes {
    pub(super) fn new(point: &AuditPoint) -> AuditNotes {
        let is_shown = |name: &&str| {
            *name != TENANT
                && !CREDENTIALS.contains(name)
                && !(STATEMENTS.contains(name) && point.tag == Tag::Influxdb)
        };
        let parameters = point.route.parameters().map(|parameter| parameter.name).filter(is_shown).collect();
        AuditNotes(Some(Arc::new(Notes { parameters, target: Mutex::default(), counts: Mutex::default() })))
    }

    /// Notes of a request; they go nowhere if it has no line.
    pub(super) fn of(extensions: &Extensions) -> AuditNotes {
        extensions.get::<AuditNotes>().cloned().unwrap_or_default()
    }

    /// Sets the listed parameters.
    pub(super) fn set_parameters(&self, params: &Params) {
        let Some(notes) = &self.0 else { return };
        let mut target = notes.target.lock();
        for name in &notes.parameters {
            let values: Vec<&str> = params.all(name).collect();
            match *values {
                [] => {}
                [value] if !name.ends_with("[]") => {
                    target.insert((*name).to_owned(), json!(value));
                }
                _ => {
                    target.insert((*name).to_owned(), json!(values));
                }
            }
        }
    }

    /// Sets a part of the target that is no parameter.
    pub(super) fn set_target(&self, name: &str, value: Value) {
        if let Some(notes) = &self.0 {
            notes.target.lock().insert(name.to_owned(), value);
        }
    }

    /// Sets a number or a name of the outcome.
    pub(super) fn set_count(&self, name: &str, value: impl Into<Value>) {
        if let Some(notes) = &self.0 {
            notes.counts.lock().insert(name.to_owned(), value.into());
        }
    }

    /// Returns true if a line will have the notes.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn target(&self) -> Map<String, Value> {
        self.0.as_ref().map(|notes| notes.target.lock().clone()).unwrap_or_default()
    }

    pub(super) fn counts(&self) -> Map<String, Value> {
        self.0.as_ref().map(|notes| notes.counts.lock().clone()).unwrap_or_default()
    }
}
