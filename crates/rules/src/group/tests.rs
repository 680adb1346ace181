//! Batches of known groups; batches against rules that run one after the other, over random groups.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use chronolith_model::Labels;
use chronolith_promql::ast::{Expr, ExprKind};

use super::*;
use crate::testing::group_of_rules;

/// Checks the batches of rules, each as `name: expression`; an alert has a name in upper case.
#[track_caller]
fn check(rules: &[&str], want: &[&[usize]]) {
    assert_eq!(group_of_rules(&text_of(rules)).batches(), want, "{rules:?}");
}

fn text_of(rules: &[&str]) -> String {
    let rule = |text: &&str| {
        let (name, expr) = text.split_once(": ").expect("NAME: EXPRESSION");
        let kind = if name.starts_with(char::is_uppercase) { "alert" } else { "record" };
        format!("  - {kind}: {name}\n    expr: '{expr}'\n")
    };
    rules.iter().map(rule).collect()
}

#[test]
fn independent_rules_are_one_batch() {
    check(&["a: x", "b: y", "C: z > 1", "d: sum(x) / sum(y)"], &[&[0, 1, 2, 3]]);
    check(&[], &[]);
}

#[test]
fn a_rule_comes_after_those_that_it_reads() {
    check(&["a: x", "b: a", "c: b", "D: c > 1"], &[&[0], &[1], &[2], &[3]]);
    check(&["a: x", "b: y", "c: a + b", "d: x", "e: c - a"], &[&[0, 1, 3], &[2], &[4]]);
    check(&["a: x", "b: max_over_time(a[5m])", "c: max_over_time(sum(a)[5m:1m])"], &[&[0], &[1, 2]]);
    check(&["a: x", "b: topk(scalar(a), y)", "c: -(a)", "d: y + on() group_left() a"], &[&[0], &[1, 2, 3]]);
}

#[test]
fn a_rule_that_an_earlier_one_reads_does_not_come_before_it() {
    // `b` reads the `c` of the round before, and `d` the new one.
    check(&["a: x", "b: a + c", "c: y", "d: c"], &[&[0], &[1, 2], &[3]]);
    check(&["a: a + x"], &[&[0]]);
}

#[test]
fn a_selector_without_a_name_delays_its_own_rule_alone() {
    check(&["a: x", "b: y", "c: count({job=\"p\"})", "d: z"], &[&[0, 1], &[2, 3]]);
    check(&["a: x", "b: {__name__=~\"a|q\"}", "c: {__name__!~\"a|b\",job=\"p\"}"], &[&[0, 2], &[1]]);
}

#[test]
fn labels_of_a_rule_tell_its_series_apart() {
    let rules = "  - record: a\n    expr: x\n    labels: {env: prod, zone: ''}\n";
    let read = |selector: &str| {
        let text = format!("{rules}  - record: b\n    expr: '{selector}'\n");
        group_of_rules(&text).batches().len() == 2
    };
    assert!(read("a") && read("a{env=\"prod\"}") && read("{env!=\"dev\",job=\"p\"}") && read("a{zone=\"\"}"));
    assert!(!read("a{env=\"dev\"}") && !read("{env=~\"dev|test\"}") && !read("a{zone=\"z\"}"));
    assert!(read("a{other=\"z\"}"), "labels of results are not known");
}

#[test]
fn states_of_alerts_are_read_by_name_of_the_alert() {
    check(&["A: x", "b: ALERTS", "c: ALERTS_FOR_STATE{alertname=\"B\"}"], &[&[0, 2], &[1]]);
    check(&["A: x", "b: ALERTS{alertname=\"A\",alertstate=\"firing\"}"], &[&[0], &[1]]);
    check(&["A: x", "b: A"], &[&[0, 1]]);
    let templated =
        "  - alert: A\n    expr: x\n    labels: {severity: '{{s}}', team: t}\n  - record: b\n    expr: ";
    for (selector, is_read) in
        [("severity=\"page\"", true), ("team=\"t\"", true), ("team=\"u\"", false), ("alertstate=\"x\"", true)]
    {
        let group = group_of_rules(&format!("{templated}'ALERTS{{{selector}}}'\n"));
        assert_eq!(group.batches().len() == 2, is_read, "{selector}");
    }
}

#[test]
fn rules_of_one_series_keep_their_order() {
    // The second rule of `a` is in no earlier batch than the first.
    check(&["z: x", "a: z", "a: y"], &[&[0], &[1, 2]]);
    check(&["z: x", "A: z", "A: y", "B: y"], &[&[0, 3], &[1, 2]]);
}

#[test]
fn a_template_with_a_query_reads_everything() {
    let rules = "  - record: a\n    expr: x\n  - alert: B\n    expr: y\n    annotations: {s: '{{query}}'}\n  - record: c\n    expr: z\n";
    assert_eq!(group_of_rules(rules).batches(), [vec![0], vec![1, 2]]);
}

#[test]
fn the_function_info_reads_target_info() {
    let text = text_of(&["target_info: x", "a: y"]);
    assert_eq!(group_of_rules(&text).batches(), [vec![0, 1]]);
    let mut options = crate::testing::file_options();
    options.parser.experimental_functions = true;
    let rules = text_of(&["target_info: x", "a: info(y)", "b: info(y, {z=\"1\"})"]);
    let text = format!("groups:\n- name: g\n  rules:\n{rules}");
    let file = crate::file::parse("f", text.as_bytes(), &options).expect("a good file");
    assert_eq!(batches(&file.groups[0].rules), [vec![0], vec![1, 2]]);
}

