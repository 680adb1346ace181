//! `series`, `labels`, `label/<name>/values`: stored series, label names and values, by selectors.
//! Invariants: answers are sorted, each item once, over all `match[]`; collected items count in the query's
//! budget. Small requests begin on the async worker that read them (ADR 0040).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_base::Reservation;
use chronolith_model::query::SelectRequest;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{
    Labels, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesRead, TimeRange,
};
use chronolith_promql::parser::parse_metric_selector;
use chronolith_service::admission::small::Candidate;
use chronolith_service::evaluation::call_context::CallContext;
use chronolith_service::query::context::check_length;

use super::call::{self, Call};
use super::compress::Packing;
use super::dispatch;
use super::error::ApiError;
use super::params::{Params, decode_percent, unescape_name};
use super::partial::PartialResponse;
use super::printer::{Printer, TRUNCATED_WARNING};

use crate::json;
use crate::web::Web;

/// Bytes of a string in a list, its text excepted.
const STRING_BYTES: u64 = size_of::<String>() as u64;
/// Bytes of a series in a list, its labels excepted.
const SERIES_BYTES: u64 = size_of::<Labels>() as u64;

pub(super) async fn series(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    call.params.well_formed()?;
    if call.params.all("match[]").next().is_none() {
        return Err(ApiError::bad_request("no match[] parameter provided"));
    }
    let limit = call.params.limit("limit")?;
    let range = time_range(&call.params)?;
    let partial = PartialResponse::parse(&call.params)?;
    let identity = call.identity.clone();
    let candidate = candidate(&call);
    let timeout_ms = web.service.options.query.timeout_ms;
    let packing = Packing::new(&web, call.coding);
    let printed = dispatch::run_small_first(&web, &identity, timeout_ms, candidate, move |web, ctx| {
        partial.run(web, ctx, |ctx| {
            print_series(web, &call, range, limit, Printer::open_packed(ctx, &packing)?, ctx)
        })
    });
    Ok(printed.await?.into_json())
}

/// Prints the series of all selectors; 0 = no limit.
fn print_series(
    web: &Web,
    call: &Call,
    range: TimeRange,
    limit: usize,
    mut printer: Printer,
    ctx: &CallContext,
) -> Result<Printer, ApiError> {
    let selectors = selectors(&call.params).map_err(|error| ApiError::parameter("match[]", error.message))?;
    let source = ctx.source_of(&web.service, &call.identity)?;
    let mut found = Collected::new(ctx)?;
    for matchers in &selectors {
        found.add_series(&*source, &Selector { matchers, range }, ctx)?;
    }
    found.sort();
    printer.out.push(b'[');
    let shown = if limit == 0 { usize::MAX } else { limit };
    for (idx, labels) in found.items.iter().take(shown).enumerate() {
        if idx > 0 {
            printer.out.push(b',');
        }
        json::put_labels(&mut printer.out, labels);
        printer.settle(ctx)?;
    }
    printer.out.push(b']');
    printer.close(ctx, &warnings(found.items.len() > shown, ctx), &[])
}

pub(super) async fn label_names(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    list(&web, call, |source, selector, limit, ctx| source.label_names(selector, limit, ctx)).await
}

pub(super) async fn label_values(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let name = label_of_path(&call.path)?;
    list(&web, call, move |source, selector, limit, ctx| source.label_values(&name, selector, limit, ctx))
        .await
}

/// The label name of `/api/v1/label/<name>/values`.
fn label_of_path(path: &str) -> Result<String, ApiError> {
    let encoded =
        path.strip_prefix("/api/v1/label/").and_then(|rest| rest.strip_suffix("/values")).unwrap_or("");
    let name = decode_percent(encoded)
        .ok_or_else(|| ApiError::bad_request(format!("invalid label name: {encoded:?} is not UTF-8")))?;
    let name = unescape_name(&name).unwrap_or(name);
    if name.is_empty() {
        return Err(ApiError::bad_request(format!("invalid label name: {name:?}")));
    }
    Ok(name)
}

