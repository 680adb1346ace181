//! A query language of one sentence, which builds a plan of `exec`: proof that plan and operators need no
//! PromQL.
//!
//! `sum of NAME by LABEL every 60 s` groups the latest values of a metric; `rate of NAME ...` sums rates over
//! two minutes. `last of NAME as TYPE by LABEL ...` and its like read samples of a type: the latest of the
//! series themselves, `total`, `least`, `mean` and `number` of the latest values of a group. Positions are
//! word numbers, and notes have the language's own texts.

use std::sync::Arc;

use chronolith_base::{SpareThreads, SystemClock};
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
use chronolith_exec::trace::Trace;
use chronolith_exec::typed::TypedFn;
use chronolith_exec::window::CounterCheck;
use chronolith_model::query::{
    ColumnType, Opened, Read, Source, TypedColumns, TypedValues, VecBatches, Wanted,
};
use chronolith_model::{
    Columns, Labels, METRIC_NAME, Matcher, QueryError, ReadContext, SampleSource, SeriesRead, TimeRange,
};

const MINUTE_MS: i64 = 60_000;
const SECOND_MS: i64 = 1000;

/// A parsed sentence.
struct Sentence {
    function: String,
    matchers: Vec<Matcher>,
    labels: Vec<String>,
    step_ms: i64,
    /// Type as which samples are read; `None`: floats, of which the latest counts.
    column_type: Option<ColumnType>,
}

const TYPED: [&str; 5] = ["last", "total", "least", "mean", "number"];

fn type_of(word: &str) -> Result<ColumnType, String> {
    match word {
        "integer" => Ok(ColumnType::Integer),
        "unsigned" => Ok(ColumnType::Unsigned),
        "boolean" => Ok(ColumnType::Boolean),
        "text" => Ok(ColumnType::Text),
        _ => Err(format!("unknown type {word}")),
    }
}

fn parse(text: &str) -> Result<Sentence, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (function, name, column_type, label, seconds) = match words[..] {
        [function, "of", name, "by", label, "every", seconds, "s"] => (function, name, None, label, seconds),
        [function, "of", name, "as", column_type, "by", label, "every", seconds, "s"] => {
            (function, name, Some(type_of(column_type)?), label, seconds)
        }
        _ => return Err(format!("not a sentence: {text}")),
    };
    let known: &[&str] = if column_type.is_some() { &TYPED } else { &["sum", "avg", "rate"] };
    if !known.contains(&function) {
        return Err(format!("unknown function {function}"));
    }
    Ok(Sentence {
        column_type,
        function: function.to_owned(),
        matchers: vec![Matcher::equal(METRIC_NAME, name)],
        labels: vec![label.to_owned()],
        step_ms: seconds.parse::<i64>().map_err(|error| error.to_string())? * SECOND_MS,
    })
}

/// Series in memory: labels and samples, one per minute from 0.
struct Memory(Vec<(Labels, TypedValues)>);

struct Samples(TypedValues);

impl SampleSource for Samples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let mut typed = TypedColumns::new(self.column_type());
        self.read_typed(range, &mut typed)?;
        let values: Vec<f64> = match typed.values {
            TypedValues::Floats(values) => values,
            TypedValues::Integers(values) => values.into_iter().map(|value| value as f64).collect(),
            other => panic!("{:?} is not read as floats", other.column_type()),
        };
        typed.times.into_iter().zip(values).for_each(|(time, value)| out.push(time, value));
        Ok(())
    }

    fn column_type(&self) -> ColumnType {
        self.0.column_type()
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        for minute in 0..4 {
            let time = minute * MINUTE_MS;
            if range.start <= time && time < range.end {
                out.times.push(time);
                out.values.push_from(&self.0, minute as usize);
            }
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        4
    }
}

