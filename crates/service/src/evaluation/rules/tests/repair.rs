//! Repair of recorded series: out-of-order samples in random order against a run in order, for both duplicate
//! policies.

use std::collections::BTreeMap;
use std::time::Duration;

use chronolith_base::{Clock as _, Rng};
use chronolith_model::query::Queryable as _;
use chronolith_model::{
    Columns, DuplicatePolicy, Labels, Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange,
    WriteBatch,
};

use super::environment::{Environment, START_MS, started};

const RULES: &str = "groups:
- name: g
  interval: 30s
  rules:
  - {record: early, expr: 'sum(chain2)'}
  - {record: chain1, expr: 'sum by (job) (rate(x[2m]))'}
  - {record: chain2, expr: 'chain1 * 2'}
  - {record: same_rate, expr: 'max by (job) (rate(x[2m])) / sum by (job) (rate(x[2m]))'}
  - {record: same_chain, expr: 'sum(chain1)'}
  - {record: high, expr: 'x > 60'}
  - {record: own, expr: 'sum(x) + on() (sum(own) * 0.5 or vector(1))'}
  - {record: of_own, expr: 'own + 1'}
  - {record: at_end, expr: 'max(x @ end())'}
- name: h
  interval: 1m
  query_offset: 10s
  rules:
  - {record: chain3, expr: 'max_over_time(chain2[3m])'}
  - {record: none, expr: 'absent(x{job=\"b\"})'}
  - {record: both, expr: 'sum by (job) (x{instance=\"1\"})'}
  - {record: both, expr: 'label_replace(sum(x{instance=\"2\"}), \"job\", \"all\", \"\", \"\")'}
  - {alert: A, expr: 'chain1 > 0'}
";
const STEP_MS: i64 = 10_000;
const DATA_MS: i64 = 3_600_000;

/// A sample and the time at which it comes in.
struct Arrival {
    at_ms: i64,
    labels: Labels,
    time_ms: i64,
    value: f64,
}

/// Series with gaps, samples every 15 s; `late_percent` of them come in up to 30 minutes late.
fn arrivals(seed: u64, late_percent: u64) -> Vec<Arrival> {
    let (rng, lateness) = (Rng::from_seed(seed), Rng::from_seed(seed + 1000));
    let mut arrivals = Vec::new();
    for (job, instance) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "2")] {
        let labels = Labels::from_pairs([("__name__", "x"), ("job", job), ("instance", instance)]);
        let mut is_up = true;
        for step in 0..DATA_MS / 15_000 {
            if rng.below(25) == 0 {
                is_up = !is_up;
            }
            let value = rng.below(100) as f64;
            if !is_up && job != "a" {
                continue;
            }
            let time_ms = START_MS + step * 15_000;
            let delay_ms = match lateness.below(100) < late_percent {
                true => lateness.below(1_800_000) as i64,
                false => 0,
            };
            arrivals.push(Arrival { at_ms: time_ms + delay_ms, labels: labels.clone(), time_ms, value });
        }
    }
    arrivals.sort_by_key(|one| (one.at_ms, one.time_ms));
    arrivals
}

fn server(policy: DuplicatePolicy, window_ms: i64) -> Environment {
    let server = started(|options| {
        let mut limits = options.tsdb.limits.default.clone();
        limits.duplicates = policy;
        options.tsdb.limits = limits.into();
        options.rules.repair_window_ms = window_ms;
    });
    server.load("a.yml", RULES).expect("valid");
    server
}

fn deliver(server: &Environment, arrivals: &mut std::iter::Peekable<std::vec::IntoIter<Arrival>>) {
    let now_ms = server.clock.now_ms();
    let store = server.service.lifecycle.opened().expect("open");
    while let Some(one) = arrivals.next_if(|one| one.at_ms <= now_ms) {
        let mut batch = WriteBatch::from_labels();
        batch.push_labels(&one.labels, &[(one.time_ms, one.value)]);
        store.append(&StoreId::anonymous(), &batch).expect("stored");
    }
}

/// Runs until all samples are in and it has been quiet for some minutes.
fn run(
    server: Environment,
    arrivals: Vec<Arrival>,
    each_step: impl Fn(Environment, i64) -> Environment,
) -> Environment {
    let mut server = server;
    let mut arrivals = arrivals.into_iter().peekable();
    let end_ms = START_MS + DATA_MS + 1_800_000 + 600_000;
    let mut step = 0;
    while server.clock.now_ms() < end_ms {
        server.clock.advance(Duration::from_millis(STEP_MS as u64));
        deliver(&server, &mut arrivals);
        server.run_due();
        step += 1;
        server = each_step(server, step);
    }
    assert!(arrivals.peek().is_none());
    server
}

