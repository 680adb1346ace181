//! Queries, store and state whose answers a test sets, and whose calls it reads.

use std::collections::BTreeMap;

use chronolith_format::rules::StoredGroup;
use chronolith_model::{Labels, METRIC_NAME};
use chronolith_promql::{Value, VectorSample};

use crate::round::{
    ActiveGroup, Evaluate, Expression, Interrupted, Notifications, Record, RejectedSample, RoundContext,
    RoundReport, RoundSettings, RuleSample, SampleValue, StateStore,
};
use crate::template_engine::TemplateQueries;
use crate::testing::TestTemplates;

pub(super) const SECOND: i64 = 1_000_000_000;

/// Answers by the text of the expression; an unknown one is an empty vector.
#[derive(Default)]
pub(super) struct Queries {
    pub(super) answers: BTreeMap<String, Result<Value, String>>,
    /// Expressions and time of each call.
    pub(super) calls: Vec<(Vec<String>, i64)>,
    pub(super) is_interrupted: bool,
}

impl TemplateQueries for Queries {
    fn query(&mut self, query: &str, time_ms: i64) -> Result<Vec<VectorSample>, String> {
        self.calls.push((vec![format!("template: {query}")], time_ms));
        Ok(vec![sample("up", 1.0)])
    }
}

impl Evaluate for Queries {
    fn evaluate(
        &mut self,
        expressions: &[Expression<'_>],
        time_ms: i64,
    ) -> Result<Vec<Result<Value, String>>, Interrupted> {
        let texts: Vec<String> = expressions.iter().map(|expression| expression.text.to_owned()).collect();
        let answer = |text: &String| self.answers.get(text).cloned().unwrap_or(Ok(Value::Vector(Vec::new())));
        let answers = texts.iter().map(answer).collect();
        self.calls.push((texts, time_ms));
        if self.is_interrupted { Err(Interrupted) } else { Ok(answers) }
    }
}

/// Samples as they are written.
#[derive(Default)]
pub(super) struct Store {
    /// One text per sample of each call.
    pub(super) writes: Vec<Vec<String>>,
    pub(super) failure: Option<String>,
    /// Reasons by the text of the series.
    pub(super) rejects: BTreeMap<String, String>,
}

impl Record for Store {
    fn record(&mut self, samples: &[RuleSample]) -> Result<Vec<RejectedSample>, String> {
        if let Some(why) = &self.failure {
            return Err(why.clone());
        }
        self.writes.push(samples.iter().map(render).collect());
        let reject = |(idx, sample): (usize, &RuleSample)| {
            let reason = self.rejects.get(&sample.labels.to_string())?.clone();
            Some(RejectedSample { idx, reason })
        };
        Ok(samples.iter().enumerate().filter_map(reject).collect())
    }
}

/// States as they are kept.
#[derive(Default)]
pub(super) struct States {
    pub(super) saved: Vec<StoredGroup>,
    pub(super) failure: Option<String>,
}

impl StateStore for States {
    fn save(&mut self, state: StoredGroup) -> Result<(), String> {
        self.saved.push(state);
        self.failure.clone().map_or(Ok(()), Err)
    }
}

#[derive(Default)]
pub(super) struct Environment {
    pub(super) queries: Queries,
    pub(super) store: Store,
    pub(super) states: States,
    pub(super) settings: RoundSettings,
}

impl Environment {
    pub(super) fn answer(&mut self, expression: &str, samples: &[(&str, f64)]) {
        let samples = samples.iter().map(|(series, value)| sample(series, *value)).collect();
        self.queries.answers.insert(expression.to_owned(), Ok(Value::Vector(samples)));
    }

    pub(super) fn fail(&mut self, expression: &str, why: &str) {
        self.queries.answers.insert(expression.to_owned(), Err(why.to_owned()));
    }

    pub(super) fn try_round(
        &mut self,
        group: &mut ActiveGroup,
        time_ns: i64,
        notifications: Notifications,
    ) -> Result<RoundReport, Interrupted> {
        let mut ctx = RoundContext {
            evaluate: &mut self.queries,
            record: &mut self.store,
            state: &mut self.states,
            templates: &TestTemplates,
            settings: &self.settings,
        };
        group.evaluate(time_ns, notifications, &mut ctx)
    }

    /// A round; returns its report. Writes of rounds before are forgotten.
    pub(super) fn round(&mut self, group: &mut ActiveGroup, time_s: i64) -> RoundReport {
        self.store.writes.clear();
        self.queries.calls.clear();
        self.round_at(group, time_s * SECOND, Notifications::Send)
    }

    /// A round whose writes are added to the writes of the rounds before.
    pub(super) fn round_at(
        &mut self,
        group: &mut ActiveGroup,
        time_ns: i64,
        notifications: Notifications,
    ) -> RoundReport {
        self.try_round(group, time_ns, notifications).expect("not interrupted")
    }

    /// All samples that were written since the last [`Environment::round`] began.
    pub(super) fn written(&self) -> Vec<String> {
        self.store.writes.concat()
    }
}

/// `name{a=1,b=2}` without quotes.
pub(super) fn sample(series: &str, value: f64) -> VectorSample {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let pairs = labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
    let labels = Labels::from_pairs(pairs.chain([(METRIC_NAME, name)]));
    VectorSample { labels, time_ms: 0, value, histogram: None }
}

fn render(sample: &RuleSample) -> String {
    let value = match &sample.value {
        SampleValue::Float(value) => value.to_string(),
        SampleValue::Histogram(histogram) => format!("histogram of {}", histogram.count),
        SampleValue::Stale => "stale".to_owned(),
    };
    format!("{} {value} @{}", sample.labels, sample.time_ms)
}
