//! The engine through its public API, with queries as text. The scripts in `tests/it/promqltest` cover the
//! language; here stand the things that they leave out: names that go at once, matching of vectors, limits,
//! hostile sizes.

mod agree;
mod batch;
mod cost;
mod presence;
mod share;
mod time_slice;
mod trace;

use std::sync::Arc;

use chronolith_base::{MemoryBudget, SystemClock};

use chronolith_model::METRIC_NAME;

use super::*;
use crate::parser::{ParserOptions, parse_expr};
use crate::testing::MemQueryable;

/// Series `name{labels}` with a value at 0 s, 10 s, 20 s, ...
fn source(series: &[(&str, &[f64])]) -> MemQueryable {
    let mut source = MemQueryable::new();
    for (text, values) in series {
        let (name, labels) = text.split_once('{').unwrap_or((text, "}"));
        let pairs = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap()).chain([(METRIC_NAME, name)]);
        source.add(&Labels::from_pairs(pairs), (0..).map(|i| i * 10_000).zip(values.iter().copied()));
    }
    source
}

fn parser() -> ParserOptions {
    ParserOptions { experimental_functions: true, binop_fill_modifiers: true, unquoted_utf8_names: false }
}

fn run(
    options: EngineOptions,
    source: &MemQueryable,
    text: &str,
    range: (i64, i64, i64),
) -> Result<Value, String> {
    let expr = parse_expr(text, parser()).map_err(|e| e.to_string())?;
    let (start_ms, end_ms, step_ms) = range;
    let query = Query { text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms: None };
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    Engine::new(options).run(source, &query, &ctx).map(|result| result.value).map_err(|e| e.to_string())
}

fn render(value: &Value) -> Vec<String> {
    let mut lines = match value {
        Value::Scalar { value, .. } => vec![value.to_string()],
        Value::String { value, .. } => vec![value.clone()],
        Value::Vector(all) => all.iter().map(|e| format!("{} {}", e.labels, e.value)).collect(),
        Value::Matrix(all) => all
            .iter()
            .map(|s| {
                let points: Vec<_> =
                    s.times.iter().zip(&s.values).map(|(t, v)| format!("{v}@{}", t / 1000)).collect();
                format!("{} {}", s.labels, points.join(" "))
            })
            .collect(),
    };
    lines.sort();
    lines
}

/// Checks an instant query at 20 s, with names removed at once.
#[track_caller]
fn check(source: &MemQueryable, text: &str, want: &[&str]) {
    let value = run(EngineOptions::default(), source, text, (20_000, 20_000, 0)).unwrap();
    assert_eq!(render(&value), want, "{text}");
}

/// Checks a range query from 0 s to 20 s in steps of 10 s.
#[track_caller]
fn check_range(source: &MemQueryable, text: &str, want: &[&str]) {
    let value = run(EngineOptions::default(), source, text, (0, 20_000, 10_000)).unwrap();
    assert_eq!(render(&value), want, "{text}");
}

#[track_caller]
fn check_error(source: &MemQueryable, text: &str, want: &str) {
    let error = run(EngineOptions::default(), source, text, (20_000, 20_000, 0)).unwrap_err();
    assert_eq!(error, want, "{text}");
}

const NAN: f64 = f64::NAN;
const GONE: f64 = chronolith_model::sample::STALE_NAN;

#[test]
fn names_go_at_once() {
    let s = source(&[("a{x=1}", &[1.0, 2.0, 4.0]), ("b{x=2}", &[5.0, 5.0, 5.0])]);
    check(&s, "-a", &["{x=\"1\"} -4"]);
    check(&s, "a + 1", &["{x=\"1\"} 5"]);
    check(&s, "a > 3", &["a{x=\"1\"} 4"]);
    check(&s, "a > bool 3", &["{x=\"1\"} 1"]);
    check(&s, "3 < a", &["a{x=\"1\"} 4"]);
    check(&s, "abs(a)", &["{x=\"1\"} 4"]);
    check(&s, "increase(a[20s])", &["{x=\"1\"} 4"]);
    check(&s, "last_over_time(a[20s])", &["a{x=\"1\"} 4"]);
    check(&s, "timestamp(a)", &["{x=\"1\"} 20"]);
    check(&s, "topk(1, {x=~'.'})", &["b{x=\"2\"} 5"]);
    check(&s, "sum by (__name__) ({x=~'.'})", &["a 4", "b 5"]);
    check(&s, "{x=~'.'} * 2", &["{x=\"1\"} 8", "{x=\"2\"} 10"]);
}

