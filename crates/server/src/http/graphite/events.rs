//! `/events`: annotations of Graphite clients: posted, by time and tags, by id.
//!
//! Invariants: an event is durable before its request is answered; times are seconds, both ends of a range
//! are part of it.
//! Not here: the store and its limits (`tsdb`), events as a series (`service::graphite`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Response;
use chronolith_base::utc::rfc3339_seconds;
use chronolith_graphite::time::parse_time;
use chronolith_model::{QueryError, StoreId};
use chronolith_service::limits::WRITE_QUEUE_WAIT;
use chronolith_tsdb::{EventTags, GraphiteEvent, StoredEvent};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::answer::{self, Reading, repeated};
use crate::http::call;
use crate::http::dispatch;
use crate::http::error::{ApiError, ErrorKind};
use crate::web::Web;

/// Bytes of an event as a value, apart from its texts.
const EVENT_BYTES: u64 = 512;

pub(in crate::http) async fn list(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer::of_reading(&web, request, read_list).await
}

fn read_list(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let events = selected(reading)?;
    let bytes = events.iter().map(|event| (event.what.len() + event.data.len()) as u64 + EVENT_BYTES);
    let _held = reading.ctx.budget.reserve(bytes.sum()).map_err(QueryError::from)?;
    Ok(events.iter().map(of_list).collect::<Vec<Value>>().into())
}

pub(in crate::http) async fn create(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let answered = async {
        let (call, body) = call::open_with_body(&web, request).await?;
        let now_s = web.service.env.clock.now_ms().div_euclid(1000);
        let event = event_of(answer::json_of(&web, &call, &body)?, now_s)?;
        let store = web.service.lifecycle.store()?.clone();
        // The thread continues when the client disconnects: the event is stored completely.
        let class = &web.service.admission.write;
        let owner = call.tenant.clone();
        let stored = dispatch::run_to_end(&web, class, &call.identity, WRITE_QUEUE_WAIT, move |_| {
            let limits = store.settings().limits_of(&StoreId::from(&owner)).annotations;
            store.graphite().add_event(&owner, &limits, event)
        });
        stored.await?.map_err(answer::of_log)?;
        Ok(Response::new(Body::empty()))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

pub(in crate::http) async fn detail(
    State(web): State<Arc<Web>>,
    Path(id): Path<String>,
    request: Request,
) -> Response<Body> {
    let answered = async {
        let call = call::open(&web, request).await?;
        let id = id.parse::<u64>().ok();
        let event = web.service.lifecycle.readable_store()?.graphite();
        let event = id.and_then(|id| event.event(&call.tenant, id));
        let missing = || ApiError::new(ErrorKind::NotFound, "Event matching query does not exist");
        let event = event.ok_or_else(missing)?;
        let mut value = of_list(&event);
        value["when"] = rfc3339_seconds(event.when_s.saturating_mul(1000)).into();
        Ok(answer::of_value(&value, &call))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

/// An event as lists have it.
fn of_list(event: &StoredEvent) -> Value {
    let StoredEvent { id, when_s, what, tags, data } = event;
    json!({ "id": id, "when": when_s, "what": what, "tags": tags, "data": data })
}

/// Events of `from`, `until` and `tags`.
fn selected(reading: &Reading<'_>) -> Result<Vec<StoredEvent>, ApiError> {
    let Reading { web, call, now_s, .. } = *reading;
    let time = |name: &str, default_s: i64| match call.params.get(name) {
        None => Ok(default_s),
        Some(text) => {
            parse_time(text, &TimeZone::UTC, now_s).map_err(|error| ApiError::parameter(name, error))
        }
    };
    let range_s = time("from", 0)?..=time("until", now_s)?;
    let given = repeated(call, "tags");
    let tags: Vec<String> = given.iter().flat_map(|text| text.split(' ')).map(str::to_owned).collect();
    let selection = match call.params.get("set") {
        _ if given.is_empty() => EventTags::Any,
        Some("union") => EventTags::OneOf(&tags),
        Some("intersection") => EventTags::AllOf(&tags),
        // As in graphite-web: a tag that no event has does not count.
        _ => EventTags::KnownOf(&tags),
    };
    Ok(web.service.lifecycle.readable_store()?.graphite().events(&call.tenant, range_s, selection))
}

/// Reads a posted event.
fn event_of(value: Value, now_s: i64) -> Result<GraphiteEvent, ApiError> {
    let wrong = |why: &str| ApiError::bad_request(why);
    let Value::Object(fields) = value else { return Err(wrong("the event is not a JSON object")) };
    let tags = match fields.get("tags") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => words(text),
        Some(Value::Array(list)) => {
            let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            let texts = texts.ok_or_else(|| wrong("\"tags\" must be a list of strings"))?;
            texts.into_iter().flat_map(words).collect()
        }
        Some(_) => return Err(wrong("\"tags\" must be an array or space-separated string")),
    };
    let when_s = match fields.get("when") {
        None => now_s,
        Some(when) => when
            .as_f64()
            .filter(|seconds| seconds.abs() < MAX_EXACT_S)
            .ok_or_else(|| wrong("\"when\" must be a number of seconds"))?
            .floor() as i64,
    };
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    let what = text("what").ok_or_else(|| wrong("\"what\" is missing"))?;
    Ok(GraphiteEvent { when_s, what, tags, data: text("data").unwrap_or_default() })
}

/// Seconds beyond which a float is not exact.
const MAX_EXACT_S: f64 = 9e15;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
