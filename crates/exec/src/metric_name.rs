//! Removal of the metric name from series whose values are no longer values of the metric.

use chronolith_model::{Labels, METRIC_NAME};

use crate::column::StepSeries;

/// Labels that describe the values of a series: they are removed together with the metric name.
pub const METADATA_LABELS: [&str; 3] = [METRIC_NAME, "__type__", "__unit__"];

/// Time at which the metric name is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameRemoval {
    /// By the operator that computes the values.
    #[default]
    Immediate,
    /// At the end of the query, so that operators above can still read it.
    Delayed,
}

impl NameRemoval {
    /// Removes the metric name, or marks the series for removal at the end.
    pub fn apply(self, series: &mut StepSeries) {
        match self {
            NameRemoval::Immediate => series.labels = without_name(&series.labels),
            NameRemoval::Delayed => series.drop_name = true,
        }
    }
}

/// The labels without metric name, type and unit.
#[must_use]
pub fn without_name(labels: &Labels) -> Labels {
    labels.without(&METADATA_LABELS)
}
