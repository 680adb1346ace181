//! Comparing what came out with what a script expects.

use chronolith_model::sample::is_stale;
use chronolith_model::{GoRegex, Labels};
use chronolith_promql::ast::{AtModifier, Expr, ExprKind};
use chronolith_promql::{MatrixSeries, QueryResult, Value};

use super::literal::SeriesLiteral;
use super::script::{Eval, EvalKind, TextPattern};
use super::skip::walk;

/// Values are equal up to this share of their size.
const TOLERANCE: f64 = 1e-6;

/// What came out.
pub(crate) struct Results {
    /// Of the eval itself.
    pub(crate) result: QueryResult,
    /// Of the range query around an instant, where it has to agree in the middle.
    pub(crate) middle: Option<QueryResult>,
}

/// Whether an instant eval is to be repeated as a range query.
pub(crate) fn repeats_as_range(eval: &Eval, expr: &Expr) -> bool {
    let mut depends_on_range = false;
    walk(expr, &mut |expr| {
        let edge = |at: Option<AtModifier>| matches!(at, Some(AtModifier::Start | AtModifier::End));
        depends_on_range |= match &expr.kind {
            ExprKind::Call(call) => ["start", "end", "step", "range"].contains(&call.function.name),
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
        Some(want) => check_elements(&[(Labels::empty(), want)], &found, false),
        None => check_elements(&wanted(&eval.series), &found, false),
    };
    check.map_err(|message| format!("as a range query: {message}"))
}

fn check_annotations(what: &str, found: &[String], want: &[TextPattern], none: bool) -> Result<(), String> {
    if none && !found.is_empty() {
        return Err(format!("unexpected {what}: {found:?}"));
    }
    match want.iter().find(|pattern| !found.iter().any(|text| fits(pattern, text))) {
        Some(missing) => Err(format!("{what} {missing:?} is missing among {found:?}")),
        None => Ok(()),
    }
}

fn fits(pattern: &TextPattern, text: &str) -> bool {
    match pattern {
        TextPattern::Any => true,
        TextPattern::Exact(want) => text == want,
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
            let found: Vec<_> = elements.iter().map(|e| (e.labels.clone(), e.value)).collect();
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

fn wanted(series: &[SeriesLiteral]) -> Vec<(Labels, f64)> {
    let value = |series: &SeriesLiteral| series.values.first().copied().flatten().unwrap_or(f64::NAN);
    series.iter().map(|series| (series.labels.clone(), value(series))).collect()
}

fn elements_at(matrix: &[MatrixSeries], time_ms: i64) -> Vec<(Labels, f64)> {
    let at = |series: &MatrixSeries| {
        let at = series.times.binary_search(&time_ms).ok()?;
        Some((series.labels.clone(), series.values[at]))
    };
    matrix.iter().filter_map(at).collect()
}

fn check_elements(want: &[(Labels, f64)], found: &[(Labels, f64)], ordered: bool) -> Result<(), String> {
    let same = |w: &(Labels, f64), f: &(Labels, f64)| w.0 == f.0 && equal(w.1, f.1);
    let agree = if ordered {
        want.len() == found.len() && want.iter().zip(found).all(|(w, f)| same(w, f))
    } else {
        want.len() == found.len() && want.iter().all(|w| found.iter().any(|f| same(w, f)))
    };
    if agree { Ok(()) } else { Err(format!("{found:?} instead of {want:?}")) }
}

fn check_matrix(
    want: &[SeriesLiteral],
    found: &[MatrixSeries],
    start_ms: i64,
    step_ms: i64,
) -> Result<(), String> {
    let mut left: Vec<&MatrixSeries> = found.iter().collect();
    for series in want {
        let points: Vec<(i64, f64)> = (0..)
            .zip(&series.values)
            .filter_map(|(step, value)| Some((start_ms + step * step_ms, (*value)?)))
            .collect();
        if points.is_empty() {
            continue;
        }
        let Some(at) = left.iter().position(|found| found.labels == series.labels) else {
            return Err(format!("{} is missing among {found:?}", series.labels));
        };
        let found = left.remove(at);
        let agree = found.times.len() == points.len()
            && points
                .iter()
                .zip(found.times.iter().zip(&found.values))
                .all(|(w, f)| w.0 == *f.0 && equal(w.1, *f.1));
        if !agree {
            return Err(format!("{found:?} instead of {points:?}"));
        }
    }
    if left.is_empty() { Ok(()) } else { Err(format!("unexpected {left:?}")) }
}

/// Equal up to [`TOLERANCE`]; staleness markers only equal each other, other NaNs all do.
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
