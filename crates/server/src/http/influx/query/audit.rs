//! Lines of statements in the audit log: statements that change databases, retention policies, users or
//! continuous queries, delete points or end a query.
//!
//! Invariants: statements are printed, and the printed form has no password.
//! Not here: the log (`service::audit`), lines of queries (`http::audit`).

use std::sync::Arc;

use chronolith_influxql::ast::{Need, Statement};
use chronolith_service::audit::{AuditOutcome, AuditSubject};
use serde_json::{Value, json};

use super::super::credentials::Caller;
use super::super::reply::InfluxError;
use super::request::QueryRequest;
use crate::http::audit;
use crate::http::audit_notes::AuditNotes;
use crate::web::Web;

/// Status of a request whose statements did not begin.
const NOT_BEGUN: u16 = 503;

/// A request whose first line is written. The second one is written when it is dropped.
pub(super) struct AuditedRequest {
    web: Arc<Web>,
    subject: AuditSubject,
    outcome: AuditOutcome,
}

impl AuditedRequest {
    /// Sets the outcome: the error of the statement that failed, and the number of deleted series.
    pub(super) fn set_outcome(&mut self, error: Option<&str>, deleted_series_count: u64) {
        let counts = [("series".to_owned(), json!(deleted_series_count))].into_iter();
        let counts = counts.filter(|_| deleted_series_count > 0).collect();
        self.outcome = AuditOutcome { status: 200, error: error.map(str::to_owned), counts };
    }
}

impl Drop for AuditedRequest {
    fn drop(&mut self) {
        let web = self.web.clone();
        let subject = std::mem::take(&mut self.subject);
        let outcome = std::mem::take(&mut self.outcome);
        let write = move || web.service.audit.end(&web.service.env, &subject, outcome);
        // Threads of queries may block; async workers may not.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(write)),
            Err(_) => write(),
        }
    }
}

/// Sets the statements of a request for the line of a query, if queries have lines.
pub(super) fn set_statements(request: &QueryRequest) {
    let notes = AuditNotes::of(&request.parts.extensions);
    if notes.is_on() {
        notes.set_parameters(&request.params);
        notes.set_target("statements", printed(request.statements.iter()));
    }
}

/// Writes the first line of a request with statements that have one.
///
/// # Errors
/// 503: the line cannot be written, so none of the statements may be executed.
pub(super) async fn begin(
    web: &Arc<Web>,
    request: &QueryRequest,
    caller: &Caller,
) -> Result<Option<AuditedRequest>, InfluxError> {
    if !web.service.audit.is_on() || !request.statements.iter().any(is_audited) {
        return Ok(None);
    }
    let mut subject = subject_of(request, caller);
    let statements = request.statements.iter().filter(|statement| is_audited(statement));
    subject.target.insert("db".to_owned(), json!(request.database));
    subject.target.insert("statements".to_owned(), printed(statements));
    audit::begin(web, &subject).await?;
    let outcome = AuditOutcome { status: NOT_BEGUN, ..AuditOutcome::default() };
    Ok(Some(AuditedRequest { web: web.clone(), subject, outcome }))
}

/// Sender and action of a request; InfluxDB's user counts as the principal.
pub(super) fn subject_of(request: &QueryRequest, caller: &Caller) -> AuditSubject {
    let mut subject = audit::subject_of(&request.parts);
    if let Caller::Known(user) = caller {
        subject.principal = Some(user.name.clone());
    }
    subject
}

fn is_audited(statement: &Statement) -> bool {
    statement.is_writing() && statement.need() != Need::Writes
}

fn printed<'a>(statements: impl Iterator<Item = &'a Statement>) -> Value {
    statements.map(|statement| json!(statement.to_string())).collect()
}
