//! `metadata`, `targets/metadata` and `query_exemplars`. Invariant: shapes are Prometheus's; the response is
//! empty for kinds of records that are not stored.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse as _;
use chronolith_model::{Exemplar, Labels, Matcher, MetadataEntry};
use chronolith_promql::parser::parse_metric_selector;
use chronolith_service::evaluation::records;
use chronolith_service::query::context::check_length;
use chronolith_service::query::selectors::selectors_of;

use super::call;
use super::dispatch;
use super::error::ApiError;
use super::params::Params;
use super::printer::Printer;
use super::{series, status};
use crate::json;
use crate::web::Web;

pub(super) async fn metadata(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let limit = limit_given(&call.params, "limit")?;
    let per_metric = limit_given(&call.params, "limit_per_metric")?;
    let identity = call.identity.clone();
    let printed = dispatch::run(&web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
        let metric = call.params.get("metric");
        // Entries of one metric follow each other; one metric may have several, so that the limit counts
        // here.
        let entries_max = limit.filter(|n| *n > 0).unwrap_or(0);
        let identity = &call.identity;
        let entries = records::visible_metadata(&web.service, identity, metric, entries_max, ctx)?;
        let mut printer = Printer::open(ctx)?;
        put_metadata(&mut printer.out, &entries, limit.unwrap_or(usize::MAX), per_metric.unwrap_or(0));
        printer.close(ctx, &[], &[])
    });
    Ok(printed.await?.into_json())
}

/// `targets/metadata`: what targets say about their metrics. Nothing is scraped, so that it is an empty list
/// for any parameters that are good.
pub(super) async fn of_targets(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    limit_given(&call.params, "limit")?;
    let target = call.params.get("match_target").unwrap_or("");
    if !target.is_empty() {
        let refused = |why: String| ApiError::parameter("match_target", why);
        check_length(target).map_err(refused)?;
        parse_metric_selector(target).map_err(|why| refused(why.to_string()))?;
    }
    Ok(status::success(&serde_json::json!([])))
}

/// A limit of `metadata`; `None` where it is absent or negative.
fn limit_given(params: &Params, name: &str) -> Result<Option<usize>, ApiError> {
    match params.number(name) {
        None => Ok(None),
        Some(Ok(number)) => Ok(usize::try_from(number).ok()),
        Some(Err(_)) => Err(ApiError::bad_request(format!("{name} must be a number"))),
    }
}

fn put_metadata(
    out: &mut Vec<u8>,
    entries: &[MetadataEntry],
    metric_count_max: usize,
    per_metric_max: usize,
) {
    out.push(b'{');
    let groups = entries.chunk_by(|a, b| a.metric == b.metric).take(metric_count_max);
    for (idx, group) in groups.enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        json::put_string(out, group.first().map_or("", |entry| &entry.metric));
        out.extend_from_slice(b":[");
        let shown = if per_metric_max == 0 { usize::MAX } else { per_metric_max };
        for (idx, entry) in group.iter().take(shown).enumerate() {
            out.extend_from_slice(if idx > 0 { b",{\"type\":" } else { b"{\"type\":" });
            json::put_string(out, entry.kind.as_str());
            out.extend_from_slice(b",\"help\":");
            json::put_string(out, &entry.help);
            out.extend_from_slice(b",\"unit\":");
            json::put_string(out, &entry.unit);
            out.push(b'}');
        }
        out.push(b']');
    }
    out.push(b'}');
}

pub(super) async fn exemplars(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let range = series::time_range(&call.params)?;
    if range.is_empty() {
        return Err(ApiError::bad_request("end timestamp must not be before start timestamp"));
    }
    let identity = call.identity.clone();
    let printed = dispatch::run(&web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
        let text = call.params.get("query").unwrap_or("");
        let expr = web.service.queries.parse(text).map_err(ApiError::bad_request)?;
        let selectors: Vec<Vec<Matcher>> = selectors_of(&expr).into_iter().map(<[Matcher]>::to_vec).collect();
        if selectors.is_empty() {
            return Ok(None);
        }
        let found = records::exemplars(&web.service, &call.identity, &selectors, range, ctx)?;
        let mut printer = Printer::open(ctx)?;
        printer.out.push(b'[');
        for (idx, (labels, exemplars)) in found.iter().enumerate() {
            put_exemplars(&mut printer.out, idx, labels, exemplars);
            printer.settle(ctx)?;
        }
        printer.out.push(b']');
        printer.close(ctx, &[], &[]).map(Some)
    });
    // A query without a selector has no answer, not an empty one.
    let no_content = || StatusCode::NO_CONTENT.into_response();
    Ok(printed.await?.map_or_else(no_content, Printer::into_json))
}

fn put_exemplars(out: &mut Vec<u8>, idx: usize, labels: &Labels, exemplars: &[Exemplar]) {
    out.extend_from_slice(if idx > 0 { b",{\"seriesLabels\":" } else { b"{\"seriesLabels\":" });
    json::put_labels(out, labels);
    out.extend_from_slice(b",\"exemplars\":[");
    for (idx, exemplar) in exemplars.iter().enumerate() {
        out.extend_from_slice(if idx > 0 { b",{\"labels\":" } else { b"{\"labels\":" });
        json::put_labels(out, &exemplar.labels);
        out.extend_from_slice(b",\"value\":\"");
        json::put_float(out, exemplar.value);
        out.extend_from_slice(b"\",\"timestamp\":");
        json::put_time(out, exemplar.time_ms);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}
