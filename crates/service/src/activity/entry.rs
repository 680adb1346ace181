//! Minute, truncated text and memory of a tenant id, as the entries of all activity lists use them.

use chronolith_model::TenantId;

/// Minutes that the lists go back.
pub const MINUTE_COUNT: usize = 60;
/// Milliseconds of a minute.
pub const MINUTE_MS: i64 = 60_000;

/// Number of the minute of a time.
pub fn minute_of(time_ms: i64) -> i64 {
    time_ms.div_euclid(MINUTE_MS)
}

/// The beginning of a text, at most `bytes_max` of it.
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Memory of the control block of an `Arc`, and of the id of a tenant in it.
pub fn tenant_bytes(tenant: &TenantId) -> u64 {
    const ARC_BYTES: usize = 2 * size_of::<usize>();
    (ARC_BYTES + tenant.as_str().len()) as u64
}
