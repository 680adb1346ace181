//! `search/metric_names`, `search/label_names`, `search/label_values`: names by search terms, as Prometheus's
//! search API has them, in lines of JSON.
//!
//! Invariants: an error before the first line has its status code; one after it is the last line. A response
//! without a last line with a status is incomplete. Sources are scanned in place: names that begin with a
//! term are looked up, and no name is copied but those among the best so far.
//! Not here: parameters (`request`), scores (`terms`).

mod ranking;
mod request;
mod terms;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_model::query::LabelValueScan;
use chronolith_model::{METRIC_NAME, QueryError, Queryable, ReadContext, Selector};
use chronolith_service::evaluation::records;
use chronolith_service::query::family;

use self::ranking::{Offer, Order, Ranked, Ranking};
use self::request::SearchRequest;
use self::terms::Terms;
use super::call::{self, Call};
use super::dispatch;
use super::error::ApiError;
use super::stream::{self, Parts, StreamKind};
use crate::json;
use crate::limits::ANSWER_TIMEOUT;
use crate::web::Web;

const CONTENT_TYPE: &str = "application/x-ndjson; charset=utf-8";

/// Names that are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Searched {
    MetricNames,
    LabelNames,
    /// Values of a label.
    LabelValues(String),
}

pub(super) async fn metric_names(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    answer(&web, call, Searched::MetricNames).await
}

pub(super) async fn label_names(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    answer(&web, call, Searched::LabelNames).await
}

pub(super) async fn label_values(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let label = call.params.get("label").map(str::to_owned);
    let label = label.ok_or_else(|| ApiError::parameter("label", "the name of the label is missing"))?;
    answer(&web, call, Searched::LabelValues(label)).await
}

async fn answer(web: &Arc<Web>, call: Call, searched: Searched) -> Result<Response<Body>, ApiError> {
    let request = SearchRequest::parse(web, &call.params)?;
    let timeout_ms = web.service.options.query.timeout_ms;
    let admitted = web.service.admit(&web.service.admission.query, &call.identity, timeout_ms).await?;
    let kind = StreamKind {
        name: "search",
        content_type: CONTENT_TYPE,
        timeout: ANSWER_TIMEOUT,
        metrics: |metrics| &metrics.search,
    };
    let print = move |web: &Web, mut admitted: dispatch::Admitted, parts: &Parts| {
        let ctx = admitted.ctx().clone();
        let source = ctx.source_of(&web.service, &call.identity)?;
        let found = search(&*source, &searched, &request, &ctx)?;
        drop(source);
        // A client that reads slowly holds memory, and no permit.
        admitted.release_permit();
        let lines = Lines { web, call: &call, searched: &searched, request: &request, ctx: &ctx, parts };
        lines.send(found)
    };
    stream::answer(web, admitted, kind, print).await
}

/// Returns the best names, one more than the limit if there are more.
fn search(
    source: &dyn Queryable,
    searched: &Searched,
    request: &SearchRequest,
    ctx: &ReadContext,
) -> Result<Ranking, QueryError> {
    let ranking = Ranking::new(request.order, request.limit + 1, ctx)?;
    let mut search = Search { ranking, terms: request.terms(), failure: None };
    let label = match searched {
        Searched::MetricNames => METRIC_NAME,
        Searched::LabelValues(label) => label,
        Searched::LabelNames => {
            let all = [Vec::new()];
            let selectors = if request.selectors.is_empty() { &all[..] } else { &request.selectors };
            for matchers in selectors {
                let selector = Selector { matchers, range: request.range };
                search.offer_list(&source.label_names(&selector, 0, ctx)?, ctx)?;
            }
            return Ok(search.ranking);
        }
    };
    if request.selectors.is_empty() {
        search.scan(source, label, request, ctx)?;
    }
    for matchers in &request.selectors {
        let selector = Selector { matchers, range: request.range };
        search.offer_list(&source.label_values(label, &selector, 0, ctx)?, ctx)?;
    }
    Ok(search.ranking)
}

/// A search at work.
struct Search {
    ranking: Ranking,
    terms: Terms,
    failure: Option<QueryError>,
}

impl Search {
    /// Offers all values of a label: those that begin with a term first, if they are the best.
    fn scan(
        &mut self,
        source: &dyn Queryable,
        label: &str,
        request: &SearchRequest,
        ctx: &ReadContext,
    ) -> Result<(), QueryError> {
        let scan = LabelValueScan { name: label, prefix: "", range: request.range };
        let prefixes = self.terms.prefixes();
        if request.order == Order::ScoreDescending || self.terms.is_of_prefixes() {
            for prefix in &prefixes {
                self.scan_part(source, &LabelValueScan { prefix, ..scan }, ctx)?;
            }
            // Names without the prefix have lower scores, or none.
            let is_done = self.ranking.is_full() || self.terms.is_of_prefixes();
            if !prefixes.is_empty() && is_done {
                return Ok(());
            }
        }
        self.scan_part(source, &scan, ctx)
    }

