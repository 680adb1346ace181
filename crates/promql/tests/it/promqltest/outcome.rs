//! Comparing what came out with what a script expects.

use chronolith_model::sample::is_stale;
use chronolith_model::{FloatHistogram, GoRegex, Labels};
use chronolith_promql::ast::{AtModifier, Expr, ExprKind};
use chronolith_promql::{MatrixSeries, QueryResult, Value, VectorSample};

use super::literal::{Point, SeriesLiteral};
use super::script::{Eval, EvalKind, TextPattern};

/// Values are equal up to this share of their size.
const TOLERANCE: f64 = 1e-6;

/// Results of an eval, in its own form and as a range query.
pub(crate) struct Results {
    /// Result of the eval itself.
    pub(crate) result: QueryResult,
    /// Result of a range query around an instant eval, whose middle step has to agree with `result`.
    pub(crate) middle: Option<QueryResult>,
}

/// Returns true if an instant eval is repeated as a range query.
pub(crate) fn repeats_as_range(eval: &Eval, expr: &Expr) -> bool {
    // By the text, as in Prometheus: durations may depend on it as well.
    let mut depends_on_range =
        ["start()", "end()", "range()", "step()"].iter().any(|f| eval.expr.contains(f));
    walk(expr, &mut |expr| {
        let edge = |at: Option<AtModifier>| matches!(at, Some(AtModifier::Start | AtModifier::End));
        depends_on_range |= match &expr.kind {
            ExprKind::Selector(selector) => edge(selector.at),
            ExprKind::Matrix(matrix) => edge(matrix.selector.at),
            ExprKind::Subquery(subquery) => edge(subquery.at),
            _ => false,
        };
    });
    !depends_on_range
        && !eval.expect.ordered
        && eval.expect.string.is_none()
        && eval.expect.range_vector.is_none()
}

/// Checks everything that `eval` expects.
pub(crate) fn check(eval: &Eval, results: Result<Results, String>) -> Result<(), String> {
    let results = match (results, &eval.expect.fail) {
        (Err(message), Some(pattern)) => {
            return if fits(pattern, &message) { Ok(()) } else { Err(format!("failed with {message:?}")) };
        }
        (Err(message), None) => return Err(format!("failed: {message}")),
        (Ok(results), Some(_)) => return Err(format!("did not fail: {:?}", results.result.value)),
        (Ok(results), None) => results,
    };
    check_annotations("warning", &results.result.warnings, &eval.expect.warn, eval.expect.no_warn)?;
    check_annotations("info", &results.result.infos, &eval.expect.info, eval.expect.no_info)?;
    check_value(eval, &results.result.value)?;
    let (Some(middle), EvalKind::Instant { time_ms }) = (&results.middle, eval.kind) else { return Ok(()) };
    let Value::Matrix(matrix) = &middle.value else { return Err("range query gave no matrix".to_owned()) };
    let found = elements_at(matrix, time_ms);
    let check = match eval.scalar {
        Some(want) => check_elements(&[(Labels::empty(), Point::Float(want))], &found, false),
        None => check_elements(&wanted(&eval.series), &found, false),
    };
    check.map_err(|message| format!("as a range query: {message}"))
}

fn check_annotations(what: &str, found: &[String], want: &[TextPattern], none: bool) -> Result<(), String> {
    if none && !found.is_empty() {
        return Err(format!("unexpected {what}: {found:?}"));
    }
    if let Some(missing) = want.iter().find(|pattern| !found.iter().any(|text| fits(pattern, text))) {
        return Err(format!("{what} {missing:?} is missing among {found:?}"));
    }
    match found.iter().find(|text| !want.is_empty() && !want.iter().any(|pattern| fits(pattern, text))) {
        Some(unexpected) => Err(format!("unexpected {what} {unexpected:?}")),
        None => Ok(()),
    }
}

/// A message without what some scripts leave out: where in the query it is about, how often, how much was
/// repaired.
fn without_place(text: &str) -> &str {
    let text = text.rsplit_once(" (").map_or(text, |(text, _)| text);
    let text = text.split_once(", from buckets ").map_or(text, |(text, _)| text);
    text.strip_suffix(" occurrences)").and_then(|text| text.rsplit_once(" (")).map_or(text, |(text, _)| text)
}

