//! Lineage of results: the archives of the fetched series that each of them may be made of, in the form that
//! Metrictank gives with `meta=true`.
//!
//! Invariant: a result is attributed to all series it is made of, and to more where its path expression does
//! not name them: to all of the request if nothing in it does.
//! Not here: the record of fetches (`service::graphite::fetch_log`), the format of series
//! (`graphite::output`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use chronolith_graphite::output::json::RenderMeta;
use chronolith_graphite::syntax::{self, FunctionCall, Node};
use chronolith_graphite::{Consolidation, Series};
use chronolith_model::{QueryError, ReadContext};
use serde_json::{Value, json};

use chronolith_service::graphite::fetch_log::{FetchLog, LoggedSeries, NO_CONSOLIDATOR};

/// Memory of the indexes below, per series of the log.
const INDEX_BYTES_PER_SERIES: u64 = 128;
/// Functions whose path expression names only the first of the series that they join.
const NAMES_FIRST_ONLY: [&str; 1] = ["percentileOfSeries"];

/// Returns the metadata of an answer whose series are consolidated.
///
/// # Errors
/// The memory of the query is used up, or its time is over.
pub(super) fn metadata(list: &[Series], log: &FetchLog, ctx: &ReadContext) -> Result<RenderMeta, QueryError> {
    let mut held = ctx.budget.reserve(log.series().count() as u64 * INDEX_BYTES_PER_SERIES)?;
    let lineage = Lineage::new(log);
    let mut meta = RenderMeta { request: stats(log).to_string(), series: Vec::with_capacity(list.len()) };
    for series in list {
        ctx.check()?;
        let text = lineage.describe(series).to_string();
        // Once here and once in the answer.
        held.grow(2 * text.len() as u64)?;
        meta.series.push(text);
    }
    Ok(meta)
}

fn stats(log: &FetchLog) -> Value {
    let sum = |count: fn(&LoggedSeries) -> usize| log.series().map(count).sum::<usize>();
    json!({ "stats": {
        "executeplan.series-fetch.count": log.series().count(),
        "executeplan.points-fetch.count": sum(|series| series.point_count),
        "executeplan.rolled-up-points.count": sum(|series| series.read.rolled_up),
        "executeplan.raw-points.count": sum(|series| series.read.samples),
    }})
}

/// Series of one archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Part {
    series_count: u64,
    rolled_up_count: usize,
    sample_count: usize,
}

/// Parts by index of their archive.
type Parts = BTreeMap<usize, Part>;

fn add(parts: &mut Parts, others: &Parts) {
    for (idx, other) in others {
        let part = parts.entry(*idx).or_default();
        part.series_count += other.series_count;
        part.rolled_up_count += other.rolled_up_count;
        part.sample_count += other.sample_count;
    }
}

/// Counts series; one that is fetched for several ranges from the same archive is one.
fn parts_of<'a>(list: impl Iterator<Item = &'a LoggedSeries>) -> Parts {
    let mut seen = BTreeSet::new();
    let mut parts = Parts::default();
    for series in list {
        let part = parts.entry(series.archive_idx).or_default();
        part.series_count += u64::from(seen.insert((series.archive_idx, series.name.as_str())));
        part.rolled_up_count += series.read.rolled_up;
        part.sample_count += series.read.samples;
    }
    parts
}

/// Something in a path expression that stands for fetched series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin<'a> {
    /// All series of an expression.
    Expression(&'a str),
    /// The series of that name.
    Name(&'a str),
}

/// The log of a request, by expression and by name of series.
struct Lineage<'a> {
    log: &'a FetchLog,
    by_expression: BTreeMap<&'a str, Parts>,
    /// Series of each name, with the expression that fetched them.
    by_name: BTreeMap<&'a str, Vec<(&'a str, &'a LoggedSeries)>>,
    all: Parts,
}

