//! Failures of a part of a query: the query fails, or goes on without the part and names it in a warning.
//!
//! Invariants: cancellation, deadline and limits end the query whichever part notices them; of a series whose
//! samples cannot be read, the part has none in the result.
//! Not here: which parts a query may do without (`fanout`, `blocks`).

use std::sync::Arc;

use chronolith_model::query::TypedColumns;
use chronolith_model::{
    Columns, QueryError, ReadContext, SampleSource, SeriesBatches, SeriesRead, TimeRange,
};

/// Handling of errors of a part.
#[derive(Clone)]
pub(super) struct FailurePolicy {
    part: Arc<str>,
    is_required: bool,
}

impl FailurePolicy {
    /// A query fails with `part` if it is required, and otherwise names it in a warning.
    pub(super) fn new(part: &str, is_required: bool) -> FailurePolicy {
        FailurePolicy { part: part.into(), is_required }
    }

    /// Turns an error of a part that is not required into a warning and `rest`.
    pub(super) fn or_warn<T>(
        &self,
        result: Result<T, QueryError>,
        rest: impl FnOnce() -> T,
        ctx: &ReadContext,
    ) -> Result<T, QueryError> {
        result.or_else(|error| {
            if self.is_required || !error.is_of_source() {
                return Err(error);
            }
            ctx.warn_partial(&self.part, error)?;
            Ok(rest())
        })
    }

    /// Returns the series of the part, up to its failure.
    pub(super) fn batches(
        &self,
        batches: Box<dyn SeriesBatches>,
        ctx: &ReadContext,
    ) -> Box<dyn SeriesBatches> {
        match self.is_required {
            true => batches,
            false => Box::new(PartBatches { batches, failure: self.clone(), ctx: ctx.clone() }),
        }
    }
}

/// Returns `error`; a source that did not answer within the time that a partial result leaves it is
/// unavailable.
pub(super) fn source_error(error: QueryError, ctx: &ReadContext) -> QueryError {
    match error {
        QueryError::Timeout if ctx.has_source_deadline() && ctx.check().is_ok() => {
            QueryError::Unavailable { what: "no answer within the time of the query".to_owned() }
        }
        error => error,
    }
}

/// Series of a part that is not required, up to its failure.
struct PartBatches {
    batches: Box<dyn SeriesBatches>,
    failure: FailurePolicy,
    ctx: ReadContext,
}

impl SeriesBatches for PartBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let start = out.len();
        let result = self.batches.next_batch(out).map_err(|error| source_error(error, &self.ctx));
        let has_more = self.failure.or_warn(result, || false, &self.ctx)?;
        let read = out.split_off(start).into_iter().map(|SeriesRead { labels, samples }| {
            let failure = self.failure.clone();
            let ctx = self.ctx.clone();
            SeriesRead { labels, samples: Box::new(PartSamples { samples, failure, ctx }) }
        });
        out.extend(read);
        Ok(has_more)
    }
}

/// Samples of a series of a part; none if they cannot be read.
struct PartSamples {
    samples: Box<dyn SampleSource>,
    failure: FailurePolicy,
    ctx: ReadContext,
}

impl SampleSource for PartSamples {
    fn inner(&self) -> Option<&dyn SampleSource> {
        Some(&*self.samples)
    }

    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let start = out.len();
        let result = self.samples.read(range, out).map_err(|error| source_error(error, &self.ctx));
        // Samples before the damage may be some that were deleted.
        self.failure.or_warn(result, || out.truncate(start), &self.ctx)
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        self.failure.or_warn(self.samples.read_typed(range, out), || (), &self.ctx)
    }

    fn sample_count_hint(&self) -> usize {
        self.samples.sample_count_hint()
    }
}
