//! Carbon's protocols: plaintext lines, pickled frames and metrics 2.0 become points of a
//! [`chronolith_model::WriteBatch`]; Graphite's configuration files select the rules of a path.
//!
//! Invariants: the wire key of a point is its path, which is parsed to labels only for a series that the head
//! does not know ([`parse_key`]); a bad point refuses itself alone and is counted ([`Refused`]); bytes never
//! panic. Times are milliseconds. Points are read as carbon 1.1.10 reads them, with these exceptions: a bad
//! line never ends a connection; a line without a time, and the time `N`, are the clock; times of 13 digits
//! are milliseconds; times that carbon cannot return and control characters in paths are refused.
//! Not here: sockets and HTTP (`server`), the store of the points and its limits (`tsdb`, `head`).

mod aggregation;
mod error;
mod float;
mod ini;
mod pattern;
mod retention;
mod schemas;

pub use aggregation::{AggregationMethod, AggregationRule, AggregationRules, X_FILES_FACTOR_DEFAULT};
pub use error::{ConfigError, Note};
pub use retention::Archive;
pub use schemas::{ReorderBuffer, Schema, Schemas};
