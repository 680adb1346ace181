//! Contract out of storage: select series, then read their samples as columns.
//!
//! Invariants: series are sorted by labels and unique; samples ascend, one per timestamp; staleness markers
//! are samples. A [`SampleSource`] stays readable as long as it is held, regardless of flushes, compactions
//! and deletions.
//! Not here: lookback, staleness handling, evaluation (`promql`).

mod context;
mod error;
mod filter;
mod hints;
mod label_search;
mod layer;
mod limits;
mod mixed;
mod request;
mod series;
mod source;
mod typed;
mod warnings;

pub use context::{ReadContext, TimeSlice};
pub use error::{QueryError, SelectionExceeded};
pub use hints::{PresenceHints, Projection, SampleNeed, Shard};
pub use label_search::{
    LabelValueCursor, LabelValueScan, LabelValueSearch, Repeated, SoleLabelValues, SortedValues,
};
pub use layer::{Layer, Layered, map_series};
pub use limits::FetchLimit;
pub use mixed::{SampleKind, merged};
pub use request::{Read, ReadEstimate, SelectRequest, Selector, Wanted};
pub use series::{
    SERIES_PER_BATCH_MAX, SampleSource, SamplesPart, SeriesBatches, SeriesRead, StoredChunk, VecBatches,
    VisitSamples,
};
pub use source::{
    NoSeries, Opened, PendingList, PendingVisit, Queryable, Source, TenantSources, visit_listed,
};
pub use typed::{ColumnType, TypedColumns, TypedValues};
pub use warnings::SourceWarnings;
