//! Statements: `GET|POST /query`.
//!
//! Invariants: statements run one after the other on a thread of queries; rows are printed and sent as they
//! come; a statement that fails has its error in its result, and those after it are not executed. Changes
//! asked for by GET from pages of other origins are refused.
//! Not here: statements (`influxql`), text forms of results (`printer`).

mod audit;
mod format;
mod parameters;
mod request;
mod response;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use chronolith_influxql::TERMS_MAX;
use chronolith_influxql::ast::{Need, Statement};
use chronolith_influxql::execute::{Access, Session, StatementError};
use chronolith_influxql::result::Message;
use chronolith_model::QueryError;
use chronolith_service::access::{Denied, Principal, Scope};
use chronolith_service::activity::active_queries::StartedQuery;
use chronolith_service::activity::top_queries::QueryLanguage;
use chronolith_service::evaluation::influxql::databases::Databases;
use chronolith_service::evaluation::influxql::storage::TenantStorage;
use chronolith_service::evaluation::influxql::{query_error, select_limits};
use chronolith_service::evaluation::running::RunningQuery;
use http_body_util::BodyExt as _;

use self::audit::AuditedRequest;
use self::format::Format;
use self::request::QueryRequest;
use self::response::ResponseSink;
use super::credentials::Caller;
use super::printer::Epoch;
use super::reply::InfluxError;
use crate::http::dispatch::Admitted;
use crate::http::error::ApiError;
use crate::http::page;
use crate::http::stream::{self, Parts, StreamKind};
use crate::limits::ANSWER_TIMEOUT;
use crate::web::Web;

/// Error of statements after one that failed.
const NOT_EXECUTED: &str = "not executed";

pub(in crate::http) async fn query(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    if page::is_page_request(&request) {
        return page::page().await;
    }
    let format = Format::of(request.headers());
    run(&web, request).await.unwrap_or_else(|error| in_format(error, format))
}

/// An error of the whole request in the form that the client accepts.
fn in_format(error: InfluxError, format: Format) -> Response<Body> {
    let mut printer = match format {
        Format::Json => return error.into_response(),
        format => format.printer(Epoch::Rfc3339, false),
    };
    printer.error(&error.message);
    let mut response = error.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    *response.body_mut() = Body::from(std::mem::take(printer.out()));
    response
}

