//! Rounds and expectations of one test, in promtool's order.
//!
//! Invariants: all groups are evaluated at each round, whatever their own intervals; a round sees the input
//! up to its time, and the expressions see the input up to the last round. An alert is compared after the
//! last round at or before its time.

use std::collections::BTreeMap;

use chronolith_format::rules::StoredGroup;
use chronolith_promql::parser::parse_expr;

use super::context::{ROUNDS_MAX, TestContext, TestOutcome, TestStorage};
use super::coverage::Coverage;
use super::input::Input;
use super::test_file::{AlertTest, ExpectedAlert, Test};
use super::{compare, text};
use crate::alert::{AlertState, Alerts};
use crate::group::{Group, GroupDefaults};
use crate::round::{ActiveGroup, Expression, Notifications, RoundContext, RoundSettings, StateStore};
use crate::rule::Rule;
use crate::schedule::NS_PER_MS;

/// Nothing outlives a test.
struct NoState;

impl StateStore for NoState {
    fn save(&mut self, _: StoredGroup) -> Result<(), String> {
        Ok(())
    }
}

/// Runs a test, and notes the rules that it covers. Cost: its rounds times its groups.
pub fn run(test: &Test, ctx: &TestContext<'_>, coverage: &mut Coverage) -> TestOutcome {
    match Runner::new(test, ctx) {
        Ok(runner) => runner.run(coverage),
        Err(failures) => TestOutcome { failures, dump: None },
    }
}

struct Runner<'a> {
    test: &'a Test,
    ctx: &'a TestContext<'a>,
    storage: TestStorage,
    input: Input,
    groups: Vec<ActiveGroup>,
    settings: RoundSettings,
    failures: Vec<String>,
}

/// The test cannot go on; the reason is among the failures.
struct Ended;

impl<'a> Runner<'a> {
    fn new(test: &'a Test, ctx: &'a TestContext<'a>) -> Result<Runner<'a>, Vec<String>> {
        let input = Input::parse(test).map_err(|error| vec![error])?;
        let groups =
            ctx.groups.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let defaults = GroupDefaults { interval_ms: test.interval_ms, query_offset_ms: 0 };
        let active = groups
            .iter()
            .map(|group| ActiveGroup::new(Group::new(&group.file, group.entry.clone(), defaults)))
            .collect();
        let settings = RoundSettings {
            resend_delay_ns: 0,
            external_labels: test.external_labels.clone(),
            external_url: test.external_url.clone(),
        };
        let storage = ctx.storage.create(ctx.file.interval_ms);
        Ok(Runner { test, ctx, storage, input, groups: active, settings, failures: Vec::new() })
    }

    fn run(mut self, coverage: &mut Coverage) -> TestOutcome {
        let mut dump = None;
        if self.run_rounds(coverage).is_ok() {
            self.check_expressions();
            if self.ctx.has_dump {
                dump = Some(self.dump());
            }
        }
        TestOutcome { failures: self.failures, dump }
    }

    fn end(&mut self, failure: String) -> Ended {
        self.failures.push(failure);
        Ended
    }

    /// The latest time of an expectation, in milliseconds after the start.
    fn last_ms(&self) -> i64 {
        let alert_times = self.test.alert_tests.iter().map(|test| test.eval_time_ms);
        let expr_times = self.test.expr_tests.iter().map(|test| test.eval_time_ms);
        alert_times.chain(expr_times).max().unwrap_or(0)
    }

    fn run_rounds(&mut self, coverage: &mut Coverage) -> Result<(), Ended> {
        let interval_ms = self.ctx.file.interval_ms;
        let mut checks = self.alert_checks()?;
        let last_round = self.last_ms() / interval_ms;
        if last_round >= ROUNDS_MAX {
            let rounds = format!("{last_round} rounds, at most {ROUNDS_MAX} are allowed");
            return Err(self.end(format!("    the latest eval_time is after {rounds}")));
        }
        for round in 0..=last_round {
            let since_start_ms = round * interval_ms;
            let time_ns = self.test.start_ns.saturating_add(since_start_ms.saturating_mul(NS_PER_MS));
            self.load(time_ns)?;
            self.evaluate(time_ns, coverage)?;
            while let Some(check) = checks.first_entry() {
                if *check.key() >= since_start_ms + interval_ms {
                    break;
                }
                for expectation in check.remove() {
                    self.check_alerts(expectation);
                }
            }
        }
        Ok(())
    }

    /// Expectations of alerts by time.
    fn alert_checks(&mut self) -> Result<BTreeMap<i64, Vec<&'a AlertTest>>, Ended> {
        let mut checks: BTreeMap<i64, Vec<&AlertTest>> = BTreeMap::new();
        for expectation in &self.test.alert_tests {
            if expectation.alert_name.is_empty() {
                let name = &self.test.name;
                let named = if name.is_empty() { String::new() } else { format!(" (in TestGroup {name})") };
                let time = text::duration(expectation.eval_time_ms);
                let missing = "an item under alert_rule_test misses required attribute alertname";
                return Err(self.end(format!("{missing} at eval_time {time}{named}")));
            }
            checks.entry(expectation.eval_time_ms).or_default().push(expectation);
        }
        Ok(checks)
    }

