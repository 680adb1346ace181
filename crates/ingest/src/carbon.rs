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
mod explanation;
mod float;
mod ini;
mod key;
mod limits;
mod line;
mod metrics20;
mod pattern;
mod pickle;
mod points;
mod refused;
mod retention;
mod rewrite;
mod schemas;
mod time;

#[cfg(test)]
mod tests;

use chronolith_model::WriteBatch;
use chronolith_model::batch::LabelSource;

pub use aggregation::{AggregationMethod, AggregationRule, AggregationRules, X_FILES_FACTOR_DEFAULT};
pub use error::{ConfigError, Note};
pub use explanation::{Explanation, RuleName, explain};
pub use key::{canonical_path, parse_key, path_of_labels};
pub use limits::{BATCH_BYTES_MAX, INPUT_BYTES_MAX, LINE_BYTES_MAX, NODE_BYTES_MAX, PREFIX_BYTES_MAX};
pub use line::{InputEnd, LineDecoder};
pub use metrics20::{MetricsError, decode_metrics};
pub use pickle::{FRAME_BYTES_MAX, FrameBuffer, FrameTooLong, PickleDecoder, PickleError, PickleFault};
pub use points::PointWriter;
pub use refused::{Refused, RefusedLine, RefusedReason, TEXT_BYTES_MAX};
pub use retention::Archive;
pub use rewrite::{RewriteOutcome, RewriteRules, Rewriter};
pub use schemas::{ReorderBuffer, Schema, Schemas};

/// Number of this protocol in [`LabelSource::protocol`].
pub const PROTOCOL: u8 = 4;

/// An empty batch for this protocol.
#[must_use]
pub fn new_batch() -> WriteBatch {
    WriteBatch::new(LabelSource { protocol: PROTOCOL, parse: parse_key, is_typed: false })
}