/// Lists strings of each selector, merged.
async fn list(
    web: &Arc<Web>,
    call: Call,
    ask: impl Fn(&dyn Queryable, &Selector<'_>, usize, &ReadContext) -> Result<Vec<String>, QueryError>
    + Send
    + 'static,
) -> Result<Response<Body>, ApiError> {
    let limit = call.params.limit("limit")?;
    let range = time_range(&call.params)?;
    let partial = PartialResponse::parse(&call.params)?;
    let identity = call.identity.clone();
    let candidate = candidate(&call);
    let timeout_ms = web.service.options.query.timeout_ms;
    let packing = Packing::new(web, call.coding);
    let printed = dispatch::run_small_first(web, &identity, timeout_ms, candidate, move |web, ctx| {
        partial.run(web, ctx, |ctx| {
            print_list(web, &call, range, limit, &ask, Printer::open_packed(ctx, &packing)?, ctx)
        })
    });
    Ok(printed.await?.into_json())
}

/// Prints the strings that `ask` lists, of all selectors; 0 = no limit.
fn print_list(
    web: &Web,
    call: &Call,
    range: TimeRange,
    limit: usize,
    ask: &impl Fn(&dyn Queryable, &Selector<'_>, usize, &ReadContext) -> Result<Vec<String>, QueryError>,
    mut printer: Printer,
    ctx: &CallContext,
) -> Result<Printer, ApiError> {
    // One more than asked tells whether there is more.
    let asked = if limit == 0 { 0 } else { limit.saturating_add(1) };
    let mut selectors = selectors(&call.params)?;
    if selectors.is_empty() {
        selectors.push(Vec::new());
    }
    let source = ctx.source_of(&web.service, &call.identity)?;
    let mut found = Vec::new();
    let mut held = ctx.budget.reserve(0).map_err(QueryError::from)?;
    for matchers in &selectors {
        let names = ask(&*source, &Selector { matchers, range }, asked, ctx)?;
        let bytes = names.iter().map(|name| name.len() as u64 + STRING_BYTES).sum();
        held.grow(bytes).map_err(QueryError::from)?;
        found.extend(names);
    }
    if selectors.len() > 1 {
        // Stable: the strings of each selector are a sorted run, and runs are merged.
        found.sort();
        found.dedup();
    }
    let shown = if limit == 0 { usize::MAX } else { limit };
    printer.out.push(b'[');
    for (idx, name) in found.iter().take(shown).enumerate() {
        if idx > 0 {
            printer.out.push(b',');
        }
        json::put_string(&mut printer.out, name);
        printer.settle(ctx)?;
    }
    printer.out.push(b']');
    printer.close(ctx, &warnings(found.len() > shown, ctx), &[])
}

/// The request as one that may be small, by its path and selectors.
fn candidate(call: &Call) -> Option<Candidate> {
    let mut text = call.path.clone();
    for selector in call.params.all("match[]") {
        text.push(' ');
        text.push_str(selector);
    }
    Candidate::of(&text)
}

/// Warnings of the sources, and whether the list is cut.
fn warnings(truncated: bool, ctx: &ReadContext) -> Vec<String> {
    let mut warnings = ctx.warnings().texts().to_vec();
    warnings.extend(truncated.then(|| TRUNCATED_WARNING.to_owned()));
    warnings
}

/// `start` and `end`, everything by default.
pub(super) fn time_range(params: &Params) -> Result<TimeRange, ApiError> {
    let start_ms = params.time_ms("start", TIME_MIN_MS)?;
    let end_ms = params.time_ms("end", TIME_MAX_MS)?;
    Ok(TimeRange::inclusive(start_ms, end_ms))
}

/// The selectors of all `match[]`. Errors do not name the parameter: Prometheus does so for `series` only.
pub(super) fn selectors(params: &Params) -> Result<Vec<Vec<Matcher>>, ApiError> {
    let selectors = all_selectors(params)?;
    // As in Prometheus, a text that is no selector is reported before one that selects everything.
    if selectors.iter().any(|matchers| matchers.iter().all(Matcher::matches_empty)) {
        return Err(ApiError::bad_request("match[] must contain at least one non-empty matcher"));
    }
    Ok(selectors)
}

/// As [`selectors`], also those that select everything, which Prometheus takes in `/federate` and in the
/// statistics of the TSDB.
pub(super) fn all_selectors(params: &Params) -> Result<Vec<Vec<Matcher>>, ApiError> {
    params.all("match[]").map(selector).collect()
}

fn selector(text: &str) -> Result<Vec<Matcher>, ApiError> {
    check_length(text).map_err(ApiError::bad_request)?;
    parse_metric_selector(text).map_err(|why| ApiError::bad_request(why.to_string()))
}

/// Label sets of one selector after another; each sorted.
struct Collected {
    items: Vec<Labels>,
    selector_count: usize,
    held: Reservation,
}

impl Collected {
    fn new(ctx: &ReadContext) -> Result<Collected, ApiError> {
        let held = ctx.budget.reserve(0).map_err(QueryError::from)?;
        Ok(Collected { items: Vec::new(), selector_count: 0, held })
    }

    fn add_series(
        &mut self,
        source: &dyn Queryable,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<(), ApiError> {
        self.selector_count += 1;
        // The same series, but less of their samples is copied, of which none is read.
        let mut batches = source.open_series(SelectRequest::newest(selector), ctx)?;
        let mut batch = Vec::new();
        loop {
            let more = batches.next_batch(&mut batch)?;
            ctx.check()?;
            let bytes = |one: &SeriesRead| one.labels.heap_bytes() as u64 + SERIES_BYTES;
            self.held.grow(batch.iter().map(bytes).sum()).map_err(QueryError::from)?;
            self.items.extend(batch.drain(..).map(|one| one.labels));
            if !more {
                return Ok(());
            }
        }
    }

    /// Sorts the label sets of all selectors, and keeps each once.
    fn sort(&mut self) {
        if self.selector_count > 1 {
            // Stable: the series of each selector are a sorted run, and runs are merged.
            self.items.sort();
            self.items.dedup();
        }
    }
}
