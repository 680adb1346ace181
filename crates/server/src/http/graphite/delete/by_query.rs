//! `/tags/delByQuery`: counts or deletes the series that expressions select, in bounded steps under one
//! deadline.
//!
//! Invariants: the search takes at most half of the time, and one step of deletions runs in any case, so that
//! each request makes progress; series are searched and deleted in the order of their labels, once each, and
//! `next` is where the following request goes on. With `olderThan`, no later point is deleted: one that
//! arrives during the request stays.
//! Not here: permits and the deletion of samples (the parent).

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_base::Reservation;
use chronolith_graphite::storage::tag_query::{TagExpression, parse_expressions};
use chronolith_graphite::time::parse_time;
use chronolith_model::{Columns, Labels, Matcher, QueryError, SeriesRead, TimeRange};
use chronolith_service::graphite::tag_index::TagIndex;
use chronolith_service::graphite::tag_matchers::{has_label, tag_matchers};
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::{ALL_TIMES, StoreOfTenant, Target, check_enabled, delete, graphite_store, read};
use crate::http::call::{self, Call};
use crate::http::error::ApiError;
use crate::http::graphite::answer::{self, repeated};
use crate::web::Web;

/// Series that are deleted together, each by a selector of its own.
const SERIES_PER_STEP: usize = if cfg!(test) { 3 } else { 2_000 };
/// Series that one request deletes one by one.
const SERIES_PER_REQUEST_MAX: usize = 100_000;

/// Parameters of a request.
struct Query {
    expressions: Vec<TagExpression>,
    /// Seconds; series with a point at that time or later are left out.
    older_than_s: Option<i64>,
    is_executed: bool,
    /// Labels of the last series of an earlier request.
    after: Option<Labels>,
    /// Series that are deleted at most, if the client limits them.
    limit: Option<usize>,
    /// Matchers of labels select the series, but for those without tags: they are deleted as a whole.
    is_matched_by_labels: bool,
}

/// Result of a search.
struct Search {
    /// In order, at most as many as one request deletes.
    found: Vec<Labels>,
    /// Memory of `found`, of the query's budget.
    held: Reservation,
    /// Found series, those that this request does not delete included.
    found_count: usize,
    /// Labels of the series that the matchers select.
    label_names: Vec<String>,
    /// Last series that was looked at, if the time ended before the others.
    stopped_at: Option<Labels>,
}

/// Answer of a request.
struct Outcome {
    count: usize,
    left_count: usize,
    /// Series at which the next request goes on, if there may be more.
    next: Option<Labels>,
}

