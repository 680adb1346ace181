//! Several tenants as one source, whose series have the label `__tenant_id__`.
//!
//! Invariants: series ascend by all their labels, as in other sources; a label `__tenant_id__` of a
//! series is called `original___tenant_id__`, as in Mimir, so that none can claim another tenant.
//! Not here: which tenants a call may name (`identity`).

use std::sync::Arc;

use chronolith_model::labels::LabelsBuilder;
use chronolith_model::query::{
    Opened, PendingList, Queryable, Read, ReadEstimate, SelectRequest, SeriesBatches, Source, VecBatches,
    Wanted, visit_listed,
};
use chronolith_model::{Labels, Matcher, QueryError, ReadContext, SeriesRead, TenantId};

/// Label with the tenant of a series.
pub(super) const TENANT_LABEL: &str = "__tenant_id__";
/// Label with the value that a series has under [`TENANT_LABEL`] in its store.
const STORED_LABEL: &str = "original___tenant_id__";

/// Sources of several tenants.
pub(super) struct TenantUnion {
    /// Ascending by tenant.
    parts: Vec<(TenantId, Arc<dyn Queryable>)>,
}

impl TenantUnion {
    pub(super) fn new(parts: Vec<(TenantId, Arc<dyn Queryable>)>) -> TenantUnion {
        debug_assert!(parts.is_sorted_by(|a, b| a.0 < b.0), "tenants ascend, each once");
        TenantUnion { parts }
    }

    /// Opens `read` on each tenant that its matchers select.
    fn open_parts(&self, read: &Read, ctx: &ReadContext) -> Result<Vec<(TenantId, Opened)>, QueryError> {
        let mut opened = Vec::new();
        for (tenant, source) in &self.parts {
            let Some(request) = request_of(&read.request, tenant) else { continue };
            let read = Read { request, wanted: read.wanted.clone() };
            opened.push((tenant.clone(), source.open(read, ctx)?));
        }
        Ok(opened)
    }

    /// Opens `read`, which wants a list, as [`TenantUnion::open_parts`] does.
    fn open_lists(&self, read: &Read, ctx: &ReadContext) -> Result<Vec<(TenantId, PendingList)>, QueryError> {
        let parts = self.open_parts(read, ctx)?;
        Ok(parts.into_iter().map(|(tenant, part)| (tenant, part.into_list())).collect())
    }

    fn open_names(&self, read: &Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let limit = read.request.limit;
        let parts = self.open_lists(&unlimited(read), ctx)?;
        Ok(pending_list(limit, move |out| {
            for (_, part) in parts {
                let names = part()?;
                if !names.is_empty() {
                    out.push(TENANT_LABEL.to_owned());
                }
                out.extend(names.into_iter().map(|name| match name.as_str() {
                    TENANT_LABEL => STORED_LABEL.to_owned(),
                    _ => name,
                }));
            }
            Ok(())
        }))
    }

    fn open_values(&self, read: Read, name: &str, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let limit = read.request.limit;
        if name == TENANT_LABEL {
            // A tenant counts if it has a series, which one name proves.
            let request = SelectRequest { limit: 1, ..read.request };
            let parts = self.open_lists(&Read { request, wanted: Wanted::LabelNames }, ctx)?;
            return Ok(pending_list(limit, move |out| {
                for (tenant, part) in parts {
                    if !part()?.is_empty() {
                        out.push(tenant.as_str().to_owned());
                    }
                }
                Ok(())
            }));
        }
        let name = stored_name(name).into();
        let parts = self.open_lists(&Read { wanted: Wanted::LabelValues { name }, ..read }, ctx)?;
        Ok(pending_list(limit, move |out| {
            for (_, part) in parts {
                out.extend(part()?);
            }
            Ok(())
        }))
    }

    fn open_series(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let asked = read.request.clone();
        let request = read.request.before_relabeling();
        let parts = self.open_parts(&Read { request, ..read }, ctx)?;
        let parts = parts.into_iter().map(|(tenant, part)| (tenant, part.into_series())).collect();
        Ok(Opened::Series(asked.filter(Box::new(UnionBatches { parts, sorted: None }))))
    }