    fn scan_part(
        &mut self,
        source: &dyn Queryable,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
    ) -> Result<(), QueryError> {
        // Names of a part ascend: after a refused one, all of equal or lower score are refused.
        let has_equal_scores = !scan.prefix.is_empty() && self.ranking.order() == Order::ScoreDescending;
        source.scan_label_values(scan, ctx, &mut |name| {
            if self.ranking.refuses_from(name) {
                return false;
            }
            let offer = self.offer(name);
            self.failure.is_none() && !(has_equal_scores && offer == Some(Offer::Refused))
        })?;
        self.failure.take().map_or(Ok(()), Err)
    }

    fn offer_list(&mut self, names: &[String], ctx: &ReadContext) -> Result<(), QueryError> {
        let bytes: usize = names.iter().map(|name| name.len() + size_of::<String>()).sum();
        let _held = ctx.budget.reserve(bytes as u64)?;
        for name in names {
            self.offer(name);
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Offers a name if it matches.
    fn offer(&mut self, name: &str) -> Option<Offer> {
        let score = self.terms.score(name)?;
        match self.ranking.offer(name, score) {
            Ok(offer) => Some(offer),
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }
}

/// Lines of a response.
struct Lines<'a> {
    web: &'a Web,
    call: &'a Call,
    searched: &'a Searched,
    request: &'a SearchRequest,
    ctx: &'a ReadContext,
    parts: &'a Parts,
}

impl Lines<'_> {
    /// Sends the names in batches, and the line with the status.
    fn send(&self, found: Ranking) -> Result<(), ApiError> {
        let (names, _held) = found.into_sorted();
        let shown = &names[..names.len().min(self.request.limit)];
        let mut batches = shown.chunks(self.request.batch_size);
        self.parts.send(self.batch(batches.next().unwrap_or_default()), self.ctx)?;
        for batch in batches {
            if let Err(error) = self.parts.send(self.batch(batch), self.ctx) {
                return self.send_error(error);
            }
        }
        let mut last = Vec::new();
        let has_more = names.len() > shown.len();
        json::put_display(&mut last, format_args!("{{\"status\":\"success\",\"has_more\":{has_more}"));
        let warnings = self.ctx.warnings();
        for (idx, text) in warnings.texts().iter().enumerate() {
            last.extend_from_slice(if idx == 0 { b",\"warnings\":[".as_slice() } else { b"," });
            json::put_string(&mut last, text);
        }
        if !warnings.texts().is_empty() {
            last.push(b']');
        }
        last.extend_from_slice(b"}\n");
        self.parts.send(last, self.ctx)
    }

    /// Ends the response with an error as its last line. The client may be gone, which is no further error.
    fn send_error(&self, error: ApiError) -> Result<(), ApiError> {
        let mut last = Vec::new();
        last.extend_from_slice(b"{\"status\":\"error\",\"errorType\":");
        json::put_string(&mut last, error.kind.error_type());
        last.extend_from_slice(b",\"error\":");
        json::put_string(&mut last, &error.message);
        last.extend_from_slice(b"}\n");
        self.parts.send_last(last);
        Err(error)
    }

    fn batch(&self, names: &[Ranked]) -> Vec<u8> {
        let mut out = b"{\"results\":[".to_vec();
        for (idx, one) in names.iter().enumerate() {
            out.extend_from_slice(if idx > 0 { b",{\"name\":" } else { b"{\"name\":" });
            json::put_string(&mut out, &one.name);
            if matches!(self.searched, Searched::LabelValues(_)) {
                out.extend_from_slice(b",\"value\":");
                json::put_string(&mut out, &one.name);
            }
            if self.request.has_scores {
                json::put_display(&mut out, format_args!(",\"score\":{}", one.score));
            }
            if self.request.has_metadata && *self.searched == Searched::MetricNames {
                self.put_metadata(&mut out, &one.name);
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"]}\n");
        out
    }

    /// Appends the newest metadata of a metric, or of the family that its series belong to.
    fn put_metadata(&self, out: &mut Vec<u8>, metric: &str) {
        let service = &self.web.service;
        // Metadata is optional here: an owner that fails leaves it out.
        let stored = |metric: &str| {
            let found = records::metadata(service, &self.call.identity, Some(metric), 1, self.ctx);
            found.unwrap_or_default()
        };
        let Some(entry) = family::metadata_of(metric, stored) else { return };
        for (key, text) in [("type", entry.kind.as_str()), ("help", &entry.help), ("unit", &entry.unit)] {
            if !text.is_empty() {
                json::put_display(out, format_args!(",\"{key}\":"));
                json::put_string(out, text);
            }
        }
    }
}
