//! Offsets of a write in the replicated log, for readers that wait for it: `X-Chronolith-Offsets`.
//!
//! Not here: reading up to an offset (`cluster::owner`).

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response};
use chronolith_cluster::gateway::LogOffsets;

/// Newest offset per partition, `TOPIC:PARTITION:OFFSET`, separated by commas.
const OFFSETS_HEADER: HeaderName = HeaderName::from_static("x-chronolith-offsets");

/// Adds the offsets of a write to its answer; an answer without a log, or with many partitions, has none.
pub(super) fn set(offsets: &LogOffsets, response: &mut Response<Body>) {
    let value = offsets.to_header().and_then(|text| HeaderValue::try_from(text).ok());
    if let Some(value) = value {
        response.headers_mut().insert(OFFSETS_HEADER, value);
    }
}
