//! `/federate`: the latest sample of every series that a `match[]` selects, for another scraper: as text, or
//! as protobuf, which has native histograms too.
//! Invariants: series of one metric and type follow each other; series that are stale or silent for longer
//! than the lookback are left out. Memory is bounded by the latest samples, and by the parts that wait for
//! the client. Not here: formats (`print`), which of them the client wants (`accept`).

mod accept;
mod escaping;
mod latest;
mod print;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, header};
use chronolith_model::{Selector, TimeRange};

use self::accept::Negotiated;
use self::latest::Latest;
use super::call;
use super::dispatch::refuse_partial;
use super::error::ApiError;
use super::series::all_selectors;
use super::stream::{self, StreamKind};
use crate::web::Web;

pub(super) async fn federate(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer(&web, request).await.unwrap_or_else(ApiError::into_text)
}

async fn answer(web: &Arc<Web>, request: Request) -> Result<Response<Body>, ApiError> {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let negotiated = Negotiated::of(accept.unwrap_or(""));
    let call = call::open(web, request).await?;
    call.params.well_formed()?;
    let timeout_ms = web.service.options.query.timeout_ms;
    let timeout = Duration::from_millis(timeout_ms);
    // A slow client holds this one until it has everything, and the one of queries only while samples are
    // read.
    let streaming = web.service.admission.streams.federate.acquire(&call.identity, 0, timeout).await?;
    let admitted = web.service.admit(&web.service.admission.query, &call.identity, timeout_ms).await?;
    let kind = StreamKind {
        name: "federation",
        content_type: negotiated.content_type(),
        timeout,
        metrics: |metrics| &metrics.federate,
    };
    let written = stream::answer(web, admitted, kind, move |web, mut admitted, parts| {
        let _streaming = streaming;
        let selectors = all_selectors(&call.params)?;
        let now_ms = web.service.env.clock.now_ms();
        let range =
            TimeRange::inclusive(now_ms.saturating_sub(web.service.options.query.lookback_ms) + 1, now_ms);
        let source = admitted.ctx().source_of(&web.service, &call.identity)?;
        let mut latest = Latest::new(negotiated, admitted.ctx())?;
        // As in Prometheus, `{}` selects nothing, and other selectors that match the empty string do.
        for matchers in selectors.iter().filter(|matchers| !matchers.is_empty()) {
            latest.collect(&*source, &Selector { matchers, range }, admitted.ctx())?;
        }
        drop(source);
        refuse_partial(admitted.ctx())?;
        admitted.release_permit();
        print::print(latest.samples(), negotiated, admitted.ctx(), parts)
    });
    written.await
}
