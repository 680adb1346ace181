//! Rules that assign a difference to a documented kind (docs/promql-differences.md).
//!
//! Invariants: a rule asks for evidence where there is some (Prometheus contradicts itself; Prometheus
//! reports our error for a part of the query). A difference without a rule is unexplained, and fails the run.

use std::collections::HashSet;
use std::io::Result;

use chronolith_promql::ast::{
    Aggregate, AggregateOp, Aggregation, AtModifier, Call, DurationExpr, Expr, ExprKind, TopKOp,
};
use chronolith_promql::parser::{ParserOptions, parse_expr};

use crate::Bench;
use crate::case::{Answer, Case, Times};
use crate::compare::{Difference, difference, same_error};
use crate::series::Dataset;

/// Repetitions of a query in Prometheus before its result counts as deterministic.
const REPEATS: usize = 60;
/// Functions that ask for nothing of histograms but count and sum.
const STATS_FUNCTIONS: [&str; 3] = ["histogram_count", "histogram_sum", "histogram_avg"];
/// Labels that go with the metric name.
const TYPE_LABELS: [&str; 2] = ["__type__", "__unit__"];

/// The name of the kind that explains `found`, as documented.
pub(crate) fn explain(
    bench: &mut Bench,
    case: &Case<'_>,
    answers: (&Answer, &Answer),
    found: &Difference,
) -> Result<Option<&'static str>> {
    let (ours, theirs) = answers;
    let Ok(expr) = parse_expr(&case.query, parser_options()) else { return Ok(None) };
    let mut parts = Vec::new();
    collect_parts(&expr, &mut parts);
    if let Some(kind) = chance(bench, case, ours, theirs)? {
        return Ok(Some(kind));
    }
    if let Difference::Error(mine, reported) = found {
        let kind = explain_error(bench, case, (mine.as_deref(), reported.as_deref()), &parts)?;
        if kind.is_some() {
            return Ok(kind);
        }
        if mine.as_deref().is_some_and(is_same_labels)
            && (shows_both_kinds(theirs) || needs_both_kinds(bench, case)?)
        {
            return Ok(Some("a float and a histogram of equal labels at one time"));
        }
    }
    if matches!(found, Difference::Error(_, Some(text)) if is_same_labels(text))
        && agree_without_types(bench, case)?
    {
        return Ok(Some("series that differ in their type or unit only"));
    }
    if parts.iter().any(|part| is_time_of_shifted(part)) {
        return Ok(Some("timestamp of a selector with @ and an offset"));
    }
    if parts.iter().any(|part| has_fixed_parameter(part)) {
        return Ok(Some("@ in or beside the parameter of an aggregation"));
    }
    if let Difference::Annotations(mine, reported) = found
        && sorted_without_names(mine) == sorted_without_names(reported)
    {
        return Ok(Some("metric name in a warning"));
    }
    if difference(&case.query, &without_zero_buckets(ours), &without_zero_buckets(theirs)).is_none() {
        return Ok(Some("zero bucket of a histogram with custom buckets"));
    }
    explain_value(bench, case, found, &parts)
}

fn explain_value(
    bench: &mut Bench,
    case: &Case<'_>,
    found: &Difference,
    parts: &[&Expr],
) -> Result<Option<&'static str>> {
    if let Difference::Value(_, a, b) = found
        && (*a, *b) == (0.0, 0.0)
        && parts.iter().any(|part| is_quantile(part))
    {
        return Ok(Some("sign of a zero from a quantile"));
    }
    if parts.iter().any(|part| is_call(part, &["histogram_quantiles"])) && singles_agree(bench, case, parts)?
    {
        return Ok(Some("histogram_quantiles works in place"));
    }
    if parts.iter().any(|part| is_call(part, &STATS_FUNCTIONS)) && agree_on_buckets(bench, case, found)? {
        return Ok(Some("resets of histograms of which only count and sum are read"));
    }
    if case.times.step_ms == 0 && picks_among_equals(bench, case, parts)? {
        return Ok(Some("limitk of equal values that topk has ordered"));
    }
    if *found == Difference::Order
        && parts.iter().any(|part| is_call(part, &["sort_by_label", "sort_by_label_desc"]))
    {
        return Ok(Some("sort_by_label without the label"));
    }
    Ok(None)
}

