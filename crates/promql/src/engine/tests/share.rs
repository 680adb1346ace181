//! Results with sharing equal results of a query that computes every occurrence of a part.
//! Promqltest scripts are evaluated both ways in `tests/it/promqltest`; random queries in `tests/it/sharing`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::{Clock, MemoryBudget, SystemClock};
use chronolith_model::query::{Opened, Read, Source};
use chronolith_model::{
    Columns, LabelsBuilder, QueryError, Queryable, ReadContext, SampleSource, SeriesBatches, SeriesRead,
    TimeRange,
};

use crate::engine::trace::{Trace, TraceNode, Use};
use crate::engine::{Engine, EngineOptions, Query, QueryResult, Sharing};
use crate::parser::{ParserOptions, parse_expr};
use crate::testing::MemQueryable;

/// Series of `m`, `m_total` and `n` by `id` and `job`, a sample every 10 s up to 1000 s.
fn source(series_count: usize) -> MemQueryable {
    let mut source = MemQueryable::new();
    for (at, name) in ["m", "m_total", "n"].into_iter().enumerate() {
        for id in 0..series_count {
            let mut labels = LabelsBuilder::new();
            labels.push("__name__", name);
            labels.push("id", &id.to_string());
            labels.push("job", &(id % 3).to_string());
            let value = |k: i64| (k * (id as i64 + 1) % (50 + at as i64)) as f64;
            source.add(&labels.finish(), (0..=100).map(|k| (k * 10_000, value(k))));
        }
    }
    source
}

struct Case<'a> {
    source: &'a dyn Queryable,
    text: &'a str,
    range_s: (i64, i64, i64),
    options: EngineOptions,
    memory_bytes_max: u64,
}

impl Case<'_> {
    fn run(&self, sharing: Sharing) -> (Result<QueryResult, String>, Trace, u64) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let expr = parse_expr(self.text, ParserOptions::default()).expect("parses");
        let (start, end, step) = self.range_s;
        let query = Query {
            text: self.text,
            expr: &expr,
            start_ms: start * 1000,
            end_ms: end * 1000,
            step_ms: step * 1000,
            lookback_ms: None,
        };
        let trace = Trace::new().with_nodes(clock.clone());
        let budget = MemoryBudget::new("query", self.memory_bytes_max);
        let ctx = ReadContext::new(clock, u64::MAX, budget.clone());
        let options = EngineOptions { sharing, ..self.options.clone() };
        let result = Engine::new(options).run_traced(self.source, &query, &ctx, &trace);
        let result = result.map_err(|error| error.to_string());
        (result, trace, budget.used_bytes())
    }
}

/// Values with all their bits.
fn render(result: &Result<QueryResult, String>) -> String {
    let Ok(result) = result else { return format!("{result:?}") };
    let bits = match &result.value {
        crate::Value::Vector(all) => all.iter().map(|e| e.value.to_bits()).collect::<Vec<_>>(),
        crate::Value::Matrix(all) => all.iter().flat_map(|s| s.values.iter().map(|v| v.to_bits())).collect(),
        crate::Value::Scalar { value, .. } => vec![value.to_bits()],
        crate::Value::String { .. } => Vec::new(),
    };
    format!("{:?} {bits:?} {:?} {:?}", result.value, result.warnings, result.infos)
}

/// Results are equal; samples read with and without sharing.
#[track_caller]
fn check(source: &MemQueryable, text: &str, range_s: (i64, i64, i64)) -> (u64, u64) {
    let options = EngineOptions::default();
    let case = Case { source, text, range_s, options, memory_bytes_max: u64::MAX };
    let (shared, _, left) = case.run(Sharing::Auto);
    let (alone, ..) = case.run(Sharing::Off);
    assert_eq!(render(&shared), render(&alone), "{text}");
    assert_eq!(left, 0, "{text}: all memory is given back");
    let read = |result: &Result<QueryResult, String>| result.as_ref().map_or(0, |result| result.samples_read);
    (read(&shared), read(&alone))
}

