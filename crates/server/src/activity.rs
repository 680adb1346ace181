//! Recent activity for status pages: the costliest queries and the refused samples of the last hour, and the
//! metrics that queries select.
//!
//! Invariants: each list has a limit of entries and of bytes, whatever clients send; recording takes one lock.
//! All lists together have at most [`ACTIVITY_BYTES_MAX`].
//! Not here: counters since the start (`metrics`), the endpoints (`http::activity`).

pub(crate) mod advice;
pub(crate) mod metric_usage;
pub(crate) mod rejects;
pub(crate) mod top_queries;

#[cfg(test)]
mod tests;

/// Minutes that the lists go back.
pub(crate) const MINUTE_COUNT: usize = 60;
/// Milliseconds of a minute.
const MINUTE_MS: i64 = 60_000;
/// Bytes of all lists.
#[cfg(test)]
const ACTIVITY_BYTES_MAX: u64 = 16 << 20;

const _: () = assert!(
    top_queries::BYTES_MAX + metric_usage::BYTES_MAX + rejects::BYTES_MAX <= 16 << 20,
    "the limits of the lists are within that of all"
);

/// Number of the minute of a time.
fn minute_of(time_ms: i64) -> i64 {
    time_ms.div_euclid(MINUTE_MS)
}

/// The beginning of a text, at most `bytes_max` of it.
fn beginning(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Memory of the control block of an `Arc`, and of the id of a tenant in it.
fn tenant_bytes(tenant: &chronolith_model::TenantId) -> u64 {
    const ARC_BYTES: usize = 2 * size_of::<usize>();
    (ARC_BYTES + tenant.as_str().len()) as u64
}
