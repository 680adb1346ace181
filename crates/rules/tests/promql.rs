//! Rounds over the PromQL engine and a source in memory: chains of rules, alerts over recorded series.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use chronolith_base::SystemClock;
use chronolith_format::rules::StoredGroup;
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{FloatHistogram, Labels, METRIC_NAME, ReadContext};
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::{Engine, Value, VectorSample};
use chronolith_rules::file::{FileLimits, FileOptions, UnknownFields, parse};
use chronolith_rules::group::{Group, GroupDefaults};
use chronolith_rules::round::{
    ActiveGroup, Evaluate, Expression, Interrupted, Notifications, Record, RejectedSample, RoundContext,
    RoundReport, RoundSettings, RuleSample, SampleValue, StateStore,
};
use chronolith_rules::template_engine::{TemplateData, TemplateEngine, TemplateQueries};
use testing::{MemQueryable, MemSample};

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../promql/tests/support/testing.rs"]
mod testing;

/// Templates are texts.
struct Plain;

impl TemplateEngine for Plain {
    fn check(&self, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn expand(
        &self,
        text: &str,
        _: &TemplateData<'_>,
        _: &mut dyn TemplateQueries,
    ) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

/// Queries over a copy of the series, which are written through [`Writer`].
struct Reader {
    engine: Engine,
    series: Rc<RefCell<MemQueryable>>,
}

struct Writer(Rc<RefCell<MemQueryable>>);

struct NoState;

impl StateStore for NoState {
    fn save(&mut self, _: StoredGroup) -> Result<(), String> {
        Ok(())
    }
}

impl TemplateQueries for Reader {
    fn query(&mut self, query: &str, time_ms: i64) -> Result<Vec<VectorSample>, String> {
        let expr = parse_expr(query, ParserOptions::default()).map_err(|error| error.to_string())?;
        let values = self.evaluate(&[Expression { text: query, expr: &expr }], time_ms);
        match values.map(|mut values| values.remove(0)) {
            Ok(Ok(Value::Vector(samples))) => Ok(samples),
            other => Err(format!("{other:?}")),
        }
    }
}

impl Evaluate for Reader {
    fn evaluate(
        &mut self,
        expressions: &[Expression<'_>],
        time_ms: i64,
    ) -> Result<Vec<Result<Value, String>>, Interrupted> {
        let series = self.series.borrow();
        let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
        let evaluate = |expression: &Expression<'_>| {
            let result = self.engine.instant(&*series, expression.expr, time_ms, None, &ctx);
            result.map(|result| result.value).map_err(|error| error.to_string())
        };
        Ok(expressions.iter().map(evaluate).collect())
    }
}

impl Record for Writer {
    fn record(&mut self, samples: &[RuleSample]) -> Result<Vec<RejectedSample>, String> {
        let mut series = self.0.borrow_mut();
        for sample in samples {
            let time_ms = sample.time_ms;
            series.add_samples(
                &sample.labels,
                [match &sample.value {
                    SampleValue::Float(value) => MemSample::float(time_ms, *value),
                    SampleValue::Histogram(histogram) => MemSample::histogram(time_ms, (**histogram).clone()),
                    SampleValue::Stale => MemSample::float(time_ms, STALE_NAN),
                }],
            );
        }
        Ok(Vec::new())
    }
}

struct Server {
    series: Rc<RefCell<MemQueryable>>,
    group: ActiveGroup,
}

impl Server {
    fn new(file: &str) -> Server {
        let options = FileOptions {
            parser: ParserOptions::default(),
            unknown_fields: UnknownFields::Refuse,
            templates: &Plain,
            limits: FileLimits::default(),
        };
        let entry = parse("rules.yml", file.as_bytes(), &options).expect("a good file").groups.remove(0);
        let defaults = GroupDefaults { interval_ms: 60_000, query_offset_ms: 0 };
        let group = ActiveGroup::new(Group::new("rules.yml", entry, defaults));
        Server { series: Rc::default(), group }
    }

    fn add(&self, name: &str, instance: &str, samples: impl IntoIterator<Item = (i64, f64)>) {
        let labels = Labels::from_pairs([(METRIC_NAME, name), ("instance", instance)]);
        self.series.borrow_mut().add(&labels, samples);
    }

    fn round(&mut self, time_ms: i64) -> RoundReport {
        let settings = RoundSettings {
            resend_delay_ns: 0,
            external_labels: BTreeMap::new(),
            external_url: String::new(),
        };
        let mut ctx = RoundContext {
            evaluate: &mut Reader { engine: Engine::default(), series: self.series.clone() },
            record: &mut Writer(self.series.clone()),
            state: &mut NoState,
            templates: &Plain,
            settings: &settings,
        };
        let report = self.group.evaluate(time_ms * 1_000_000, Notifications::Send, &mut ctx);
        let report = report.expect("not interrupted");
        let errors: Vec<&String> = report.rules.iter().filter_map(|rule| rule.error.as_ref()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        report
    }

    /// `labels value` of all results at a time.
    fn query(&self, text: &str, time_ms: i64) -> Vec<String> {
        let mut reader = Reader { engine: Engine::default(), series: self.series.clone() };
        let samples = reader.query(text, time_ms).expect("a vector");
        let shown = |sample: VectorSample| match &sample.histogram {
            Some(histogram) => format!("{} {{{}}}", sample.labels, histogram.count),
            None => format!("{} {}", sample.labels, sample.value),
        };
        samples.into_iter().map(shown).collect()
    }
}

#[test]
fn a_chain_of_rules_is_up_to_date_in_one_round() {
    let mut server = Server::new(
        "groups:\n- name: g\n  rules:\n  - record: a\n    expr: sum by (instance) (x) * 2\n  - record: unrelated\n    expr: \
         count(x)\n  - record: b\n    expr: sum(a)\n  - record: c\n    expr: b + scalar(unrelated)\n  - alert: High\n    \
         expr: c > 20\n",
    );
    server.add("x", "1", (0..10).map(|i| (i * 60_000, i as f64)));
    server.add("x", "2", (0..10).map(|i| (i * 60_000, 2.0 * i as f64)));
    for round in 1..8 {
        let report = server.round(round * 60_000);
        let want = 6 * round + 2;
        assert_eq!(server.query("c", round * 60_000), [format!("c {want}")]);
        let is_firing = want > 20;
        assert_eq!(report.notifications.len(), usize::from(is_firing), "round {round}");
        let alerts = server.query("ALERTS{alertstate=\"firing\"}", round * 60_000).len();
        assert_eq!(alerts, usize::from(is_firing), "round {round}");
    }
}

#[test]
fn a_rule_that_reads_itself_sees_the_round_before() {
    let mut server =
        Server::new("groups:\n- name: g\n  rules:\n  - record: n\n    expr: n + 1 or vector(1)\n");
    for round in 1..5 {
        server.round(round * 60_000);
        assert_eq!(server.query("n", round * 60_000), [format!("n {round}")]);
    }
}

#[test]
fn a_vanished_series_is_stale_for_queries_in_the_same_round() {
    let mut server = Server::new(
        "groups:\n- name: g\n  rules:\n  - record: a\n    expr: x > 1\n  - record: b\n    expr: count(a)\n",
    );
    server.add("x", "1", [(60_000, 2.0), (120_000, 2.0)]);
    server.add("x", "2", [(60_000, 2.0), (120_000, 0.0)]);
    server.round(60_000);
    assert_eq!(server.query("b", 60_000), ["b 2"]);
    server.round(120_000);
    // Without the marker, the lookback would find the value of the round before.
    assert_eq!(server.query("b", 120_000), ["b 1"]);
}

#[test]
fn native_histograms_are_recorded_and_read_again() {
    let mut server = Server::new(
        "groups:\n- name: g\n  rules:\n  - record: h\n    expr: sum(x)\n  - record: n\n    expr: histogram_count(h)\n",
    );
    let histogram = FloatHistogram { count: 3.0, zero_count: 3.0, sum: 1.5, ..FloatHistogram::default() };
    for instance in ["1", "2"] {
        let labels = Labels::from_pairs([(METRIC_NAME, "x"), ("instance", instance)]);
        let sample = MemSample::histogram(60_000, histogram.clone());
        server.series.borrow_mut().add_samples(&labels, [sample]);
    }
    server.round(60_000);
    assert_eq!(server.query("h", 60_000), ["h {6}"]);
    assert_eq!(server.query("n", 60_000), ["n 6"]);
}
