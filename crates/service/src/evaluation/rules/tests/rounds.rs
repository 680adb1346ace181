//! Times, values and outcomes of rounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_base::Clock as _;
use chronolith_model::TenantId;
use chronolith_rules::notifier::AlertEnd;
use chronolith_rules::schedule::{NS_PER_MS, Schedule};
use chronolith_rules::status::Health;
use chronolith_tsdb::LimitsTable;

use crate::access::Identity;
use crate::evaluation::rules::batch_evaluation::{BatchEvaluation, Failure};
use crate::evaluation::rules::take_due;
use crate::evaluation::run::End;
use crate::rules::interrupts::Interrupts;

use super::environment::{START_MS, started};

const RULES: &str = "groups:
- name: g
  interval: 1m
  rules:
  - {record: r, expr: sum(x)}
  - {record: rr, expr: r * 2}
  - alert: A
    expr: x > 2
    for: 1m
    labels: {severity: '{{ $labels.job }}'}
    annotations: {summary: '{{ $value }} in {{ $externalLabels.region }}'}
";

#[test]
fn results_are_recorded_at_the_times_of_the_schedule() {
    let server = started(|_| {});
    let tenant = TenantId::anonymous();
    assert_eq!(server.load("a.yml", RULES), Ok(1));
    let schedule = Schedule::of(&server.status().group);
    let first_ns = schedule.first_after(START_MS * NS_PER_MS);
    for minute in 0..5 {
        server.write(&tenant, &[("__name__", "x"), ("job", "a")], server.clock.now_ms(), f64::from(minute));
        server.run_for(Duration::from_secs(60));
    }
    let recorded = server.samples(&tenant, "r");
    let points = &recorded["r"];
    let times: Vec<i64> = points.iter().map(|(time_ms, _)| *time_ms).collect();
    let first_ms = first_ns / NS_PER_MS;
    assert_eq!(times, (0..5).map(|idx| first_ms + idx * 60_000).collect::<Vec<_>>());
    let values: Vec<f64> = points.iter().map(|(_, bits)| f64::from_bits(*bits)).collect();
    assert_eq!(values, [0.0, 1.0, 2.0, 3.0, 4.0]);
    let twice = server.samples(&tenant, "rr");
    let last = twice["rr"].last().map(|(_, bits)| f64::from_bits(*bits));
    assert_eq!(last, Some(8.0), "a rule reads the result of the same round");
    assert_eq!(server.samples(&tenant, "ALERTS{alertstate=\"firing\",severity=\"a\"}").len(), 1);
    let sent = server.sent.borrow();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].annotations.get("summary"), Some("4 in eu"));
    assert_eq!(sent[0].starts_at_ms, first_ms + 4 * 60_000);
    assert_eq!(sent[0].end, AlertEnd::ValidUntilMs(first_ms + 8 * 60_000));
    assert_eq!(sent[0].generator_url, "http://c.example/graph?g0.expr=x+%3E+2&g0.tab=1");
    let status = server.status();
    assert_eq!((status.rounds.evaluated, status.rounds.missed), (5, 0));
    assert_eq!((status.evaluations.all, status.evaluations.failed), (15, 0));
    assert!(status.rules.iter().all(|rule| rule.health == Health::Ok));
}

#[test]
fn rounds_that_a_slow_one_has_cost_are_counted_and_not_made_up() {
    let server = started(|_| {});
    server.load("a.yml", RULES).expect("valid");
    server.write(&TenantId::anonymous(), &[("__name__", "x")], START_MS, 1.0);
    server.run_for(Duration::from_secs(60));
    server.clock.advance(Duration::from_secs(180));
    server.run_due();
    let status = server.status();
    assert_eq!((status.rounds.evaluated, status.rounds.missed), (2, 2), "{:?}", status.rounds);
    assert_eq!(server.times_s("r").len(), 2);
}

