//! Limits, cancelling and templates of an evaluation.

use std::cell::Cell;
use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::{Request, evaluate};
use crate::error::EvalError;
use crate::scope::Limits;
use crate::storage::memory::{MemorySource, StoredSeries};
use crate::storage::{FetchRequest, FetchedSeries, Node, Source};
use crate::time::request_range;

fn run(
    target: &str,
    template: &[(&str, &str)],
    limits: Limits,
    is_canceled: bool,
) -> Result<Vec<String>, EvalError> {
    let mut source = MemorySource::default();
    for name in ["x.a.v", "x.b.v", "y.a.v"] {
        source.insert(name, StoredSeries { start: 0, step: 10, values: vec![1.0; 100] });
    }
    let request = Request {
        targets: vec![target.to_owned(), String::new()],
        range: request_range(Some("100"), Some("200"), &TimeZone::UTC, 1000)?,
        now: 1000,
        clock: 1000,
        zone: TimeZone::UTC,
        server_zone: TimeZone::UTC,
        max_data_points: None,
        x_files_factor: 0.0,
        template: template
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>(),
    };
    let list = evaluate(&request, &source, limits, &|| is_canceled)?;
    Ok(list.into_iter().map(|series| series.name).collect())
}

#[track_caller]
fn check(target: &str, template: &[(&str, &str)], want: &[&str]) {
    assert_eq!(run(target, template, Limits::default(), false).unwrap(), want, "{target}");
}

#[test]
fn templates_are_filled_in_before_fetching() {
    check("template($p.$1.v,'b')", &[("p", "x")], &["x.b.v"]);
    check("template($p.a.v,p='x')", &[("p", "y")], &["y.a.v"]);
    check("template(scale($1.a.v,$2),'x','2.5')", &[], &["scale(x.a.v,2.5)"]);
    check("template(movingAverage($1.a.v,2),'x')", &[], &["movingAverage(x.a.v,2)"]);
    check("template(alias(x.a.v,'$1'),'n')", &[], &["$1"]);
}

#[test]
fn limits_and_cancelling_end_a_request() {
    let limits = |series_max, points_max| Limits { series_max, points_max, ..Limits::default() };
    let limit = |what, found, limit| Err(EvalError::Limit { what, found, limit });
    assert_eq!(run("x.*.v", &[], limits(1, 1000), false), limit("series", 2, 1));
    assert_eq!(run("x.*.v", &[], limits(10, 15), false), limit("points", 20, 15));
    assert_eq!(
        run("x.*.v", &[], Limits { bytes_max: 100, ..Limits::default() }, false),
        limit("bytes of points", 160, 100)
    );
    assert_eq!(
        run("x.*.v", &[], Limits { targets_max: 0, ..Limits::default() }, false),
        limit("targets", 1, 0)
    );
    assert_eq!(run("x.*.v", &[], Limits::default(), true), Err(EvalError::Canceled));
}

/// A path of megabytes, copied for each place where it stood, took 6.5 GB before its request was refused.
/// Memory is reserved before it is taken, for trees, copies of series, names and points.
#[test]
fn amplification_is_refused_before_it_takes_memory() {
    let doubled = (0..12).fold("x.*.v".to_owned(), |target, _| format!("group({target},{target})"));
    let nested_sub =
        (0..10).fold("x.a.v".to_owned(), |target, _| format!("aliasSub({target},'(.*)','\\1\\1\\1\\1')"));
    let long = "n".repeat(60_000);
    let percents = "%".repeat(60_000);
    let nodes = ",0".repeat(50_000);
    let shifts = "timeStack(".repeat(5) + "x.*.v" + &",'1s',0,1000)".repeat(5);
    let hostile = [
        doubled,
        nested_sub,
        format!("alias(group({}),'{long}')", vec!["*.*.v"; 500].join(",")),
        format!("color(group({}),'{long}')", vec!["*.*.v"; 500].join(",")),
        format!("template(group({}),'{long}')", vec!["$1"; 2_000].join(",")),
        format!("aliasByNode(group({}){nodes})", vec!["*.*.v"; 500].join(",")),
        format!("cactiStyle(group(alias(x.a.v,'{long}'),{}))", vec!["*.*.v"; 500].join(",")),
        format!("applyByNode(alias(x.a.v,'{}'),0,'{percents}')", "p".repeat(4_000)),
        format!("legendValue(group({}){})", vec!["*.*.v"; 100].join(","), ",'avg'".repeat(20_000)),
        format!("reduceSeries(mapSeries(*.*.v,0),'sumSeries',2{})", ",'v'".repeat(50_000)),
        format!("groupByNodes(*.*.v,'sum'{})", nodes.repeat(2)),
        shifts,
        "randomWalk('r',1)".to_owned(),
        "sinFunction('s',1,1)".to_owned(),
        "hitcount(x.a.v,'1s')".to_owned(),
        format!("seriesByTag({})", vec!["'a=~b'"; 100].join(",")),
    ];
    for target in hostile {
        let shown: String = target.chars().take(40).collect();
        let peak = Cell::new(0);
        let outcome = run_within(&target, MEMORY_MAX, (0, 1_000_000), &peak);
        let is_refused = matches!(outcome, Err(EvalError::Storage(_) | EvalError::Limit { .. }));
        let is_small = peak.get() < MEMORY_MAX && outcome.is_ok();
        let is_invalid = matches!(outcome, Err(EvalError::Parameter(_) | EvalError::Syntax(_)));
        assert!(is_refused || is_small || is_invalid, "{shown}: {outcome:.100?}, {} bytes", peak.get());
    }
}