#[test]
fn equal_series_are_refused_in_one_step_and_joined_over_steps() {
    let both = source(&[("a{x=1}", &[1.0, 2.0, 4.0]), ("b{x=1}", &[5.0, 5.0, 5.0])]);
    for text in [
        "-{x='1'}",
        "{x='1'} + 1",
        "abs({x='1'})",
        "rate({x='1'}[20s])",
        "label_join({x='1'}, '__name__', '')",
    ] {
        check_error(&both, text, "vector cannot contain metrics with the same labelset");
    }
    // Inside of an aggregation, too, where nothing of it would be seen: values that become names, names that
    // come from the "many" side.
    let three =
        source(&[("a{x=1}", &[1.0, 2.0, 4.0]), ("b{x=1}", &[5.0, 5.0, 5.0]), ("c{x=1}", &[9.0, 9.0, 9.0])]);
    for text in
        ["sum(count_values('__name__', {x='1'}) - 16)", "sum(abs(c != on (x) group_right () {x='1'}))"]
    {
        check_error(&three, text, "vector cannot contain metrics with the same labelset");
    }
    let turns = source(&[("a{x=1}", &[1.0, GONE]), ("b{x=1}", &[GONE, 5.0, 6.0])]);
    check_range(&turns, "{x='1'} + 1", &["{x=\"1\"} 2@0 6@10 7@20"]);
    check_range(&turns, "count_over_time({x='1'}[5s])", &["{x=\"1\"} 1@0 1@10 1@20"]);
    check_range(&turns, "a or b", &["a{x=\"1\"} 1@0", "b{x=\"1\"} 5@10 6@20"]);
    check_range(&turns, "label_replace({x='1'}, '__name__', 'c', '', '')", &["c{x=\"1\"} 1@0 5@10 6@20"]);
}

/// Type and unit are removed with the name, so that series of one metric may become equal. They were returned
/// twice.
#[test]
fn series_that_differ_in_their_type_are_refused_without_it() {
    let both = source(&[("a{__type__=counter}", &[1.0, 2.0, 4.0]), ("a{__type__=gauge}", &[5.0, 5.0, 5.0])]);
    let options = EngineOptions { type_and_unit_labels: true, ..EngineOptions::default() };
    for text in ["-a", "a * 2", "abs(a)", "rate(a[20s])", "sum(a + 1)"] {
        let error = run(options.clone(), &both, text, (20_000, 20_000, 0)).unwrap_err();
        assert_eq!(error, "vector cannot contain metrics with the same labelset", "{text}");
    }
}

/// A refused label kept the operand from being planned, and with it an error that comes first.
#[test]
fn durations_are_reported_before_other_errors() {
    let s = source(&[("a{x=1}", &[1.0])]);
    check_error(&s, "count_values('', a)", "invalid label name \"\"");
    check_error(&s, "count_values('', sum_over_time(a[step()]))", "33:39: duration must be greater than 0");
}

#[test]
fn delayed_names_can_be_brought_back() {
    let s = source(&[("a{x=1}", &[1.0, 2.0, 4.0]), ("b{x=1}", &[5.0, 5.0, 5.0])]);
    let options = EngineOptions { name_removal: NameRemoval::Delayed, ..EngineOptions::default() };
    let text = "label_replace(increase({x='1'}[20s]), 'of', '$1', '__name__', '(.*)')";
    let value = run(options.clone(), &s, text, (20_000, 20_000, 0)).unwrap();
    assert_eq!(render(&value), ["{of=\"a\", x=\"1\"} 4", "{of=\"b\", x=\"1\"} 0"]);
    let value = run(options, &s, "sum by (__name__) (increase({x='1'}[20s]))", (20_000, 20_000, 0));
    assert_eq!(value.unwrap_err(), "vector cannot contain metrics with the same labelset");
}

