//! Batches whose rules have parts in common: results, errors, kills and memory of single rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_model::{Labels, METRIC_NAME, TenantId};
use chronolith_promql::Value;
use chronolith_rules::status::Health;

use super::environment::{Environment, Points, START_MS, started};

fn write_series(server: &Environment, names: &[&str], count: usize) {
    for name in names {
        for id in 0..count {
            let id_text = id.to_string();
            let labels = [("__name__", *name), ("id", id_text.as_str()), ("job", ["a", "b"][id % 2])];
            for back in 0..6 {
                let value = (id * 7 + back as usize) as f64;
                server.write(&TenantId::anonymous(), &labels, START_MS - back * 10_000, value);
            }
        }
    }
}

/// A group of rules that record these expressions as `r0`, `r1`, ...
fn rule_file(expressions: &[&str]) -> String {
    let rule = |(idx, expression): (usize, &&str)| format!("  - {{record: r{idx}, expr: '{expression}'}}\n");
    let rules: String = expressions.iter().enumerate().map(rule).collect();
    format!("groups:\n- name: g\n  interval: 10s\n  rules:\n{rules}")
}

/// Samples that a rule records, by labels: its expression is evaluated by itself.
fn alone(server: &Environment, expression: &str, name: &str, time_ms: i64) -> BTreeMap<String, u64> {
    let named = |labels: &Labels| {
        let mut labels = labels.to_builder();
        labels.set(METRIC_NAME, name);
        labels.finish().to_string()
    };
    match server.value(&TenantId::anonymous(), expression, time_ms) {
        Value::Vector(all) => all.iter().map(|one| (named(&one.labels), one.value.to_bits())).collect(),
        Value::Scalar { value, .. } => BTreeMap::from([(named(&Labels::empty()), value.to_bits())]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rules_of_a_batch_record_what_they_record_alone() {
    let expressions = [
        "sum by (job) (rate(x[1m]))",
        "max(rate(x[1m])) / scalar(min(rate(x[1m])))",
        "x + on (job) y",
        "count(x)",
        "x > 20",
        "avg(y)",
        "label_replace(y, \"id\", \"1\", \"\", \"\")",
        "time()",
        "rate(x[1m]) > 0 and on (id) y",
    ];
    let server = started(|_| {});
    let tenant = TenantId::anonymous();
    write_series(&server, &["x", "y"], 12);
    server.load("a.yml", &rule_file(&expressions)).expect("valid");
    server.run_for(Duration::from_secs(20));
    let status = server.status();
    for (idx, expression) in expressions.iter().enumerate() {
        let name = format!("r{idx}");
        let recorded = server.samples(&tenant, &name);
        let times: BTreeSet<i64> = recorded.values().flatten().map(|(time_ms, _)| *time_ms).collect();
        assert_eq!(times.is_empty(), status.rules[idx].health != Health::Ok, "{expression}");
        for time_ms in times {
            let at_time = |(labels, points): (&String, &Points)| {
                let point = points.iter().find(|point| point.0 == time_ms)?;
                Some((labels.clone(), point.1))
            };
            let found: BTreeMap<String, u64> = recorded.iter().filter_map(at_time).collect();
            assert_eq!(found, alone(&server, expression, &name, time_ms), "{expression} at {time_ms}");
        }
    }
    let Health::Err(text) = &status.rules[2].health else { panic!("{:?}", status.rules[2].health) };
    assert!(text.starts_with("found duplicate series for the match group"), "{text}");
    let Health::Err(text) = &status.rules[6].health else { panic!("{:?}", status.rules[6].health) };
    assert_eq!(text, "vector cannot contain metrics with the same labelset");
    let counters = &server.service.rules.engine.counters;
    assert_eq!(counters.shared_evaluations.get() % 8, 0, "all but time() are evaluated together");
    assert!(counters.shared_evaluations.get() > 0);
    assert_eq!(counters.repeated_evaluations.get(), 0);
}

#[test]
fn a_killed_rule_leaves_the_rules_that_read_its_part() {
    let server = started(|_| {});
    let slow = "count_over_time(count_over_time(x[1h:1s])[12h:1s])";
    let expressions = [format!("sum({slow})"), format!("max({slow})"), "max(x)".to_owned()];
    let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
    server.load("a.yml", &rule_file(&expressions)).expect("valid");
    write_series(&server, &["x"], 1);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for query in server.service.queries.active.list(None) {
                    if query.text.starts_with("sum") {
                        server.service.queries.active.kill(query.id, None);
                    }
                }
                std::thread::yield_now();
            }
        });
        // The query may end before it is seen.
        for _ in 0..100 {
            server.run_for(Duration::from_secs(10));
            if server.status().rules[0].health != Health::Ok {
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let status = server.status();
    let Health::Err(text) = &status.rules[0].health else { panic!("{:?}", status.rules[0].health) };
    assert!(text.ends_with("was killed by a request to status/active_queries/kill"), "{text}");
    assert_eq!((&status.rules[1].health, &status.rules[2].health), (&Health::Ok, &Health::Ok));
}

/// Values of a batch were bounded by the limit of series alone. Once they are too many, series that are kept
/// for readers of a common part take no memory from rules that are evaluated again.
#[test]
fn values_of_a_batch_count_in_the_memory_of_its_call() {
    let expressions: Vec<String> = (0..20).map(|idx| format!("x * {idx}")).collect();
    let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
    for (memory_bytes_max, all_fit) in [(1 << 30, true), (200_000, false)] {
        let server = started(|options| options.query.memory_bytes_max = memory_bytes_max);
        write_series(&server, &["x"], 300);
        server.load("a.yml", &rule_file(&expressions)).expect("valid");
        server.run_for(Duration::from_secs(10));
        let status = server.status();
        assert_eq!((&status.rules[0].health, status.rules[0].sample_count), (&Health::Ok, 300));
        let failed: Vec<bool> = status.rules.iter().map(|rule| rule.health != Health::Ok).collect();
        assert!(failed.is_sorted(), "{failed:?}");
        match &status.rules[19].health {
            Health::Err(text) => assert!(!all_fit && text.contains("query memory limit of 200000"), "{text}"),
            health => assert!(all_fit, "{health:?}"),
        }
        let repeated = server.service.rules.engine.counters.repeated_evaluations.get();
        assert_eq!(repeated == 0, all_fit, "{repeated} repeated");
    }
}
