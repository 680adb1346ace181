//! Reads that have to see records of the replicated log: an owner waits for offsets of its partition, a query
//! node has its owners wait.
//!
//! Invariants: a request without the headers waits for nothing; the wait ends at the timeout of queries, and
//! the answer is 503 then.
//! Not here: offsets in the answers to writes (`offsets`), the wait itself (`owner_wait`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Response};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use chronolith_cluster::peers::UnknownOffsets;
use chronolith_model::min_offsets::{MinOffsets, ReadConsistency};

use super::error::{ApiError, ErrorKind};
use super::owner_wait::{self, WaitError};
use super::sender::Sender;
use crate::peers::QueryNode;
use crate::web::Web;

/// Offsets that the answer has to see, as answers to writes have them.
const MIN_OFFSETS_HEADER: HeaderName = HeaderName::from_static("x-chronolith-min-offsets");
/// `strong`: the answer sees all that is in the log when the request comes; `eventual`, the default, waits
/// for nothing.
const CONSISTENCY_HEADER: HeaderName = HeaderName::from_static("x-chronolith-read-consistency");

/// Runs the handler once its answer can see what the headers name.
pub(super) async fn layer(State(web): State<Arc<Web>>, mut request: Request, next: Next) -> Response<Body> {
    match prepare(&web, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn prepare(web: &Web, request: &mut Request) -> Result<(), ApiError> {
    let consistency = consistency_of(request.headers())?;
    if consistency.is_eventual() {
        return Ok(());
    }
    if let Some(owner) = web.service.lifecycle.roles.owner() {
        let clock = &*web.service.env.clock;
        let timeout_ns = web.service.options.query.timeout_ms.saturating_mul(1_000_000);
        let deadline_ns = clock.mono_ns().saturating_add(timeout_ns);
        return owner_wait::wait(owner, &consistency, clock, deadline_ns).await.map_err(
            |error| match error {
                WaitError::OtherTopic(error) => wrong_offsets(&error),
                WaitError::Unavailable(why) => ApiError::new(ErrorKind::Unavailable, why),
            },
        );
    }
    let Some(node) = web.query_node() else {
        let why = web.service.lifecycle.unready_reason();
        let why = why.unwrap_or_else(|| "the owners of partitions have not been looked up yet".to_owned());
        return Err(ApiError::new(ErrorKind::Unavailable, why));
    };
    check_offsets(node, consistency.offsets.as_ref())?;
    // Owners wait: each call has what the read has to see.
    if let Some(sender) = request.extensions_mut().get_mut::<Sender>() {
        sender.identity = sender.identity.clone().map(|identity| identity.with_consistency(consistency));
    }
    Ok(())
}

fn check_offsets(node: &QueryNode, offsets: Option<&MinOffsets>) -> Result<(), ApiError> {
    let Some(offsets) = offsets else { return Ok(()) };
    node.check_offsets(offsets).map_err(|error| match error {
        UnknownOffsets::OtherTopic(error) => wrong_offsets(&error),
        error @ UnknownOffsets::NoOwner { .. } => ApiError::new(ErrorKind::Unavailable, error),
    })
}

fn consistency_of(headers: &HeaderMap) -> Result<ReadConsistency, ApiError> {
    let offsets = text_of(headers, &MIN_OFFSETS_HEADER)?;
    let is_strong = match text_of(headers, &CONSISTENCY_HEADER)? {
        None | Some("eventual") => false,
        Some("strong") => true,
        Some(other) => {
            let text = format!("{CONSISTENCY_HEADER}: unknown level {other:?}, expected strong or eventual");
            return Err(ApiError::bad_request(text));
        }
    };
    let offsets = offsets.map(|text| text.parse::<MinOffsets>().map_err(|why| wrong_offsets(&why)));
    Ok(ReadConsistency { is_strong, offsets: offsets.transpose()? })
}

fn wrong_offsets(why: &dyn std::fmt::Display) -> ApiError {
    ApiError::bad_request(format!("{MIN_OFFSETS_HEADER}: {why}"))
}

fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let text = headers.get(name).map(|value| value.to_str());
    text.transpose().map_err(|_| ApiError::bad_request(format!("{name}: expected visible ASCII")))
}