#[test]
fn vectors_match_by_labels() {
    let s = source(&[
        ("a{x=1,y=1}", &[1.0, 1.0, 2.0]),
        ("a{x=1,y=2}", &[1.0, 1.0, 3.0]),
        ("b{x=1}", &[1.0, 1.0, 10.0]),
        ("b{x=2}", &[1.0, 1.0, 20.0]),
        ("info{x=1,v=new}", &[1.0, 1.0, 1.0]),
    ]);
    check(&s, "a * on(x) group_left b", &["{x=\"1\", y=\"1\"} 20", "{x=\"1\", y=\"2\"} 30"]);
    check(&s, "b - on(x) group_right a", &["{x=\"1\", y=\"1\"} 8", "{x=\"1\", y=\"2\"} 7"]);
    check(&s, "b + ignoring(v) info", &["{x=\"1\"} 11"]);
    check(&s, "b + on(x) info", &["{x=\"1\"} 11"]);
    check(&s, "b * on(x) group_left(v) info", &["{v=\"new\", x=\"1\"} 10"]);
    check(&s, "b > on(x) info", &["{x=\"1\"} 10"]);
    check(&s, "b > ignoring(v) info", &["b{x=\"1\"} 10"]);
    check(&s, "b > bool ignoring(v) info", &["{x=\"1\"} 1"]);
    check(&s, "b and on(x) a", &["b{x=\"1\"} 10"]);
    check(&s, "b unless on(x) a", &["b{x=\"2\"} 20"]);
    check(&s, "b or on(x) a", &["b{x=\"1\"} 10", "b{x=\"2\"} 20"]);
    check(&s, "b + on(x) fill_right(1) info", &["{x=\"1\"} 11", "{x=\"2\"} 21"]);
    check(&s, "info + on(x) fill_left(0) b", &["{x=\"1\"} 11", "{x=\"2\"} 20"]);
    check_error(
        &s,
        "b + on(x) a",
        "found duplicate series for the match group {x=\"1\"} on the right hand-side of the operation: \
         [{__name__=\"a\", x=\"1\", y=\"1\"}, {__name__=\"a\", x=\"1\", y=\"2\"}];many-to-many matching not allowed: \
         matching labels must be unique on one side",
    );
    check_error(
        &s,
        "a + on(x) b",
        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
    );
    check_error(
        &s,
        "a + on(x) group_left(y) b",
        "multiple matches for labels: grouping labels must ensure unique matches",
    );
}

#[test]
fn go_arithmetic() {
    let s = MemQueryable::new();
    for (text, want) in [
        ("-5 % 3", "-2"),
        ("5 % -3", "2"),
        ("2 ^ 3 ^ 2", "512"),
        ("-2 ^ 2", "-4"),
        ("1 ^ NaN", "1"),
        ("NaN ^ 0", "1"),
        ("1 == bool 2", "0"),
        ("max_of(-0, 0)", "0"),
        ("1 atan2 1", "0.7853981633974483"),
    ] {
        check(&s, text, &[want]);
    }
}

#[test]
fn nan_takes_part_in_folds_as_in_prometheus() {
    let s = source(&[("a{x=1}", &[NAN, NAN, NAN]), ("a{x=2}", &[1.0, 1.0, 7.0])]);
    check(&s, "max(a)", &["{} 7"]);
    check(&s, "sum(a)", &["{} NaN"]);
    check(&s, "count_values('v', a)", &["{v=\"7\"} 1", "{v=\"NaN\"} 1"]);
    check(&s, "limitk(1, a)", &["a{x=\"1\"} NaN"]);
    check(&s, "count(limit_ratio(1, a)) + count(limit_ratio(-1, a))", &["{} 4"]);
}