    /// Loads the input up to a round.
    fn load(&mut self, time_ns: i64) -> Result<(), Ended> {
        let samples =
            self.input.take_until(time_ns.div_euclid(NS_PER_MS)).map_err(|error| self.end(error))?;
        if samples.is_empty() {
            return Ok(());
        }
        let refused = match self.storage.samples.record(&samples) {
            Ok(refused) => refused.into_iter().next().map(|sample| sample.reason),
            Err(error) => Some(error),
        };
        refused.map_or(Ok(()), |reason| Err(self.end(reason)))
    }

    /// Evaluates all groups in their order.
    fn evaluate(&mut self, time_ns: i64, coverage: &mut Coverage) -> Result<(), Ended> {
        let mut errors = Vec::new();
        for group in &mut self.groups {
            let mut ctx = RoundContext {
                evaluate: &mut *self.storage.queries,
                record: &mut *self.storage.samples,
                state: &mut NoState,
                templates: self.ctx.templates,
                settings: &self.settings,
            };
            let Ok(report) = group.evaluate(time_ns, Notifications::Hold, &mut ctx) else {
                errors.push("the round was interrupted".to_owned());
                break;
            };
            let time = text::duration(time_ns.div_euclid(NS_PER_MS));
            for (rule_idx, (rule, outcome)) in group.group().rules().iter().zip(&report.rules).enumerate() {
                if let Some(error) = &outcome.error {
                    errors.push(format!("    rule: {}, time: {time}, err: {error}", rule.name));
                } else if is_covered(rule, group.alerts(rule_idx), outcome.sample_count) {
                    let key = &group.group().key;
                    coverage.cover(&key.file, &key.name, rule_idx);
                }
            }
        }
        let is_ok = errors.is_empty();
        self.failures.extend(errors);
        if is_ok { Ok(()) } else { Err(Ended) }
    }

    /// Compares the firing alerts of one name with the expected ones.
    fn check_alerts(&mut self, expectation: &AlertTest) {
        let mut found = Vec::new();
        for group in &self.groups {
            for (rule_idx, rule) in group.group().rules().iter().enumerate() {
                if rule.alerting().is_some() && rule.name == expectation.alert_name {
                    found.extend(group.alerts(rule_idx).into_iter().flat_map(firing));
                }
            }
        }
        let failure = compare::alert_failure(self.test, expectation, found, self.ctx.has_diff);
        self.failures.extend(failure);
    }

    fn check_expressions(&mut self) {
        let start_ms = self.test.start_ns.div_euclid(NS_PER_MS);
        for test in &self.test.expr_tests {
            let time_ms = start_ms.saturating_add(test.eval_time_ms);
            let result = self.storage.queries.query(&test.expr, time_ms);
            let failure = compare::expr_failure(test, result, self.ctx.file.is_fuzzy, self.ctx.parser);
            self.failures.extend(failure);
        }
    }

    /// All samples of the test.
    fn dump(&mut self) -> String {
        // Expressions have no fractions of seconds.
        let seconds = self.last_ms() / 1000 + 1;
        let query = format!("{{__name__=~\".+\"}}[{seconds}s]");
        let time_ms = self.test.start_ns.div_euclid(NS_PER_MS).saturating_add(seconds.saturating_mul(1000));
        let samples =
            parse_expr(&query, self.ctx.parser).map_err(|error| error.to_string()).and_then(|expr| {
                let expression = Expression { text: &query, expr: &expr };
                let values = self.storage.queries.evaluate(&[expression], time_ms);
                values.ok().and_then(|mut values| values.pop()).unwrap_or_else(|| Err("no result".to_owned()))
            });
        match samples {
            Ok(value) => {
                let head =
                    format!("all samples (input_series and rules) at {}:", text::duration(seconds * 1000));
                format!("{head}\n{}", text::matrix(&value))
            }
            Err(error) => format!("query {query} failed: {error}"),
        }
    }
}

fn is_covered(rule: &Rule, alerts: Option<&Alerts>, sample_count: usize) -> bool {
    match rule.alerting() {
        None => sample_count > 0,
        Some(_) => alerts.is_some_and(|alerts| alerts.state() == AlertState::Firing),
    }
}

fn firing(alerts: &Alerts) -> impl Iterator<Item = ExpectedAlert> {
    alerts.iter().filter(|(_, alert)| alert.state == AlertState::Firing).map(|(labels, alert)| {
        ExpectedAlert {
            labels: labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            annotations: alert.annotations.clone(),
        }
    })
}
