//! Answers as graphite-web's API has them: a JSON value, indented with `pretty` and as a call with `jsonp`;
//! errors are `{"error": REASON}`.
//!
//! Invariant: an answer counts in the memory of its request.
//! Not here: render and find, whose answers have formats of their own.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, header};
use chronolith_graphite::storage::tag_query::REGEX_BYTES_MAX;
use chronolith_graphite::time::parse_time;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{QueryError, TimeRange};
use chronolith_service::evaluation::call_context::CallContext;
use chronolith_tsdb::GraphiteLogError;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::http::call::{self, Call};
use crate::http::dispatch;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::printer::Printer;
use crate::web::Web;

/// A request whose answer is read from the store.
pub(super) struct Reading<'a> {
    pub(super) web: &'a Web,
    pub(super) call: &'a Call,
    pub(super) ctx: &'a CallContext,
    pub(super) now_s: i64,
}

/// Answers a request with what `read` returns, with the permit, deadline and memory of a query.
pub(super) async fn of_reading(
    web: &Arc<Web>,
    request: Request,
    read: fn(&Reading<'_>) -> Result<Value, ApiError>,
) -> Response<Body> {
    let answer = async {
        let call = call::open(web, request).await?;
        let identity = call.identity.clone();
        let now_s = web.service.env.clock.now_ms().div_euclid(1000);
        let printed = dispatch::run(web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
            let regexes = ctx.budget.reserve(regex_bytes(&call)).map_err(QueryError::from)?;
            let value = read(&Reading { web, call: &call, ctx, now_s })?;
            dispatch::refuse_partial(ctx)?;
            drop(regexes);
            let _held = ctx.budget.reserve(VALUE_AND_TEXT * json_bytes(&value)).map_err(QueryError::from)?;
            let mut printer = Printer::new(ctx)?;
            let text = text_of(&value, &call);
            let content_type = match call.params.get("jsonp") {
                Some(function) => {
                    printer.out = format!("{function}({text})").into_bytes();
                    "text/javascript"
                }
                None => {
                    printer.out = text.into_bytes();
                    "application/json"
                }
            };
            printer.settle(ctx)?;
            Ok((printer, content_type))
        });
        let (printer, content_type) = printed.await?;
        Ok(printer.into_response(content_type))
    };
    answer.await.unwrap_or_else(of_error)
}

/// A value and its text.
const VALUE_AND_TEXT: u64 = 2;
/// Bytes of a JSON value apart from its texts.
const JSON_VALUE_BYTES: u64 = 80;
/// Bytes of a parsed body per byte of it, at most about: `"a",` is a value, a text and an allocation.
const PARSED_FACTOR: u64 = 40;

/// Bytes of a value, and of its text.
fn json_bytes(value: &Value) -> u64 {
    let inner = match value {
        Value::String(text) => text_bytes(text),
        Value::Array(list) => list.iter().map(json_bytes).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| text_bytes(name) + JSON_VALUE_BYTES + json_bytes(value)).sum()
        }
        _ => 0,
    };
    inner + JSON_VALUE_BYTES
}

/// Bytes of a text with its escapes.
fn text_bytes(text: &str) -> u64 {
    let escaped_count = text.bytes().filter(|byte| matches!(byte, 0..b' ' | b'"' | b'\\')).count();
    (text.len() + 5 * escaped_count) as u64
}

/// Bytes of the regexes in the tag expressions of a request.
fn regex_bytes(call: &Call) -> u64 {
    let is_regex = |text: &String| text.contains("=~");
    let expression_count = repeated(call, "expr").iter().filter(|text| is_regex(text)).count();
    (expression_count as u64 + u64::from(call.params.get("filter").is_some())) * REGEX_BYTES_MAX
}

/// Parses the body of a change, within the memory of a query.
///
/// # Errors
/// 400 if the body is not JSON, 422 without memory for it.
pub(super) fn json_of(web: &Web, call: &Call, body: &[u8]) -> Result<Value, ApiError> {
    let memory_max = web.service.limits_of(&call.tenant).queries.memory_bytes_max;
    let memory = web.service.admission.query_memory.of(&call.tenant, memory_max);
    let parsed = memory.budget.reserve((body.len() as u64).saturating_mul(PARSED_FACTOR));
    let _held = parsed.map_err(QueryError::from)?;
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}")))
}

/// The answer to a request that failed.
pub(super) fn of_error(error: ApiError) -> Response<Body> {
    let status = error.kind.status();
    let message = json!({ "error": error.message });
    // The status, the log and `Retry-After` are the same as of errors as text.
    let mut response = error.into_text();
    *response.body_mut() = Body::from(message.to_string());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The error of a change of events or rules.
pub(super) fn of_log(error: GraphiteLogError) -> ApiError {
    match error {
        GraphiteLogError::Limit { .. } => ApiError::new(ErrorKind::Execution, error),
        GraphiteLogError::Write(_) => ApiError::new(ErrorKind::Unavailable, error),
    }
}

/// An answer that was made without a query.
pub(super) fn of_value(value: &Value, call: &Call) -> Response<Body> {
    let mut response = Response::new(Body::from(text_of(value, call)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The text of a value; `pretty` indents it by two blanks per level.
pub(super) fn text_of(value: &Value, call: &Call) -> String {
    match call.params.get("pretty") {
        Some(_) => serde_json::to_string_pretty(value).unwrap_or_default(),
        None => value.to_string(),
    }
}

/// Values of the parameter `name`, also as PHP and Rails repeat it: `name[]`.
pub(super) fn repeated(call: &Call, name: &str) -> Vec<String> {
    let given: Vec<String> = call.params.all(name).map(str::to_owned).collect();
    if !given.is_empty() {
        return given;
    }
    call.params.all(&format!("{name}[]")).map(str::to_owned).collect()
}

/// Range from `from` to `until`, both inclusive; without them all times.
pub(super) fn range_of(call: &Call, until_name: &str, now_s: i64) -> Result<TimeRange, ApiError> {
    let ms = |name: &str| {
        let parsed = call.params.get(name).map(|text| parse_time(text, &TimeZone::UTC, now_s)).transpose();
        let seconds = parsed.map_err(|error| ApiError::parameter(name, error))?;
        Ok::<_, ApiError>(seconds.map(|seconds| seconds.saturating_mul(1000)))
    };
    let start = ms("from")?.unwrap_or(TIME_MIN_MS);
    let end = ms(until_name)?.map_or(TIME_MAX_MS, |end| end.saturating_add(999));
    Ok(TimeRange::inclusive(start.clamp(TIME_MIN_MS, TIME_MAX_MS), end.clamp(TIME_MIN_MS, TIME_MAX_MS)))
}
