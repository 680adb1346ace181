//! View of a retention policy for remote read: the field `value` of a measurement is the metric of its name.
//!
//! Invariants: times are milliseconds; series have no reserved labels and stay in order, since the label that
//! is removed has one value. Other fields are not read.
//! Not here: the opposite view (`measurements`), fields as metrics of their own for PromQL (`databases`).

use std::sync::Arc;

use chronolith_model::{
    FIELD_LABEL, LabelsBuilder, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesBatches,
    SeriesRead,
};

/// Field that is read.
const FIELD: &str = "value";

/// Returns the view of `source`, whose times are milliseconds and whose series have no kinds.
pub(crate) fn as_metrics(source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
    Arc::new(Metrics { source })
}

struct Metrics {
    source: Arc<dyn Queryable>,
}

/// Matchers for the source.
fn matchers(selector: &Selector<'_>) -> Vec<Matcher> {
    let of_metric = selector.matchers.iter().filter(|matcher| *matcher.name != *FIELD_LABEL).cloned();
    of_metric.chain([Matcher::equal(FIELD_LABEL, FIELD)]).collect()
}

impl Queryable for Metrics {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let matchers = matchers(selector);
        let batches = self.source.select(&Selector { matchers: &matchers, range: selector.range }, ctx)?;
        Ok(Box::new(MetricBatches { batches, batch: Vec::new() }))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let matchers = matchers(selector);
        let selector = Selector { matchers: &matchers, range: selector.range };
        let mut names = self.source.label_names(&selector, limit, ctx)?;
        names.retain(|name| name != FIELD_LABEL);
        Ok(names)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let matchers = matchers(selector);
        let selector = Selector { matchers: &matchers, range: selector.range };
        self.source.label_values(name, &selector, limit, ctx)
    }
}

struct MetricBatches {
    batches: Box<dyn SeriesBatches>,
    batch: Vec<SeriesRead>,
}

impl SeriesBatches for MetricBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let has_more = self.batches.next_batch(&mut self.batch);
        let mut builder = LabelsBuilder::new();
        for SeriesRead { labels, samples } in self.batch.drain(..) {
            builder.clear();
            let visible = labels.iter().filter(|(name, _)| *name != FIELD_LABEL);
            visible.for_each(|(name, value)| builder.push(name, value));
            out.push(SeriesRead { labels: builder.finish(), samples });
        }
        has_more
    }
}
