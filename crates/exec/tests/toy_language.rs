//! A query language of one sentence, which builds a plan of `exec`: proof that plan and operators need no
//! PromQL.
//!
//! `sum of NAME by LABEL every 60 s` groups the latest values of a metric; `rate of NAME ...` sums rates over
//! two minutes. Positions are word numbers, and notes have the language's own texts.

use std::sync::Arc;

use chronolith_base::SystemClock;
use chronolith_exec::aggregate::Aggregation;
use chronolith_exec::annotation::Annotation;
use chronolith_exec::column::is_absent;
use chronolith_exec::error::Error;
use chronolith_exec::execution::{Environment, Execution, Settings};
use chronolith_exec::grid::{Grid, TimeShift, Windows};
use chronolith_exec::metric_name::NameRemoval;
use chronolith_exec::note::{Note, Severity};
use chronolith_exec::operator::collect;
use chronolith_exec::plan::node::{GroupLabels, NodeKind, RollupNode, Selection};
use chronolith_exec::plan::operators::{Language, OperatorBuilder};
use chronolith_exec::plan::properties::NameRules;
use chronolith_exec::plan::{OccurrenceId, Plan};
use chronolith_exec::position::Position;
use chronolith_exec::rollup::Rollup;
use chronolith_exec::samples::SampleParts;
use chronolith_exec::select::InstantField;
use chronolith_exec::threads::SpareThreads;
use chronolith_exec::trace::Trace;
use chronolith_exec::window::CounterCheck;
use chronolith_model::query::VecBatches;
use chronolith_model::{
    Columns, Labels, METRIC_NAME, Matcher, QueryError, Queryable, ReadContext, SampleSource, Selector,
    SeriesBatches, SeriesRead, TimeRange,
};

const MINUTE_MS: i64 = 60_000;
const SECOND_MS: i64 = 1000;

/// A parsed sentence.
struct Sentence {
    function: String,
    matchers: Vec<Matcher>,
    labels: Vec<String>,
    step_ms: i64,
}

fn parse(text: &str) -> Result<Sentence, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [function, "of", name, "by", label, "every", seconds, "s"] = words[..] else {
        return Err(format!("not a sentence: {text}"));
    };
    if !["sum", "avg", "rate"].contains(&function) {
        return Err(format!("unknown function {function}"));
    }
    Ok(Sentence {
        function: function.to_owned(),
        matchers: vec![Matcher::equal(METRIC_NAME, name)],
        labels: vec![label.to_owned()],
        step_ms: seconds.parse::<i64>().map_err(|error| error.to_string())? * SECOND_MS,
    })
}

/// Series in memory: labels and samples, one per minute from 0.
struct Memory(Vec<(Labels, Vec<f64>)>);

struct Samples(Vec<f64>);

impl SampleSource for Samples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        for (time, &value) in (0..).map(|minute| minute * MINUTE_MS).zip(&self.0) {
            if range.start <= time && time < range.end {
                out.push(time, value);
            }
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }
}

impl Queryable for Memory {
    fn select(
        &self,
        selector: &Selector<'_>,
        _ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let selected = self
            .0
            .iter()
            .filter(|(labels, _)| selector.matchers.iter().all(|matcher| matcher.matches_labels(labels)));
        let read = |(labels, values): &(Labels, Vec<f64>)| SeriesRead {
            labels: labels.clone(),
            samples: Box::new(Samples(values.clone())),
        };
        Ok(Box::new(VecBatches::new(selected.map(read).collect())))
    }

    fn label_names(&self, _: &Selector<'_>, _: usize, _: &ReadContext) -> Result<Vec<String>, QueryError> {
        Ok(Vec::new())
    }

    fn label_values(
        &self,
        _: &str,
        _: &Selector<'_>,
        _: usize,
        _: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        Ok(Vec::new())
    }
}

/// The answer in lines: groups with their values, then notes.
fn answer(source: &Memory, text: &str, settings: Settings) -> Result<Vec<String>, String> {
    let sentence = parse(text)?;
    let grid = Grid::between(MINUTE_MS, 3 * MINUTE_MS, sentence.step_ms).ok_or("no steps")?;
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    let (trace, spare_threads) = (Trace::new(), SpareThreads::new(settings.threads));
    let environment = Environment { source, ctx: &ctx, trace: &trace, spare_threads: &spare_threads };
    let plan = lower(&sentence, grid);
    let execution = Execution::new(environment, settings, Some(grid), plan.evaluation_order());
    let mut lines = evaluate(&execution, &plan).map_err(|error| match error {
        Error::TooManySamples => "too much to remember".to_owned(),
        error => error.to_string(),
    })?;
    lines.extend(execution.annotations.finish().infos.iter().map(render));
    Ok(lines)
}

