//! Series in memory: the storage of one unit test, read by the PromQL engine.
//!
//! Invariants: a sample before the last one of its series is refused, and so is another value at its time, as
//! in the storage that promtool opens for a test. Reset hints are those that Prometheus's chunks give back.
//! Not here: rounds and expectations (`chronolith_rules::unit_test`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use chronolith_base::SystemClock;
use chronolith_model::query::{Opened, Read, Source, VecBatches, Wanted};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{
    Columns, FloatHistogram, Histogram, Labels, QueryError, ReadContext, ResetHint, SampleSource, SeriesRead,
    TimeRange,
};
use chronolith_promql::parser::parse_expr;
use chronolith_promql::{Engine, EngineOptions, Value, VectorSample};
use chronolith_rules::round::{
    Evaluate, Expression, Interrupted, Record, RejectedSample, RuleSample, SampleValue,
};
use chronolith_rules::template_engine::TemplateQueries;
use chronolith_rules::unit_test::{CreateStorage, TestStorage};

use super::options::Features;

/// Series by labels.
#[derive(Default)]
struct SeriesStore {
    series: BTreeMap<Labels, Arc<Columns>>,
}

/// Creates a store for each test.
pub(super) struct StorageInMemory {
    pub(super) features: Features,
}

impl CreateStorage for StorageInMemory {
    fn create(&self, subquery_step_ms: i64) -> TestStorage {
        let store: Rc<RefCell<SeriesStore>> = Rc::default();
        let engine = Engine::new(EngineOptions {
            subquery_step_ms,
            name_removal: self.features.name_removal,
            parser: self.features.parser,
            ..EngineOptions::default()
        });
        let queries = Queries { engine, store: store.clone() };
        TestStorage { queries: Box::new(queries), samples: Box::new(Samples(store)) }
    }
}

/// Queries over a store.
struct Queries {
    engine: Engine,
    store: Rc<RefCell<SeriesStore>>,
}

impl TemplateQueries for Queries {
    fn query(&mut self, query: &str, time_ms: i64) -> Result<Vec<VectorSample>, String> {
        let expr = parse_expr(query, self.engine.options().parser).map_err(|error| error.to_string())?;
        match self.value(&Expression { text: query, expr: &expr }, time_ms)? {
            Value::Vector(samples) => Ok(samples),
            Value::Scalar { time_ms, value } => {
                Ok(vec![VectorSample { labels: Labels::empty(), time_ms, value, histogram: None }])
            }
            _ => Err("rule result is not a vector or scalar".to_owned()),
        }
    }
}

