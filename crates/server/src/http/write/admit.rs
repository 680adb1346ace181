//! Admission of writes: bodies are read with a permit, so that memory does not grow with the number of
//! writers.
//!
//! Invariants: a body of more than [`UNADMITTED_BODY_BYTES`] is read after its request got a permit; a client
//! that takes longer than [`PERMIT_READ_TIME`] to send it gives the permit back, and gets one again when the
//! body is there: slow clients delay no other client.
//! Not here: permits (`service::admission`), reading with limits (`body`).

use axum::body::{Body, HttpBody};
use chronolith_base::MemoryBudget;
use chronolith_service::access::Identity;
use chronolith_service::admission::{AdmissionError, Permit};
use chronolith_service::limits::WRITE_QUEUE_WAIT;
use tokio::time::{Duration, Instant, timeout};

use crate::http::body::{self, BodyBytes};
use crate::http::error::ApiError;
use crate::limits::{PERMIT_READ_TIME, UNADMITTED_BODY_BYTES};
use crate::web::Web;

/// Permits of a write.
pub(crate) struct WritePermits {
    /// Until it is durable.
    pub(crate) write: Permit,
    /// Until it is applied.
    pub(crate) apply: Permit,
}

/// Reason why a write is refused before it is decoded.
#[derive(Debug)]
pub(crate) enum NotAdmitted {
    /// No permit became free in time, or too many requests wait.
    Permit(AdmissionError),
    /// The body could not be read.
    Body(ApiError),
}

impl From<AdmissionError> for NotAdmitted {
    fn from(error: AdmissionError) -> NotAdmitted {
        NotAdmitted::Permit(error)
    }
}

impl From<NotAdmitted> for ApiError {
    fn from(error: NotAdmitted) -> ApiError {
        match error {
            NotAdmitted::Permit(error) => error.into(),
            NotAdmitted::Body(error) => error,
        }
    }
}

/// Limits of reading the body of a write.
pub(crate) struct BodyLimits<'b> {
    pub(crate) bytes_max: usize,
    pub(crate) budget: &'b MemoryBudget,
    /// Longest wait for memory.
    pub(crate) memory_wait: Duration,
}

/// Reads a body and waits for its permits: at most [`WRITE_QUEUE_WAIT`] for both, and once more if the client
/// was slow and gave the first one back.
pub(crate) async fn admit(
    web: &Web,
    identity: &Identity,
    request_body: Body,
    limits: BodyLimits<'_>,
) -> Result<(BodyBytes, WritePermits), NotAdmitted> {
    // Timers are the runtime's own business; nothing that is stored depends on them.
    let mut deadline = Instant::now() + WRITE_QUEUE_WAIT;
    let (body, write) = read_with_permit(web, identity, request_body, limits).await?;
    let admission = &web.service.admission;
    let write = match write {
        Some(write) => write,
        None => {
            deadline = Instant::now() + WRITE_QUEUE_WAIT;
            admission.write.acquire(identity, 0, WRITE_QUEUE_WAIT).await?
        }
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let apply = admission.write_apply.acquire(identity, 0, left).await?;
    Ok((body, WritePermits { write, apply }))
}

/// Reads a body; `None` if no permit is held after it.
async fn read_with_permit(
    web: &Web,
    identity: &Identity,
    request_body: Body,
    limits: BodyLimits<'_>,
) -> Result<(BodyBytes, Option<Permit>), NotAdmitted> {
    let size = HttpBody::size_hint(&request_body);
    let is_small = size.upper().is_some_and(|bytes| bytes <= UNADMITTED_BODY_BYTES);
    let is_too_large = size.lower() > limits.bytes_max as u64;
    let write = if is_small || is_too_large {
        None
    } else {
        match web.service.admission.write.acquire(identity, 0, WRITE_QUEUE_WAIT).await {
            Ok(write) => Some(write),
            Err(refused) => {
                body::discard(request_body).await;
                return Err(refused.into());
            }
        }
    };
    let read = body::read_waiting(request_body, limits.bytes_max, limits.budget, limits.memory_wait);
    tokio::pin!(read);
    if write.is_some()
        && let Ok(result) = timeout(PERMIT_READ_TIME, &mut read).await
    {
        return Ok((result.map_err(NotAdmitted::Body)?, write));
    }
    drop(write);
    Ok((read.await.map_err(NotAdmitted::Body)?, None))
}

#[cfg(test)]
mod tests;
