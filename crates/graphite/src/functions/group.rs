//! Grouping by nodes and tags, maps and reductions.
//!
//! Invariant: groups keep the order in which their keys appear.
//! Not here: keys (`node_key`), aggregation (`combine`).

use super::combine::aggregate;
use super::function::{Function, Group};
use super::node_key::{at, group_by, key_bytes_max, key_of, slice_range};
use super::signature::{SERIES_LIST, any_number, function, optional, repeated, required, with_text};
use crate::error::EvalError;
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::scope::Scope;
use crate::series::Series;
use crate::tagged_name::TaggedName;
use crate::value::Value;

const MAP: &[Parameter] = &[SERIES_LIST, repeated("mapNodes", ParameterType::NodeOrTag)];
const REDUCE: &[Parameter] = &[
    required("seriesLists", ParameterType::SeriesLists),
    required("reduceFunction", ParameterType::Text),
    required("reduceNode", ParameterType::Node),
    repeated("reduceMatchers", ParameterType::Text),
];

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "group",
        Group::Combine,
        &[any_number("seriesLists", ParameterType::SeriesList)],
        run_group,
        "Joins lists to one.",
    ),
    function(
        "groupByNode",
        Group::Combine,
        &[
            SERIES_LIST,
            required("nodeNum", ParameterType::NodeOrTag),
            with_text("callback", ParameterType::AggOrSeriesFunc, "average"),
        ],
        |scope, args| {
            let node = args
                .value(1)
                .cloned()
                .ok_or_else(|| EvalError::of_function("groupByNode", "nodeNum is missing"))?;
            let callback = args.text_or(2, "average")?.to_owned();
            group_by_nodes(scope, args, &callback, &[node])
        },
        "Aggregates series that agree in one node.",
    ),
    function(
        "groupByNodes",
        Group::Combine,
        &[
            SERIES_LIST,
            required("callback", ParameterType::AggOrSeriesFunc),
            any_number("nodes", ParameterType::NodeOrTag),
        ],
        |scope, args| {
            let callback = args.text(1)?.to_owned();
            let nodes = args.repeated().to_vec();
            group_by_nodes(scope, args, &callback, &nodes)
        },
        "Aggregates series that agree in some nodes.",
    ),
    function(
        "groupByTags",
        Group::Combine,
        &[
            SERIES_LIST,
            required("callback", ParameterType::AggOrSeriesFunc),
            repeated("tags", ParameterType::Tag),
        ],
        group_by_tags,
        "Aggregates series that agree in some tags.",
    ),
    function("map", Group::Combine, MAP, run_map, "Short form of mapSeries."),
    function("mapSeries", Group::Combine, MAP, run_map, "Splits a list to a list of lists by nodes."),
    function("reduce", Group::Combine, REDUCE, run_reduce, "Short form of reduceSeries."),
    function(
        "reduceSeries",
        Group::Combine,
        REDUCE,
        run_reduce,
        "Calls a function with the series of each list that match.",
    ),
    function(
        "applyByNode",
        Group::Combine,
        &[
            SERIES_LIST,
            required("nodeNum", ParameterType::Node),
            required("templateFunction", ParameterType::Text),
            optional("newName", ParameterType::Text),
        ],
        apply_by_node,
        "Evaluates a target for each prefix of the paths.",
    ),
];

fn run_group(_scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    Ok(Value::Series(args.take_repeated_series()?.into_iter().flatten().collect()))
}

/// First series that the callback, a function of the language or an aggregation, makes of the members.
fn reduced(scope: &mut Scope<'_>, callback: &str, members: Vec<Series>) -> Result<Series, EvalError> {
    let first = if scope.shared.evaluator.knows(callback) {
        let evaluator = scope.shared.evaluator;
        match evaluator.call(scope, callback, vec![Value::Series(members)])? {
            Some(Value::Series(list)) => list.into_iter().next(),
            _ => None,
        }
    } else {
        aggregate(scope, members, callback, None)?
    };
    first.ok_or_else(|| EvalError::Parameter(format!("{callback} returned no series for a group")))
}

fn group_by_nodes(
    scope: &mut Scope<'_>,
    args: &mut Bound,
    callback: &str,
    nodes: &[Value],
) -> Result<Value, EvalError> {
    let budget = &scope.shared.budget;
    let groups = group_by(args.take_series(0)?, |series| {
        budget.reserve_bytes(2 * key_bytes_max(series, nodes.len()))?;
        key_of(series, nodes)
    })?;
    let mut results = Vec::with_capacity(groups.len());
    for (key, members) in groups {
        let mut series = reduced(scope, callback, members)?;
        series.name = key;
        results.push(series);
    }
    Ok(Value::Series(results))
}