/// All samples of all series but the input, staleness markers included.
fn recorded(server: &Environment) -> BTreeMap<String, Vec<(i64, u64)>> {
    let store = server.service.lifecycle.opened().expect("open");
    let ctx = ReadContext::unlimited(server.clock.clone());
    let matchers =
        [Matcher::new("__name__", chronolith_model::MatchOp::NotRegex, "x|ALERTS.*").expect("valid")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let source = store.reader().queryable(&TenantId::anonymous());
    let mut batches = source.select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let mut all = BTreeMap::new();
    for one in series {
        let mut columns = Columns::default();
        one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
        let points: Vec<(i64, u64)> = columns
            .times
            .iter()
            .zip(&columns.values)
            .map(|(time, value)| (*time - START_MS, value.to_bits()))
            .collect();
        if !points.is_empty() {
            all.insert(one.labels.to_string(), points);
        }
    }
    all
}

#[track_caller]
fn assert_equal(found: &Environment, want: &Environment, when: &str) {
    let (found, want) = (recorded(found), recorded(want));
    for (series, points) in &want {
        let empty = Vec::new();
        let own = found.get(series).unwrap_or(&empty);
        let missing: Vec<_> = points.iter().filter(|point| !own.contains(point)).collect();
        let extra: Vec<_> = own.iter().filter(|point| !points.contains(point)).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{when}: {series}: missing {missing:?}, extra {extra:?}"
        );
    }
    let more: Vec<&String> = found.keys().filter(|series| !want.contains_key(*series)).collect();
    assert!(more.is_empty(), "{when}: {more:?}");
}

#[test]
fn late_samples_in_random_order_leave_what_a_run_in_order_records() {
    for (seed, policy) in [(1, DuplicatePolicy::KeepFirst), (2, DuplicatePolicy::LastWins)] {
        let in_order = run(server(policy, 0), arrivals(seed, 0), |server, _| server);
        let late = run(server(policy, 3_600_000), arrivals(seed, 10), |server, step| {
            if step % 60 == 0 {
                server.service.lifecycle.opened().expect("open").maintenance().run();
            }
            server
        });
        let when = format!("seed {seed}, {policy:?}");
        assert_equal(&late, &in_order, &when);
        let repairs = &late.service.rules.repairs;
        assert_eq!(repairs.given_up_rounds.get(), 0, "{when}");
        let groups = late.service.rules.all();
        let repaired: u64 = groups.iter().map(|(_, group)| group.rounds.repaired).sum();
        let (evaluations, failed) = groups.iter().fold((0, 0), |sum, (_, group)| {
            (sum.0 + group.evaluations.all, sum.1 + group.evaluations.failed)
        });
        println!(
            "{when}: {evaluations} evaluations of rounds, {} of repairs for {repaired} rounds, {} samples corrected",
            repairs.evaluations.get(),
            repairs.corrected_samples.get(),
        );
        assert_eq!(failed, 0, "{when}");
        assert!(repaired > 100 && repairs.corrected_samples.get() > 100, "{when}: {repaired}");
        assert!(recorded(&late).len() >= 14, "{when}");
    }
}

#[test]
fn samples_in_order_cause_no_repair() {
    let server = run(server(DuplicatePolicy::KeepFirst, 3_600_000), arrivals(3, 0), |server, _| server);
    let repairs = &server.service.rules.repairs;
    assert_eq!((repairs.evaluations.get(), repairs.corrected_samples.get()), (0, 0));
    assert_eq!(repairs.pending_rule_count(), 0);
}

#[test]
fn rounds_before_the_window_are_given_up_and_counted() {
    let server = server(DuplicatePolicy::KeepFirst, 600_000);
    // Each later round of an expression without a lookback sees the sample.
    server.load("a.yml", &RULES.replace("x @ end()", "x")).expect("valid");
    server.run_for(Duration::from_secs(1800));
    let labels = [("__name__", "x"), ("job", "a"), ("instance", "1")];
    server.write(&TenantId::anonymous(), &labels, START_MS + 60_000, 70.0);
    server.run_for(Duration::from_secs(120));
    assert!(server.times_s("high").is_empty());
    let repairs = &server.service.rules.repairs;
    assert!(repairs.given_up_rounds.get() > 10, "{}", repairs.given_up_rounds.get());
    assert_eq!(repairs.evaluations.get(), 0);
}