/// `POST /tags/delByQuery`: the series that expressions select, deleted if `execute` is set.
pub(in crate::http) async fn run(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let answered = async {
        check_enabled(&web)?;
        let store = web.service.lifecycle.store()?.clone();
        let call = Arc::new(call::open(&web, request).await?);
        let query = Query::of(&call, web.service.env.clock.now_ms().div_euclid(1000))?;
        let is_executed = query.is_executed;
        let outcome = match graphite_store(&store, &call.tenant) {
            Some(graphite) => execute(&web, &call, StoreOfTenant { store, graphite }, query).await?,
            None => Outcome { count: 0, left_count: 0, next: None },
        };
        call.audit.set_count("series", outcome.count);
        Ok(answer::of_value(&outcome.to_json(is_executed), &call))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

async fn execute(
    web: &Arc<Web>,
    call: &Arc<Call>,
    target: StoreOfTenant,
    query: Query,
) -> Result<Outcome, ApiError> {
    let start_ns = web.service.env.clock.mono_ns();
    let timeout_ns = web.service.options.query.timeout_ms.saturating_mul(1_000_000);
    let search_end_ns = start_ns.saturating_add(timeout_ns / 2);
    let query = Arc::new(query);
    let searched = query.clone();
    let search = read(web, call, &target.store, &target.graphite, move |target| {
        searched.search(target, search_end_ns)
    });
    let search = search.await?;
    if !query.is_executed {
        return Ok(Outcome { count: search.found_count, left_count: 0, next: search.stopped_at });
    }
    if query.is_matched_by_labels && search.stopped_at.is_none() {
        let selectors = selectors_with_tags(&query.expressions, &search.label_names);
        delete(web, call, target, selectors, ALL_TIMES).await?;
        return Ok(Outcome { count: search.found_count, left_count: 0, next: None });
    }
    let end_ns = start_ns.saturating_add(timeout_ns);
    let count = delete_in_steps(web, call, target, &query, &search, end_ns).await?;
    Ok(search.outcome(count))
}

/// Deletes the found series until the time ends, at least the series of one step. Returns their number.
async fn delete_in_steps(
    web: &Arc<Web>,
    call: &Arc<Call>,
    target: StoreOfTenant,
    query: &Query,
    search: &Search,
    end_ns: u64,
) -> Result<usize, ApiError> {
    let mut deleted_count = 0;
    for step in search.found.chunks(SERIES_PER_STEP) {
        let selectors = step.iter().map(|labels| selector_of(labels, &search.label_names)).collect();
        let deleted = delete(web, call, target.clone(), selectors, query.range()).await;
        deleted.map_err(|error| {
            let message = format!("{}; {deleted_count} series were deleted before", error.message);
            ApiError { message, ..error }
        })?;
        deleted_count += step.len();
        if web.service.env.clock.mono_ns() >= end_ns {
            break;
        }
    }
    Ok(deleted_count)
}

impl Query {
    fn of(call: &Call, now_s: i64) -> Result<Query, ApiError> {
        let params = &call.params;
        if params.get("archive").is_some() || params.get("method") == Some("archive") {
            return Err(ApiError::bad_request("archiving is not supported, series are deleted"));
        }
        let texts = repeated(call, "expr");
        if texts.is_empty() {
            return Err(ApiError::bad_request("no tag expressions specified"));
        }
        let older_than_s = params.get("olderThan").map(|text| parse_time(text, &TimeZone::UTC, now_s));
        let limit = params.get("limit").map(|text| match text.parse() {
            Ok(count @ 1..) => Ok(count),
            _ => Err(ApiError::parameter("limit", format!("expected a number from 1 on, found {text:?}"))),
        });
        let expressions = parse_expressions(&texts).map_err(ApiError::bad_request)?;
        let is_whole = ["olderThan", "after", "limit"].iter().all(|name| params.get(name).is_none());
        Ok(Query {
            is_matched_by_labels: is_whole && tag_matchers(&expressions).is_exact,
            expressions,
            older_than_s: older_than_s
                .transpose()
                .map_err(|error| ApiError::parameter("olderThan", error))?,
            is_executed: params.get("execute").is_some_and(|text| !matches!(text, "0" | "false" | "False")),
            after: params.get("after").map(labels_of_text).transpose()?,
            limit: limit.transpose()?,
        })
    }

    /// Times of the samples that are deleted.
    fn range(&self) -> TimeRange {
        match self.older_than_s {
            Some(end_s) => TimeRange::new(ALL_TIMES.start, end_s.saturating_mul(1000)),
            None => ALL_TIMES,
        }
    }

    fn search(&self, target: &Target<'_>, end_ns: u64) -> Result<Search, ApiError> {
        let index = target.index()?;
        let held = target.ctx.budget.reserve(0).map_err(QueryError::from)?;
        let label_names = match self.is_executed {
            true => label_names(&index, &self.expressions)?,
            false => Vec::new(),
        };
        let mut search = Search { found: Vec::new(), held, found_count: 0, label_names, stopped_at: None };
        let count_max = self.limit.unwrap_or(SERIES_PER_REQUEST_MAX).min(SERIES_PER_REQUEST_MAX);
        index.for_tagged_while(&self.expressions, &mut |series, tags| {
            if self.after.as_ref().is_some_and(|after| series.labels <= *after) {
                return Ok(ControlFlow::Continue(()));
            }
            if tags.is_some() && self.has_old_points_only(series)? {
                search.found_count += 1;
                if self.is_executed && search.found.len() < count_max {
                    let bytes = size_of::<Labels>() + series.labels.heap_bytes();
                    search.held.grow(bytes as u64).map_err(QueryError::from)?;
                    search.found.push(series.labels.clone());
                }
            }
            if target.web.service.env.clock.mono_ns() < end_ns {
                return Ok(ControlFlow::Continue(()));
            }
            search.stopped_at = Some(series.labels.clone());
            Ok(ControlFlow::Break(()))
        })?;
        Ok(search)
    }

    /// Returns true if the newest point of the series is before `olderThan`. A deleted series, which blocks
    /// list until they are compacted, has none.
    fn has_old_points_only(&self, series: &SeriesRead) -> Result<bool, QueryError> {
        if self.is_matched_by_labels {
            return Ok(true);
        }
        let mut columns = Columns::default();
        series.samples.read(ALL_TIMES, &mut columns)?;
        let end_ms = self.range().end;
        Ok(columns.times.last().is_some_and(|newest_ms| *newest_ms < end_ms))
    }
}

impl Search {
    fn outcome(&self, deleted_count: usize) -> Outcome {
        let left_count = self.found_count - deleted_count;
        let next = match self.found.get(..deleted_count).and_then(<[Labels]>::last) {
            Some(last) if left_count > 0 => Some(last.clone()),
            _ => self.stopped_at.clone(),
        };
        Outcome { count: deleted_count, left_count, next }
    }
}

impl Outcome {
    fn to_json(&self, is_executed: bool) -> Value {
        let mut value = json!({ "count": self.count, "peers": {} });
        if is_executed {
            value["left"] = self.left_count.into();
        }
        if let Some(next) = &self.next {
            value["next"] = text_of_labels(next).into();
        }
        value
    }
}

/// The text of `next` and `after`: the labels as JSON.
fn text_of_labels(labels: &Labels) -> String {
    let fields: Map<String, Value> =
        labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    Value::Object(fields).to_string()
}

fn labels_of_text(text: &str) -> Result<Labels, ApiError> {
    let wrong = || ApiError::parameter("after", format!("expected `next` of an answer, found {text:?}"));
    let fields: Map<String, Value> = serde_json::from_str(text).map_err(|_| wrong())?;
    let pairs = fields.iter().map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let pairs: Vec<(&str, &str)> = pairs.collect::<Option<_>>().ok_or_else(wrong)?;
    Ok(Labels::from_pairs(pairs))
}

/// Labels of the series that the matchers of the expressions select, but for the metric name.
fn label_names(index: &TagIndex<'_>, expressions: &[TagExpression]) -> Result<Vec<String>, ApiError> {
    Ok(index.tag_labels(&tag_matchers(expressions).matchers)?)
}

/// Selector of the series with exactly these labels.
fn selector_of(labels: &Labels, label_names: &[String]) -> Vec<Matcher> {
    let absent = label_names.iter().filter(|name| labels.get(name).is_none());
    let present = labels.iter().map(|(name, value)| Matcher::equal(name, value));
    present.chain(absent.map(|name| Matcher::equal(name, ""))).collect()
}

/// Selectors of the series that satisfy the expressions and have a tag: matchers alone would select series
/// without tags by their name.
fn selectors_with_tags(expressions: &[TagExpression], label_names: &[String]) -> Vec<Vec<Matcher>> {
    let matchers = tag_matchers(expressions).matchers;
    let with = |label: &String| matchers.iter().cloned().chain(has_label(label)).collect();
    label_names.iter().map(with).collect()
}