fn fits(pattern: &TextPattern, text: &str) -> bool {
    match pattern {
        TextPattern::Any => true,
        TextPattern::Exact(want) => text == want || without_place(text) == want,
        TextPattern::Regex(pattern) => GoRegex::new(&format!(".*(?:{pattern}).*")).unwrap().is_match(text),
    }
}

fn check_value(eval: &Eval, value: &Value) -> Result<(), String> {
    match (value, eval.kind) {
        (Value::String { value, .. }, _) => match &eval.expect.string {
            Some(want) if want == value => Ok(()),
            want => Err(format!("text {value:?} instead of {want:?}")),
        },
        (Value::Scalar { value, .. }, _) => match eval.scalar {
            Some(want) if equal(want, *value) => Ok(()),
            want => Err(format!("scalar {value} instead of {want:?}")),
        },
        (Value::Vector(elements), _) => {
            let found: Vec<_> = elements.iter().map(|e| (e.labels.clone(), point_of(e))).collect();
            check_elements(&wanted(&eval.series), &found, eval.expect.ordered)
        }
        (Value::Matrix(matrix), EvalKind::Range { start_ms, step_ms, .. }) => {
            check_matrix(&eval.series, matrix, start_ms, step_ms)
        }
        (Value::Matrix(matrix), EvalKind::Instant { .. }) => match eval.expect.range_vector {
            Some((start_ms, _, step_ms)) => check_matrix(&eval.series, matrix, start_ms, step_ms),
            None => Err("unexpected matrix".to_owned()),
        },
    }
}

fn point_of(element: &VectorSample) -> Found {
    match &element.histogram {
        Some(histogram) => Found::Histogram(FloatHistogram::clone(histogram)),
        None => Found::Float(element.value),
    }
}

/// A value that came out.
#[derive(Debug, Clone)]
enum Found {
    Float(f64),
    Histogram(FloatHistogram),
}

fn wanted(series: &[SeriesLiteral]) -> Vec<(Labels, Point)> {
    let value = |series: &SeriesLiteral| series.values.first().cloned().unwrap_or(Point::Gap);
    series.iter().map(|series| (series.labels.clone(), value(series))).collect()
}

fn elements_at(matrix: &[MatrixSeries], time_ms: i64) -> Vec<(Labels, Found)> {
    let at = |series: &MatrixSeries| {
        let found = points_of(series).into_iter().find(|(time, _)| *time == time_ms)?;
        Some((series.labels.clone(), found.1))
    };
    matrix.iter().filter_map(at).collect()
}

/// Samples of both kinds by time.
fn points_of(series: &MatrixSeries) -> Vec<(i64, Found)> {
    let floats = series.times.iter().zip(&series.values).map(|(time, value)| (*time, Found::Float(*value)));
    let histogram =
        |(time, h): &(i64, std::sync::Arc<FloatHistogram>)| (*time, Found::Histogram((**h).clone()));
    let mut points: Vec<_> = floats.chain(series.histograms.iter().map(histogram)).collect();
    points.sort_by_key(|(time, _)| *time);
    points
}

fn same(want: &Point, found: &Found) -> bool {
    match (want, found) {
        (Point::Float(want), Found::Float(found)) => equal(*want, *found),
        (Point::Histogram(want), Found::Histogram(found)) => {
            let hint = !want.hint_set || want.histogram.reset_hint == found.reset_hint;
            hint && same_histogram(&want.histogram, found)
        }
        _ => false,
    }
}

fn same_histogram(want: &FloatHistogram, found: &FloatHistogram) -> bool {
    let (mut a, mut b) = (want.clone(), found.clone());
    a.compact(0);
    b.compact(0);
    let counts = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(*a, *b));
    a.schema == b.schema
        && equal(a.count, b.count)
        && equal(a.sum, b.sum)
        && a.zero_threshold == b.zero_threshold
        && equal(a.zero_count, b.zero_count)
        && (!a.is_custom() || a.custom_values == b.custom_values)
        && a.positive.spans == b.positive.spans
        && a.negative.spans == b.negative.spans
        && counts(&a.positive.counts, &b.positive.counts)
        && counts(&a.negative.counts, &b.negative.counts)
}

