//! Fan-out: several sources read as one.
//!
//! Invariants: a fan-out of one source is that source. If a part that is not required fails, its remaining
//! series or samples are missing, and the result has a warning that names the part (`failure`).

use std::sync::Arc;

use chronolith_model::change::{ChangeWatch, Changed};
use chronolith_model::query::{
    LabelValueCursor, LabelValueScan, ReadEstimate, SelectHints, SoleLabelValues, SortedValues, TenantSources,
};
use chronolith_model::{
    DuplicatePolicy, QueryError, Queryable, ReadContext, Selector, SeriesBatches, TenantId,
};

use super::failure::FailurePolicy;
use super::label_search::PartValues;
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

/// Returns stores of one tenant, with their names, as one source. All of them are required; at equal
/// timestamps the sample of the first one is read.
pub(super) fn stores_as_one(stores: Vec<(&str, Arc<dyn Queryable>)>) -> Arc<dyn Queryable> {
    let parts = stores.into_iter().map(|(name, queryable)| {
        let failure = FailurePolicy::new(name, true);
        TenantPart { queryable, failure }
    });
    Arc::new(TenantFanout { parts: parts.collect() })
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
            failure: FailurePolicy::new(&part.name, part.is_required),
        };
        Arc::new(TenantFanout { parts: self.parts.iter().map(part).collect() })
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
                sources.push(part.failure.batches(batches, ctx));
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

    fn scan_label_values(
        &self,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        for part in &self.parts {
            let scanned = part.queryable.scan_label_values(scan, ctx, visit);
            part.failure.or_warn(scanned, || (), ctx)?;
        }
        Ok(())
    }

    fn sole_label_values(
        &self,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Box<dyn LabelValueCursor>>, QueryError> {
        let mut parts: Vec<(Box<dyn LabelValueCursor>, FailurePolicy)> = Vec::new();
        for part in &self.parts {
            let none = || Some(Box::new(SortedValues::default()) as Box<dyn LabelValueCursor>);
            let values = part.queryable.sole_label_values(search, ctx);
            match part.failure.or_warn(values, none, ctx)? {
                Some(values) => parts.push((values, part.failure.clone())),
                None => return Ok(None),
            }
        }
        Ok(Some(Box::new(PartValues::new(parts, ctx))))
    }
}
