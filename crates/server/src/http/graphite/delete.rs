//! Deletions by Graphite clients: `/metrics/delete`, `/tags/delSeries` and `/tags/delByQuery`, of series in
//! the Graphite store of the tenant.
//!
//! Invariants: nothing is deleted unless `--web.enable-admin-api` is set; series of other protocols stay; a
//! selector selects no series with a tag that was not named. A series with a further tag that begins during
//! the request may lose its samples of that moment.
//! Not here: how samples are deleted (`tsdb`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_graphite::TaggedName;
use chronolith_graphite::storage::Source as _;
use chronolith_graphite::storage::tag_query::{TagExpression, parse_expressions};
use chronolith_graphite::time::parse_time;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{Columns, METRIC_NAME, MatchOp, Matcher, Queryable, ReadContext, TenantId, TimeRange};
use chronolith_tsdb::Tsdb;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::answer::{self, repeated};
use super::render::failed;
use super::source::{SourceSettings, TenantSource};
use super::tag_index::TagIndex;
use super::tag_matchers::{escaped, has_label, label_of, tag_matchers};
use crate::app::App;
use crate::http::call::{self, Call};
use crate::http::dispatch;
use crate::http::error::{ApiError, ErrorKind};
use crate::limits::ADMIN_QUEUE_WAIT;

/// Paths of one selector.
const PATHS_PER_SELECTOR: usize = 500;
/// Selectors of one request that names or finds series one by one.
const SELECTORS_MAX: usize = 10_000;
/// Every time of a sample, in milliseconds.
const ALL_TIMES: TimeRange = TimeRange { start: TIME_MIN_MS, end: TIME_MAX_MS };

/// Series to be deleted.
#[derive(Default)]
struct Selected {
    selectors: Vec<Vec<Matcher>>,
    series_count: u64,
}

/// The Graphite store of a request.
struct Target<'a> {
    app: &'a App,
    call: &'a Call,
    source: Arc<dyn Queryable>,
    ctx: &'a ReadContext,
    now_s: i64,
}

impl<'a> Target<'a> {
    fn index(&self) -> Result<TagIndex<'a>, ApiError> {
        let limits = self.app.limits_of(&self.call.tenant).queries.graphite;
        TagIndex::new(self.source.clone(), Arc::default(), ALL_TIMES, &limits, self.ctx)
    }
}

/// `POST /metrics/delete`: the series whose paths match a pattern.
pub(super) async fn paths(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    let print = |selected: &Selected| json!({ "deletedSeries": selected.series_count, "peers": {} });
    run(&app, request, select_paths, print).await
}

/// `POST /tags/delSeries`: the series of canonical paths.
pub(super) async fn tagged_series(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    run(&app, request, select_named, |_| Value::Bool(true)).await
}

/// `POST /tags/delByQuery`: the series that expressions select, if `execute` is set.
pub(super) async fn by_query(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    let print = |selected: &Selected| json!({ "count": selected.series_count, "peers": {} });
    run(&app, request, select_by_expressions, print).await
}