#[test]
fn a_series_that_ends_is_marked_as_stale_in_the_next_round() {
    let server = started(|options| options.query.lookback_ms = 60_000);
    let tenant = TenantId::anonymous();
    server.load("a.yml", "groups: [{name: g, interval: 10s, rules: [{record: r, expr: x}]}]").expect("valid");
    server.write(&tenant, &[("__name__", "x")], START_MS, 1.0);
    server.run_for(Duration::from_secs(60));
    assert_eq!(server.count(&tenant, "r", server.clock.now_ms()), 1);
    server.run_for(Duration::from_secs(20));
    assert_eq!(server.count(&tenant, "r", server.clock.now_ms()), 0, "the lookback would see it");
}

#[test]
fn the_rules_of_one_tenant_see_and_write_its_own_series() {
    let (one, two) = (TenantId::anonymous(), TenantId::new("two").expect("a name"));
    let server = started(|options| {
        options.multitenancy = true;
        options.rules.tenant = TenantId::new("two").expect("a name");
    });
    server.load("a.yml", RULES).expect("valid");
    for tenant in [&one, &two] {
        server.write(tenant, &[("__name__", "x")], START_MS, 7.0);
    }
    server.run_for(Duration::from_secs(60));
    assert_eq!(server.samples(&two, "r").len(), 1);
    assert!(server.samples(&one, "r").is_empty());
    assert!(server.service.rules.groups(&one).is_empty());
    assert_eq!(server.service.rules.groups(&two).len(), 1);
}

#[test]
fn a_read_only_server_evaluates_nothing() {
    let server = started(|options| options.is_read_only = true);
    server.load("a.yml", RULES).expect("valid");
    server.run_for(Duration::from_secs(300));
    assert_eq!(server.status().rounds, Default::default());
    assert!(server.times_s("{__name__=~\".+\"}").is_empty());
}

#[test]
fn a_rule_with_more_series_than_its_limit_fails_with_the_setting() {
    let server = started(|options| {
        let mut limits = options.tsdb.limits.default.clone();
        limits.queries.rules.series_max = 1;
        options.tsdb.limits = LimitsTable::from(limits);
    });
    let tenant = TenantId::anonymous();
    let rules =
        "groups: [{name: g, interval: 10s, rules: [{record: r, expr: x}, {record: s, expr: sum(x)}]}]";
    server.load("a.yml", rules).expect("valid");
    for job in ["a", "b"] {
        server.write(&tenant, &[("__name__", "x"), ("job", job)], START_MS, 1.0);
    }
    server.run_for(Duration::from_secs(10));
    let status = server.status();
    let text = "rule has 2 series, and rules.series-per-rule-max allows 1";
    assert_eq!(status.rules[0].health, Health::Err(text.to_owned()));
    assert_eq!(status.rules[1].health, Health::Ok);
    assert_eq!((status.evaluations.all, status.evaluations.failed), (2, 1));
}

#[test]
fn samples_that_the_store_refuses_are_found_one_by_one() {
    let server = started(|options| {
        let mut limits = options.tsdb.limits.default.clone();
        limits.label_value_bytes_max = 8;
        options.tsdb.limits = LimitsTable::from(limits);
    });
    let tenant = TenantId::anonymous();
    let long = "label_replace(x, \"l\", \"123456789\", \"job\", \"a|d\")";
    let rules = format!("groups: [{{name: g, interval: 10s, rules: [{{record: r, expr: '{long}'}}]}}]");
    server.load("a.yml", &rules).expect("valid");
    for job in ["a", "b", "c", "d", "e"] {
        server.write(&tenant, &[("__name__", "x"), ("job", job)], START_MS, 1.0);
    }
    server.run_for(Duration::from_secs(10));
    assert_eq!(server.samples(&tenant, "r").len(), 3);
    assert_eq!(server.status().rules[0].health, Health::Err("label value too long".to_owned()));
    assert_eq!(server.service.rules.engine.counters.rejected_samples.get(), 2);
}

