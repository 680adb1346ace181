//! `/tags`: keys and values of tags, series by expressions, completion; those that change something are in
//! `delete`.
//!
//! Invariants: a series has tags once it has points, so that tagging only answers its canonical path; lists
//! are sorted before they are cut.
//! Not here: the search (`service::graphite::tag_index`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Response;
use chronolith_graphite::TaggedName;
use chronolith_graphite::storage::tag_query::{TagExpression, parse_expressions};
use chronolith_model::TimeRange;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_service::graphite::annotations::meta_tags_of;
use chronolith_service::graphite::tag_index::TagIndex;
use serde_json::{Value, json};

use super::answer::{self, Reading, range_of, repeated};
use crate::http::call;
use crate::http::error::ApiError;
use crate::web::Web;

/// Keys or values of a completion without `limit`.
const COMPLETION_LIMIT: usize = 100;

pub(in crate::http) async fn list(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer::of_reading(&web, request, read_keys).await
}

pub(in crate::http) async fn details(
    State(web): State<Arc<Web>>,
    _: Path<String>,
    request: Request,
) -> Response<Body> {
    answer::of_reading(&web, request, read_values).await
}

pub(in crate::http) async fn find_series(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer::of_reading(&web, request, read_series).await
}

pub(in crate::http) async fn complete_keys(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer::of_reading(&web, request, read_completed_keys).await
}

