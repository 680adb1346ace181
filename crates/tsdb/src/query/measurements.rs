//! View of a store in milliseconds as measurements, for InfluxQL: a series is the field `value` of the
//! measurement that its metric name is.
//!
//! Invariants: times are nanoseconds; staleness markers and native histograms are left out.
//! Not here: the opposite view (`databases`).

use std::sync::Arc;

use chronolith_model::query::{Layer, Layered, Opened, Read, TypedColumns, TypedValues, Wanted, map_series};
use chronolith_model::sample::is_stale;
use chronolith_model::{
    Columns, FIELD_LABEL, METRIC_NAME, Matcher, QueryError, Queryable, ReadContext, SampleSource, SeriesRead,
    TimeRange, TimeUnit,
};

/// Field of all series.
const FIELD: &str = "value";
const UNIT: TimeUnit = TimeUnit::Nano;

/// Returns the view of `source`, whose times are milliseconds.
pub(crate) fn as_measurements(source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
    Arc::new(Layered { layer: Measurements, source })
}

struct Measurements;

/// A range of nanoseconds in milliseconds that contains it.
fn in_milliseconds(range: TimeRange) -> TimeRange {
    if range == TimeRange::ALL {
        return range;
    }
    let start = UNIT.to_ms(range.start);
    TimeRange::new(start, UNIT.to_ms(range.end.saturating_sub(1)).saturating_add(1))
}

impl Layer for Measurements {
    fn rewrite(&self, mut read: Read, _: &ReadContext) -> Option<Read> {
        read.request = read.request.before_relabeling();
        let request = &mut read.request;
        request.range = in_milliseconds(request.range);
        let is_on_field = |matcher: &Matcher| *matcher.name == *FIELD_LABEL;
        let selects = request.matchers.iter().all(|one| !is_on_field(one) || one.matches(FIELD));
        request.matchers.retain(|matcher| !is_on_field(matcher));
        match &read.wanted {
            // One metric name tells that there is a series.
            Wanted::LabelValues { name } if **name == *FIELD_LABEL => {
                read.wanted = Wanted::LabelValues { name: METRIC_NAME.into() };
                request.limit = 1;
            }
            Wanted::EachLabelValue { name, prefix } if **name == *FIELD_LABEL => {
                let is_wanted = FIELD.starts_with(&**prefix);
                read.wanted = Wanted::EachLabelValue { name: METRIC_NAME.into(), prefix: "".into() };
                return is_wanted.then_some(read);
            }
            _ => {}
        }
        selects.then_some(read)
    }

    fn map(&self, asked: &Read, opened: Opened, _: &ReadContext) -> Opened {
        match &asked.wanted {
            Wanted::Series => {
                let fields = map_series(opened.into_series(), |SeriesRead { labels, samples }| {
                    let mut builder = labels.to_builder();
                    builder.set(FIELD_LABEL, FIELD);
                    builder.sort();
                    SeriesRead { labels: builder.finish(), samples: Box::new(NanosecondSamples(samples)) }
                });
                Opened::Series(asked.request.filter(fields))
            }
            Wanted::LabelNames => opened.map_list(|mut names| {
                if !names.is_empty() {
                    names.push(FIELD_LABEL.to_owned());
                    names.sort_unstable();
                }
                names
            }),
            Wanted::LabelValues { name } if **name == *FIELD_LABEL => {
                opened.map_list(|any| any.into_iter().map(|_| FIELD.to_owned()).collect())
            }
            Wanted::EachLabelValue { name, .. } if **name == *FIELD_LABEL => {
                let visit_metrics = opened.into_visit();
                Opened::Visit(Box::new(move |visit| {
                    let mut has_series = false;
                    visit_metrics(&mut |_| {
                        has_series = true;
                        false
                    })?;
                    if has_series {
                        visit(FIELD);
                    }
                    Ok(())
                }))
            }
            // Each series has the label of its field.
            Wanted::SoleLabelValues { .. } => Opened::Cursor(None),
            _ => opened,
        }
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
