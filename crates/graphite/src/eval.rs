//! Evaluation of targets: prefetch of all paths at once, then the tree from the leaves.
//!
//! Invariants: each expression is fetched once per range; templates are filled in before anything is fetched;
//! results are in the order of the targets.
//! Not here: functions (`functions`), consolidation to the points of a request (`output::points`).

mod prefetch;
mod template;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::tz::TimeZone;

use crate::error::EvalError;
use crate::functions::{self, Function, PointUse};
use crate::parameters::bind;
use crate::scope::{Budget, Evaluator, Limits, Scope, Shared};
use crate::series::Series;
use crate::storage::Source;
use crate::syntax::{self, FunctionCall, Literal, Node, TARGET_BYTES_MAX};
use crate::time::RequestRange;
use crate::value::Value;

/// Targets, range and points that a client asks for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Targets in order; empty ones are skipped.
    pub targets: Vec<String>,
    /// Range.
    pub range: RequestRange,
    /// Time of the request, seconds.
    pub now: i64,
    /// Clock, seconds: functions with times of their own read it, whatever the time of the request is.
    pub clock: i64,
    /// Zone of the request.
    pub zone: TimeZone,
    /// Zone of the server, for times within functions.
    pub server_zone: TimeZone,
    /// Points per series that the client shows.
    pub max_data_points: Option<u64>,
    /// Share of values that consolidated and aggregated points need.
    pub x_files_factor: f64,
    /// `template[name]=` of the request.
    pub template: BTreeMap<String, String>,
}

/// Evaluates all targets of a request. `is_canceled` is asked often: deadline passed, client gone.
/// Cost: one fetch for all paths of all targets, one more per function that reads another range.
/// # Errors
/// [`EvalError`]; the first target that fails ends the request.
pub fn evaluate(
    request: &Request,
    source: &dyn Source,
    limits: Limits,
    is_canceled: &dyn Fn() -> bool,
) -> Result<Vec<Series>, EvalError> {
    let walker = Walker;
    let shared = Shared {
        source,
        server_zone: request.server_zone.clone(),
        zone: request.zone.clone(),
        now: request.now,
        clock: request.clock,
        max_data_points: request.max_data_points,
        template: request.template.clone(),
        budget: Budget::new(limits, source, is_canceled),
        prefetched: RefCell::default(),
        evaluator: &walker,
    };
    let mut scope = Scope {
        start: request.range.start,
        end: request.range.end,
        x_files_factor: request.x_files_factor,
        first_argument: None,
        stacks: None,
        shared: &shared,
    };
    let mut nodes = Vec::new();
    for target in request.targets.iter().filter(|target| !target.trim().is_empty()) {
        nodes.push(tree_of(&shared, target)?);
    }
    evaluate_nodes(&mut scope, &nodes)
}

/// Bytes of a tree per byte of its target, at most about: a path of one byte and a comma are a node with a
/// text.
const TREE_BYTES_PER_TARGET_BYTE: u64 = 64;

/// Parses a target and fills its templates. The tree counts until the end of the request.
fn tree_of(shared: &Shared<'_>, target: &str) -> Result<Node, EvalError> {
    shared.budget.check()?;
    if target.len() <= TARGET_BYTES_MAX {
        shared.budget.keep_bytes(target.len() as u64 * TREE_BYTES_PER_TARGET_BYTE)?;
    }
    template::filled(syntax::parse_target(target)?, &shared.template, &shared.budget)
}

fn evaluate_nodes(scope: &mut Scope<'_>, nodes: &[Node]) -> Result<Vec<Series>, EvalError> {
    prefetch::prefetch(scope, nodes)?;
    let mut results = Vec::new();
    for node in nodes {
        scope.shared.budget.reserve_target()?;
        match evaluate_node(scope, node)? {
            Value::Series(list) => results.extend(list),
            Value::Lists(lists) if lists.is_empty() => {}
            other => {
                return Err(EvalError::Parameter(format!(
                    "target is {} and no list of series",
                    kind_of(&other)
                )));
            }
        }
    }
    Ok(results)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Lists(_) => "a list of lists",
        Value::Text(_) => "a text",
        _ => "a constant",
    }
}

fn evaluate_node(scope: &mut Scope<'_>, node: &Node) -> Result<Value, EvalError> {
    match node {
        Node::Literal(literal) => Ok(Value::from(literal)),
        Node::Path(path) => prefetch::fetched(scope, path).map(Value::Series),
        Node::Call(call) if call.name == "seriesByTag" => {
            prefetch::fetched(scope, &call.raw).map(Value::Series)
        }
        Node::Call(call) => evaluate_call(scope, call),
        Node::Template(template) => evaluate_node(scope, &template.body),
    }
}