/// Returns true if Prometheus gives another result when asked again.
fn chance(
    bench: &mut Bench,
    case: &Case<'_>,
    ours: &Answer,
    theirs: &Answer,
) -> Result<Option<&'static str>> {
    for _ in 0..REPEATS {
        let again = bench.ask_prometheus(case)?;
        if difference(&case.query, ours, &again).is_none() {
            return Ok(Some("chance: Prometheus gives our answer when asked again"));
        }
        if difference(&case.query, theirs, &again).is_some() {
            return Ok(Some("chance: Prometheus contradicts itself"));
        }
    }
    Ok(None)
}

/// Our error is right if Prometheus reports it for a part of the query, and the other way round.
fn explain_error(
    bench: &mut Bench,
    case: &Case<'_>,
    errors: (Option<&str>, Option<&str>),
    parts: &[&Expr],
) -> Result<Option<&'static str>> {
    let (Some(mine), theirs) = errors else { return Ok(None) };
    let mut asked = HashSet::new();
    for part in parts.iter().skip(1) {
        let query = part.to_string();
        if !asked.insert(query.clone()) {
            continue;
        }
        let answer = bench.ask_prometheus(&Case { query, ..case.clone() })?;
        if answer.error.is_some() && same_error(Some(mine), answer.error.as_deref()) {
            return Ok(Some(match theirs {
                Some(_) => "several errors in one query, another one is said",
                None => "an error in a part that Prometheus does not evaluate",
            }));
        }
    }
    match theirs {
        Some(theirs) if both_in_single_steps(bench, case, mine, theirs)? => {
            Ok(Some("several errors in one query, another one is said"))
        }
        _ => Ok(None),
    }
}

/// Returns true if both engines report each of the two errors for a step alone.
fn both_in_single_steps(bench: &mut Bench, case: &Case<'_>, mine: &str, theirs: &str) -> Result<bool> {
    let Times { start_ms, end_ms, step_ms, .. } = case.times;
    if step_ms <= 0 {
        return Ok(false);
    }
    let mut found = [false; 2];
    let mut time_ms = start_ms;
    while time_ms <= end_ms && found != [true; 2] {
        let times = Times { start_ms: time_ms, end_ms: time_ms, ..case.times };
        let (ours_alone, theirs_alone) = bench.ask(&Case { times, ..case.clone() })?;
        if same_error(ours_alone.error.as_deref(), theirs_alone.error.as_deref()) {
            for (found, error) in found.iter_mut().zip([mine, theirs]) {
                *found |= same_error(ours_alone.error.as_deref(), Some(error));
            }
        }
        time_ms = time_ms.saturating_add(step_ms);
    }
    Ok(found == [true; 2])
}

