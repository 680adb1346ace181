//! Recording rules: labels, limits, staleness markers, failures of queries and of the store.

use std::sync::Arc;

use chronolith_model::FloatHistogram;
use chronolith_promql::Value;

use super::environment::{Environment, sample};
use crate::round::{ActiveGroup, Interrupted, Notifications};
use crate::testing::{group_of, group_of_rules};

fn active(rules: &str) -> ActiveGroup {
    ActiveGroup::new(group_of_rules(rules))
}

#[test]
fn the_rule_overrides_name_and_labels() {
    let mut group = active("  - record: r\n    expr: x\n    labels: {a: '9', b: '', c: new}\n");
    let mut env = Environment::default();
    env.answer("x", &[("x{a=1,b=2,d=4}", 1.5), ("x{a=1,b=2}", 2.0)]);
    let report = env.round(&mut group, 60);
    assert_eq!(env.written(), [r#"r{a="9", c="new"} 2 @60000"#, r#"r{a="9", c="new", d="4"} 1.5 @60000"#]);
    assert_eq!((report.rules[0].sample_count, &report.rules[0].error), (2, &None));
}

#[test]
fn scalars_and_histograms_are_recorded() {
    let mut group = active("  - record: s\n    expr: time()\n  - record: h\n    expr: x\n");
    let mut env = Environment::default();
    let scalar = Value::Scalar { time_ms: 0, value: 60.0 };
    env.queries.answers.insert("time()".to_owned(), Ok(scalar));
    let histogram = Arc::new(FloatHistogram { count: 7.0, ..FloatHistogram::default() });
    let mut found = sample("x{a=1}", f64::NAN);
    found.histogram = Some(histogram);
    env.queries.answers.insert("x".to_owned(), Ok(Value::Vector(vec![found])));
    env.round(&mut group, 60);
    assert_eq!(env.written(), ["s 60 @60000", r#"h{a="1"} histogram of 7 @60000"#]);
}

#[test]
fn a_rule_that_fails_leaves_the_others() {
    let text = "groups:\n- name: g\n  limit: 1\n  rules:\n  - record: a\n    expr: x\n    labels: {l: ''}\n  - record: b\n    \
                expr: y\n  - record: c\n    expr: z[5m]\n  - record: d\n    expr: failing\n  - record: e\n    expr: good\n";
    let mut group = ActiveGroup::new(group_of(text));
    let mut env = Environment::default();
    env.answer("x", &[("x{l=1}", 1.0), ("x{l=2}", 2.0)]);
    env.answer("y", &[("y{l=1}", 1.0), ("y{l=2}", 2.0)]);
    env.answer("good", &[("good", 1.0)]);
    env.queries.answers.insert("z[5m]".to_owned(), Ok(Value::Matrix(Vec::new())));
    env.fail("failing", "query timed out");
    let report = env.round(&mut group, 60);
    let errors: Vec<&str> = report.rules.iter().filter_map(|rule| rule.error.as_deref()).collect();
    let want = [
        "vector contains metrics with the same labelset after applying rule labels",
        "exceeded limit of 1 with 2 series",
        "rule result is not a vector or scalar",
        "query timed out",
    ];
    assert_eq!(errors, want);
    assert_eq!(env.written(), ["e 1 @60000"]);
}

#[test]
fn a_series_that_vanishes_gets_a_staleness_marker_once() {
    let mut group = active("  - record: r\n    expr: x\n");
    let mut env = Environment::default();
    env.answer("x", &[("x{a=1}", 1.0), ("x{a=2}", 2.0), ("x{a=3}", 3.0)]);
    env.round(&mut group, 60);
    env.answer("x", &[("x{a=2}", 2.0)]);
    env.round(&mut group, 120);
    let want = [r#"r{a="2"} 2 @120000"#, r#"r{a="1"} stale @120000"#, r#"r{a="3"} stale @120000"#];
    assert_eq!(env.written(), want);
    env.round(&mut group, 180);
    assert_eq!(env.written(), [r#"r{a="2"} 2 @180000"#]);
    env.answer("x", &[]);
    env.round(&mut group, 240);
    assert_eq!(env.written(), [r#"r{a="2"} stale @240000"#]);
    env.round(&mut group, 300);
    assert!(env.store.writes.is_empty(), "no empty write");
}

#[test]
fn a_failed_round_writes_no_markers_and_the_next_one_does() {
    let mut group = active("  - record: r\n    expr: x\n");
    let mut env = Environment::default();
    env.answer("x", &[("x{a=1}", 1.0)]);
    env.round(&mut group, 60);
    env.fail("x", "too many samples");
    env.round(&mut group, 120);
    assert!(env.written().is_empty());
    env.answer("x", &[]);
    env.store.failure = Some("disk full".to_owned());
    assert_eq!(env.round(&mut group, 180).rules[0].error.as_deref(), Some("disk full"));
    env.store.failure = None;
    assert_eq!(env.round(&mut group, 240).rules[0].error, None);
    assert_eq!(env.written(), [r#"r{a="1"} stale @240000"#]);
}

#[test]
fn a_refused_sample_is_the_error_of_its_rule_alone() {
    let mut group = active("  - record: r\n    expr: x\n  - record: s\n    expr: y\n");
    let mut env = Environment::default();
    env.answer("x", &[("x{a=1}", 1.0), ("x{a=2}", 2.0)]);
    env.answer("y", &[("y", 1.0)]);
    env.store.rejects.insert(r#"r{a="1"}"#.to_owned(), "too old".to_owned());
    let report = env.round(&mut group, 60);
    assert_eq!((report.rules[0].error.as_deref(), report.rules[0].rejected_count), (Some("too old"), 1));
    assert_eq!((report.rules[1].error.as_deref(), report.rules[1].rejected_count), (None, 0));
    // The refused sample was not stored and needs no marker; a refused marker is no error.
    env.store.rejects.insert(r#"r{a="2"}"#.to_owned(), "duplicate".to_owned());
    env.answer("x", &[]);
    let report = env.round(&mut group, 120);
    assert_eq!(env.written(), [r#"r{a="2"} stale @120000"#, "s 1 @120000"]);
    assert_eq!(report.rules[0].error, None);
}

#[test]
fn a_rule_is_evaluated_after_the_write_of_what_it_reads() {
    let mut group =
        active("  - record: a\n    expr: x\n  - record: b\n    expr: a\n  - record: c\n    expr: y\n");
    let mut env = Environment::default();
    for (expression, series) in [("x", "x"), ("a", "a"), ("y", "y")] {
        env.answer(expression, &[(series, 1.0)]);
    }
    env.round(&mut group, 60);
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(env.queries.calls, [(texts(&["x", "y"]), 60_000), (texts(&["a"]), 60_000)]);
    assert_eq!(env.store.writes, [texts(&["a 1 @60000", "c 1 @60000"]), texts(&["b 1 @60000"])]);
}

#[test]
fn the_query_offset_moves_evaluation_and_samples() {
    let text = "groups:\n- name: g\n  query_offset: 30s\n  rules:\n  - record: a\n    expr: x\n";
    let mut group = ActiveGroup::new(group_of(text));
    let mut env = Environment::default();
    env.answer("x", &[("x", 1.0)]);
    env.round(&mut group, 60);
    assert_eq!(env.queries.calls[0].1, 30_000);
    env.answer("x", &[]);
    env.round(&mut group, 120);
    assert_eq!(env.written(), ["a stale @90000"]);
}

#[test]
fn series_of_removed_rules_are_marked_by_the_next_round() {
    let mut before =
        active("  - record: a\n    expr: x\n  - record: b\n    expr: x\n  - record: c\n    expr: x\n");
    let mut env = Environment::default();
    env.answer("x", &[("x{i=1}", 1.0)]);
    env.round(&mut before, 60);
    let after =
        group_of_rules("  - record: c\n    expr: x2\n  - record: a\n    expr: x\n    labels: {new: '1'}\n");
    let mut group = ActiveGroup::continue_from(after, before);
    assert_eq!(group.last_round_ns(), Some(60_000_000_000));
    env.answer("x", &[]);
    env.store.failure = Some("disk full".to_owned());
    env.round(&mut group, 120);
    env.store.failure = None;
    env.round(&mut group, 180);
    let want = [r#"c{i="1"} stale @180000"#, r#"a{i="1"} stale @180000"#, r#"b{i="1"} stale @180000"#];
    assert_eq!(env.written(), want);
    env.round(&mut group, 240);
    assert!(env.written().is_empty());
}

#[test]
fn all_series_of_a_removed_group_are_returned() {
    let mut group = active("  - record: a\n    expr: x\n  - alert: B\n    expr: x\n");
    let mut env = Environment::default();
    env.answer("x", &[("x{i=1}", 1.0)]);
    env.round(&mut group, 60);
    let series: Vec<String> = group.into_series().iter().map(ToString::to_string).collect();
    let want = [
        r#"a{i="1"}"#,
        r#"ALERTS{alertname="B", alertstate="firing", i="1"}"#,
        r#"ALERTS_FOR_STATE{alertname="B", i="1"}"#,
    ];
    assert_eq!(series, want);
}

#[test]
fn an_interrupted_round_ends_at_once_and_keeps_no_state() {
    let mut group = active("  - record: a\n    expr: x\n  - record: b\n    expr: a\n");
    let mut env = Environment::default();
    env.queries.is_interrupted = true;
    assert_eq!(env.try_round(&mut group, 60_000_000_000, Notifications::Send), Err(Interrupted));
    assert_eq!((env.queries.calls.len(), env.states.saved.len(), group.last_round_ns()), (1, 0, None));
    env.queries.is_interrupted = false;
    assert!(env.try_round(&mut group, 60_000_000_000, Notifications::Send).is_ok(), "the same round again");
}