#[test]
fn limits_hold() {
    let s = source(&[("a{x=1}", &[1.0, 2.0, 4.0]), ("a{x=2}", &[1.0, 2.0, 4.0])]);
    let few = EngineOptions { samples_max: 4, ..EngineOptions::default() };
    let error = run(few, &s, "a", (0, 20_000, 10_000)).unwrap_err();
    assert_eq!(error, "query processing would load too many samples into memory in query execution");
    for text in ["sum_over_time(vector(1)[100y:1ms])", "count_over_time(a[200y:1ms])"] {
        let error = run(EngineOptions::default(), &s, text, (20_000, 20_000, 0)).unwrap_err();
        assert!(error.contains("too many samples"), "{error}");
    }
    let expr = parse_expr("sum(a)", parser()).unwrap();
    let budget = MemoryBudget::new("query", 40);
    let ctx = ReadContext::new(Arc::new(SystemClock::new()), u64::MAX, budget.clone());
    let error = Engine::default().instant(&s, &expr, 20_000, None, &ctx).unwrap_err();
    assert!(matches!(error, EvalError::Query(QueryError::Memory(_))), "{error}");
    assert_eq!(budget.used_bytes(), 0);
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    ctx.cancel();
    let error = Engine::default().instant(&s, &expr, 20_000, None, &ctx).unwrap_err();
    assert!(matches!(error, EvalError::Query(QueryError::Canceled)), "{error}");
}

/// A label value was built before its memory was reserved: references that repeat a label in calls inside
/// each other multiply its length, so that a query of some kilobytes took many gigabytes of one series.
#[test]
fn long_labels_are_paid_for_before_they_exist() {
    let s = source(&[("a{x=1}", &[1.0, 2.0, 4.0])]);
    let nested =
        |levels: usize, first: &str, last: &str| format!("{}a{}", first.repeat(levels), last.repeat(levels));
    let template = "$0".repeat(2000);
    let replace = format!("{template:?}, \"x\", \".*\")");
    let replace = format!(", \"x\", {replace}");
    let sources = ",\"x\"".repeat(2000);
    let join = format!(", \"x\", \"-\"{sources})");
    for (query, is_refused) in [
        (nested(1, "label_replace(", &replace), false),
        (nested(2, "label_replace(", &replace), true),
        (nested(3, "label_replace(", &replace), true),
        (nested(9, "label_replace(", &replace), true),
        (nested(1, "label_join(", &join), false),
        (nested(2, "label_join(", &join), true),
        (nested(9, "label_join(", &join), true),
        (format!("label_join({}{join}", nested(1, "label_replace(", &replace)), true),
        (format!("count(label_replace({}{replace})", nested(1, "label_join(", &join)), true),
        (format!("topk(1, {})", nested(4, "label_join(", &join)), true),
        ("label_replace(a, 'x', '$1$1$1', 'x', '(.*)')".to_owned(), false),
        ("label_join(a, 'x', '$', 'x', 'x', 'y')".to_owned(), false),
    ] {
        let expr = parse_expr(&query, parser()).expect("parses");
        let budget = MemoryBudget::new("query", 8 << 20);
        let ctx = ReadContext::new(Arc::new(SystemClock::new()), u64::MAX, budget.clone());
        match Engine::default().instant(&s, &expr, 20_000, None, &ctx) {
            Err(EvalError::Query(QueryError::Memory(_))) if is_refused => {}
            Ok(_) if !is_refused => {}
            other => panic!("{}...: {other:?}", &query[..80.min(query.len())]),
        }
        assert_eq!(budget.used_bytes(), 0);
    }
}

/// The limit of samples counted the steps of a subquery: one sample over two years in steps of a second was
/// refused. Samples and values count, steps without a value do not.
#[test]
fn steps_of_subqueries_without_values_are_no_samples() {
    let s = source(&[("a{x=1}", &[1.0, 2.0, 4.0]), ("a{x=2}", &[1.0, 2.0, 4.0])]);
    let few = EngineOptions { samples_max: 900, ..EngineOptions::default() };
    for (text, want) in [
        ("max_over_time(a{x='1'}[30d:1s])", Some("{x=\"1\"} 4")),
        ("max_over_time(rate(a{x='1'}[20s])[30d:1s])", Some("{x=\"1\"} 0.2")),
        ("max(max_over_time(a[30d:1s]))", Some("{} 4")),
        ("max_over_time(sum(a)[30d:1s])", Some("{} 8")),
        ("max_over_time((a + a)[30d:1s])", Some("{x=\"1\"} 8; {x=\"2\"} 8")),
        ("max_over_time(topk(1, a)[30d:1s])", Some("{x=\"1\"} 4")),
        ("count_over_time(vector(1)[30d:1s])", None),
        ("count_over_time((a{x='1'} or vector(1))[1d:1s])", None),
    ] {
        match (run(few.clone(), &s, text, (20_000, 20_000, 0)), want) {
            (Ok(found), Some(want)) => assert_eq!(render(&found).join("; "), want, "{text}"),
            (Err(error), None) => assert!(error.contains("too many samples"), "{text}: {error}"),
            (found, want) => panic!("{text}: {found:?}, expected {want:?}"),
        }
    }
}

