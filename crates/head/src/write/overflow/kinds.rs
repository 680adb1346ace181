//! Kind of the values of a metric: by its type, its name, and its first folded value.
//!
//! Not here: kinds and their sums (`index::overflow`).

use chronolith_model::{Histogram, MetricKind};

use super::super::job::AppendJob;
use crate::index::overflow::SlotKind;

/// Suffixes of the series of a metric family.
const FAMILY_SUFFIXES: [&str; 4] = ["_bucket", "_count", "_sum", "_total"];

/// Returns the kind of the values of a metric whose first folded value is a float or `histogram`.
pub(super) fn kind_of(job: &AppendJob<'_>, metric: &str, histogram: Option<&Histogram>) -> SlotKind {
    let known = known_kind(job, metric);
    match histogram {
        None => SlotKind::of(metric, known),
        Some(histogram) => SlotKind::of_histograms(histogram, known),
    }
}

/// Returns the type of a metric by the batch or the stored metadata.
fn known_kind(job: &AppendJob<'_>, metric: &str) -> Option<MetricKind> {
    let of_family = |family: &str| {
        let sent = job.batch.metadata.iter().find(|entry| entry.metric == family).map(|entry| entry.kind);
        sent.or_else(|| job.state.index.metric_kinds()?.kind_of(&job.tenant.id, family))
            .filter(|kind| *kind != MetricKind::Unknown)
    };
    let family = || FAMILY_SUFFIXES.iter().find_map(|suffix| metric.strip_suffix(suffix));
    of_family(metric).or_else(|| of_family(family()?))
}