#[test]
fn a_group_of_very_many_rules_is_evaluated_in_order() {
    let names: Vec<String> = (0..2900).map(|idx| format!("a{idx}: x")).collect();
    let texts: Vec<&str> = names.iter().map(String::as_str).collect();
    let batches = group_of_rules(&text_of(&texts)).batches().to_vec();
    assert!(batches.len() > 1 && batches[0].len() > 2800, "{} batches", batches.len());
    assert!(batches.concat().is_sorted());
}

#[test]
fn state_is_kept_by_name_and_labels_in_order() {
    let old = group_of_rules(&text_of(&["a: x", "B: y", "B: z", "c: x"]));
    let new = group_of_rules(&text_of(&["B: changed > 1", "d: x", "c: x", "B: z", "B: more", "A: x"]));
    assert_eq!(new.kept_rules(&old), [Some(1), None, Some(3), Some(2), None, None]);
    let labelled = group_of_rules("  - alert: B\n    expr: y\n    labels: {a: '1'}\n");
    assert_eq!(labelled.kept_rules(&old), [None]);
}

/// Values of series by round: what a store would have.
#[derive(Default)]
struct Store(BTreeMap<Labels, (usize, u64)>);

impl Store {
    /// The value of an expression: a hash of all that it selects.
    fn value(&self, rule: &Rule) -> u64 {
        let mut hasher = DefaultHasher::new();
        rule.query.hash(&mut hasher);
        let mut open: Vec<&Expr> = vec![&rule.expr];
        while let Some(expr) = open.pop() {
            match &expr.kind {
                ExprKind::Selector(selector) => {
                    let series = self.0.iter();
                    series
                        .filter(|(labels, _)| selector.matchers.iter().all(|m| m.matches_labels(labels)))
                        .for_each(|(_, (_, value))| value.hash(&mut hasher));
                }
                ExprKind::Binary(binary) => open.extend([&binary.lhs, &binary.rhs]),
                other => panic!("{other:?}"),
            }
        }
        hasher.finish()
    }

    /// Records a value unless the series has one in this round.
    fn record(&mut self, rule: &Rule, round: usize, value: u64) {
        let name = if rule.alerting().is_some() { "ALERTS" } else { &rule.name };
        let mut pairs = vec![("__name__", name)];
        pairs.extend(rule.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        if rule.alerting().is_some() {
            pairs.extend([("alertname", rule.name.as_str()), ("alertstate", "firing")]);
        }
        let slot = self.0.entry(Labels::from_pairs(pairs)).or_insert((usize::MAX, 0));
        if slot.0 != round {
            *slot = (round, value);
        }
    }
}

fn run(rules: &[Rule], batches: &[Vec<usize>]) -> BTreeMap<Labels, (usize, u64)> {
    let mut store = Store::default();
    for round in 0..3 {
        for batch in batches {
            let values: Vec<u64> = batch.iter().map(|&idx| store.value(&rules[idx])).collect();
            batch.iter().zip(values).for_each(|(&idx, value)| store.record(&rules[idx], round, value));
        }
    }
    store.0
}

fn selector() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::Strategy;
    let name = proptest::sample::select(vec![
        "r0",
        "r1",
        "r2",
        "r3",
        "r4",
        "r5",
        "ALERTS",
        "{l=\"1\"}",
        "{l!=\"1\",__name__=~\".+\"}",
        "{__name__=~\"r[0-2]\"}",
        "source",
        "{__name__!~\"r.*\",l=~\".+\"}",
        "ALERTS{alertname=\"A0\"}",
        "r3{l=\"2\"}",
        "ALERTS{l=~\"1|2\"}",
        "{m=\"\",l=~\".+\"}",
    ]);
    proptest::collection::vec(name, 1..4).prop_map(|names| names.join(" + "))
}

proptest::proptest! {
    #[test]
    fn batches_give_the_results_of_rules_in_order(
        rules in proptest::collection::vec(
            (
                proptest::sample::select(vec!["r0", "r1", "r2", "r3", "r4", "r5", "A0", "A1"]),
                selector(),
                proptest::sample::select(vec!["{}", "{l: '1'}", "{l: '2'}", "{l: ''}"]),
            ),
            1..9,
        )
    ) {
        let text: String = rules.iter().map(|(name, expr, labels)| {
            let kind = if name.starts_with('A') { "alert" } else { "record" };
            format!("  - {kind}: {name}\n    expr: '{expr}'\n    labels: {labels}\n")
        }).collect();
        let group = group_of_rules(&text);
        let one_by_one: Vec<Vec<usize>> = (0..group.rules().len()).map(|idx| vec![idx]).collect();
        let mut all = group.batches().concat();
        all.sort_unstable();
        proptest::prop_assert_eq!(&all, &one_by_one.concat());
        proptest::prop_assert_eq!(run(group.rules(), group.batches()), run(group.rules(), &one_by_one), "{}", text);
    }
}