impl Source for Memory {
    /// The toy asks for series alone.
    fn open(&self, asked: Read, _ctx: &ReadContext) -> Result<Opened, QueryError> {
        assert_eq!(asked.wanted, Wanted::Series);
        let matchers = &asked.request.matchers;
        let selected =
            self.0.iter().filter(|(labels, _)| matchers.iter().all(|matcher| matcher.matches_labels(labels)));
        let read = |(labels, values): &(Labels, TypedValues)| SeriesRead {
            labels: labels.clone(),
            samples: Box::new(Samples(values.clone())),
        };
        let series = VecBatches::new(selected.map(read).collect());
        Ok(Opened::Series(asked.request.filter(Box::new(series))))
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
    let execution = Execution::new(environment, settings, Some(grid), plan.evaluation_order(plan.root()));
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
    if let Some(column_type) = sentence.column_type {
        let select = |function| NodeKind::TypedRollup(function, selection.clone().of_type(column_type));
        let group = match sentence.function.as_str() {
            "total" => TypedFn::Sum,
            "least" => TypedFn::Min,
            "mean" => TypedFn::Mean,
            "number" => TypedFn::Count,
            _ => {
                push(select(TypedFn::Last), &[], "last");
                return plan;
            }
        };
        let vector = push(select(TypedFn::Last), &[], "last");
        let labels = GroupLabels::new(sentence.labels.clone(), false);
        push(NodeKind::TypedAggregate(group, labels), &[vector], "group");
        return plan;
    }
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
        match &group.typed {
            Some(typed) => format!("{} {:?}", group.labels, typed.values),
            None => format!("{} {:?}", group.labels, values.collect::<Vec<_>>()),
        }
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
    let series = |name: &str, host: &str, values: TypedValues| {
        (Labels::from_pairs([(METRIC_NAME, name), ("host", host), ("zone", "z")]), values)
    };
    let floats = |values: &[f64]| TypedValues::Floats(values.to_vec());
    let texts = ["up", "slow", "down", "up"].map(|text| Arc::from(text.as_bytes())).to_vec();
    let large = 1_i64 << 53;
    Memory(vec![
        series("bytes", "a", TypedValues::Integers(vec![0, large, large + 1, -5])),
        series("bytes", "b", TypedValues::Integers(vec![0, 1, large + 2, i64::MIN])),
        series("ids", "a", TypedValues::Unsigned(vec![0, u64::MAX, 7, 8])),
        series("load", "a", floats(&[1.0, 2.0, 3.0, 4.0])),
        series("load", "b", floats(&[10.0, 20.0, 30.0, 40.0])),
        series("open", "a", TypedValues::Booleans(vec![false, true, true, false])),
        series("requests_total", "a", floats(&[0.0, 60.0, 120.0, 180.0])),
        series("state", "a", TypedValues::Texts(texts)),
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

/// As floats, 2^53 + 1 is 2^53.
#[test]
fn integers_are_exact() {
    let two_53 = "9007199254740992";
    let sums = "{zone=\"z\"} Integers([9007199254740993, 18014398509481987, 9223372036854775803])";
    check("total of bytes as integer by zone every 60 s", &[sums]);
    check(
        "last of bytes as integer by zone every 120 s",
        &[
            &format!("bytes{{host=\"a\", zone=\"z\"}} Integers([{two_53}, -5])"),
            "bytes{host=\"b\", zone=\"z\"} Integers([1, -9223372036854775808])",
        ],
    );
    check(
        "least of bytes as integer by host every 120 s",
        &[
            &format!("{{host=\"a\"}} Integers([{two_53}, -5])"),
            "{host=\"b\"} Integers([1, -9223372036854775808])",
        ],
    );
    check(
        "mean of bytes as integer by zone every 120 s",
        &["{zone=\"z\"} [4503599627370496.0, -4.611686018427388e18]"],
    );
    check(
        "last of ids as unsigned by zone every 120 s",
        &["ids{host=\"a\", zone=\"z\"} Unsigned([18446744073709551615, 8])"],
    );
    check("sum of bytes by zone every 120 s", &["{zone=\"z\"} [9007199254740992.0, -9.223372036854776e18]"]);
}

#[test]
fn texts_and_booleans_have_a_last_value_and_a_number_but_no_sum() {
    let texts = ["slow", "down", "up"].map(str::as_bytes);
    let last = format!("state{{host=\"a\", zone=\"z\"}} Texts({texts:?})");
    check("last of state as text by zone every 60 s", &[last.as_str()]);
    check("number of state as text by zone every 120 s", &["{zone=\"z\"} Integers([1, 1])"]);
    let last = "open{host=\"a\", zone=\"z\"} Booleans([true, true, false])";
    check("last of open as boolean by zone every 60 s", &[last]);
    for text in ["total of state as text by zone every 60 s", "mean of open as boolean by zone every 60 s"] {
        let error = answer(&source(), text, SETTINGS).expect_err("no sum");
        assert!(error.contains("malformed plan"), "{error}");
    }
}

#[test]
fn series_of_another_type_are_not_selected() {
    check("last of load as integer by zone every 60 s", &[]);
    check("last of bytes as text by zone every 60 s", &[]);
}

/// The type is part of the key of a selection.
#[test]
fn selections_of_different_types_are_different_nodes() {
    let sentence = parse("last of bytes as integer by zone every 60 s").expect("parses");
    let grid = Grid::between(MINUTE_MS, 3 * MINUTE_MS, MINUTE_MS).expect("steps");
    let windows = Windows::new(grid, TimeShift { fixed_ms: None, offset_ms: 0 }, MINUTE_MS);
    let typed = |column_type| {
        let selection = Selection::new(&sentence.matchers, windows, SampleParts::default());
        NodeKind::TypedRollup(TypedFn::Last, selection.of_type(column_type))
    };
    assert_eq!(typed(ColumnType::Integer), typed(ColumnType::Integer));
    assert_ne!(typed(ColumnType::Integer), typed(ColumnType::Unsigned));
    let mut plan = Plan::new(NameRules::default());
    let id = plan.push(typed(ColumnType::Text), Vec::new(), grid, vec![Position(0)], "last");
    assert_eq!(plan.properties(id).column_type, Some(ColumnType::Text));
}