#[test]
fn equal_parts_are_read_once() {
    let source = source(5);
    for (text, times) in [
        ("m + m", 2),
        ("sum by (job) (rate(m_total[1m])) / on () group_left sum(rate(m_total[1m]))", 2),
        ("m / (m + m * 2)", 3),
        ("quantile(0.9, rate(m[1m])) and quantile(0.5, rate(m[1m]))", 2),
        ("rate(m[1m]) / on (job) group_left sum by (job) (rate( m [60s]))", 2),
        ("max_over_time(sum(m)[1m:10s]) - min_over_time(sum(m)[1m:10s])", 2),
        ("scalar(sum(m)) + m - m", 3),
        ("m{id=\"1\",job=\"1\"} or m{job=\"1\",id=\"1\"}", 2),
        ("m or m or m", 3),
        ("sum(m @ 300) / avg(m @ 300)", 2),
        ("m unless on (id) (m > 20)", 2),
    ] {
        for range_s in [(500, 500, 0), (200, 900, 30)] {
            let (shared, alone) = check(&source, text, range_s);
            assert!(shared > 0 && shared * times == alone, "{text}: {shared} instead of {alone}");
        }
    }
}

/// A source that counts selections and reads.
struct Counting {
    inner: MemQueryable,
    selections: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

struct CountingBatches(Box<dyn SeriesBatches>, Arc<AtomicUsize>);
struct CountingSamples(Box<dyn SampleSource>, Arc<AtomicUsize>);

impl SampleSource for CountingSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(range, out)
    }

    fn sample_count_hint(&self) -> usize {
        self.0.sample_count_hint()
    }
}

impl SeriesBatches for CountingBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let first = out.len();
        let more = self.0.next_batch(out)?;
        let counted = out.split_off(first).into_iter().map(|SeriesRead { labels, samples }| SeriesRead {
            labels,
            samples: Box::new(CountingSamples(samples, self.1.clone())),
        });
        out.extend(counted);
        Ok(more)
    }
}

impl Source for Counting {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        self.selections.fetch_add(1, Ordering::Relaxed);
        let series = self.inner.open(read, ctx)?.into_series();
        Ok(Opened::Series(Box::new(CountingBatches(series, self.reads.clone()))))
    }
}

