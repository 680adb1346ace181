//! `count` and `group` ask their source for presence alone, other aggregations for the labels of their
//! groups: a source that leaves out as much as it may, and orders series as freely as it may, gives the same
//! results in the same order.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::{Rng, SystemClock};
use chronolith_model::query::{Opened, Read, SampleNeed, SelectRequest, Source, Wanted};
use chronolith_model::sample::{STALE_NAN, is_stale};
use chronolith_model::{
    Columns, Labels, METRIC_NAME, QueryError, Queryable, SampleSource, SeriesBatches, SeriesRead, TimeRange,
};

use super::*;
use crate::testing::MemQueryable;

/// Gives what a reader of presence may rely on, and nothing else.
struct Sparse(MemQueryable);

/// Samples with other values and the same staleness.
struct Marks(Columns);

/// A batch without an order.
struct Unsorted(Vec<SeriesRead>);

impl SampleSource for Marks {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        for (&time, &value) in
            self.0.times.iter().zip(&self.0.values).filter(|(time, _)| range.contains(**time))
        {
            out.push(time, if is_stale(value) { STALE_NAN } else { 0.5 });
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }
}

impl SeriesBatches for Unsorted {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        out.append(&mut self.0);
        Ok(false)
    }
}

impl Source for Sparse {
    /// Aggregations ask for series alone.
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        assert_eq!(read.wanted, Wanted::Series);
        let request = read.request;
        let mut all = Vec::new();
        let mut batches = self.0.open_series(SelectRequest::new(&request.selector()), ctx)?;
        while batches.next_batch(&mut all)? {}
        let Some(hints) = request.presence() else {
            if let Some(projection) = &request.projection {
                all.iter_mut().for_each(|one| one.labels = one.labels.filtered(|name| projection.uses(name)));
            }
            return Ok(Opened::Series(Box::new(Unsorted(all))));
        };
        let (mut groups, mut order): (BTreeMap<Labels, Vec<Columns>>, Vec<Labels>) = Default::default();
        for one in all {
            let mut columns = Columns::default();
            one.samples.read(request.range, &mut columns)?;
            let group = one.labels.filtered(|name| hints.projection.uses(name));
            if columns.values.last().is_some_and(|&value| !is_stale(value)) && !order.contains(&group) {
                order.push(group.clone());
            }
            // The other way round.
            groups.entry(group).or_default().insert(0, columns);
        }
        if hints.samples == SampleNeed::All {
            order.reverse();
        }
        let mut out = Vec::new();
        for group in order {
            let series = groups.remove(&group).unwrap_or_default();
            let read = |columns| SeriesRead { labels: group.clone(), samples: Box::new(Marks(columns)) };
            out.extend(series.into_iter().map(read));
        }
        for (labels, series) in groups {
            let read = |columns| SeriesRead { labels: labels.clone(), samples: Box::new(Marks(columns)) };
            out.extend(series.into_iter().map(read));
        }
        Ok(Opened::Series(Box::new(Unsorted(out))))
    }
}

const QUERIES: &[&str] = &[
    "count(a)",
    "count by (g) (a)",
    "count without (i) (a)",
    "count by (i, g) ({__name__=~\"a|b\"})",
    "group(a)",
    "group by (g) (a offset 20s)",
    "count((a))",
    "count(a @ 300)",
    "count by (g) (a @ 300)",
    "count by (g) (a) / sum by (g) (a)",
    "count(a) + count(b) * sum(b)",
    "count by (g) (a > 3)",
    "count(-a)",
    "sum(count by (g) (a))",
    "topk(1, count by (g) (a))",
    "count(count by (g) (a) > 2)",
    "count(rate(a[1m]))",
    "max_over_time(count(a)[2m:10s])",
    "count_over_time(count by (g) (a)[2m:10s])",
    "count(a) unless count(b)",
    "count(timestamp(a))",
    "sum(a)",
    "sum by (g) (rate(a[1m]))",
    "sum by (__name__, g) (rate(a[1m]))",
    "sum by (g) (rate({__name__=~\"a|b\"}[1m]))",
    "avg without (i) (increase(a[2m]))",
    "max by (g, __name__) (last_over_time({__name__=~\"a|b\"}[1m]))",
    "quantile by (g) (0.5, a)",
    "stddev(delta(a[1m]))",
    "min without (g, i) (min_over_time({i=~\".+\"}[1m]))",
    "sum by (g) (a) + on (g) sum by (g) (rate(a[2m]))",
    "sum by (i) (rate(a[1m] @ 300))",
    "sum by (g) (rate(sum by (i, g) (a)[2m:10s]))",
    "topk(2, avg by (g) (a))",
];

fn data(seed: u64) -> MemQueryable {
    let rng = Rng::from_seed(seed);
    let mut source = MemQueryable::new();
    for idx in 0..40 {
        let (i, g) = (idx.to_string(), (idx * 3 % 7).to_string());
        for name in ["a", "b"] {
            let labels = Labels::from_pairs([(METRIC_NAME, name), ("i", &*i), ("g", &*g)]);
            let samples = (0..60).filter(|_| rng.below(4) > 0).map(|k| {
                let value = if rng.below(5) == 0 { STALE_NAN } else { rng.below(9) as f64 };
                (k * 10_000 + rng.below(5000) as i64, value)
            });
            source.add(&labels, samples.collect::<Vec<_>>());
        }
    }
    source
}

fn evaluate(source: &dyn Queryable, text: &str, range: (i64, i64, i64)) -> String {
    let expr = parse_expr(text, parser()).expect("it parses");
    let (start_ms, end_ms, step_ms) = range;
    let query = Query { text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms: Some(40_000) };
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    let result = Engine::new(EngineOptions::default()).run(source, &query, &ctx);
    format!(
        "{:?}",
        result.map(|result| (result.value, result.warnings, result.infos)).map_err(|e| e.to_string())
    )
}

#[test]
fn counts_do_not_depend_on_what_presence_leaves_out() {
    for seed in 0..6 {
        let (plain, sparse) = (data(seed), Sparse(data(seed)));
        for text in QUERIES {
            for range in [(0, 0, 0), (300_000, 300_000, 0), (333_000, 333_000, 0), (900_000, 900_000, 0)] {
                assert_eq!(
                    evaluate(&sparse, text, range),
                    evaluate(&plain, text, range),
                    "{text} at {range:?}"
                );
            }
            let range = (-20_000, 700_000, 13_000);
            assert_eq!(evaluate(&sparse, text, range), evaluate(&plain, text, range), "{text} in {range:?}");
        }
    }
}