fn lower(sentence: &Sentence, grid: Grid) -> Plan {
    let mut plan = Plan::new(NameRules::default());
    let windows = Windows::new(grid, TimeShift { fixed_ms: None, offset_ms: 0 }, 2 * MINUTE_MS);
    let selection = Selection::new(&sentence.matchers, windows, SampleParts::default());
    let mut push = |kind: NodeKind, inputs: &[OccurrenceId], label| {
        plan.push(kind, inputs.to_vec(), grid, vec![Position(0), Position(2)], label)
    };
    let vector = if sentence.function == "rate" {
        let range = push(NodeKind::Samples(selection), &[], "");
        push(NodeKind::Rollup(RollupNode::new("rate", |_| Rollup::Rate)), &[range], "rate")
    } else {
        push(NodeKind::Latest(selection, InstantField::Value), &[], "latest")
    };
    let op = if sentence.function == "avg" { Aggregation::Avg } else { Aggregation::Sum };
    push(NodeKind::Aggregate(op, GroupLabels::new(sentence.labels.clone(), false)), &[vector], "group");
    plan
}

struct Toy;

impl Language for Toy {
    fn counter_check(&self) -> CounterCheck {
        |labels| {
            let name = labels.metric_name()?;
            let note = || Note::Language(Severity::Info, format!("{name} may fall").into());
            (!name.ends_with("_total")).then(note)
        }
    }
}

fn evaluate<'q>(execution: &'q Execution<'q>, plan: &'q Plan) -> Result<Vec<String>, Error> {
    let mut groups = OperatorBuilder::new(plan, execution, &Toy).vector(plan.root())?;
    let mut memory = execution.operator_memory();
    let lines = collect(&mut *groups, &mut memory)?.into_iter().map(|group| {
        let values = group.values.iter().filter(|value| !is_absent(**value));
        format!("{} {:?}", group.labels, values.collect::<Vec<_>>())
    });
    Ok(lines.collect())
}

fn render(annotation: &Annotation) -> String {
    let text = match &annotation.note {
        Note::Language(_, text) => text.to_string(),
        note => format!("{note:?}"),
    };
    format!("word {}: {text}", annotation.origin.position.0)
}

fn source() -> Memory {
    let series = |name: &str, host: &str, values: &[f64]| {
        (Labels::from_pairs([(METRIC_NAME, name), ("host", host), ("zone", "z")]), values.to_vec())
    };
    Memory(vec![
        series("load", "a", &[1.0, 2.0, 3.0, 4.0]),
        series("load", "b", &[10.0, 20.0, 30.0, 40.0]),
        series("requests_total", "a", &[0.0, 60.0, 120.0, 180.0]),
    ])
}

const SETTINGS: Settings =
    Settings { samples_max: 1000, threads: 1, name_removal: NameRemoval::Immediate, shares: false };

#[track_caller]
fn check(text: &str, want: &[&str]) {
    assert_eq!(answer(&source(), text, SETTINGS).expect("answers"), want, "{text}");
}

#[test]
fn groups_are_aggregated_per_step() {
    check("sum of load by zone every 60 s", &["{zone=\"z\"} [22.0, 33.0, 44.0]"]);
    check("avg of load by zone every 120 s", &["{zone=\"z\"} [11.0, 22.0]"]);
    check("sum of load by host every 120 s", &["{host=\"a\"} [2.0, 4.0]", "{host=\"b\"} [20.0, 40.0]"]);
    check("sum of nothing by host every 60 s", &[]);
}

#[test]
fn notes_have_the_texts_of_the_language() {
    check("rate of requests_total by host every 60 s", &["{host=\"a\"} [0.5, 1.0, 1.0]"]);
    let lines = answer(&source(), "rate of load by zone every 60 s", SETTINGS).expect("answers");
    assert_eq!(lines.last().map(String::as_str), Some("word 2: load may fall"));
}

#[test]
fn errors_have_the_texts_of_the_language() {
    let few = Settings { samples_max: 2, ..SETTINGS };
    let error = answer(&source(), "sum of load by host every 60 s", few).expect_err("holds more samples");
    assert_eq!(error, "too much to remember");
    assert!(answer(&source(), "median of load by host every 60 s", SETTINGS).is_err());
}