impl<'a> Lineage<'a> {
    fn new(log: &'a FetchLog) -> Lineage<'a> {
        let mut fetched: BTreeMap<&str, Vec<&LoggedSeries>> = BTreeMap::new();
        let mut by_name: BTreeMap<&str, Vec<(&str, &LoggedSeries)>> = BTreeMap::new();
        for fetch in &log.fetches {
            let expression = fetch.request.expression.as_str();
            fetched.entry(expression).or_default().extend(&fetch.series);
            for series in &fetch.series {
                by_name.entry(&series.name).or_default().push((expression, series));
            }
        }
        let by_expression: BTreeMap<&str, Parts> =
            fetched.into_iter().map(|(expression, list)| (expression, parts_of(list.into_iter()))).collect();
        let mut all = Parts::default();
        by_expression.values().for_each(|parts| add(&mut all, parts));
        Lineage { log, by_expression, by_name, all }
    }

    /// Returns the entries of a result.
    fn describe(&self, series: &Series) -> Value {
        let joined_count = if series.values_per_point > 1 { series.values_per_point } else { 0 };
        let joined_by =
            if joined_count > 0 { consolidator_of(&series.consolidation) } else { NO_CONSOLIDATOR };
        let parts = self.parts_of_result(series);
        let entries = parts.iter().filter_map(|(idx, part)| {
            let mut entry = self.log.archive(*idx)?.to_json(part.series_count);
            entry["aggnum-norm"] = json!(1);
            entry["aggnum-rc"] = json!(joined_count);
            entry["consolidator-rc"] = json!(joined_by);
            entry["rolled-up-points"] = json!(part.rolled_up_count);
            entry["raw-points"] = json!(part.sample_count);
            Some(entry)
        });
        Value::Array(entries.collect())
    }

    fn parts_of_result(&self, series: &Series) -> Cow<'_, Parts> {
        let path = series.path_expression.as_str();
        if let Some(whole) = self.by_expression.get(path) {
            // No function has joined series: the result is one of them.
            return self.parts_of_one(path, series).map_or(Cow::Borrowed(whole), Cow::Owned);
        }
        let mut origins = BTreeSet::new();
        let is_found = syntax::parse(path).is_ok_and(|node| self.find_origins(&node, &mut origins));
        if is_found && !origins.is_empty() {
            let mut parts = Parts::default();
            for origin in origins {
                match origin {
                    Origin::Expression(text) => {
                        self.by_expression.get(text).iter().for_each(|of| add(&mut parts, of));
                    }
                    Origin::Name(name) => add(&mut parts, &self.parts_of_name(name, None)),
                }
            }
            return Cow::Owned(parts);
        }
        if self.by_name.contains_key(series.name.as_str()) {
            return Cow::Owned(self.parts_of_name(&series.name, None));
        }
        Cow::Borrowed(&self.all)
    }

    /// The series of `expression` that has the name of the result, or whose tags the result has.
    fn parts_of_one(&self, expression: &str, series: &Series) -> Option<Parts> {
        let metric = series.tags.get("name").map_or("", String::as_str);
        let mut tagged = metric.to_owned();
        for (key, value) in series.tags.iter().filter(|(key, _)| *key != "name") {
            tagged.extend([";", key, "=", value]);
        }
        let mut parts = [series.name.as_str(), metric, &tagged].into_iter().map(|name| {
            let parts = self.parts_of_name(name, Some(expression));
            (!parts.is_empty()).then_some(parts)
        });
        parts.find_map(|parts| parts)
    }

    /// Series of that name that the expression, or any, has fetched.
    fn parts_of_name(&self, name: &str, expression: Option<&str>) -> Parts {
        let found = self.by_name.get(name).into_iter().flatten();
        let found = found.filter(|(of, _)| expression.is_none_or(|expression| *of == expression));
        parts_of(found.map(|(_, series)| *series))
    }

    /// Collects the series that a path expression names. Returns false if a part of it names none.
    /// Recursion ends at [`syntax::NESTING_MAX`].
    fn find_origins(&self, node: &Node, found: &mut BTreeSet<Origin<'a>>) -> bool {
        match node {
            Node::Literal(_) => true,
            Node::Path(path) => self.find_origin(path, found),
            Node::Call(call) if call.name == "seriesByTag" => self.find_origin(&call.raw, found),
            Node::Call(call) => self.find_origins_of_call(call, found),
            Node::Template(template) => self.find_origins(&template.body, found),
        }
    }

    fn find_origin(&self, text: &str, found: &mut BTreeSet<Origin<'a>>) -> bool {
        if let Some((expression, _)) = self.by_expression.get_key_value(text) {
            found.insert(Origin::Expression(expression));
            return true;
        }
        let known = self.by_name.get_key_value(text);
        found.extend(known.map(|(name, _)| Origin::Name(name)));
        known.is_some()
    }

    fn find_origins_of_call(&self, call: &FunctionCall, found: &mut BTreeSet<Origin<'a>>) -> bool {
        let mut of_call = BTreeSet::new();
        let mut args = call.args.iter().chain(call.named.iter().map(|(_, value)| value));
        let is_found = args.all(|arg| self.find_origins(arg, &mut of_call));
        let is_whole = !NAMES_FIRST_ONLY.contains(&call.name.as_str())
            || of_call.iter().all(|origin| matches!(origin, Origin::Expression(_)));
        found.append(&mut of_call);
        is_found && is_whole
    }
}

/// Metrictank's name of a consolidation.
fn consolidator_of(consolidation: &Consolidation) -> &str {
    match consolidation {
        Consolidation::Average => "AverageConsolidator",
        Consolidation::AverageZero => "AverageZeroConsolidator",
        Consolidation::Sum => "SumConsolidator",
        Consolidation::Max => "MaximumConsolidator",
        Consolidation::Min => "MinimumConsolidator",
        Consolidation::First => "FirstConsolidator",
        Consolidation::Last => "LastConsolidator",
        Consolidation::Unknown(name) => name,
    }
}