    fn open_estimate(&self, read: &Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        let mut sum = ReadEstimate::default();
        for (_, part) in self.open_parts(read, ctx)? {
            let Some(estimate) = part.into_estimate() else { return Ok(Opened::Estimate(None)) };
            sum.series += estimate.series;
            sum.samples += estimate.samples;
        }
        Ok(Opened::Estimate(Some(sum)))
    }
}

impl Source for TenantUnion {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        match read.wanted.clone() {
            Wanted::Series => self.open_series(read, ctx),
            Wanted::Estimate => self.open_estimate(&read, ctx),
            Wanted::LabelNames => self.open_names(&read, ctx),
            Wanted::LabelValues { name } => self.open_values(read, &name, ctx),
            Wanted::EachLabelValue { name, prefix } => visit_listed(self, read.request, name, prefix, ctx),
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
        }
    }
}

/// The request without a limit, for lists that are merged before they are cut.
fn unlimited(read: &Read) -> Read {
    let request = SelectRequest { limit: 0, ..read.request.clone() };
    Read { request, wanted: read.wanted.clone() }
}

/// Name in the stores of a label that a reader calls `name`.
fn stored_name(name: &str) -> &str {
    if name == STORED_LABEL { TENANT_LABEL } else { name }
}

/// The request for the store of `tenant`; `None` if a matcher excludes the tenant.
fn request_of(asked: &SelectRequest, tenant: &TenantId) -> Option<SelectRequest> {
    let mut matchers: Vec<Matcher> = Vec::with_capacity(asked.matchers.len());
    for matcher in &asked.matchers {
        if &*matcher.name == TENANT_LABEL {
            if !matcher.matches(tenant.as_str()) {
                return None;
            }
        } else {
            matchers.push(matcher.clone().with_name(stored_name(&matcher.name)));
        }
    }
    Some(SelectRequest { matchers, ..asked.clone() })
}

/// A list that `fill` makes when it is waited for: sorted, each entry once, cut to `limit` (0 = all).
fn pending_list(
    limit: usize,
    fill: impl FnOnce(&mut Vec<String>) -> Result<(), QueryError> + Send + 'static,
) -> Opened {
    Opened::List(Box::new(move || {
        let mut list = Vec::new();
        fill(&mut list)?;
        list.sort_unstable();
        list.dedup();
        if limit > 0 {
            list.truncate(limit);
        }
        Ok(list)
    }))
}

/// Series of all tenants. All are read before the first batch: a further label changes their order.
struct UnionBatches {
    parts: Vec<(TenantId, Box<dyn SeriesBatches>)>,
    sorted: Option<VecBatches>,
}

impl UnionBatches {
    fn read_all(&mut self) -> Result<VecBatches, QueryError> {
        let mut all = Vec::new();
        for (tenant, batches) in &mut self.parts {
            let first = all.len();
            while batches.next_batch(&mut all)? {}
            for series in &mut all[first..] {
                series.labels = labels_of(tenant, &series.labels);
            }
        }
        all.sort_by(|a: &SeriesRead, b: &SeriesRead| a.labels.cmp(&b.labels));
        debug_assert!(all.is_sorted_by(|a, b| a.labels < b.labels), "tenants have different labels");
        Ok(VecBatches::new(all))
    }
}

impl SeriesBatches for UnionBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        if self.sorted.is_none() {
            self.sorted = Some(self.read_all()?);
        }
        self.sorted.as_mut().map_or(Ok(false), |sorted| sorted.next_batch(out))
    }
}

/// Labels of a series of `tenant` among series of others.
pub(crate) fn labels_of(tenant: &TenantId, stored: &Labels) -> Labels {
    let mut builder = LabelsBuilder::new();
    for (name, value) in stored.iter() {
        builder.push(if name == TENANT_LABEL { STORED_LABEL } else { name }, value);
    }
    builder.push(TENANT_LABEL, tenant.as_str());
    builder.sort();
    builder.finish()
}
