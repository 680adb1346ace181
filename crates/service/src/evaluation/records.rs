//! Records besides samples that a sender may read: metadata of metrics and exemplars.
//!
//! Invariant: nothing belongs to a metric or a series that the sender's matchers do not select.
//! Not here: their storage (`tsdb`).

use chronolith_base::hash::HashSet;
use chronolith_model::query::{Queryable as _, Selector};
use chronolith_model::{
    METRIC_NAME, Matcher, MetadataEntry, QueryError, ReadContext, SeriesExemplars, TimeRange,
};

use crate::access::{Identity, labels_of};
use crate::query::family::has_series;
use crate::refusal::Refusal;
use crate::service::Service;

/// Metadata of `metric`, or of all metrics, for a sender that sees a series of it already: sorted by metric,
/// at most `metric_max` metrics of each tenant (0 = all). A query node asks owners.
///
/// # Errors
/// As a query that no owner may be missing from.
pub fn metadata(
    service: &Service,
    identity: &Identity,
    metric: Option<&str>,
    metric_max: usize,
    ctx: &ReadContext,
) -> Result<Vec<MetadataEntry>, QueryError> {
    let mut all = Vec::new();
    for tenant in identity.tenants() {
        all.extend(match (service.lifecycle.opened(), service.bucket.get()) {
            (Some(store), _) => store.reader().metadata(tenant, metric, metric_max),
            (None, Some(bucket)) => bucket.metadata(tenant, metric, metric_max, ctx)?,
            (None, None) => Vec::new(),
        });
    }
    if identity.tenants().len() > 1 {
        // A stable sort: entries of one metric keep the order of their tenants.
        all.sort_by(|a, b| a.metric.cmp(&b.metric));
        all.dedup();
    }
    Ok(all)
}

/// As [`metadata`], of metrics with a series that the sender may read alone.
///
/// # Errors
/// While the server starts or stops, and as the source of the names.
pub fn visible_metadata(
    service: &Service,
    identity: &Identity,
    metric: Option<&str>,
    metric_max: usize,
    ctx: &ReadContext,
) -> Result<Vec<MetadataEntry>, RecordsError> {
    if identity.sees_all_series() {
        return Ok(metadata(service, identity, metric, metric_max, ctx)?);
    }
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let names = service.lifecycle.view(identity)?.label_values(METRIC_NAME, &selector, 0, ctx)?;
    let names: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut entries = metadata(service, identity, metric, 0, ctx)?;
    entries.retain(|entry| has_series(entry, |name| names.contains(name)));
    Ok(entries)
}

/// Exemplars of the series that one of `selectors` selects and that the sender may read. A query node asks
/// owners.
///
/// # Errors
/// As a query that no owner may be missing from.
pub fn exemplars(
    service: &Service,
    identity: &Identity,
    selectors: &[Vec<Matcher>],
    range: TimeRange,
    ctx: &ReadContext,
) -> Result<Vec<SeriesExemplars>, QueryError> {
    let filter = identity.principal().filter();
    let mut all = Vec::new();
    for tenant in identity.tenants() {
        let of_series = match (service.lifecycle.opened(), service.bucket.get()) {
            (Some(store), _) => store.reader().exemplars(tenant, selectors, range),
            (None, Some(bucket)) => bucket.exemplars(tenant, selectors, range, ctx)?,
            (None, None) => Vec::new(),
        };
        let visible =
            of_series.into_iter().filter(|(labels, _)| filter.is_none_or(|filter| filter.selects(labels)));
        match identity.tenants() {
            [_] => all.extend(visible),
            _ => all.extend(visible.map(|(labels, found)| (labels_of(tenant, &labels), found))),
        }
    }
    Ok(all)
}

/// Reason why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The store does not answer.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// Names of metrics could not be read.
    #[error("{0}")]
    Query(#[from] QueryError),
}