pub(in crate::http) async fn complete_values(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Response<Body> {
    answer::of_reading(&web, request, read_completed_values).await
}

pub(in crate::http) async fn terms(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer::of_reading(&web, request, read_terms).await
}

pub(in crate::http) async fn tag_series(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let answered = async {
        let call = call::open(&web, request).await?;
        let path = call.params.get("path").ok_or_else(|| ApiError::bad_request("no path specified"))?;
        Ok(answer::of_value(&canonical(path)?.into(), &call))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

pub(in crate::http) async fn tag_multi_series(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Response<Body> {
    let answered = async {
        let call = call::open(&web, request).await?;
        let paths = repeated(&call, "path");
        if paths.is_empty() {
            return Err(ApiError::bad_request("no paths specified"));
        }
        let paths: Vec<String> = paths.iter().map(|path| canonical(path)).collect::<Result<_, _>>()?;
        Ok(answer::of_value(&paths.into(), &call))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

/// The canonical form of a path: its tags sorted.
fn canonical(path: &str) -> Result<String, ApiError> {
    Ok(TaggedName::parse(path).map_err(ApiError::bad_request)?.canonical())
}

/// Every time of a sample, in milliseconds.
const ALL_TIMES: TimeRange = TimeRange { start: TIME_MIN_MS, end: TIME_MAX_MS };

fn index<'a>(reading: &Reading<'a>, range: TimeRange) -> Result<TagIndex<'a>, ApiError> {
    let Reading { web, call, ctx, .. } = *reading;
    let source = ctx.source_of(&web.service, &call.identity)?;
    let limits = web.service.limits_of(&call.tenant).queries.graphite;
    let meta = meta_tags_of(&web.service.lifecycle, &call.tenant)?;
    Ok(TagIndex::new(source, meta, range, &limits, ctx)?)
}

/// The expressions of the request; none if there are none.
fn expressions(reading: &Reading<'_>) -> Result<Vec<TagExpression>, ApiError> {
    let texts = repeated(reading.call, "expr");
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    parse_expressions(&texts).map_err(ApiError::bad_request)
}

/// The parameter `limit`.
fn limit(reading: &Reading<'_>) -> Result<Option<usize>, ApiError> {
    let Some(text) = reading.call.params.get("limit") else { return Ok(None) };
    let parsed = text.parse::<usize>();
    Ok(Some(parsed.map_err(|_| ApiError::parameter("limit", format!("{text:?} is not a whole number")))?))
}

/// The regex `filter`, anchored at the start.
struct Filter(Option<TagExpression>);

impl Filter {
    fn of(reading: &Reading<'_>) -> Result<Filter, ApiError> {
        let Some(regex) = reading.call.params.get("filter") else { return Ok(Filter(None)) };
        let expression = TagExpression::parse(&format!("filter=~{regex}"));
        Ok(Filter(Some(expression.map_err(|error| ApiError::parameter("filter", error))?)))
    }

    fn selects(&self, text: &str) -> Result<bool, ApiError> {
        let Some(expression) = &self.0 else { return Ok(true) };
        let tags = [("filter".to_owned(), text.to_owned())].into();
        expression.matches(&tags).map_err(ApiError::bad_request)
    }
}

fn read_keys(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let filter = Filter::of(reading)?;
    let shown = limit(reading)?.unwrap_or(usize::MAX);
    let mut keys: Vec<Value> = Vec::new();
    for key in index(reading, ALL_TIMES)?.keys(&[])? {
        if keys.len() < shown && filter.selects(&key)? {
            keys.push(json!({ "tag": key }));
        }
    }
    Ok(keys.into())
}

fn read_values(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let encoded = reading.call.path.strip_prefix("/tags/").unwrap_or("");
    let key = crate::http::params::decode_percent(encoded)
        .ok_or_else(|| ApiError::bad_request(format!("the tag {encoded:?} is not UTF-8")))?;
    let filter = Filter::of(reading)?;
    let shown = limit(reading)?.unwrap_or(usize::MAX);
    let counts = index(reading, ALL_TIMES)?.value_counts(&key)?;
    if counts.is_empty() {
        return Ok(Value::Null);
    }
    let mut values: Vec<Value> = Vec::new();
    for (value, count) in counts {
        if values.len() < shown && filter.selects(&value)? {
            values.push(json!({ "value": value, "count": count }));
        }
    }
    Ok(json!({ "tag": key, "values": values }))
}

fn read_series(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let expressions = expressions(reading)?;
    if expressions.is_empty() {
        return Err(ApiError::bad_request("no tag expressions specified"));
    }
    if let Some(other) = reading.call.params.get("format").filter(|format| *format != "series-json") {
        return Err(ApiError::parameter("format", format!("unknown format {other:?}, expected series-json")));
    }
    let shown = limit(reading)?.unwrap_or(usize::MAX);
    let range = range_of(reading.call, "to", reading.now_s)?;
    let paths = index(reading, range)?.paths(&expressions)?;
    Ok(paths.into_iter().take(shown).collect::<Vec<String>>().into())
}

fn read_completed_keys(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let prefix = reading.call.params.get("tagPrefix").unwrap_or("");
    let expressions = expressions(reading)?;
    let range = range_of(reading.call, "until", reading.now_s)?;
    let keys = index(reading, range)?.keys(&expressions)?;
    let is_searched = |key: &String| expressions.iter().any(|expression| expression.key == *key);
    let shown = keys.into_iter().filter(|key| key.starts_with(prefix) && !is_searched(key));
    Ok(shown.take(limit(reading)?.unwrap_or(COMPLETION_LIMIT)).collect::<Vec<String>>().into())
}

fn read_completed_values(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let params = &reading.call.params;
    let key = params.get("tag").ok_or_else(|| ApiError::bad_request("no tag specified"))?;
    let prefix = params.get("valuePrefix").unwrap_or("");
    let texts = repeated(reading.call, "expr");
    // The tag itself is the expression that no series without tags satisfies.
    let needed = (!texts.is_empty()).then(|| format!("{key}!="));
    let texts: Vec<String> = texts.into_iter().chain(needed).collect();
    let expressions = match texts.is_empty() {
        true => Vec::new(),
        false => parse_expressions(&texts).map_err(ApiError::bad_request)?,
    };
    let range = range_of(reading.call, "until", reading.now_s)?;
    let values = index(reading, range)?.values(key, &expressions)?;
    let shown = values.into_iter().filter(|value| value.starts_with(prefix));
    Ok(shown.take(limit(reading)?.unwrap_or(COMPLETION_LIMIT)).collect::<Vec<String>>().into())
}

fn read_terms(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let expressions = expressions(reading)?;
    if expressions.is_empty() {
        return Err(ApiError::bad_request("no tag expressions specified"));
    }
    let keys = repeated(reading.call, "tags");
    if keys.is_empty() {
        return Err(ApiError::bad_request("no tags specified"));
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let range = range_of(reading.call, "to", reading.now_s)?;
    let found = index(reading, range)?.terms(&expressions, &keys)?;
    Ok(json!({ "totalSeries": found.series_count, "terms": found.counts }))
}