#[test]
fn long_chains_need_no_stack() {
    let s = source(&[("a{x=1}", &[1.0, 2.0, 4.0])]);
    let chain = |first: &str, next: &str, count: usize| format!("{first}{}", next.repeat(count));
    check(&s, &chain("1", " + 1", 9_000), &["9001"]);
    check(&s, &chain("a", " + 1", 900), &["{x=\"1\"} 904"]);
    check(&s, &chain("a", " or a", 900), &["a{x=\"1\"} 4"]);
    let nest = |open: &str, close: &str| format!("{}a{}", open.repeat(120), close.repeat(120));
    check(&s, &nest("abs(", ")"), &["{x=\"1\"} 4"]);
    check(&s, &nest("sum by (x) (", ")"), &["{x=\"1\"} 4"]);
    check(&s, &nest("(1 * ", ")"), &["{x=\"1\"} 4"]);
    check(&s, &nest("(a and ", ")"), &["a{x=\"1\"} 4"]);
    check(&s, &nest("max_over_time(", "[1m:10s])"), &["{x=\"1\"} 4"]);
    check_error(&s, &chain("a", " + 1", 2_000), "query has operators nested deeper than 1000 levels");
}

#[test]
fn annotations_carry_line_and_column() {
    let s = source(&[("a", &[1.0, 2.0, 4.0])]);
    let text = "\n  rate(a[1m])";
    let expr = parse_expr(text, parser()).unwrap();
    let query = Query { text, expr: &expr, start_ms: 20_000, end_ms: 20_000, step_ms: 0, lookback_ms: None };
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    let result = Engine::default().run(&s, &query, &ctx).unwrap();
    let want = "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"a\" (2:8)";
    assert_eq!(result.infos, [want]);
    assert_eq!((result.samples_read, result.warnings.len()), (3, 0));
}

#[test]
fn threads_change_nothing() {
    let mut s = MemQueryable::new();
    for series in 0..300 {
        let instance = format!("{:03}", (series * 7) % 300);
        let labels = Labels::from_pairs([(METRIC_NAME, "a_total"), ("instance", &*instance)]);
        let value = |i: i64| ((i * (series + 3)) % 1000) as f64 * 0.1;
        s.add(&labels, (0..1000).filter(|i| series % 5 != 0 || i % 3 == 0).map(|i| (i * 1000, value(i))));
    }
    for text in
        ["rate(a_total[1m])", "a_total", "sum(rate(a_total[30s]))", "timestamp(a_total)", "topk(3, a_total)"]
    {
        let with = |threads: usize| {
            let options = EngineOptions { threads, ..EngineOptions::default() };
            run(options, &s, text, (0, 1_000_000, 7_000)).unwrap()
        };
        assert_eq!(format!("{:?}", with(1)), format!("{:?}", with(4)), "{text}");
    }
}

#[test]
fn label_replace_expands_as_go_does() {
    let s = source(&[("a{x=1,url=h:80}", &[1.0, 2.0, 4.0])]);
    let replace =
        |template: &str, pattern: &str| format!("label_replace(a, 'x', '{template}', 'url', '{pattern}')");
    check(&s, &replace("$2-${1}", "(.*):(.*)"), &["a{url=\"h:80\", x=\"80-h\"} 4"]);
    check(&s, &replace("$host", "(?P<host>.*):.*"), &["a{url=\"h:80\", x=\"h\"} 4"]);
    check(&s, &replace("$1x", "(.*):(.*)"), &["a{url=\"h:80\"} 4"]);
    check(&s, &replace("no", "h"), &["a{url=\"h:80\", x=\"1\"} 4"]);
    check_error(&s, &replace("", "("), "invalid regular expression in label_replace(): (");
    check(&s, "label_join(a, 'y', '/', 'x', 'none', 'url')", &["a{url=\"h:80\", x=\"1\", y=\"1//h:80\"} 4"]);
}
