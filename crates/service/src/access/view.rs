//! Series that a principal may read, as matchers that each of its reads carries.
//!
//! Invariant: an answer in each form has nothing of a series that the matchers do not select.
//! Not here: several tenants as one source (`union`).

use std::sync::Arc;

use chronolith_model::query::{Opened, Queryable, Read, Source, Wanted, visit_listed};
use chronolith_model::{Labels, Matcher, QueryError, ReadContext};
use chronolith_promql::parser::parse_metric_selector;

/// Matchers of a principal: it reads the series that all of them select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesFilter {
    text: Arc<str>,
    matchers: Arc<[Matcher]>,
}

impl SeriesFilter {
    /// Reads a selector as PromQL has it, such as `{team="a"}`.
    ///
    /// # Errors
    /// Text with the position of the fault.
    pub fn parse(text: &str) -> Result<SeriesFilter, String> {
        let matchers = parse_metric_selector(text).map_err(|error| error.to_string())?;
        Ok(SeriesFilter { text: text.into(), matchers: matchers.into() })
    }

    /// The selector as it was written; equal texts select the same series.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns true if a series with these labels may be read.
    #[must_use]
    pub fn selects(&self, labels: &Labels) -> bool {
        self.matchers.iter().all(|matcher| matcher.matches(labels.get(&matcher.name).unwrap_or("")))
    }
}

/// A source without the series that a filter does not select.
pub(super) struct Filtered {
    filter: SeriesFilter,
    source: Arc<dyn Queryable>,
}

impl Filtered {
    pub(super) fn new(filter: SeriesFilter, source: Arc<dyn Queryable>) -> Filtered {
        Filtered { filter, source }
    }
}

impl Source for Filtered {
    fn open(&self, mut read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        read.request.matchers.extend(self.filter.matchers.iter().cloned());
        match read.wanted {
            // Sources answer these two forms from indexes of all series.
            Wanted::EachLabelValue { name, prefix } => {
                visit_listed(&self.source, read.request, name, prefix, ctx)
            }
            Wanted::SoleLabelValues { .. } => Ok(Opened::Cursor(None)),
            Wanted::Series | Wanted::Estimate | Wanted::LabelNames | Wanted::LabelValues { .. } => {
                self.source.open(read, ctx)
            }
        }
    }
}