async fn run(web: &Arc<Web>, request: Request) -> Result<Response<Body>, InfluxError> {
    let request = QueryRequest::read(web, request).await?;
    audit::set_statements(&request);
    let is_writing = request.statements.iter().any(Statement::is_writing);
    let databases = databases_of(web, &request)?;
    if request.is_foreign_get && is_writing {
        let text = "cross-origin request refused: changes need an origin allowed by --web.cors.origin";
        return Err(InfluxError::new(StatusCode::FORBIDDEN, text));
    }
    let caller = Caller::of_request(web, &databases, &request.parts, &request.params).await?;
    if let Err(refused) = caller.check_statements(&request.statements, &request.database) {
        let subject = audit::subject_of(&request, &caller);
        crate::http::audit::refused(web, subject, None, refused.message.clone()).await;
        return Err(refused);
    }
    let audited = audit::begin(web, &request, &caller).await?;
    let timeout_ms = web.service.options.influx.query_timeout_ms(web.service.options.query.timeout_ms);
    let class = &web.service.admission.query;
    // Databases were found: no statement reads series that this server does not have.
    let admitted = web.service.admit_without_source(class, &request.identity, timeout_ms).await?;
    let content_type = request.format.content_type();
    let kind = StreamKind {
        name: "InfluxQL query",
        content_type,
        timeout: ANSWER_TIMEOUT,
        metrics: |metrics| &metrics.influx_query,
    };
    let is_async = request.is_async;
    let shared = web.clone();
    let answered = async move {
        let print = move |web: &Web, admitted, parts: &Parts| {
            execute_all(web, &databases, &request, &caller, admitted, parts, audited)
        };
        stream::answer(&shared, admitted, kind, print).await
    };
    if is_async {
        // At most as many as there are permits of queries: one is held.
        tokio::spawn(async move { drop_results(answered.await).await });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let mut response = answered.await?;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

/// Databases of the statements. Gateways and query nodes read and change the bucket for statements on the
/// catalogue; gateways delete samples by the log, and look for series where they have some.
fn databases_of(web: &Web, request: &QueryRequest) -> Result<Databases, InfluxError> {
    let lifecycle = &web.service.lifecycle;
    let is_deleting = |statement: &Statement| statement.need() == Need::Deletes;
    let is_on_catalog = request.statements.iter().all(Statement::is_on_catalog);
    if is_on_catalog && lifecycle.roles.changes_bucket_databases() {
        return Ok(Databases::of_catalog(&web.service)?);
    }
    let is_gateway = lifecycle.roles.gateway().is_some();
    if is_gateway && request.statements.iter().all(|one| one.is_on_catalog() || is_deleting(one)) {
        return Ok(Databases::of(&web.service).or_else(|_| Databases::of_catalog(&web.service))?);
    }
    let databases = Databases::of(&web.service)?;
    // A query is killed where it runs, with a store or without one.
    let needs_store = |one: &Statement| {
        let is_kill = matches!(one, Statement::KillQuery { .. });
        one.is_writing() && !is_kill && !(is_gateway && is_deleting(one))
    };
    if request.statements.iter().any(needs_store) {
        // A read-only server has no store.
        lifecycle.store()?;
    }
    Ok(databases)
}

/// Reads a response that no client waits for to its end: dropping it would end its statements.
async fn drop_results(answered: Result<Response<Body>, ApiError>) {
    match answered {
        Ok(response) => {
            let mut body = response.into_body();
            while let Some(Ok(_)) = body.frame().await {}
        }
        Err(error) => tracing::info!(error = error.message, "asynchronous InfluxQL query failed"),
    }
}

/// Bytes of parsed statements per byte of their text: an operand takes a few bytes of it.
const STATEMENT_BYTES_PER_BYTE: u64 = 64;
/// Bytes of an operand of a parsed statement, which is there twice.
const OPERAND_BYTES: u64 = 256;

/// Bytes of parsed statements at most.
fn statements_bytes(text: &str) -> u64 {
    let text_bytes = text.len() as u64;
    let operands = TERMS_MAX as u64 * OPERAND_BYTES;
    2 * text_bytes + text_bytes.saturating_mul(STATEMENT_BYTES_PER_BYTE).min(operands)
}

/// Runs the statements and sends their results.
fn execute_all(
    web: &Web,
    databases: &Databases,
    request: &QueryRequest,
    caller: &Caller,
    admitted: Admitted,
    parts: &Parts,
    mut audited: Option<AuditedRequest>,
) -> Result<(), ApiError> {
    let ctx = admitted.ctx();
    let _statements = ctx.budget.reserve(statements_bytes(&request.text)).map_err(QueryError::from)?;
    let text = request.text_without_passwords();
    let listed = RunningQuery::begin(
        &web.service,
        StartedQuery {
            tenant: &request.tenant,
            language: QueryLanguage::InfluxQl,
            text: &text,
            times_ms: (0, 0, 0),
            ctx,
            trace: Arc::default(),
        },
    );
    let running = web.service.influx.queries.enter(
        &request.tenant,
        &request.text,
        &request.database,
        listed.started_ns(),
        ctx.cancel_flag(),
        web.service.options.influx.concurrent_query_max,
    );
    let mut sink = ResponseSink::new(request, parts, ctx, web.service.options.influx.row_count_max);
    let _running = match running {
        Ok(running) => running,
        Err(refused) => {
            sink.begin(0);
            sink.end(&[], Some(&refused.to_string()))?;
            return sink.finish();
        }
    };
    let known = databases.known(&request.identity, &request.database, ctx)?;
    let storage = TenantStorage {
        service: &web.service,
        databases: known,
        tenant: &request.tenant,
        is_continuous: false,
        call: Some(ctx),
        deleted_series: AtomicU64::new(0),
    };
    let session = Session {
        storage: &storage,
        database: &request.database,
        policy: &request.policy,
        access: caller.access(),
        now_ns: web.service.env.clock.now_ms().saturating_mul(1_000_000),
        limits: select_limits(&web.service.options.influx),
        ctx,
    };
    let error = execute_each(request, &session, &mut sink)?;
    if let Some(audited) = &mut audited {
        audited.set_outcome(error.as_deref(), storage.deleted_series.load(Ordering::Relaxed));
    }
    web.service.queries.metrics.influxql.observe_ns(listed.duration_ns());
    listed.record(0, error.is_some());
    sink.finish()
}

/// Runs the statements one after the other up to the first that fails, and returns its error.
fn execute_each(
    request: &QueryRequest,
    session: &Session<'_>,
    sink: &mut ResponseSink<'_>,
) -> Result<Option<String>, ApiError> {
    for (id, statement) in request.statements.iter().enumerate() {
        sink.begin(id);
        let outcome = session.execute(statement, sink);
        let messages = request.messages_of(statement);
        let error = match outcome {
            Ok(()) => None,
            Err(StatementError::Closed) => sink.take_failure()?,
            Err(StatementError::Text(text) | StatementError::Forbidden(text)) => Some(text),
            Err(StatementError::Query(error)) => Some(query_error(&error)),
        };
        sink.end(&messages, error.as_deref())?;
        if let Some(error) = error {
            if request.is_async {
                tracing::info!(%statement, error, "statement of an asynchronous InfluxQL query failed");
            }
            for later in id + 1..request.statements.len().saturating_sub(1) {
                sink.begin(later);
                sink.end(&[], Some(NOT_EXECUTED))?;
            }
            return Ok(Some(error));
        }
        if sink.is_full() {
            break;
        }
    }
    Ok(None)
}

impl Caller {
    fn access(&self) -> Access<'_> {
        match (self, self.user()) {
            (Caller::BeforeFirstAdmin, _) => Access::BeforeFirstAdmin,
            (_, Some(user)) => Access::User(user),
            (_, None) => Access::Anyone,
        }
    }

    /// Refuses a request of which a statement needs a privilege that the caller does not have.
    fn check_statements(&self, statements: &[Statement], database: &str) -> Result<(), InfluxError> {
        let refused = |text: String| {
            Err(InfluxError::new(StatusCode::FORBIDDEN, format!("error authorizing query: {text}")))
        };
        // Privileges first: the texts of their refusals are InfluxDB's.
        if let Err(text) = chronolith_influxql::execute::authorize(self.access(), statements, database) {
            return refused(text);
        }
        match self {
            Caller::Principal(principal) => {
                statements.iter().try_for_each(|statement| check_statement(principal, statement))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a statement that needs a scope which the principal does not have, or that cannot be limited to
/// the series it reads.
fn check_statement(principal: &Principal, statement: &Statement) -> Result<(), InfluxError> {
    let refused = |denied: Denied| {
        InfluxError::new(StatusCode::FORBIDDEN, format_args!("error authorizing query: {denied}"))
    };
    let scope = scope_of(statement);
    principal.check_scope(scope).map_err(refused)?;
    if scope == Scope::ReadMetrics { Ok(()) } else { principal.check_unfiltered().map_err(refused) }
}

/// Scope that a statement needs. One that changes the catalogue, or that tells of other senders, needs the
/// scope of an administrator.
fn scope_of(statement: &Statement) -> Scope {
    match statement.need() {
        Need::Reads => Scope::ReadMetrics,
        Need::Writes => Scope::WriteMetrics,
        Need::Deletes => Scope::DeleteMetrics,
        Need::Administers => Scope::Admin,
    }
}

impl QueryRequest {
    /// The statements as text. Statements that change something are printed, because they may have passwords.
    fn text_without_passwords(&self) -> Cow<'_, str> {
        if !self.statements.iter().any(Statement::is_writing) {
            return Cow::Borrowed(&self.text);
        }
        let printed: Vec<String> = self.statements.iter().map(Statement::to_string).collect();
        Cow::Owned(printed.join("; "))
    }

    /// Notes of the result of a statement.
    fn messages_of(&self, statement: &Statement) -> Vec<Message> {
        if !self.is_get || !statement.is_writing() {
            return Vec::new();
        }
        let text = format!(
            "deprecated use of '{statement}' in a read only context, please use a POST request instead"
        );
        vec![Message { level: "warning", text }]
    }
}