fn group_by_tags(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let callback = args.text(1)?.to_owned();
    let tags: Vec<String> = args.repeated().iter().map(Value::text).collect();
    if tags.is_empty() {
        return Err(EvalError::of_function("groupByTags", "no tags specified"));
    }
    let name_of = |series: &Series| {
        let name = series.tags.get("name").cloned();
        name.ok_or_else(|| {
            EvalError::of_function("groupByTags", &format!("series {} has no tag name", series.name))
        })
    };
    let budget = &scope.shared.budget;
    let is_by_name = tags.iter().any(|tag| tag == "name");
    let mut names: Vec<String> = list.iter().map(name_of).collect::<Result<_, _>>()?;
    names.sort_unstable();
    names.dedup();
    let common = if names.len() == 1 { names.pop().unwrap_or_default() } else { callback.clone() };
    let groups = group_by(list, |series| {
        let text_bytes: usize = tags.iter().map(|tag| 2 * tag.len() + 64).sum();
        budget.reserve_bytes(text_bytes as u64 + 2 * key_bytes_max(series, tags.len()))?;
        let mut parts: Vec<String> = tags
            .iter()
            .filter(|tag| *tag != "name")
            .map(|tag| format!("{tag}={}", series.tags.get(tag).map_or("", String::as_str)))
            .collect();
        parts.sort();
        parts.insert(0, if is_by_name { name_of(series)? } else { common.clone() });
        Ok(parts.join(";"))
    })?;
    let mut results = Vec::with_capacity(groups.len());
    for (key, members) in groups {
        let mut series = reduced(scope, &callback, members)?;
        series.tags = TaggedName::parse(&key)
            .map_err(|error| EvalError::of_function("groupByTags", &error.to_string()))?
            .tags;
        series.rename(key);
        results.push(series);
    }
    Ok(Value::Series(results))
}

fn run_map(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let nodes = args.repeated().to_vec();
    let groups = group_by(list, |series| {
        scope.shared.budget.reserve_bytes(2 * key_bytes_max(series, nodes.len()))?;
        key_of(series, &nodes)
    })?;
    Ok(Value::Lists(groups.into_iter().map(|(_, members)| members).collect()))
}

fn run_reduce(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let lists = args.take_lists(0)?;
    let callback = args.text(1)?.to_owned();
    let node_idx = args.integer(2)?;
    let matchers: Vec<String> = args.repeated().iter().map(Value::text).collect();
    let mut groups: Vec<(String, Vec<Option<Series>>)> = Vec::new();
    for series in lists.into_iter().flatten() {
        let nodes: Vec<&str> = series.name.split('.').collect();
        let node = at(&nodes, node_idx).ok_or_else(|| {
            EvalError::of_function("reduceSeries", &format!("{} has no node {node_idx}", series.name))
        })?;
        let Some(slot) = matchers.iter().position(|matcher| matcher == node) else { continue };
        let prefix = nodes.get(slice_range(nodes.len(), Some(0), Some(node_idx))).unwrap_or(&[]).join(".");
        let key = format!("{prefix}.reduce.{callback}");
        let idx = match groups.iter().position(|(known, _)| *known == key) {
            Some(idx) => idx,
            None => {
                let bytes = matchers.len() * size_of::<Option<Series>>() + key.len();
                scope.shared.budget.reserve_bytes(bytes as u64)?;
                groups.push((key, vec![None; matchers.len()]));
                groups.len() - 1
            }
        };
        if let Some(member) = groups.get_mut(idx).and_then(|(_, members)| members.get_mut(slot)) {
            *member = Some(series);
        }
    }
    let mut results = Vec::with_capacity(groups.len());
    for (key, members) in groups {
        let members: Option<Vec<Value>> =
            members.into_iter().map(|member| member.map(|series| Value::Series(vec![series]))).collect();
        let members = members
            .ok_or_else(|| EvalError::of_function("reduceSeries", &format!("{key} has not all series")))?;
        let evaluator = scope.shared.evaluator;
        let Some(Value::Series(list)) = evaluator.call(scope, &callback, members)? else {
            return Err(EvalError::UnknownFunction(callback));
        };
        let Some(mut series) = list.into_iter().next() else {
            return Err(EvalError::of_function("reduceSeries", &format!("{callback} returned no series")));
        };
        series.name = key;
        results.push(series);
    }
    Ok(Value::Series(results))
}

/// Bytes of a text whose per cent signs become `prefix`.
fn replaced_bytes(text: &str, prefix: &str) -> u64 {
    let sign_count = text.matches('%').count() as u64;
    (text.len() as u64).saturating_add(sign_count.saturating_mul(prefix.len() as u64))
}

fn apply_by_node(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let node_idx = args.integer(1)?;
    let template = args.text(2)?.to_owned();
    let new_name = args.given(3).filter(|name| name.is_truthy()).map(Value::text);
    let prefix = |series: &Series| {
        let nodes: Vec<&str> = series.name.split('.').collect();
        nodes.get(slice_range(nodes.len(), Some(0), node_idx.checked_add(1))).unwrap_or(&[]).join(".")
    };
    let mut prefixes: Vec<String> = list.iter().map(prefix).collect();
    prefixes.sort();
    prefixes.dedup();
    let Some(last) = list.last() else { return Ok(Value::Series(Vec::new())) };
    let mut results = Vec::new();
    let budget = &scope.shared.budget;
    for prefix in prefixes {
        let used_bytes = budget.used_bytes();
        budget.reserve_bytes(replaced_bytes(&template, &prefix))?;
        let target = template.replace('%', &prefix);
        let found = scope.evaluate_text(&target)?;
        // The results stay, the target and its arguments do not.
        budget.release_to(used_bytes);
        budget.reserve_bytes(
            found.iter().map(|series| series.label_bytes() + series.own_value_bytes()).sum(),
        )?;
        for mut series in found {
            if let Some(name) = &new_name {
                budget.reserve_bytes(replaced_bytes(name, &prefix) + prefix.len() as u64)?;
                series.name = name.replace('%', &prefix);
            }
            series.path_expression.clone_from(&prefix);
            (series.start, series.end) = (last.start, last.end);
            results.push(series);
        }
    }
    Ok(Value::Series(results))
}
