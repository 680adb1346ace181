//! Reads request bodies with a size limit, two deadlines and a memory budget; sends answers that hold theirs.
//! Holds: a client pays budget only for bytes that have arrived; nothing is held longer than
//! [`BODY_READ_TIMEOUT`].

use std::time::Duration;

use axum::body::{Body, Bytes};
use chronolith_base::{MemoryBudget, Reservation};
use http_body_util::BodyExt as _;

use super::error::{ApiError, ErrorKind};
use crate::limits::{BODY_IDLE_TIMEOUT, BODY_READ_TIMEOUT, DISCARD_TIMEOUT, DISCARDED_BYTES_MAX};

/// A body and the memory it takes.
pub(crate) struct BodyBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) held: Reservation,
}

/// Reads all of `body`, at most `bytes_max`.
pub(crate) async fn read(
    mut body: Body,
    bytes_max: usize,
    budget: &MemoryBudget,
) -> Result<BodyBytes, ApiError> {
    if axum::body::HttpBody::size_hint(&body).lower() > bytes_max as u64 {
        discard(body).await;
        return Err(too_large(bytes_max));
    }
    let read = tokio::time::timeout(BODY_READ_TIMEOUT, read_frames(&mut body, bytes_max, budget)).await;
    let result = read.unwrap_or_else(|_| Err(too_slow(BODY_READ_TIMEOUT)));
    if result.as_ref().is_err_and(|error| error.kind != ErrorKind::TooSlow) {
        discard(body).await;
    }
    result
}

/// Reads what is left of a refused body, within bounds: a connection that is closed with unread bytes is
/// reset, and the client may never see why it was refused.
pub(crate) async fn discard(mut body: Body) {
    let rest = async {
        let mut left = DISCARDED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // Whoever sends slower than that has to live with the reset.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, rest).await;
}

async fn read_frames(
    body: &mut Body,
    bytes_max: usize,
    budget: &MemoryBudget,
) -> Result<BodyBytes, ApiError> {
    let no_memory = |full| ApiError::new(ErrorKind::Unavailable, full);
    let mut bytes = Vec::new();
    let mut held = budget.reserve(0).map_err(no_memory)?;
    loop {
        let frame = match tokio::time::timeout(BODY_IDLE_TIMEOUT, body.frame()).await {
            Err(_) => return Err(too_slow(BODY_IDLE_TIMEOUT)),
            Ok(None) => return Ok(BodyBytes { bytes, held }),
            Ok(Some(Err(error))) => {
                return Err(ApiError::bad_request(format!("reading the request body: {error}")));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(part) = frame.into_data() else { continue };
        if bytes.len() + part.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        held.grow(part.len() as u64).map_err(no_memory)?;
        bytes.extend_from_slice(&part);
    }
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(ErrorKind::TooLarge, format!("request body is larger than the limit of {bytes_max} bytes"))
}

fn too_slow(waited: Duration) -> ApiError {
    let message = format!("request body did not arrive within {} seconds", waited.as_secs());
    ApiError::new(ErrorKind::TooSlow, message)
}

/// Bytes of an answer, and the memory they take until the last is sent.
struct HeldBytes {
    bytes: Vec<u8>,
    _held: Reservation,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that gives its memory back when it is sent or dropped.
pub(crate) fn held(bytes: Vec<u8>, held: Reservation) -> Body {
    Body::from(Bytes::from_owner(HeldBytes { bytes, _held: held }))
}
