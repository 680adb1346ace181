//! Formats of answers, appended to a caller's buffer.
//!
//! Invariants: bytes equal graphite-web's where a client could see a difference; an empty value is null, None
//! or nothing; infinities are 1e9999 in JSON.
//! Not here: HTTP, content types.

pub mod find;
pub mod functions;
pub mod json;
pub mod msgpack;
pub mod pickle;
pub mod picture;
mod points;
mod size;
#[cfg(test)]
mod tests;
pub mod text;

pub use points::consolidate_to;
pub use size::{Layout, bytes_max, shared_bytes};

/// Options of a format that a client may set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// Points without a value are left out, and series without points.
    pub no_null_points: bool,
    /// Name of the function of a JSONP answer.
    pub jsonp: Option<String>,
}
