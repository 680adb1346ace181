//! One fetch for all path expressions of all targets.
//!
//! Invariants: an expression is fetched once per range and request; its series come back sorted by name, one
//! per name; points are reserved before they are used.
//! Not here: the store.

use crate::consolidation::Consolidation;
use crate::error::EvalError;
use crate::python_regex::REGEX_BYTES_MAX;
use crate::scope::{Budget, Scope};
use crate::series::{Series, Tags};
use crate::storage::tag_query::parse_expressions;
use crate::storage::{FetchRequest, FetchedSeries, Selector};
use crate::syntax::{FunctionCall, Literal, Node};

/// A path expression, what it selects, and the consolidation that the target asks of it.
struct Wanted {
    expression: String,
    selector: Selector,
    hint: Option<Consolidation>,
}

impl Wanted {
    fn new(expression: &str, selector: Selector, hint: Option<&Consolidation>) -> Self {
        Wanted { expression: expression.to_owned(), selector, hint: hint.cloned() }
    }
}

/// The consolidation that a call asks of its arguments.
fn asked_consolidation(call: &FunctionCall) -> Option<Consolidation> {
    match (call.name.as_str(), call.args.get(1)) {
        ("consolidateBy", Some(Node::Literal(Literal::Text(name)))) => Some(Consolidation::named(name)),
        ("cumulative", _) => Some(Consolidation::Sum),
        _ => None,
    }
}

/// Collects path expressions; a path as an argument of a keyword counts as well.
fn collect(
    node: &Node,
    hint: Option<&Consolidation>,
    budget: &Budget<'_>,
    found: &mut Vec<Wanted>,
) -> Result<(), EvalError> {
    match node {
        Node::Literal(_) => {}
        Node::Path(path) => {
            // The path is kept four times: in the expression, the selector, the request and the key of the
            // results.
            budget.keep_bytes((4 * path.len() + size_of::<Wanted>()) as u64)?;
            found.push(Wanted::new(path, Selector::Path(path.clone()), hint));
        }
        Node::Call(call) if call.name == "seriesByTag" => {
            let texts = texts(call);
            let regex_count = texts.iter().filter(|text| text.contains("=~")).count() as u64;
            budget.keep_bytes(call.raw.len() as u64 * 4 + regex_count * REGEX_BYTES_MAX)?;
            let selector = Selector::Tags(parse_expressions(&texts)?);
            found.push(Wanted::new(&call.raw, selector, hint));
        }
        Node::Call(call) => {
            let asked = asked_consolidation(call);
            for arg in call.args.iter().chain(call.named.iter().map(|(_, value)| value)) {
                collect(arg, asked.as_ref().or(hint), budget, found)?;
            }
        }
        Node::Template(template) => collect(&template.body, hint, budget, found)?,
    }
    Ok(())
}

fn texts(call: &FunctionCall) -> Vec<String> {
    let texts = call.args.iter().filter_map(|arg| {
        if let Node::Literal(Literal::Text(text)) = arg { Some(text.clone()) } else { None }
    });
    texts.collect()
}

/// Fetches the series that the range of the scope lacks.
/// # Errors
/// Errors of the store, limits, malformed tag expressions.
pub(super) fn prefetch(scope: &Scope<'_>, nodes: &[Node]) -> Result<(), EvalError> {
    let mut found = Vec::new();
    for node in nodes {
        collect(node, None, &scope.shared.budget, &mut found)?;
    }
    let from = scope.start.seconds;
    let until = scope.end.seconds;
    found.sort_by(|a, b| a.expression.cmp(&b.expression));
    found.dedup_by(|a, b| a.expression == b.expression);
    found.retain(|wanted| {
        !scope.shared.prefetched.borrow().contains_key(&(from, until, wanted.expression.clone()))
    });
    if found.is_empty() {
        return Ok(());
    }
    if from > until {
        return Err(EvalError::Parameter(format!("range ends at {until}, before it starts at {from}")));
    }
    let points_hint = scope.shared.max_data_points;
    let requests: Vec<FetchRequest> = found
        .into_iter()
        .map(|Wanted { expression, selector, hint }| FetchRequest {
            expression,
            selector,
            from,
            until,
            points_hint,
            consolidation_hint: hint,
        })
        .collect();
    let answers = scope.shared.source.fetch(&requests)?;
    assert_eq!(answers.len(), requests.len(), "the source answers each request, in their order");
    let mut prefetched = scope.shared.prefetched.borrow_mut();
    for (FetchRequest { expression, .. }, answer) in requests.into_iter().zip(answers) {
        scope.shared.budget.reserve_series(answer.len() as u64)?;
        let bytes = answer.len().saturating_mul(expression.len() + size_of::<Series>());
        scope.shared.budget.keep_bytes(bytes as u64)?;
        scope.shared.budget.count_points(answer.iter().map(|series| series.values.len() as u64).sum())?;
        let mut list: Vec<Series> =
            answer.into_iter().map(|fetched| series_of(fetched, &expression)).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list.dedup_by(|a, b| a.name == b.name);
        let replaced = prefetched.insert((from, until, expression), list);
        assert!(replaced.is_none(), "an expression is fetched once per range");
    }
    Ok(())
}

fn series_of(fetched: FetchedSeries, expression: &str) -> Series {
    assert!(fetched.step > 0, "times of a fetched series ascend");
    assert!(fetched.start <= fetched.end, "a fetched series begins before it ends");
    Series {
        name: fetched.name,
        path_expression: expression.to_owned(),
        tags: Tags::from_iter(fetched.tags),
        start: fetched.start,
        end: fetched.end,
        step: fetched.step,
        values: fetched.values,
        consolidation: fetched.consolidation,
        values_per_point: 1,
        x_files_factor: fetched.x_files_factor.unwrap_or(f64::NAN),
        options: Vec::new(),
        is_integral: false,
    }
}

/// The series of an expression in the range of the scope. A series without a factor of its own takes the
/// scope's.
/// # Errors
/// [`EvalError::Canceled`], [`EvalError::Storage`] without memory for the copies.
pub(super) fn fetched(scope: &Scope<'_>, expression: &str) -> Result<Vec<Series>, EvalError> {
    scope.shared.budget.check()?;
    let key = (scope.start.seconds, scope.end.seconds, expression.to_owned());
    let prefetched = scope.shared.prefetched.borrow();
    let Some(known) = prefetched.get(&key) else { return Ok(Vec::new()) };
    // Copies share the values.
    scope.shared.budget.reserve_bytes(known.iter().map(Series::label_bytes).sum())?;
    let mut list = known.clone();
    for series in &mut list {
        if series.x_files_factor.is_nan() {
            series.x_files_factor = scope.x_files_factor;
        }
    }
    Ok(list)
}