fn check_elements(want: &[(Labels, Point)], found: &[(Labels, Found)], ordered: bool) -> Result<(), String> {
    let same = |w: &(Labels, Point), f: &(Labels, Found)| w.0 == f.0 && same(&w.1, &f.1);
    let agree = if ordered {
        want.len() == found.len() && want.iter().zip(found).all(|(w, f)| same(w, f))
    } else {
        want.len() == found.len() && want.iter().all(|w| found.iter().any(|f| same(w, f)))
    };
    if agree { Ok(()) } else { Err(format!("{} instead of {}", shown(found), shown_wanted(want))) }
}

fn shown(found: &[(Labels, Found)]) -> String {
    let one = |(labels, found): &(Labels, Found)| format!("{labels} {}", show(found));
    found.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn show(found: &Found) -> String {
    match found {
        Found::Float(value) => value.to_string(),
        Found::Histogram(histogram) => histogram.test_expression(),
    }
}

fn shown_wanted(want: &[(Labels, Point)]) -> String {
    let one = |(labels, point): &(Labels, Point)| match point {
        Point::Gap => format!("{labels} _"),
        Point::Float(value) => format!("{labels} {value}"),
        Point::Histogram(literal) => format!("{labels} {}", literal.histogram.test_expression()),
    };
    want.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn check_matrix(
    want: &[SeriesLiteral],
    found: &[MatrixSeries],
    start_ms: i64,
    step_ms: i64,
) -> Result<(), String> {
    let mut left: Vec<&MatrixSeries> = found.iter().collect();
    for series in want {
        let points: Vec<(i64, &Point)> = (0..)
            .zip(&series.values)
            .filter(|(_, value)| !matches!(value, Point::Gap))
            .map(|(step, value)| (start_ms + step * step_ms, value))
            .collect();
        if points.is_empty() {
            continue;
        }
        let Some(at) = left.iter().position(|found| found.labels == series.labels) else {
            return Err(format!("{} is missing among {found:?}", series.labels));
        };
        let found = points_of(left.remove(at));
        let agree = found.len() == points.len()
            && points.iter().zip(&found).all(|(w, f)| w.0 == f.0 && same(w.1, &f.1));
        if !agree {
            let found: Vec<_> = found.iter().map(|(time, f)| format!("{}@{time}", show(f))).collect();
            return Err(format!("{}: {found:?} instead of {points:?}", series.labels));
        }
    }
    if left.is_empty() { Ok(()) } else { Err(format!("unexpected {left:?}")) }
}

/// Returns true if both are equal up to [`TOLERANCE`]; staleness markers only equal each other, other NaNs
/// all do.
fn equal(a: f64, b: f64) -> bool {
    if is_stale(a) || is_stale(b) {
        return is_stale(a) && is_stale(b);
    }
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let (sum, distance) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return distance < TOLERANCE * f64::MIN_POSITIVE;
    }
    distance / sum.min(f64::MAX) < TOLERANCE
}

/// Calls `visit` for an expression and all below it.
fn walk<'e>(expr: &'e Expr, visit: &mut dyn FnMut(&'e Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Selector(_) | ExprKind::Matrix(_) => {}
        ExprKind::Paren(inner) | ExprKind::Unary(_, inner) => walk(inner, visit),
        ExprKind::Subquery(subquery) => walk(&subquery.expr, visit),
        ExprKind::Call(call) => call.args.iter().for_each(|arg| walk(arg, visit)),
        ExprKind::Aggregate(aggregate) => {
            aggregate.param.iter().for_each(|param| walk(param, visit));
            walk(&aggregate.expr, visit);
        }
        ExprKind::Binary(binary) => {
            walk(&binary.lhs, visit);
            walk(&binary.rhs, visit);
        }
    }
}
