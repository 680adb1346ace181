//! Series of the type and the shard of a request.
//!
//! Not here: the type and the shard (`typed`, `hints`).

use super::error::QueryError;
use super::hints::Shard;
use super::request::SelectRequest;
use super::series::{SeriesBatches, SeriesRead};
use super::typed::ColumnType;

/// Series of a type and shard.
struct FilteredBatches {
    column_type: ColumnType,
    shard: Option<Shard>,
    batches: Box<dyn SeriesBatches>,
    batch: Vec<SeriesRead>,
}

impl FilteredBatches {
    fn selects(&self, series: &SeriesRead) -> bool {
        let found = series.samples.column_type();
        let has_type = match self.column_type {
            ColumnType::Float => found != ColumnType::Text,
            ColumnType::Histogram => matches!(found, ColumnType::Float | ColumnType::Histogram),
            wanted => found == wanted,
        };
        has_type && self.shard.is_none_or(|shard| shard.selects(&series.labels))
    }
}

impl SeriesBatches for FilteredBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let mut batch = std::mem::take(&mut self.batch);
        let has_more = self.batches.next_batch(&mut batch);
        out.extend(batch.drain(..).filter(|series| self.selects(series)));
        self.batch = batch;
        has_more
    }
}

impl SelectRequest {
    /// Returns the series of `batches` that have the type and are in the shard. A selection of floats without
    /// a shard is returned as it is.
    #[must_use]
    pub fn filter(&self, batches: Box<dyn SeriesBatches>) -> Box<dyn SeriesBatches> {
        let SelectRequest { column_type, shard, .. } = *self;
        if column_type == ColumnType::Float && shard.is_none() {
            return batches;
        }
        Box::new(FilteredBatches { column_type, shard, batches, batch: Vec::new() })
    }
}