/// The reservation covers only points in use: a chain of functions does not add up.
#[test]
fn results_of_inner_calls_are_released() {
    let peak = |depth: usize| {
        let target = (0..depth).fold("x.a.v".to_owned(), |target, _| format!("scale({target},2)"));
        let peak = Cell::new(0);
        run_within(&target, u64::MAX, (0, 1_000), &peak).expect("fits");
        peak.get()
    };
    // The names grow by each call, the points do not.
    assert!(peak(40) < 4 * peak(1) + 40 * 8192, "{} and {}", peak(40), peak(1));
}

/// Memory of one request in these tests.
const MEMORY_MAX: u64 = 4 << 20;

/// A source that refuses to reserve more than a limit.
struct Limited<'a> {
    source: MemorySource,
    bytes_max: u64,
    reserved: &'a Cell<u64>,
}

impl Source for Limited<'_> {
    fn fetch(&self, requests: &[FetchRequest]) -> Result<Vec<Vec<FetchedSeries>>, EvalError> {
        self.source.fetch(requests)
    }

    fn find(&self, pattern: &str, from: Option<i64>, until: Option<i64>) -> Result<Vec<Node>, EvalError> {
        self.source.find(pattern, from, until)
    }

    fn reserve(&self, bytes: u64) -> Result<(), EvalError> {
        self.reserved.set(self.reserved.get() + bytes);
        let is_within = self.reserved.get() <= self.bytes_max;
        if is_within { Ok(()) } else { Err(EvalError::Storage("no memory".to_owned())) }
    }
}

fn run_within(
    target: &str,
    bytes_max: u64,
    (from, until): (i64, i64),
    reserved: &Cell<u64>,
) -> Result<usize, EvalError> {
    let mut source = MemorySource::default();
    for name in ["x.a.v", "x.b.v", "y.a.v"] {
        source.insert(name, StoredSeries { start: 0, step: 10, values: vec![1.0; 100] });
    }
    let source = Limited { source, bytes_max, reserved };
    let (from, until) = (from.to_string(), until.to_string());
    let request = Request {
        targets: vec![target.to_owned()],
        range: request_range(Some(&from), Some(&until), &TimeZone::UTC, 2_000_000)?,
        now: 2_000_000,
        clock: 2_000_000,
        zone: TimeZone::UTC,
        server_zone: TimeZone::UTC,
        max_data_points: None,
        x_files_factor: 0.0,
        template: BTreeMap::new(),
    };
    evaluate(&request, &source, Limits::default(), &|| false).map(|list| list.len())
}

/// A call that does not close was read as the path of its name, and the answer was an empty list.
#[test]
fn an_unclosed_call_is_an_error() {
    let unclosed = [
        "sumSeries(",
        "sumSeries(x.a.v",
        "scale(x.*",
        "scale(x.*.v, 2",
        " alias(x.a.v,'n'",
        "alias(scale(x.a.v,2),'n'",
        "group(x.a.v,scale(x.b.v,2)",
        "sumSeries (x.a.v",
        "seriesByTag('a=b'",
        "f(",
        "movingAverage(x.a.v,'1min'",
        "alias(x.a.v,'n)",
    ];
    for target in unclosed {
        let error = run(target, &[], Limits::default(), false).expect_err(target);
        assert!(error.to_string().contains("closing parenthesis"), "{target}: {error}");
    }
    // Text after a whole expression is ignored, as in graphite-web.
    check("x.a.v)", &[], &["x.a.v"]);
    check("scale(x.a.v,2))", &[], &["scale(x.a.v,2)"]);
}

/// Functions with times of their own read the clock, as graphite-web does, and not the time of the request.
#[test]
fn times_of_functions_are_relative_to_the_clock() {
    let run_at = |now: i64, target: &str| {
        let mut source = MemorySource::default();
        source.insert("x", StoredSeries { start: 0, step: 10, values: (0..300).map(f64::from).collect() });
        let request = Request {
            targets: vec![target.to_owned()],
            range: request_range(Some("500"), Some("600"), &TimeZone::UTC, now).expect("valid"),
            now,
            clock: 2000,
            zone: TimeZone::UTC,
            server_zone: TimeZone::UTC,
            max_data_points: None,
            x_files_factor: 0.0,
            template: BTreeMap::new(),
        };
        let list = evaluate(&request, &source, Limits::default(), &|| false).expect("valid");
        list.into_iter().map(|series| series.name).collect::<Vec<_>>()
    };
    for now in [1000, 2000, 9000] {
        assert_eq!(run_at(now, "linearRegression(x,'-1000s','-500s')"), ["linearRegression(x, 1000, 1500)"]);
        assert_eq!(run_at(now, "linearRegression(x,'100')"), ["linearRegression(x, 100, 600)"]);
        assert_eq!(run_at(now, "timeSlice(x,'-1500s','now')"), ["timeSlice(x, 500, 2000)"]);
    }
}

#[test]
fn recursion_through_texts_is_bounded() {
    // Each level evaluates a target within a target; the texts are finite, and so is the depth.
    check("applyByNode(x.a.v,0,'applyByNode(%.a.v,0,\"%.b.v\")')", &[], &["x.b.v"]);
}