/// Different functions of the same samples.
#[test]
fn equal_selections_are_made_once_and_decoded_once() {
    for (series_count, text, selections, read_times) in [
        (2500, "max_over_time(m[1m]) - min_over_time(m[1m]) + sum_over_time(m[1m])", 1, 1),
        (50, "rate(m_total[1m]) + on (id, job) rate(m_total{id=~\".*\"}[1m])", 2, 2),
        (50, "max_over_time(m[1m]) - min_over_time(m[2m])", 2, 2),
        (50, "max_over_time(m[1m]) - scalar(sum(min_over_time(m[1m])))", 1, 1),
        (50, "scalar(sum(max_over_time(m[1m]))) - min_over_time(m[1m])", 2, 2),
    ] {
        let (made, reads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let inner = source(series_count);
        let want = render(&case_of(&inner, text).run(Sharing::Off).0);
        let source = Counting { inner, selections: made.clone(), reads: reads.clone() };
        let (found, _, left) = case_of(&source, text).run(Sharing::Auto);
        assert_eq!(render(&found), want, "{text}");
        assert_eq!(left, 0, "{text}: all memory is given back");
        assert_eq!(made.load(Ordering::Relaxed), selections, "{text}");
        assert_eq!(reads.load(Ordering::Relaxed), series_count * read_times, "{text}");
    }
}

fn case_of<'a>(source: &'a dyn Queryable, text: &'a str) -> Case<'a> {
    let options = EngineOptions::default();
    Case { source, text, range_s: (200, 900, 30), options, memory_bytes_max: u64::MAX }
}

#[test]
fn parts_that_differ_are_not_shared() {
    let source = source(5);
    for text in [
        "m + on (id) n",
        "m + m offset 10s",
        "rate(m[1m]) + rate(m[2m])",
        "m + m @ 300",
        "sum_over_time(m[1m:10s]) + m",
        "m{id=\"1\"} + on () m{id=~\"1\"}",
    ] {
        for range_s in [(500, 500, 0), (200, 900, 30)] {
            let (shared, alone) = check(&source, text, range_s);
            assert!(shared > 0 && shared == alone, "{text}: {shared} instead of {alone}");
        }
    }
}

/// Both selected the same and were shared, although the order of matchers decides the labels of `absent`.
#[test]
fn absent_has_the_labels_of_its_own_matchers() {
    let text = "absent(gone{id=\"1\",id=~\".*\"}) or absent(gone{id=~\".*\",id=\"1\"})";
    check(&source(2), text, (500, 500, 0));
    let result = case_of(&source(2), text).run(Sharing::Auto).0.expect("evaluates");
    assert!(matches!(&result.value, crate::Value::Matrix(all) if all.len() == 2), "{:?}", result.value);
}

/// Prometheus reports a repeated annotation once, at its last position.
#[test]
fn annotations_point_to_the_places_that_they_would_point_to() {
    let source = source(2);
    for text in [
        "rate(m[1m]) + rate(m[1m])",
        "sum(rate(m[1m])) / sum by (job) (rate(m[1m]))",
        "rate(m[1m]) unless on (job) (rate(m[1m]) > 1e9)",
        "sum(quantile_over_time(2, m[1m])) - sum by (id) (quantile_over_time(2, m[1m]))",
        "sort(m) + sort(m)",
        "quantile(7, m) or quantile(7, m)",
        "scalar(sum(rate(m[1m]))) + sum(rate(m[1m]))",
    ] {
        for range_s in [(500, 500, 0), (200, 900, 30)] {
            check(&source, text, range_s);
        }
    }
}

/// A part that may not be kept is computed again: sharing costs no query its result.
#[test]
fn where_memory_is_short_sharing_goes_and_not_the_query() {
    let source = source(300);
    let mut given_up = 0;
    for text in [
        "sum(abs(m) + abs(m))",
        "count(rate(m[1m]) / (rate(m[1m]) + rate(m[1m])))",
        "sum by (id) (m) and topk(3, m)",
        "count(max_over_time(m[1m]) - min_over_time(m[1m]))",
        "max(scalar(sum(m)) + m - m)",
    ] {
        let whole = |memory_bytes_max| Case {
            source: &source,
            text,
            range_s: (200, 900, 10),
            options: EngineOptions::default(),
            memory_bytes_max,
        };
        let want = render(&whole(u64::MAX).run(Sharing::Off).0);
        let read_all = whole(u64::MAX).run(Sharing::Auto).0.expect("unlimited").samples_read;
        for kilobytes in (50..2500).step_by(50) {
            let case = whole(kilobytes * 1000);
            let (shared, _, left) = case.run(Sharing::Auto);
            assert_eq!(left, 0, "{text}: all memory is given back");
            if case.run(Sharing::Off).0.is_ok() {
                assert_eq!(render(&shared), want, "{text} with {kilobytes} kB");
                given_up += usize::from(shared.is_ok_and(|result| result.samples_read > read_all));
            }
        }
    }
    assert!(given_up > 0, "some log was given up");
}

#[test]
fn errors_are_the_same_in_every_place() {
    let source = source(3);
    for text in [
        "(m + on (job) group_left () n) or (m + on (job) group_left () n)",
        "m and {__name__=~\"m|n\"} + {__name__=~\"m|n\"}",
        "rate({__name__=~\"m|n\"}[1m]) unless rate({__name__=~\"m|n\"}[1m])",
    ] {
        check(&source, text, (500, 500, 0));
    }
}

fn uses(node: &TraceNode, out: &mut Vec<(String, u32, Use)>) {
    out.extend(node.shared.map(|(id, which)| (node.text.clone(), id, which)));
    node.children.iter().for_each(|child| uses(child, out));
}

#[test]
fn explain_names_the_shared_part_at_each_of_its_uses() {
    let source = source(3);
    let text = "sum(rate(m[1m])) / count(rate(m[1m] ))";
    let options = EngineOptions::default();
    let case = Case { source: &source, text, range_s: (500, 500, 0), options, memory_bytes_max: u64::MAX };
    let report = case.run(Sharing::Auto).1.report(text).expect("asked for");
    let mut found = Vec::new();
    uses(&report, &mut found);
    let want = [("rate(m[1m])", 1, Use::First), ("rate(m[1m] )", 1, Use::Again)];
    assert_eq!(found, want.map(|(text, id, which)| (text.to_owned(), id, which)));
}

#[test]
fn a_canceled_query_stops_in_the_middle_of_a_replay() {
    let source = source(50);
    let expr = parse_expr("m + m", ParserOptions::default()).expect("parses");
    let query =
        Query { text: "", expr: &expr, start_ms: 0, end_ms: 900_000, step_ms: 1000, lookback_ms: None };
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    ctx.cancel();
    let error = Engine::default().run(&source, &query, &ctx).expect_err("canceled");
    assert_eq!(error.to_string(), "query was canceled");
}
