//! Reads that have to see a write: requests to an owner wait for offsets of its partition.
//!
//! Invariants: a request without the headers waits for nothing; the wait ends at the timeout of queries, and
//! the answer is 503 then.
//! Not here: offsets in the answers to writes (`offsets`), application of records (`cluster`).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Response};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use chronolith_cluster::min_offsets::MinOffsets;
use chronolith_cluster::owner::PartitionOwner;
use tokio::time::sleep;

use super::error::{ApiError, ErrorKind};
use crate::web::Web;

/// Offsets that the answer has to see, as answers to writes have them.
const MIN_OFFSETS_HEADER: HeaderName = HeaderName::from_static("x-chronolith-min-offsets");
/// `strong`: the answer sees all that is in the log when the request comes; `eventual`, the default, waits
/// for nothing.
const CONSISTENCY_HEADER: HeaderName = HeaderName::from_static("x-chronolith-read-consistency");
/// Pause between two looks at the position of the owner.
const POLL_PAUSE: Duration = Duration::from_millis(2);

/// Waits until the owner has applied what the headers name, then runs the handler.
pub(super) async fn wait(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response<Body> {
    match waited(&web, request.headers()).await {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn waited(web: &Arc<Web>, headers: &HeaderMap) -> Result<(), ApiError> {
    let offsets = text_of(headers, &MIN_OFFSETS_HEADER)?;
    let is_strong = match text_of(headers, &CONSISTENCY_HEADER)? {
        None | Some("eventual") => false,
        Some("strong") => true,
        Some(other) => {
            let text = format!("{CONSISTENCY_HEADER}: unknown level {other:?}, expected strong or eventual");
            return Err(ApiError::bad_request(text));
        }
    };
    if offsets.is_none() && !is_strong {
        return Ok(());
    }
    let Some(owner) = web.service.lifecycle.roles.owner().cloned() else {
        let why = web.service.lifecycle.unready_reason().unwrap_or_default();
        return Err(ApiError::new(ErrorKind::Unavailable, why));
    };
    let clock = &web.service.env.clock;
    let timeout_ns = web.service.options.query.timeout_ms.saturating_mul(1_000_000);
    let deadline_ns = clock.mono_ns().saturating_add(timeout_ns);
    let mut next_offset = 0;
    if let Some(text) = offsets {
        let wrong = |why: String| ApiError::bad_request(format!("{MIN_OFFSETS_HEADER}: {why}"));
        let offsets: MinOffsets = text.parse().map_err(wrong)?;
        let newest = offsets.of(owner.partition()).map_err(|error| wrong(error.to_string()))?;
        next_offset = newest.map_or(0, |newest| newest.saturating_add(1));
    }
    if is_strong {
        next_offset = next_offset.max(end_of_log(&owner).await?);
    }
    while owner.status().next_offset.is_none_or(|next| next < next_offset) {
        if clock.mono_ns() >= deadline_ns {
            return Err(not_reached(&*owner, next_offset));
        }
        sleep(POLL_PAUSE).await;
    }
    Ok(())
}

fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let text = headers.get(name).map(|value| value.to_str());
    text.transpose().map_err(|_| ApiError::bad_request(format!("{name}: expected visible ASCII")))
}

/// Returns the offset that the next record of the partition gets.
async fn end_of_log(owner: &Arc<dyn PartitionOwner>) -> Result<u64, ApiError> {
    let owner = owner.clone();
    let unavailable =
        |why: String| ApiError::new(ErrorKind::Unavailable, format!("reading the end of the log: {why}"));
    let end = tokio::task::spawn_blocking(move || owner.log_end()).await;
    end.map_err(|error| unavailable(error.to_string()))?.map_err(|error| unavailable(error.to_string()))
}

fn not_reached(owner: &dyn PartitionOwner, next_offset: u64) -> ApiError {
    let status = owner.status();
    let at = status.next_offset.map_or_else(|| "not read yet".to_owned(), |next| format!("at offset {next}"));
    let why = status.fault.map_or_else(String::new, |fault| format!(": {fault}"));
    let text = format!(
        "partition {} is {at}, and the request waits for offset {next_offset}{why}",
        owner.partition().number.0
    );
    ApiError::new(ErrorKind::Unavailable, text)
}