#[test]
fn a_missed_round_stays_missing_and_the_next_one_is_repaired() {
    let server = server(DuplicatePolicy::KeepFirst, 3_600_000);
    server.run_for(Duration::from_secs(120));
    let before = server.times_s("none").len();
    server.clock.advance(Duration::from_secs(180));
    server.run_due();
    server.run_for(Duration::from_secs(60));
    let times = server.times_s("none");
    assert_eq!(times.len(), before + 2, "rounds were missed");
    let labels = [("__name__", "x"), ("job", "c"), ("instance", "1")];
    server.write(&TenantId::anonymous(), &labels, START_MS + 80_000, 70.0);
    server.run_for(Duration::from_secs(120));
    let high = server.times_s("high");
    let gap = high.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gap.is_some_and(|gap| gap > 150), "missed rounds have no samples: {high:?}");
    assert_eq!(server.service.rules.repairs.given_up_rounds.get(), 0);
}

#[test]
fn a_rule_that_changed_is_repaired_since_its_change() {
    let server = server(DuplicatePolicy::KeepFirst, 3_600_000);
    server.run_for(Duration::from_secs(300));
    server.load("a.yml", &RULES.replace("x > 60", "x > 50")).expect("valid");
    server.run_for(Duration::from_secs(60));
    let labels = [("__name__", "x"), ("job", "c"), ("instance", "1")];
    server.write(&TenantId::anonymous(), &labels, START_MS + 200_000, 55.0);
    server.run_for(Duration::from_secs(120));
    let high = server.times_s("high");
    assert!(high.iter().all(|time_s| *time_s > 300) && !high.is_empty(), "{high:?}");
    let own = server.times_s("own");
    assert!(own.first().is_some_and(|time_s| *time_s < 300), "a rule that did not change: {own:?}");
}

/// A process that was killed had out-of-order samples that it had not reacted to, and the
/// next one did not know of them.
#[test]
fn a_crash_leaves_no_round_wrong() {
    let in_order = run(server(DuplicatePolicy::KeepFirst, 0), arrivals(5, 0), |server, _| server);
    let late = run(server(DuplicatePolicy::KeepFirst, 3_600_000), arrivals(5, 10), |server, step| {
        if step % 71 == 0 { server.restart(Duration::ZERO) } else { server }
    });
    assert_equal(&late, &in_order, "with crashes");
}

/// A repair evaluated rule by rule, which took most of the time of rules that read the same series.
#[test]
fn rules_of_a_group_are_repaired_together() {
    let server = started(|options| options.rules.repair_window_ms = 3_600_000);
    let rules = "groups:
- name: g
  interval: 10m
  rules:
  - {record: sum, expr: 'sum(rate(x[5m]))'}
  - {record: max, expr: 'max(rate(x[5m]))'}
  - {record: double, expr: 'sum * 2'}
";
    server.load("a.yml", rules).expect("valid");
    let tenant = TenantId::anonymous();
    for step in 0..144 {
        server.write(&tenant, &[("__name__", "x")], server.clock.now_ms(), f64::from(step));
        server.run_for(Duration::from_secs(10));
    }
    let times = server.times_s("sum");
    assert!(times.len() >= 2, "{times:?}");
    let late_ms = START_MS + times[0] * 1000 - 1001;
    let counters = &server.service.rules.engine.counters;
    let repairs = &server.service.rules.repairs;
    let before = (counters.shared_evaluations.get(), repairs.evaluations.get());
    server.write(&tenant, &[("__name__", "x")], late_ms, 1e6);
    server.run_for(Duration::from_secs(30));
    assert_eq!(server.times_s("sum").len(), times.len(), "no further round");
    let after = (counters.shared_evaluations.get(), repairs.evaluations.get());
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 3), "sum and max together, double after them");
    let value = |name: &str| f64::from_bits(server.samples(&tenant, name)[name][0].1);
    assert!(value("sum") > 1000.0, "{}", value("sum"));
    assert_eq!((value("max"), value("double")), (value("sum"), value("sum") * 2.0));
}