/// Returns true if a `limitk` takes from a `topk` or `bottomk` with equal values, on which the engines agree
/// but for their order.
fn picks_among_equals(bench: &mut Bench, case: &Case<'_>, parts: &[&Expr]) -> Result<bool> {
    for part in parts {
        let ExprKind::Aggregate(aggregate) = &part.kind else { continue };
        if aggregate.op != AggregateOp::Select(TopKOp::Limitk) || !any_part(&aggregate.expr, is_rank) {
            continue;
        }
        let inner = Case { query: aggregate.expr.to_string(), ..case.clone() };
        let (ours, theirs) = bench.ask(&inner)?;
        let mut values: Vec<u64> =
            ours.series.iter().flat_map(|one| &one.values).map(|v| v.to_bits()).collect();
        values.sort_unstable();
        let has_equals = values.windows(2).any(|pair| pair[0] == pair[1]);
        if has_equals && difference(&inner.query, &ours, &theirs).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_rank(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Aggregate(a) if matches!(a.op, AggregateOp::Select(TopKOp::Topk) | AggregateOp::Select(TopKOp::Bottomk)))
}

/// Returns true if a series of the answer has a float and a histogram at one time.
fn shows_both_kinds(answer: &Answer) -> bool {
    answer.series.iter().any(|one| one.histograms.iter().any(|(time, _)| one.times.contains(time)))
}

/// Returns true if the engines agree, or differ in a way that is documented, if there are only floats, and
/// if there are only histograms.
fn needs_both_kinds(bench: &mut Bench, case: &Case<'_>) -> Result<bool> {
    for histograms in [false, true] {
        let mut series = case.dataset.series.clone();
        series
            .iter_mut()
            .for_each(|one| one.samples.retain(|sample| sample.histogram.is_some() == histograms));
        let dataset = Dataset::new(case.dataset.start_ms, series);
        if dataset.sample_count() == case.dataset.sample_count() {
            return Ok(false);
        }
        let reduced = Case { dataset: &dataset, ..case.clone() };
        let (ours, theirs) = bench.ask(&reduced)?;
        if let Some(found) = difference(&case.query, &ours, &theirs)
            && explain(bench, &reduced, (&ours, &theirs), &found)?.is_none()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if some series has a type or unit, and the engines agree if none has.
fn agree_without_types(bench: &mut Bench, case: &Case<'_>) -> Result<bool> {
    let is_type = |name: &str| TYPE_LABELS.contains(&name);
    let mut series = case.dataset.series.clone();
    if !series.iter().any(|one| one.labels.iter().any(|(name, _)| is_type(name))) {
        return Ok(false);
    }
    series.iter_mut().for_each(|one| one.labels = one.labels.filtered(|name| !is_type(name)));
    let dataset = Dataset::new(case.dataset.start_ms, series);
    let untyped = Case { dataset: &dataset, ..case.clone() };
    let (ours, theirs) = bench.ask(&untyped)?;
    Ok(difference(&case.query, &ours, &theirs).is_none())
}

/// Returns true if only the annotations about resets differ, and nothing differs with functions that read
/// buckets.
fn agree_on_buckets(bench: &mut Bench, case: &Case<'_>, found: &Difference) -> Result<bool> {
    let Difference::Annotations(ours, theirs) = found else { return Ok(false) };
    if !ours.iter().chain(theirs).all(|text| text.contains("conflicting counter resets")) {
        return Ok(false);
    }
    let mut query = case.query.clone();
    for name in STATS_FUNCTIONS {
        query = query.replace(name, "histogram_stdvar");
    }
    let other = Case { query, ..case.clone() };
    let (ours, theirs) = bench.ask(&other)?;
    Ok(difference(&other.query, &ours, &theirs).is_none())
}

/// Each quantile of `histogram_quantiles`, asked for alone, is the same in both.
fn singles_agree(bench: &mut Bench, case: &Case<'_>, parts: &[&Expr]) -> Result<bool> {
    for part in parts {
        let ExprKind::Call(call) = &part.kind else { continue };
        let ([buckets, label, quantiles @ ..], "histogram_quantiles") = (&call.args[..], call.function.name)
        else {
            continue;
        };
        for quantile in quantiles {
            let query = format!("histogram_quantiles({buckets}, {label}, {quantile})");
            let single = Case { query, ..case.clone() };
            let (ours, theirs) = bench.ask(&single)?;
            if difference(&single.query, &ours, &theirs).is_some() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

pub(crate) fn parser_options() -> ParserOptions {
    ParserOptions { experimental_functions: true, binop_fill_modifiers: true, unquoted_utf8_names: false }
}

/// Collects `expr` first, then everything inside.
fn collect_parts<'e>(expr: &'e Expr, out: &mut Vec<&'e Expr>) {
    out.push(expr);
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Selector(_) | ExprKind::Matrix(_) => {}
        ExprKind::Subquery(subquery) => collect_parts(&subquery.expr, out),
        ExprKind::Call(call) => call.args.iter().for_each(|arg| collect_parts(arg, out)),
        ExprKind::Aggregate(aggregate) => {
            aggregate.param.iter().for_each(|param| collect_parts(param, out));
            collect_parts(&aggregate.expr, out);
        }
        ExprKind::Binary(binary) => {
            collect_parts(&binary.lhs, out);
            collect_parts(&binary.rhs, out);
        }
        ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => collect_parts(inner, out),
    }
}

fn any_part(expr: &Expr, holds: impl Fn(&Expr) -> bool) -> bool {
    let mut parts = Vec::new();
    collect_parts(expr, &mut parts);
    parts.into_iter().any(holds)
}

fn at_of(expr: &Expr) -> Option<AtModifier> {
    match &expr.kind {
        ExprKind::Selector(selector) => selector.at,
        ExprKind::Matrix(matrix) => matrix.selector.at,
        ExprKind::Subquery(subquery) => subquery.at,
        _ => None,
    }
}

fn is_call(expr: &Expr, names: &[&str]) -> bool {
    matches!(&expr.kind, ExprKind::Call(call) if names.contains(&call.function.name))
}

fn without_parens(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Paren(inner) => without_parens(inner),
        _ => expr,
    }
}

/// Returns true for `timestamp(x @ t offset d)`.
fn is_time_of_shifted(expr: &Expr) -> bool {
    let ExprKind::Call(Call { function, args }) = &expr.kind else { return false };
    let shifted = |arg: &Expr| matches!(&without_parens(arg).kind, ExprKind::Selector(s) if s.at.is_some() && s.offset != DurationExpr::ZERO);
    ["timestamp", "start_timestamp"].contains(&function.name) && args.iter().any(shifted)
}

/// Returns true for `@` in the parameter, or for a varying parameter of a step-invariant aggregation (by `@`
/// or a constant).
fn has_fixed_parameter(expr: &Expr) -> bool {
    let ExprKind::Aggregate(aggregate) = &expr.kind else { return false };
    let Some(param) = &aggregate.param else { return false };
    let is_fixed = |part: &Expr| at_of(part).is_some();
    any_part(param, is_fixed)
        || (!matches!(param.kind, ExprKind::Number(_) | ExprKind::String(_))
            && (any_part(&aggregate.expr, is_fixed) || !any_part(&aggregate.expr, varies)))
}

/// Returns true if a part alone may differ from step to step.
fn varies(expr: &Expr) -> bool {
    let is_selector =
        matches!(expr.kind, ExprKind::Selector(_) | ExprKind::Matrix(_) | ExprKind::Subquery(_));
    (is_selector && at_of(expr).is_none()) || is_call(expr, &["time"])
}

fn is_quantile(expr: &Expr) -> bool {
    let is_aggregation = matches!(&expr.kind, ExprKind::Aggregate(a) if matches!(**a, Aggregate { op: AggregateOp::Fold(Aggregation::Quantile), .. }));
    is_aggregation || is_call(expr, &["quantile_over_time", "mad_over_time"])
}

fn is_same_labels(text: &str) -> bool {
    text == "vector cannot contain metrics with the same labelset"
}

/// Warnings without the metric names that they end with, each once.
fn sorted_without_names(texts: &[String]) -> Vec<String> {
    let mut out: Vec<String> = texts
        .iter()
        .map(|text| match (text.find('"'), text.rfind('"')) {
            (Some(first), Some(last)) => {
                text.chars().enumerate().filter(|(at, _)| *at < first || *at > last).map(|(_, c)| c).collect()
            }
            _ => text.clone(),
        })
        .collect();
    out.sort();
    out.dedup();
    out
}

/// The same answer, with empty zero buckets where custom buckets have none.
fn without_zero_buckets(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    let histograms = answer.series.iter_mut().flat_map(|one| &mut one.histograms);
    histograms.filter(|(_, histogram)| histogram.is_custom()).for_each(|(_, histogram)| {
        histogram.zero_count = 0.0;
    });
    answer
}
