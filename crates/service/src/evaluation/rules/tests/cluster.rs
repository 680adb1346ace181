//! Rules of a cluster: one process evaluates under a lease, another one goes on after its end, its stop or
//! its pause, and results equal the results of a single server.

mod environment;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chronolith_base::Clock as _;
use chronolith_model::TenantId;
use chronolith_rules::alert::AlertState;
use chronolith_rules::status::Health;

use self::environment::{Cluster, Process, SentAlert, value_at};
use super::environment::{Points, START_MS, started};
use crate::evaluation::rules::lease::{end, keep};

const RULES: &str = "groups:
- name: g
  interval: 1m
  rules:
  - {record: r, expr: sum(x)}
  - {record: rr, expr: r * 2}
  - {alert: A, expr: r > 6, for: 3m}
";
const RESULTS: &str = "{__name__=~\"r|rr|ALERTS|ALERTS_FOR_STATE\"}";
const MINUTE: Duration = Duration::from_secs(60);

/// Results and alerts of a single server after `minutes` of the same input.
fn of_single_server(minutes: u32) -> (BTreeMap<String, Points>, Vec<SentAlert>) {
    let server = started(|options| options.rules.repair_window_ms = 0);
    server.load("a.yml", RULES).expect("valid");
    for _ in 0..minutes * 6 {
        server.clock.advance(Duration::from_secs(10));
        let now_ms = server.clock.now_ms();
        server.write(&TenantId::anonymous(), &[("__name__", "x")], now_ms, value_at(now_ms));
        server.run_due();
    }
    let sent = server.sent.borrow();
    let sent =
        sent.iter().map(|alert| (alert.labels.to_string(), alert.starts_at_ms, alert.end.is_resolved()));
    (server.samples(&TenantId::anonymous(), RESULTS), distinct(sent.collect()))
}

fn distinct(mut sent: Vec<SentAlert>) -> Vec<SentAlert> {
    sent.sort();
    sent.dedup();
    sent
}

/// Checks that the cluster has what a single server has, and that no sample had another value before.
#[track_caller]
fn check_equal(cluster: &Cluster, processes: &[&Process], minutes: u32) {
    let (results, sent) = of_single_server(minutes);
    assert_eq!(results["r"].len(), minutes as usize);
    assert!(!sent.is_empty(), "the alert fires");
    assert_eq!(cluster.samples(RESULTS), results);
    let found = processes.iter().flat_map(|process| process.sent_alerts()).collect();
    assert_eq!(distinct(found), sent);
    assert_eq!(cluster.owned.owner.status().rejected_count, 0);
}

#[test]
fn one_process_evaluates_and_another_one_goes_on_after_its_end() {
    let cluster = Cluster::start(RULES);
    let (first, second) = (cluster.process(2), cluster.process(3));
    // The alert is pending when the process dies.
    cluster.run_for(MINUTE * 4, &[&first, &second]);
    assert!(first.has_lease() && !second.has_lease());
    assert_eq!(first.status().rules[2].alerts.state(), AlertState::Pending);
    let of_second = second.status();
    assert_eq!((of_second.last_round, &of_second.rules[2].health), (None, &Health::Unknown));
    // A minute, and the pause of a look.
    cluster.run_for(Duration::from_secs(70), &[&second]);
    assert!(second.has_lease());
    cluster.run_for(Duration::from_secs(290), &[&second]);
    check_equal(&cluster, &[&first, &second], 10);
    let rounds = second.status().rounds;
    assert!(rounds.caught_up >= 1 && rounds.lost == 0, "{rounds:?}");
}

#[test]
fn a_process_that_stops_gives_the_lease_back() {
    let cluster = Cluster::start(RULES);
    let (first, second) = (cluster.process(2), cluster.process(3));
    cluster.run_for(MINUTE * 4, &[&first, &second]);
    assert!(first.service.rules.engine.stop(MINUTE));
    end(&first.service);
    second.act();
    assert!(second.has_lease() && !first.has_lease());
    // The state after the last round was stored.
    assert_eq!(second.status().rounds.caught_up, 0);
    cluster.run_for(MINUTE * 6, &[&second]);
    check_equal(&cluster, &[&first, &second], 10);
}

/// Runs the cluster until `minutes` after its start.
fn run_until(cluster: &Cluster, minutes: u32, processes: &[&Process]) {
    let end_ms = START_MS + i64::from(minutes) * 60_000;
    let left_ms = end_ms - cluster.clock.now_ms();
    cluster.run_for(Duration::from_millis(left_ms.unsigned_abs()), processes);
}