/// Selects series with the permit of a query, and deletes them with that of the admin API.
async fn run(
    app: &Arc<App>,
    request: Request,
    select: fn(&Target<'_>) -> Result<Selected, ApiError>,
    print: fn(&Selected) -> Value,
) -> Response<Body> {
    let answered = async {
        if !app.options.web.admin_api {
            let message = "deletions are disabled (web.enable-admin-api)";
            return Err(ApiError::new(ErrorKind::Forbidden, message));
        }
        let store = app.lifecycle.store()?.clone();
        let call = Arc::new(call::open(app, request).await?);
        let found = match graphite_store(&store, &call.tenant) {
            Some(graphite) => {
                let selected = selected(app, &call, &store, &graphite, select).await?;
                delete(app, &call, store, graphite, selected).await?
            }
            None => Selected::default(),
        };
        Ok(answer::of_value(&print(&found), &call))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

/// The Graphite store of a tenant, if it has one.
pub(crate) fn graphite_store(store: &Tsdb, tenant: &TenantId) -> Option<TenantId> {
    Some(store.databases().of(tenant)?.graphite.as_ref()?.store.clone())
}

async fn selected(
    app: &Arc<App>,
    call: &Arc<Call>,
    store: &Arc<Tsdb>,
    graphite: &TenantId,
    select: fn(&Target<'_>) -> Result<Selected, ApiError>,
) -> Result<Selected, ApiError> {
    let source = store.queryable(graphite);
    let call = call.clone();
    let tenant = call.tenant.clone();
    let now_s = app.env.clock.now_ms().div_euclid(1000);
    dispatch::run(app, &tenant, app.options.query.timeout_ms, move |app, ctx| {
        let selected = select(&Target { app, call: &call, source, ctx, now_s })?;
        dispatch::refuse_partial(ctx)?;
        Ok(selected)
    })
    .await
}

async fn delete(
    app: &Arc<App>,
    call: &Call,
    store: Arc<Tsdb>,
    graphite: TenantId,
    selected: Selected,
) -> Result<Selected, ApiError> {
    if selected.selectors.is_empty() {
        return Ok(selected);
    }
    let class = &app.admission.admin;
    dispatch::run_to_end(app, class, &call.tenant, ADMIN_QUEUE_WAIT, move |_| {
        store.delete_series(&graphite, &selected.selectors, ALL_TIMES).map(|_| selected)
    })
    .await?
    .map_err(|error| {
        tracing::error!(%error, "deletion of Graphite series failed");
        ApiError::new(ErrorKind::Internal, error)
    })
}

/// Leaves of the pattern `query`.
fn select_paths(target: &Target<'_>) -> Result<Selected, ApiError> {
    let missing = || ApiError::bad_request("missing required parameter 'query'");
    let query = target.call.params.get("query").ok_or_else(missing)?;
    let limits = target.app.limits_of(&target.call.tenant).queries.graphite;
    let settings = SourceSettings { rules: target.app.writes.carbon.rules(), limits, now_s: target.now_s };
    let source = TenantSource::new(target.source.clone(), target.ctx, settings)?;
    let found = source.find(query, None, None).map_err(|error| failed(&error, &source, target.ctx))?;
    let paths: Vec<String> = found.into_iter().filter(|node| node.is_leaf).map(|node| node.path).collect();
    let index = target.index()?;
    let mut selectors = Vec::new();
    for part in paths.chunks(PATHS_PER_SELECTOR) {
        let escaped: Vec<String> = part.iter().map(|path| path.chars().flat_map(escaped).collect()).collect();
        let regex = Matcher::new(METRIC_NAME, MatchOp::Regex, &escaped.join("|"));
        let names = regex.map_err(|error| ApiError::parameter("query", error))?;
        selectors.push(without_other_labels(&index, vec![names], &BTreeSet::new())?);
    }
    Ok(Selected { selectors, series_count: paths.len() as u64 })
}

/// Adds to `matchers` that a series has no labels but those of `labels` and the metric name.
fn without_other_labels(
    index: &TagIndex<'_>,
    mut matchers: Vec<Matcher>,
    labels: &BTreeSet<&str>,
) -> Result<Vec<Matcher>, ApiError> {
    let others = index.tag_labels(&matchers)?.into_iter().filter(|label| !labels.contains(label.as_str()));
    let absent: Vec<Matcher> = others.map(|label| Matcher::equal(&label, "")).collect();
    matchers.extend(absent);
    Ok(matchers)
}

/// Series of the parameters `path`.
fn select_named(target: &Target<'_>) -> Result<Selected, ApiError> {
    let paths = repeated(target.call, "path");
    if paths.is_empty() {
        return Err(ApiError::bad_request("no path specified"));
    }
    check_selectors(paths.len())?;
    let index = target.index()?;
    let mut selectors = Vec::new();
    for path in &paths {
        let named = TaggedName::parse(path).map_err(ApiError::bad_request)?;
        let labels: BTreeSet<&str> = named.tags.keys().map(|tag| label_of(tag)).collect();
        selectors.push(without_other_labels(&index, equal_to(&named.tags), &labels)?);
    }
    Ok(Selected { selectors, series_count: paths.len() as u64 })
}

fn equal_to(tags: &BTreeMap<String, String>) -> Vec<Matcher> {
    tags.iter().map(|(tag, value)| Matcher::equal(label_of(tag), value)).collect()
}

fn check_selectors(found: usize) -> Result<(), ApiError> {
    if found <= SELECTORS_MAX {
        return Ok(());
    }
    let message = format!("{found} series one by one, more than the limit of {SELECTORS_MAX} per request");
    Err(ApiError::new(ErrorKind::Execution, message))
}

/// Series of the parameters `expr`, none of which has a point since `olderThan`.
fn select_by_expressions(target: &Target<'_>) -> Result<Selected, ApiError> {
    let params = &target.call.params;
    if params.get("archive").is_some() || params.get("method") == Some("archive") {
        return Err(ApiError::bad_request("archiving is not supported, series are deleted"));
    }
    let texts = repeated(target.call, "expr");
    if texts.is_empty() {
        return Err(ApiError::bad_request("no tag expressions specified"));
    }
    let expressions = parse_expressions(&texts).map_err(ApiError::bad_request)?;
    let parsed =
        params.get("olderThan").map(|text| parse_time(text, &TimeZone::UTC, target.now_s)).transpose();
    let older_than_s = parsed.map_err(|error| ApiError::parameter("olderThan", error))?;
    let is_executed = params.get("execute").is_some_and(|text| !matches!(text, "0" | "false" | "False"));
    let index = target.index()?;
    let is_exact = tag_matchers(&expressions).is_exact;
    let one_by_one = older_than_s.is_some() || !is_exact;
    let mut found: Vec<BTreeMap<String, String>> = Vec::new();
    let mut series_count = 0;
    index.for_each_tagged(&expressions, &mut |series, tags| {
        if let Some(older_than_s) = older_than_s {
            let later = TimeRange::new(older_than_s.saturating_mul(1000), TIME_MAX_MS);
            let mut columns = Columns::default();
            series.samples.read(later, &mut columns)?;
            if !columns.times.is_empty() {
                return Ok(());
            }
        }
        series_count += 1;
        if is_executed && one_by_one {
            check_selectors(found.len() + 1)?;
            found.push(tags);
        }
        Ok(())
    })?;
    let selectors = match (is_executed, one_by_one) {
        (false, _) => Vec::new(),
        (true, true) => exact_selectors(&index, &expressions, &found)?,
        (true, false) => selectors_with_tags(&index, &expressions)?,
    };
    Ok(Selected { selectors, series_count })
}

/// Selectors of series with exactly these tags.
fn exact_selectors(
    index: &TagIndex<'_>,
    expressions: &[TagExpression],
    found: &[BTreeMap<String, String>],
) -> Result<Vec<Vec<Matcher>>, ApiError> {
    let all_labels = index.tag_labels(&tag_matchers(expressions).matchers)?;
    let selector = |tags: &BTreeMap<String, String>| {
        let absent = all_labels.iter().filter(|label| !tags.contains_key(*label));
        let absent = absent.map(|label| Matcher::equal(label, ""));
        equal_to(tags).into_iter().chain(absent).collect()
    };
    Ok(found.iter().map(selector).collect())
}

/// Selectors of the series that satisfy the expressions and have a tag: matchers alone would select series
/// without tags by their name.
fn selectors_with_tags(
    index: &TagIndex<'_>,
    expressions: &[TagExpression],
) -> Result<Vec<Vec<Matcher>>, ApiError> {
    let matchers = tag_matchers(expressions).matchers;
    let labels = index.tag_labels(&matchers)?;
    let with = |label: &String| matchers.iter().cloned().chain(has_label(label)).collect();
    Ok(labels.iter().map(with).collect())
}
