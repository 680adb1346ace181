//! View of a retention policy for remote read: the field `value` of a measurement is the metric of its name.
//!
//! Invariants: times are milliseconds; series have no reserved labels and stay in order, since the label that
//! is removed has one value. Other fields are not read.
//! Not here: the opposite view (`measurements`), fields as metrics of their own for PromQL (`databases`).

use std::sync::Arc;

use chronolith_model::query::{Layer, Layered, Opened, Read, Wanted, map_series};
use chronolith_model::{FIELD_LABEL, LabelsBuilder, Matcher, Queryable, ReadContext, SeriesRead};

/// Field that is read.
const FIELD: &str = "value";

/// Returns the view of `source`, whose times are milliseconds and whose series have no kinds.
pub(crate) fn as_metrics(source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
    Arc::new(Layered { layer: Metrics, source })
}

struct Metrics;

impl Layer for Metrics {
    fn rewrite(&self, mut read: Read, _: &ReadContext) -> Option<Read> {
        if !matches!(read.wanted, Wanted::EachLabelValue { .. } | Wanted::SoleLabelValues { .. }) {
            read.request = read.request.before_relabeling();
            read.request.matchers.retain(|matcher| *matcher.name != *FIELD_LABEL);
            read.request.matchers.push(Matcher::equal(FIELD_LABEL, FIELD));
        }
        Some(read)
    }

    fn map(&self, asked: &Read, opened: Opened, _: &ReadContext) -> Opened {
        let mut builder = LabelsBuilder::new();
        match asked.wanted {
            Wanted::Series => {
                let visible = map_series(opened.into_series(), move |SeriesRead { labels, samples }| {
                    builder.clear();
                    let visible = labels.iter().filter(|(name, _)| *name != FIELD_LABEL);
                    visible.for_each(|(name, value)| builder.push(name, value));
                    SeriesRead { labels: builder.finish(), samples }
                });
                Opened::Series(asked.request.filter(visible))
            }
            Wanted::LabelNames => opened.map_list(|mut names| {
                names.retain(|name| name != FIELD_LABEL);
                names
            }),
            Wanted::SoleLabelValues { .. } => Opened::Cursor(None),
            _ => opened,
        }
    }
}