fn evaluate_call(scope: &mut Scope<'_>, call: &FunctionCall) -> Result<Value, EvalError> {
    if call.name == "template" {
        return Err(EvalError::Parameter(
            "invalid template() syntax, only string and numeric arguments are allowed".to_owned(),
        ));
    }
    let function =
        functions::find(&call.name).ok_or_else(|| EvalError::UnknownFunction(call.name.clone()))?;
    let budget = &scope.shared.budget;
    budget.check()?;
    let used_bytes = budget.used_bytes();
    let mut args = Vec::with_capacity(call.args.len());
    for arg in &call.args {
        args.push(evaluate_node(scope, arg)?);
    }
    let mut named = Vec::with_capacity(call.named.len());
    for (name, value) in &call.named {
        let value = evaluate_node(scope, value)?;
        named.retain(|(known, _)| known != name);
        named.push((name.clone(), value));
    }
    let first_argument_bytes = call.args.first().map_or(0, node_bytes);
    let values = args.iter().chain(named.iter().map(|(_, value)| value));
    budget.reserve_bytes(first_argument_bytes + work_bytes(function, values))?;
    scope.first_argument = call.args.first().cloned().map(Rc::new);
    let mut bound = bind(function.name, function.parameters, args, named)?;
    let result = (function.run)(scope, &mut bound)?;
    // The arguments are gone, and the result takes their memory.
    drop(bound);
    budget.release_to(used_bytes);
    budget.reserve_bytes(result.memory_bytes())?;
    Ok(result)
}

/// Bytes of a tree, about.
fn node_bytes(node: &Node) -> u64 {
    let inner: u64 = match node {
        Node::Literal(Literal::Text(text)) | Node::Path(text) => text.len() as u64,
        Node::Literal(_) => 0,
        Node::Call(call) => {
            let named = call.named.iter().map(|(name, value)| name.len() as u64 + node_bytes(value));
            let texts = call.name.len() + call.raw.len() + size_of::<FunctionCall>();
            texts as u64 + call.args.iter().map(node_bytes).sum::<u64>() + named.sum::<u64>()
        }
        Node::Template(template) => node_bytes(&template.body),
    };
    inner + NODE_BYTES
}

/// Bytes of a node with an allocation.
const NODE_BYTES: u64 = 64;
/// Bytes that a function adds to the name, the expression and the tags of a series, about.
const NAME_GROWTH_BYTES: u64 = 256;

/// Bytes that a call takes beyond its arguments, at most. Functions whose names or points grow by more
/// reserve the rest themselves, before they allocate it.
fn work_bytes<'v>(function: &Function, values: impl Iterator<Item = &'v Value>) -> u64 {
    let mut labels = 0;
    let mut series_count = 0u64;
    let mut text_bytes = 0u64;
    let mut shared = 0;
    let mut total = 0;
    let mut longest = 0;
    let mut steps = None;
    let mut has_one_step = true;
    for value in values {
        if let Value::Text(text) = value {
            text_bytes += text.len() as u64;
        }
        value.for_each_series(&mut |series| {
            series_count += 1;
            labels += series.label_bytes() + NAME_GROWTH_BYTES;
            shared += series.shared_value_bytes();
            total += series.value_bytes();
            longest = longest.max(series.value_bytes());
            has_one_step &= *steps.get_or_insert(series.step) == series.step;
        });
    }
    let points = match function.points {
        PointUse::Kept => 0,
        // Points of several steps are copied to a common step: each joins two values at least.
        PointUse::Joined if has_one_step => 4 * longest,
        PointUse::Joined => 4 * longest + total / 2,
        PointUse::Changed => 2 * longest + shared,
    };
    // Texts become names and tags of each series.
    labels.saturating_add(series_count.saturating_mul(2 * text_bytes)).saturating_add(points)
}

/// The evaluator that functions call back.
struct Walker;

impl Evaluator for Walker {
    fn knows(&self, name: &str) -> bool {
        functions::find(name).is_some()
    }

    fn evaluate(&self, scope: &mut Scope<'_>, node: &Node) -> Result<Vec<Series>, EvalError> {
        evaluate_nodes(scope, std::slice::from_ref(node))
    }

    fn evaluate_text(&self, scope: &mut Scope<'_>, target: &str) -> Result<Vec<Series>, EvalError> {
        let node = tree_of(scope.shared, target)?;
        evaluate_nodes(scope, &[node])
    }

    fn call(&self, scope: &mut Scope<'_>, name: &str, args: Vec<Value>) -> Result<Option<Value>, EvalError> {
        let Some(function) = functions::find(name) else { return Ok(None) };
        let mut bound = bind(function.name, function.parameters, args, Vec::new())?;
        (function.run)(scope, &mut bound).map(Some)
    }
}