fn given_up_rounds(process: &Process) -> u64 {
    process.service.lifecycle.roles.rule_lease().expect("set").stats().given_up_rounds
}

#[test]
fn a_process_that_is_paused_in_a_round_records_and_sends_nothing_when_it_wakes() {
    let cluster = Arc::new(Cluster::start(RULES));
    let (first, second) = (Arc::new(cluster.process(2)), Arc::new(cluster.process(3)));
    run_until(&cluster, 4, &[&first, &second]);
    first.pause_in_read({
        let (cluster, first, second) = (cluster.clone(), first.clone(), second.clone());
        move || {
            let round_ms = cluster.clock.now_ms();
            cluster.run_for(MINUTE * 6, &[&second]);
            // Another thread of the process notices the end of the lease before the round ends.
            keep(&first.service).expect("the bucket answers");
            // The round would have another result by now.
            cluster.write(&[("__name__", "x"), ("late", "1")], round_ms, 1000.0);
        }
    });
    cluster.run_for(MINUTE, &[&first]);
    assert!(second.has_lease() && !first.has_lease());
    assert_eq!((given_up_rounds(&first), given_up_rounds(&second)), (1, 0));
    assert_eq!(first.sent_alerts(), [], "it fired during the pause");
    run_until(&cluster, 12, &[&first, &second]);
    assert_eq!(first.status().last_round, None, "another process has the state");
    check_equal(&cluster, &[&first, &second], 12);
}

/// Two values for one time would be an answer that changes; the owner keeps the first one, though the last
/// value wins for clients of this tenant.
#[test]
fn an_owner_refuses_the_result_of_a_process_that_wakes_after_its_last_check() {
    let cluster = Arc::new(Cluster::start(RULES));
    let (first, second) = (cluster.process(2), Arc::new(cluster.process(3)));
    run_until(&cluster, 4, &[&first, &second]);
    let before = cluster.samples("r");
    first.pause_in_append({
        let (cluster, second) = (cluster.clone(), second.clone());
        move || {
            cluster.write(&[("__name__", "x"), ("late", "1")], cluster.clock.now_ms() - 10_000, 1000.0);
            cluster.run_for(MINUTE * 2, &[&second]);
        }
    });
    cluster.run_for(MINUTE, &[&first]);
    assert!(second.has_lease() && given_up_rounds(&first) == 1);
    let after = cluster.samples("r");
    let (before, after) = (&before["r"], &after["r"]);
    assert_eq!(after[..before.len()], before[..]);
    let (_, bits) = after[before.len()];
    assert!(f64::from_bits(bits) > 1000.0, "the result of the second process");
    assert_eq!(cluster.owned.owner.status().rejected_count, 1);
}

#[test]
fn rounds_fail_while_an_owner_is_away_and_the_next_ones_recover() {
    let cluster = Cluster::start(RULES);
    let process = cluster.process(2);
    run_until(&cluster, 4, &[&process]);
    process.owner.is_away.store(true, Ordering::Relaxed);
    run_until(&cluster, 6, &[&process]);
    for rule in &process.status().rules {
        let Health::Err(why) = &rule.health else { panic!("{:?}", rule.health) };
        assert!(why.contains("partition 0: no ready owner"), "{why}");
    }
    process.owner.is_away.store(false, Ordering::Relaxed);
    run_until(&cluster, 8, &[&process]);
    assert!(process.status().rules.iter().all(|rule| rule.health == Health::Ok));
    let (mut want, _) = of_single_server(8);
    let of_r = want.remove("r").expect("recorded");
    let found = &cluster.samples("r")["r"];
    let missing: Vec<_> = of_r.iter().filter(|sample| !found.contains(sample)).collect();
    assert_eq!((found.len(), missing.len()), (6, 2), "failed rounds are not repeated");
}

#[test]
fn a_round_that_the_log_does_not_acknowledge_fails_with_the_reason() {
    let cluster = Cluster::start(RULES);
    let process = cluster.process(2);
    run_until(&cluster, 4, &[&process]);
    process.log.is_away.store(true, Ordering::Relaxed);
    run_until(&cluster, 5, &[&process]);
    let Health::Err(why) = process.status().rules[0].health.clone() else { panic!("no error") };
    assert!(why.contains("no broker answers"), "{why}");
    process.log.is_away.store(false, Ordering::Relaxed);
    run_until(&cluster, 6, &[&process]);
    assert!(process.status().rules.iter().all(|rule| rule.health == Health::Ok));
    assert_eq!(cluster.samples("r")["r"].len(), 5);
}
