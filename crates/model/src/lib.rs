//! Labels, samples, histograms, matchers, tenants, and the two contracts of storage: [`WriteBatch`] (in) and
//! [`Queryable`] (out).
//!
//! Not here: bytes on disk (`format`), sockets (`server`), evaluation (`promql`).

pub mod batch;
pub mod change;
pub mod cluster_deletion;
mod columns;
pub mod cut;
pub mod databases;
pub mod decimal;
pub mod deletion;
pub mod duration;
pub mod exemplar;
pub mod go_math;
pub mod histogram;
pub mod index;
pub mod kind;
pub mod labels;
pub mod log_position;
pub mod matcher;
pub mod metadata;
pub mod min_offsets;
pub mod partition;
pub mod query;
pub mod quote;
pub mod regex;
pub mod relabel;
pub mod reorder;
pub mod rollup;
pub mod sample;
pub mod store;
pub mod tenant;
pub mod time;

pub use batch::{BatchSeries, LabelSource, ReachedLimit, Reject, SeriesKey, WriteBatch, WriteOutcome};
pub use columns::Columns;
pub use deletion::Deletion;
pub use exemplar::{Exemplar, ExemplarReject, ExemplarRejects, SeriesExemplars};
pub use histogram::{FloatHistogram, Histogram, IntHistogram, ResetHint, Span};
pub use kind::{FIELD_LABEL, KIND_LABEL, WordKind};
pub use labels::{Labels, LabelsBuilder, METRIC_NAME};
pub use matcher::{MatchOp, Matcher};
pub use metadata::{MetadataEntry, MetricKind};
pub use query::{QueryError, Queryable, ReadContext, SampleSource, Selector, SeriesBatches, SeriesRead};
pub use regex::{GoRegex, RegexError, SearchRegex};
pub use reorder::{ReorderRule, ReorderRuleError};
pub use store::StoreId;
pub use tenant::{
    AnnotationLimits, BlockEncoding, DatabaseLimits, DuplicatePolicy, FetchLimits, GraphiteLimits,
    IngestionLimits, OverflowPolicy, QueryLimits, RuleLimits, SelectionLimits, TenantId, TenantLimits,
};
pub use time::{TimeRange, TimeUnit};
