//! Fan-out: several sources read as one.
//!
//! Invariants: a fan-out of one source is that source. If a part that is not required fails, its remaining
//! series or samples are missing, and the result has a warning that names the part. Cancellation, deadline
//! and limits end the query whichever part notices them.

use std::sync::Arc;

use chronolith_model::change::{ChangeWatch, Changed};
use chronolith_model::query::{ColumnType, ReadEstimate, SelectHints, TenantSources, TypedColumns};
use chronolith_model::{
    Columns, DuplicatePolicy, QueryError, Queryable, ReadContext, SampleSource, Selector, SeriesBatches,
    SeriesRead, TenantId, TimeRange,
};

use super::merged::{MergedBatches, merged};

/// One of several sources. At equal timestamps the sample of the first part is read.
#[derive(Clone)]
pub struct SourcePart {
    /// Name for warnings.
    pub name: String,
    /// The source.
    pub sources: Arc<dyn TenantSources>,
    /// True if a query fails with it; false if a warning is enough.
    pub is_required: bool,
}

/// Returns the parts as one source.
#[must_use]
pub fn fanout(parts: Vec<SourcePart>) -> Arc<dyn TenantSources> {
    match parts.as_slice() {
        [part] => part.sources.clone(),
        _ => Arc::new(Fanout { parts }),
    }
}

struct Fanout {
    parts: Vec<SourcePart>,
}

/// Results over several sources are not cached: their changes are not known.
impl ChangeWatch for Fanout {
    fn generation(&self, _tenant: &TenantId) -> u64 {
        0
    }

    fn changed_since(&self, _tenant: &TenantId, _generation: u64) -> Changed {
        Changed::EVERYTHING
    }
}

impl TenantSources for Fanout {
    fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        let part = |part: &SourcePart| TenantPart {
            queryable: part.sources.queryable(tenant),
            failure: FailurePolicy { part: part.name.as_str().into(), is_required: part.is_required },
        };
        Arc::new(TenantFanout { parts: self.parts.iter().map(part).collect() })
    }
}

/// Handling of errors of a part.
#[derive(Clone)]
struct FailurePolicy {
    part: Arc<str>,
    is_required: bool,
}

impl FailurePolicy {
    /// Turns an error of a part that is not required into a warning and `rest`.
    fn or_warn<T>(
        &self,
        result: Result<T, QueryError>,
        rest: impl FnOnce() -> T,
        ctx: &ReadContext,
    ) -> Result<T, QueryError> {
        result.or_else(|error| {
            if self.is_required || !error.is_of_source() {
                return Err(error);
            }
            ctx.warn_partial(&self.part, &error);
            Ok(rest())
        })
    }
}

struct TenantPart {
    queryable: Arc<dyn Queryable>,
    failure: FailurePolicy,
}

struct TenantFanout {
    parts: Vec<TenantPart>,
}

impl TenantFanout {
    /// Joins the answers of all parts.
    fn joined<T: Default>(
        &self,
        ctx: &ReadContext,
        read: impl Fn(&dyn Queryable) -> Result<T, QueryError>,
        join: impl Fn(T, T) -> T,
    ) -> Result<T, QueryError> {
        let mut all = T::default();
        for part in &self.parts {
            let one = part.failure.or_warn(read(&*part.queryable), T::default, ctx)?;
            all = join(all, one);
        }
        Ok(all)
    }

    fn names(
        &self,
        limit: usize,
        ctx: &ReadContext,
        read: impl Fn(&dyn Queryable) -> Result<Vec<String>, QueryError>,
    ) -> Result<Vec<String>, QueryError> {
        let mut all = self.joined(ctx, read, merged)?;
        all.truncate(if limit == 0 { usize::MAX } else { limit });
        Ok(all)
    }
}

impl Queryable for TenantFanout {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.select_with(selector, &SelectHints::default(), ctx)
    }

    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        // The merge needs all labels.
        let hints = SelectHints { presence_only: false, projection: None, ..*hints };
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let selected = part.queryable.select_with(selector, &hints, ctx).map(Some);
            if let Some(batches) = part.failure.or_warn(selected, || None, ctx)? {
                sources.push(Box::new(PartBatches {
                    batches,
                    failure: part.failure.clone(),
                    ctx: ctx.clone(),
                }));
            }
        }
        Ok(Box::new(MergedBatches::new(sources, DuplicatePolicy::default(), ctx.clone())?))
    }

    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        let read = |one: &dyn Queryable| Ok(one.estimate(selector, ctx)?.unwrap_or_default());
        let join = |a: ReadEstimate, b: ReadEstimate| ReadEstimate {
            series: a.series.max(b.series),
            samples: a.samples.saturating_add(b.samples),
        };
        self.joined(ctx, read, join).map(Some)
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        self.names(limit, ctx, |one| one.label_names(selector, limit, ctx))
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        self.names(limit, ctx, |one| one.label_values(name, selector, limit, ctx))
    }
}

/// Series of a part, up to its failure.
struct PartBatches {
    batches: Box<dyn SeriesBatches>,
    failure: FailurePolicy,
    ctx: ReadContext,
}

impl SeriesBatches for PartBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let start = out.len();
        let has_more = self.failure.or_warn(self.batches.next_batch(out), || false, &self.ctx)?;
        if self.failure.is_required {
            return Ok(has_more);
        }
        let read = out.split_off(start).into_iter().map(|SeriesRead { labels, samples }| {
            let failure = self.failure.clone();
            let ctx = self.ctx.clone();
            SeriesRead { labels, samples: Box::new(PartSamples { samples, failure, ctx }) }
        });
        out.extend(read);
        Ok(has_more)
    }
}

/// Samples of a series of a part, up to its failure.
struct PartSamples {
    samples: Box<dyn SampleSource>,
    failure: FailurePolicy,
    ctx: ReadContext,
}

impl SampleSource for PartSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        self.failure.or_warn(self.samples.read(range, out), || (), &self.ctx)
    }

    fn column_type(&self) -> ColumnType {
        self.samples.column_type()
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        self.failure.or_warn(self.samples.read_typed(range, out), || (), &self.ctx)
    }

    fn sample_count_hint(&self) -> usize {
        self.samples.sample_count_hint()
    }

    fn chunk_count_hint(&self) -> usize {
        self.samples.chunk_count_hint()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        self.samples.time_bounds()
    }
}
