//! Series of a tenant as Graphite's language and its tag endpoints read them: paths, tags, archives,
//! roll-ups, events.
//! Not here: the language (`graphite`), requests and printed answers (`server`), points on their way in
//! (`carbon`).

pub mod annotations;
mod archive;
mod error;
pub mod fetch_log;
mod points;
pub mod source;
pub mod tag_index;
pub mod tag_matchers;

pub use archive::PointCounts;
pub use error::GraphiteError;
