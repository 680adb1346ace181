//! Deletions by Graphite clients: `/metrics/delete` and `/tags/delSeries`, of series in the Graphite store of
//! the tenant.
//!
//! Invariants: nothing is deleted unless `--web.enable-admin-api` is set; series of other protocols stay; a
//! selector selects no series with a tag that was not named. A series with a further tag that begins during
//! the request may lose its samples of that moment.
//! Not here: deletions by expressions (`by_query`), how samples are deleted (`tsdb`).

pub(in crate::http) mod by_query;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_graphite::TaggedName;
use chronolith_graphite::storage::Source as _;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{METRIC_NAME, MatchOp, Matcher, Queryable, ReadContext, StoreId, TenantId, TimeRange};
use chronolith_service::graphite::source::{SourceSettings, TenantSource};
use chronolith_service::graphite::tag_index::TagIndex;
use chronolith_service::graphite::tag_matchers::{escaped, label_of};
use chronolith_service::limits::ADMIN_QUEUE_WAIT;
use chronolith_tsdb::Tsdb;
use serde_json::{Value, json};

use super::answer::{self, repeated};
use super::render::failed;
use crate::http::call::{self, Call};
use crate::http::dispatch;
use crate::http::error::{ApiError, ErrorKind};
use crate::web::Web;

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

/// A Graphite store that is deleted from.
#[derive(Clone)]
struct StoreOfTenant {
    store: Arc<Tsdb>,
    /// Id of the store.
    graphite: StoreId,
}

/// The Graphite store of a request.
struct Target<'a> {
    web: &'a Web,
    call: &'a Call,
    source: Arc<dyn Queryable>,
    ctx: &'a ReadContext,
    now_s: i64,
}

impl<'a> Target<'a> {
    fn index(&self) -> Result<TagIndex<'a>, ApiError> {
        let limits = self.web.service.limits_of(&self.call.tenant).queries.graphite;
        Ok(TagIndex::new(self.source.clone(), Arc::default(), ALL_TIMES, &limits, self.ctx)?)
    }
}

/// `POST /metrics/delete`: the series whose paths match a pattern.
pub(in crate::http) async fn paths(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let print = |selected: &Selected| json!({ "deletedSeries": selected.series_count, "peers": {} });
    run(&web, request, select_paths, print).await
}

/// `POST /tags/delSeries`: the series of canonical paths.
pub(in crate::http) async fn tagged_series(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    run(&web, request, select_named, |_| Value::Bool(true)).await
}

/// Selects series with the permit of a query, and deletes them with the permit of the admin API.
async fn run(
    web: &Arc<Web>,
    request: Request,
    select: fn(&Target<'_>) -> Result<Selected, ApiError>,
    print: fn(&Selected) -> Value,
) -> Response<Body> {
    let answered = async {
        check_enabled(web)?;
        let store = web.service.lifecycle.store()?.clone();
        let call = Arc::new(call::open(web, request).await?);
        let found = match graphite_store(&store, &call.tenant) {
            Some(graphite) => {
                let mut selected = read(web, &call, &store, &graphite, select).await?;
                let selectors = std::mem::take(&mut selected.selectors);
                delete(web, &call, StoreOfTenant { store, graphite }, selectors, ALL_TIMES).await?;
                selected
            }
            None => Selected::default(),
        };
        call.audit.set_count("series", found.series_count);
        Ok(answer::of_value(&print(&found), &call))
    };
    answered.await.unwrap_or_else(answer::of_error)
}

/// The Graphite store of a tenant, if it has one.
pub(crate) fn graphite_store(store: &Tsdb, tenant: &TenantId) -> Option<StoreId> {
    Some(store.databases().catalog().of(tenant)?.graphite.as_ref()?.store.clone())
}

fn check_enabled(web: &Web) -> Result<(), ApiError> {
    if web.options.web.admin_api {
        return Ok(());
    }
    Err(ApiError::new(ErrorKind::Forbidden, "deletions are disabled (web.enable-admin-api)"))
}

/// Reads the store with the permit of a query.
async fn read<T: Send + 'static>(
    web: &Arc<Web>,
    call: &Arc<Call>,
    store: &Arc<Tsdb>,
    graphite: &StoreId,
    work: impl FnOnce(&Target<'_>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let source = store.reader().store_queryable(graphite);
    let call = call.clone();
    let identity = call.identity.clone();
    let now_s = web.service.env.clock.now_ms().div_euclid(1000);
    dispatch::run(web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
        let read = work(&Target { web, call: &call, source, ctx, now_s })?;
        dispatch::refuse_partial(ctx)?;
        Ok(read)
    })
    .await
}

/// Deletes samples with the permit of the admin API.
async fn delete(
    web: &Arc<Web>,
    call: &Call,
    target: StoreOfTenant,
    selectors: Vec<Vec<Matcher>>,
    range: TimeRange,
) -> Result<(), ApiError> {
    if selectors.is_empty() {
        return Ok(());
    }
    let class = &web.service.admission.admin;
    dispatch::run_to_end(web, class, &call.identity, ADMIN_QUEUE_WAIT, move |_| {
        target.store.admin().delete_series(&target.graphite, &selectors, range).map(drop)
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
    let limits = target.web.service.limits_of(&target.call.tenant).queries.graphite;
    let settings = SourceSettings { rules: target.web.service.carbon.rules(), limits, now_s: target.now_s };
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

/// Adds to `matchers` that a series has no labels but `labels` and the metric name.
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