#[test]
fn a_killed_expression_is_an_error_of_its_rule_alone() {
    let server = started(|_| {});
    let tenant = TenantId::anonymous();
    let slow = "count_over_time(count_over_time(x[1h:1s])[12h:1s])";
    let rules = format!(
        "groups: [{{name: g, interval: 10s, rules: [{{record: slow, expr: '{slow}'}}, {{record: r, expr: 2 * x}}]}}]"
    );
    server.load("a.yml", &rules).expect("valid");
    server.write(&tenant, &[("__name__", "x")], START_MS, 1.0);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for query in server.service.queries.active.list(None) {
                    if query.text.contains("count_over_time") {
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
    assert_eq!(status.rules[1].health, Health::Ok);
}

#[test]
fn a_stop_interrupts_rounds_and_the_next_start_repeats_them() {
    let server = started(|_| {});
    let tenant = TenantId::anonymous();
    server.load("a.yml", RULES).expect("valid");
    server.write(&tenant, &[("__name__", "x")], START_MS, 1.0);
    server.run_for(Duration::from_secs(60));
    let before = server.times_s("r");
    server.clock.advance(Duration::from_secs(60));
    let due = take_due(&server.service);
    assert_eq!(due.len(), 1);
    assert!(!server.service.rules.engine.stop(Duration::ZERO), "a round has not ended");
    for round in due {
        round.run(&server.service, &Default::default(), &|_| panic!("nothing is sent"));
    }
    assert!(server.service.rules.engine.stop(Duration::ZERO));
    assert_eq!(server.times_s("r"), before);
    server.clock.advance(Duration::from_secs(60));
    assert!(take_due(&server.service).is_empty());
    let server = server.restart(Duration::from_secs(1));
    server.run_due();
    assert_eq!(server.times_s("r").len(), before.len() + 2);
}

/// A round without a thread was dropped with the state of its group, which was never evaluated again, and its
/// permit was taken for good.
#[test]
fn a_round_that_is_given_up_leaves_its_group_and_its_permit() {
    let server = started(|_| {});
    let tenant = TenantId::anonymous();
    server.load("a.yml", RULES).expect("valid");
    server.write(&tenant, &[("__name__", "x")], START_MS, 1.0);
    server.run_for(Duration::from_secs(60));
    let before = server.times_s("r");
    for _ in 0..20 {
        server.clock.advance(Duration::from_secs(60));
        let due = take_due(&server.service);
        assert_eq!(due.len(), 1);
        due.into_iter().for_each(|round| round.give_up(&server.service));
    }
    assert_eq!(server.service.rules.engine.running_count(), 0);
    assert_eq!(server.service.rules.engine.counters.broken_rounds.get(), 20);
    server.write(&tenant, &[("__name__", "x")], server.clock.now_ms(), 1.0);
    server.run_for(Duration::from_secs(60));
    assert_eq!(server.times_s("r").len(), before.len() + 1);
}

/// A query that the end of its round cut off failed with the text of a timeout, without a limit.
#[test]
fn a_query_that_the_end_of_the_round_cuts_off_names_the_interval() {
    let server = started(|_| {});
    server.load("a.yml", RULES).expect("valid");
    let key = server.status().group.key.clone();
    let identity = Identity::internal(&TenantId::anonymous());
    let interrupts = Interrupts::default();
    let now_ns = server.clock.mono_ns();
    let text = |deadline_ns| {
        let evaluation = BatchEvaluation {
            service: &server.service,
            identity: &identity,
            group: &key,
            interrupts: &interrupts,
            time_max_ms: 60_000,
            deadline_ns,
            timings: Vec::new(),
            values_memory: Vec::new(),
        };
        evaluation.text_of(Failure { end: End::Timeout, text: "query timed out".to_owned() })
    };
    assert_eq!(text(now_ns), "the round has taken 60000 ms, the interval of its group");
    assert_eq!(text(now_ns + 1_000_000), "query timed out");
}
