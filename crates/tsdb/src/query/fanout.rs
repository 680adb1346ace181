//! Fan-out: several sources read as one.
//!
//! Invariants: a fan-out of one source is that source. If a part that is not required fails, its remaining
//! series or samples are missing, and the result has a warning that names the part (`failure`).

use std::sync::Arc;

use chronolith_model::change::{ChangeWatch, Changed, Generation};
use chronolith_model::query::{Opened, Read, ReadEstimate, Source, TenantSources, Wanted};
use chronolith_model::{DuplicatePolicy, QueryError, Queryable, ReadContext, TenantId};

use super::failure::FailurePolicy;
use super::label_search::PartValues;
use super::merged::{MergedBatches, merged, truncated};

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
    parts_as_one(stores.into_iter().map(|(name, source)| (name.to_owned(), source)).collect(), true)
}

/// Returns parts of one tenant, with their names, as one source. At equal timestamps the sample of the first
/// one is read.
pub(super) fn parts_as_one(
    parts: Vec<(String, Arc<dyn Queryable>)>,
    is_required: bool,
) -> Arc<dyn Queryable> {
    let parts = parts.into_iter().map(|(name, queryable)| {
        let failure = FailurePolicy::new(&name, is_required);
        TenantPart { queryable, failure }
    });
    Arc::new(TenantFanout { parts: parts.collect() })
}

struct Fanout {
    parts: Vec<SourcePart>,
}

/// A result over several sources stays right where none of them has changed.
impl ChangeWatch for Fanout {
    fn generation(&self, tenant: &TenantId) -> Generation {
        Generation::Parts(self.parts.iter().map(|part| part.sources.generation(tenant)).collect())
    }

    fn changed_since(&self, tenant: &TenantId, generation: &Generation) -> Changed {
        let Generation::Parts(parts) = generation else { return Changed::EVERYTHING };
        assert_eq!(parts.len(), self.parts.len(), "the generation is of this fan-out");
        let mut all = Changed::NOTHING;
        for (part, since) in self.parts.iter().zip(&**parts) {
            all.add_all(&part.sources.changed_since(tenant, since));
        }
        all
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
    /// Opens `read` in all parts, and returns what those without a failure begin to answer.
    fn open_parts(&self, read: &Read, ctx: &ReadContext) -> Result<Vec<(Opened, FailurePolicy)>, QueryError> {
        let mut opened = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let begun = part.queryable.open(read.clone(), ctx).map(Some);
            if let Some(begun) = part.failure.or_warn(begun, || None, ctx)? {
                opened.push((begun, part.failure.clone()));
            }
        }
        Ok(opened)
    }
}

impl Source for TenantFanout {
    /// All parts have begun before the first one is waited for.
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        // The merge needs all labels.
        let read = Read { request: read.request.with_all_labels(), wanted: read.wanted };
        let parts = self.open_parts(&read, ctx)?.into_iter();
        let ctx = ctx.clone();
        Ok(match &read.wanted {
            Wanted::Series => {
                let series = parts.map(|(part, failure)| failure.batches(part.into_series(), &ctx)).collect();
                Opened::Series(Box::new(MergedBatches::new(series, DuplicatePolicy::default(), ctx.clone())))
            }
            Wanted::Estimate => {
                let mut all = ReadEstimate::default();
                for one in parts.filter_map(|(part, _)| part.into_estimate()) {
                    all.series = all.series.max(one.series);
                    all.samples = all.samples.saturating_add(one.samples);
                }
                Opened::Estimate(Some(all))
            }
            Wanted::LabelNames | Wanted::LabelValues { .. } => {
                let limit = read.request.limit;
                let lists: Vec<_> = parts.map(|(part, failure)| (part.into_list(), failure)).collect();
                Opened::List(Box::new(move || {
                    let mut all = Vec::new();
                    for (list, failure) in lists {
                        all = merged(all, failure.or_warn(list(), Vec::new, &ctx)?);
                    }
                    Ok(truncated(all, limit))
                }))
            }
            Wanted::EachLabelValue { .. } => {
                let visits: Vec<_> = parts.map(|(part, failure)| (part.into_visit(), failure)).collect();
                Opened::Visit(Box::new(move |visit| {
                    visits.into_iter().try_for_each(|(run, failure)| failure.or_warn(run(visit), || (), &ctx))
                }))
            }
            Wanted::SoleLabelValues { .. } => {
                let cursors: Option<Vec<_>> =
                    parts.map(|(part, failure)| Some((part.into_cursor()?, failure))).collect();
                Opened::Cursor(cursors.map(|all| Box::new(PartValues::new(all, &ctx)) as _))
            }
        })
    }
}

#[cfg(test)]
mod tests;
