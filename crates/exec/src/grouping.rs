//! `by (...)` and `without (...)` of an aggregation: the labels that form the key of a group.
//!
//! Not here: the table of groups (`aggregate::hash_aggregate`), labels of joins (`join::matching`).

use chronolith_model::Labels;
use chronolith_model::labels::LabelsKey;
use chronolith_model::query::Projection;

use crate::metric_name::METADATA_LABELS;

/// Labels that make a group.
#[derive(Debug, Clone)]
pub struct Grouping<'q> {
    /// Ascending; for `without`, metric name, type and unit are among them.
    names: Vec<&'q str>,
    without: bool,
}

impl<'q> Grouping<'q> {
    /// Groups by the labels of these names; if `without`, by all others.
    #[must_use]
    pub fn new(labels: &'q [String], without: bool) -> Grouping<'q> {
        let mut names: Vec<&str> = labels.iter().map(String::as_str).collect();
        if without {
            names.extend(METADATA_LABELS);
        }
        names.sort_unstable();
        Grouping { names, without }
    }

    /// The labels of a group, for a source.
    #[must_use]
    pub fn projection(&self) -> Projection {
        Projection::new(&self.names, !self.without)
    }

    /// Names of the labels that an aggregation reads of series from whose labels a metric name may still be
    /// removed: the grouping labels, and the labels that are removed with the name. For `without`, names of
    /// labels that it does not read. Ascending.
    #[must_use]
    pub fn names_read(&self) -> Vec<&'q str> {
        let mut names = self.names.clone();
        if self.without {
            names.retain(|name| !METADATA_LABELS.contains(name));
        } else {
            names.extend(METADATA_LABELS);
            names.sort_unstable();
            names.dedup();
        }
        names
    }

    /// As [`Grouping::projection`], with the labels of [`Grouping::names_read`].
    #[must_use]
    pub fn projection_read(&self) -> Projection {
        Projection::new(&self.names_read(), !self.without)
    }

    /// Returns true if groups do not depend on the metric name and the labels that are removed with it.
    #[must_use]
    pub fn ignores_metadata(&self) -> bool {
        self.without || !METADATA_LABELS.iter().any(|name| self.names.binary_search(name).is_ok())
    }

    /// Returns true if all series are in one group.
    #[must_use]
    pub fn is_one(&self) -> bool {
        !self.without && self.names.is_empty()
    }

    /// Writes the labels of the group of a series to `key`.
    pub fn key_of(&self, labels: &Labels, key: &mut LabelsKey) {
        if self.without {
            key.leave_out(labels, &self.names);
        } else {
            key.keep(labels, &self.names);
        }
    }

    /// The labels of the group of a series.
    #[must_use]
    pub fn of(&self, labels: &Labels) -> Labels {
        let mut key = LabelsKey::default();
        self.key_of(labels, &mut key);
        key.to_labels()
    }

    /// Returns true if `without` removes this label.
    #[must_use]
    pub fn excludes(&self, name: &str) -> bool {
        self.without && self.names.binary_search(&name).is_ok()
    }
}