impl Evaluate for Queries {
    fn evaluate(
        &mut self,
        expressions: &[Expression<'_>],
        time_ms: i64,
    ) -> Result<Vec<Result<Value, String>>, Interrupted> {
        Ok(expressions.iter().map(|expression| self.value(expression, time_ms)).collect())
    }
}

impl Queries {
    fn value(&self, expression: &Expression<'_>, time_ms: i64) -> Result<Value, String> {
        let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
        let result = self.engine.instant(&*self.store.borrow(), expression.expr, time_ms, None, &ctx);
        result.map(|result| result.value).map_err(|error| error.to_string())
    }
}

/// Writes to a store.
struct Samples(Rc<RefCell<SeriesStore>>);

impl Record for Samples {
    fn record(&mut self, samples: &[RuleSample]) -> Result<Vec<RejectedSample>, String> {
        let mut store = self.0.borrow_mut();
        let rejected = samples.iter().enumerate().filter_map(|(idx, sample)| {
            let reason = store.append(sample).err()?;
            Some(RejectedSample { idx, reason })
        });
        Ok(rejected.collect())
    }
}

impl SeriesStore {
    fn append(&mut self, sample: &RuleSample) -> Result<(), String> {
        if let SampleValue::Histogram(histogram) = &sample.value {
            histogram.validate().map_err(|error| error.to_string())?;
        }
        let columns = Arc::make_mut(self.series.entry(sample.labels.clone()).or_default());
        match columns.times.last() {
            Some(&last_ms) if last_ms > sample.time_ms => Err("out of order sample".to_owned()),
            Some(&last_ms) if last_ms == sample.time_ms => {
                if is_last_value(columns, &sample.value) {
                    return Ok(());
                }
                Err(format!("duplicate sample for timestamp {last_ms}; overrides not allowed"))
            }
            _ => {
                match &sample.value {
                    SampleValue::Float(value) => columns.push(sample.time_ms, *value),
                    SampleValue::Stale => columns.push(sample.time_ms, STALE_NAN),
                    SampleValue::Histogram(histogram) => {
                        let stored = with_stored_hint(columns, histogram);
                        columns.push_histogram(sample.time_ms, Arc::new(Histogram::Float(stored)));
                    }
                }
                Ok(())
            }
        }
    }
}

/// Returns true if the last sample has this value, bit for bit.
fn is_last_value(columns: &Columns, value: &SampleValue) -> bool {
    let last_idx = columns.len() - 1;
    match (columns.histogram_at(last_idx).map(|last| &**last), value) {
        (Some(Histogram::Float(last)), SampleValue::Histogram(histogram)) => last.is_identical(histogram),
        (None, SampleValue::Float(value)) => columns.values[last_idx].to_bits() == value.to_bits(),
        (None, SampleValue::Stale) => columns.values[last_idx].to_bits() == STALE_NAN.to_bits(),
        _ => false,
    }
}

/// The histogram with the reset hint of a chunk that it continues: known only within a run of histograms that
/// fit one chunk.
fn with_stored_hint(columns: &Columns, histogram: &FloatHistogram) -> FloatHistogram {
    let mut stored = histogram.clone();
    if stored.reset_hint == ResetHint::Gauge {
        return stored;
    }
    stored.reset_hint = ResetHint::Unknown;
    let last = columns.len().checked_sub(1).and_then(|last_idx| columns.histogram_at(last_idx));
    let Some(Histogram::Float(before)) = last.map(|last| &**last) else { return stored };
    let joins = before.reset_hint != ResetHint::Gauge
        && histogram.reset_hint != ResetHint::Reset
        && !before.is_stale()
        && histogram.schema == before.schema
        && histogram.zero_threshold == before.zero_threshold
        && histogram.custom_values == before.custom_values;
    if joins && !stored.is_reset_after(before) {
        stored.reset_hint = ResetHint::NotReset;
    }
    stored
}

/// Samples of one series.
struct SeriesSamples(Arc<Columns>);

impl SampleSource for SeriesSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let from = self.0.times.partition_point(|&time_ms| time_ms < range.start);
        let to = self.0.times.partition_point(|&time_ms| time_ms < range.end);
        (from..to).for_each(|idx| out.push_from(&self.0, idx));
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }
}

impl Source for SeriesStore {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        ctx.check()?;
        let Read { request, wanted } = read;
        let selected = self.series.iter().filter(|(labels, columns)| {
            let range = columns.times.first().zip(columns.times.last());
            range.is_some_and(|(&first, &last)| request.range.overlaps_inclusive(first, last))
                && request.matchers.iter().all(|matcher| matcher.matches_labels(labels))
        });
        Ok(match wanted {
            Wanted::Series => {
                let series = selected.map(|(labels, columns)| SeriesRead {
                    labels: labels.clone(),
                    samples: Box::new(SeriesSamples(columns.clone())),
                });
                Opened::Series(request.filter(Box::new(VecBatches::new(series.collect()))))
            }
            Wanted::Estimate => Opened::Estimate(None),
            // The engine lists no labels.
            Wanted::LabelNames | Wanted::LabelValues { .. } | Wanted::EachLabelValue { .. } => {
                Opened::listed(Vec::new())
            }
            Wanted::SoleLabelValues { .. } => Opened::Cursor(None),
        })
    }
}
