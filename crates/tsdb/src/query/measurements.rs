//! View of a store in milliseconds as measurements, for InfluxQL: a series is the field `value` of the
//! measurement that its metric name is.
//!
//! Invariants: times are nanoseconds; staleness markers and native histograms are left out.
//! Not here: the opposite view (`databases`).

use std::sync::Arc;

use chronolith_model::query::{ReadEstimate, TypedColumns, TypedValues};
use chronolith_model::sample::is_stale;
use chronolith_model::{
    Columns, FIELD_LABEL, Matcher, QueryError, Queryable, ReadContext, SampleSource, Selector, SeriesBatches,
    SeriesRead, TimeRange, TimeUnit,
};

/// Field of all series.
const FIELD: &str = "value";
const UNIT: TimeUnit = TimeUnit::Nano;

/// Returns the view of `source`, whose times are milliseconds.
pub(crate) fn as_measurements(source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
    Arc::new(Measurements { source })
}

struct Measurements {
    source: Arc<dyn Queryable>,
}

/// A range of nanoseconds in milliseconds that contains it.
fn in_milliseconds(range: TimeRange) -> TimeRange {
    if range == TimeRange::ALL {
        return range;
    }
    let start = UNIT.to_ms(range.start);
    TimeRange::new(start, UNIT.to_ms(range.end.saturating_sub(1)).saturating_add(1))
}

/// Matchers for the source; `None` if one on the field selects nothing.
fn matchers(selector: &Selector<'_>) -> Option<Vec<Matcher>> {
    let (on_field, others): (Vec<&Matcher>, Vec<&Matcher>) =
        selector.matchers.iter().partition(|matcher| *matcher.name == *FIELD_LABEL);
    let selects = on_field.iter().all(|matcher| matcher.matches(FIELD));
    selects.then(|| others.into_iter().cloned().collect())
}

impl Queryable for Measurements {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let Some(matchers) = matchers(selector) else {
            return Ok(Box::new(chronolith_model::query::VecBatches::new(Vec::new())));
        };
        let selector = Selector { matchers: &matchers, range: in_milliseconds(selector.range) };
        let batches = self.source.select(&selector, ctx)?;
        Ok(Box::new(MeasurementBatches { batches, batch: Vec::new() }))
    }

    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        let Some(matchers) = matchers(selector) else { return Ok(Some(ReadEstimate::default())) };
        let range = in_milliseconds(selector.range);
        self.source.estimate(&Selector { matchers: &matchers, range }, ctx)
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Some(matchers) = matchers(selector) else { return Ok(Vec::new()) };
        let range = in_milliseconds(selector.range);
        let mut names = self.source.label_names(&Selector { matchers: &matchers, range }, limit, ctx)?;
        if !names.is_empty() {
            names.push(FIELD_LABEL.to_owned());
            names.sort_unstable();
        }
        Ok(names)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Some(matchers) = matchers(selector) else { return Ok(Vec::new()) };
        let range = in_milliseconds(selector.range);
        let selector = &Selector { matchers: &matchers, range };
        if name != FIELD_LABEL {
            return self.source.label_values(name, selector, limit, ctx);
        }
        let any = self.source.label_values(chronolith_model::METRIC_NAME, selector, 1, ctx)?;
        Ok(any.into_iter().map(|_| FIELD.to_owned()).collect())
    }
}

struct MeasurementBatches {
    batches: Box<dyn SeriesBatches>,
    batch: Vec<SeriesRead>,
}

impl SeriesBatches for MeasurementBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let has_more = self.batches.next_batch(&mut self.batch);
        out.extend(self.batch.drain(..).map(|SeriesRead { labels, samples }| {
            let mut builder = labels.to_builder();
            builder.set(FIELD_LABEL, FIELD);
            builder.sort();
            SeriesRead { labels: builder.finish(), samples: Box::new(NanosecondSamples(samples)) }
        }));
        has_more
    }
}

/// Samples with times in nanoseconds.
struct NanosecondSamples(Box<dyn SampleSource>);

impl NanosecondSamples {
    fn visit(&self, range: TimeRange, mut visit: impl FnMut(i64, f64)) -> Result<(), QueryError> {
        let mut columns = Columns::default();
        self.0.read(in_milliseconds(range), &mut columns)?;
        for (idx, (&time_ms, &value)) in columns.times.iter().zip(&columns.values).enumerate() {
            let time_ns = UNIT.from_ms(time_ms);
            let is_number = !is_stale(value) && columns.histogram_at(idx).is_none();
            if is_number && range.contains(time_ns) {
                visit(time_ns, value);
            }
        }
        Ok(())
    }
}

impl SampleSource for NanosecondSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        self.visit(range, |time_ns, value| out.push(time_ns, value))
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        let TypedColumns { times, values } = out;
        let TypedValues::Floats(values) = values else { return Ok(()) };
        self.visit(range, |time_ns, value| {
            times.push(time_ns);
            values.push(value);
        })
    }

    fn sample_count_hint(&self) -> usize {
        self.0.sample_count_hint()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        self.0.time_bounds().map(|(first, last)| (UNIT.from_ms(first), UNIT.from_ms(last)))
    }
}
