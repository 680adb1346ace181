//! Backfills against live rounds: bit for bit, also after interruptions, repeated, and over other results.

use std::collections::BTreeMap;
use std::time::Duration;

use chronolith_base::{Clock as _, Rng};
use chronolith_model::histogram::Buckets;
use chronolith_model::query::Queryable as _;
use chronolith_model::{
    Columns, DuplicatePolicy, FloatHistogram, Histogram, Labels, MatchOp, Matcher, QueryError, ReadContext,
    ResetHint, Selector, Span, StoreId, TenantId, TimeRange, WriteBatch,
};
use chronolith_rules::repair::stored_value;
use chronolith_rules::round::SampleValue;

use super::environment::{Environment, START_MS, started};
use crate::access::Identity;
use crate::evaluation::rules::backfill::{
    BackfillEnd, BackfillError, BackfillMode, BackfillRefusal, BackfillRequest, prepare, read_groups,
};
use crate::limits::RULE_BACKFILL_TIME_MAX_MS;

const FILE: &str = "/etc/rules/a.yml";
const RULES: &str = "groups:
- name: g
  interval: 30s
  rules:
  - {record: early, expr: 'sum(chain2)'}
  - {record: chain1, expr: 'sum by (job) (rate(x[2m]))'}
  - {record: chain2, expr: 'chain1 * 2'}
  - {record: high, expr: 'x > 60', labels: {level: high}}
  - {record: old, expr: 'x offset 3m'}
  - {record: own, expr: 'sum(x) + on() (sum(own) * 0.5 or vector(1))'}
  - {record: of_own, expr: 'own + 1'}
  - {record: at_end, expr: 'max(x @ end())'}
  - {record: hist_rate, expr: 'sum by (job) (rate(hist[2m]))'}
  - {record: hist_copy, expr: 'hist'}
  - {record: constant, expr: '4'}
  - {record: ambiguous, expr: 'x + on(job) group_left() x{instance=\"2\"} + on(job) x'}
  - {alert: A, expr: 'chain1 > 0'}
- name: h
  interval: 1m
  query_offset: 10s
  rules:
  - {record: chain3, expr: 'max_over_time(chain2[3m])'}
  - {record: none, expr: 'absent(x{job=\"b\"})'}
  - {record: both, expr: 'sum by (job) (x{instance=\"1\"})'}
  - {record: both, expr: 'label_replace(sum(x{instance=\"2\"}), \"job\", \"all\", \"\", \"\")'}
- name: limited
  interval: 45s
  limit: 3
  rules:
  - {record: few, expr: 'x > 40'}
  - {record: of_few, expr: 'sum(few)'}
";
const DATA_MS: i64 = 3_600_000;
/// Recorded series, whatever rule file.
const NOT_RECORDED: &str = "x|hist|ALERTS.*";

fn histogram(rng: &Rng, step: i64) -> Histogram {
    let count = step as f64 * 3.0 + rng.below(3) as f64;
    Histogram::Float(FloatHistogram {
        schema: 0,
        zero_threshold: 0.001,
        count,
        sum: count * 1.5,
        positive: Buckets { spans: vec![Span { offset: 1, length: 1 }], counts: vec![count] },
        ..FloatHistogram::default()
    })
}

/// Writes the samples of `[from_ms, to_ms)`: four series with gaps, and a series of histograms.
fn write_data(server: &Environment, seed: u64, from_ms: i64, to_ms: i64) {
    let rng = Rng::from_seed(seed);
    let store = server.service.lifecycle.opened().expect("open");
    let mut up = [true; 4];
    for step in 0..DATA_MS / 15_000 {
        let time_ms = START_MS + step * 15_000;
        let mut batch = WriteBatch::from_labels();
        for (idx, (job, instance)) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "2")].into_iter().enumerate()
        {
            if rng.below(25) == 0 {
                up[idx] = !up[idx];
            }
            let value = rng.below(100) as f64;
            if up[idx] || idx < 1 {
                let labels = Labels::from_pairs([("__name__", "x"), ("job", job), ("instance", instance)]);
                batch.push_labels(&labels, &[(time_ms, value)]);
            }
        }
        let of_step = std::sync::Arc::new(histogram(&rng, step));
        if step % 50 < 40 {
            let labels = Labels::from_pairs([("__name__", "hist"), ("job", "h")]);
            batch.push_histograms(&labels, &[(time_ms, of_step)]);
        }
        if from_ms <= time_ms && time_ms < to_ms {
            let outcome = store.append(&StoreId::anonymous(), &batch).expect("stored");
            assert_eq!(outcome.first_reject, None);
        }
    }
}

fn server(policy: DuplicatePolicy, window_ms: i64) -> Environment {
    started(|options| {
        let mut limits = options.tsdb.limits.default.clone();
        limits.duplicates = policy;
        limits.retention_ms = 30 * 24 * 3_600_000;
        options.tsdb.limits = limits.into();
        options.rules.repair_window_ms = window_ms;
    })
}

/// A server whose rounds were evaluated at their times.
fn live(policy: DuplicatePolicy) -> Environment {
    let server = server(policy, 0);
    server.load("a.yml", RULES).expect("valid");
    run_live(&server, DATA_MS);
    server
}

/// Moves the clock on while samples come in and rounds are evaluated.
fn run_live(server: &Environment, duration_ms: i64) {
    for _ in 0..duration_ms / 10_000 {
        let now_ms = server.clock.now_ms();
        write_data(server, 1, now_ms, now_ms + 10_000);
        server.clock.advance(Duration::from_secs(10));
        server.run_due();
    }
}

/// A server with the same data and no rules.
fn without_rules(policy: DuplicatePolicy) -> Environment {
    let server = server(policy, 0);
    server.clock.advance(Duration::from_millis(DATA_MS as u64));
    write_data(&server, 1, i64::MIN, i64::MAX);
    server
}

fn request(server: &Environment, tenant: &TenantId, rules: &str) -> BackfillRequest {
    let files = [(FILE.to_owned(), rules.as_bytes().to_vec())];
    BackfillRequest {
        tenant: tenant.clone(),
        groups: read_groups(&server.service, &files).expect("valid"),
        range: (START_MS - 9_999, server.clock.now_ms()),
        group_names: Vec::new(),
        mode: BackfillMode::Write,
        resume: None,
    }
}

/// Runs a backfill that ends after `chunks_max` chunks.
fn run_chunks(server: &Environment, request: BackfillRequest, chunks_max: usize) -> BackfillEnd {
    let identity = Identity::internal(&request.tenant);
    let class = &server.service.admission.rule_work.backfills;
    let admitted = server.service.try_admit(class, &identity, RULE_BACKFILL_TIME_MAX_MS).expect("a permit");
    let backfill = prepare(&server.service, request).expect("begins");
    let (mut chunk_count, mut done, mut token) = (0, 0, String::new());
    let end = backfill.run(&server.service, &admitted, &mut |progress| {
        assert!(done <= progress.done_rounds && progress.done_rounds <= progress.round_count);
        (chunk_count, done) = (chunk_count + 1, progress.done_rounds);
        token.clone_from(&progress.resume);
        match chunk_count < chunks_max {
            true => Ok(()),
            false => Err(BackfillError::Ended(QueryError::Canceled)),
        }
    });
    if end.error.is_none() {
        assert!(chunk_count == 0 || done == backfill.round_count(), "all rounds are reported");
    } else {
        assert_eq!(end.resume, token, "it goes on after the last chunk that was reported");
    }
    end
}

#[track_caller]
fn backfill(server: &Environment, rules: &str) -> BackfillEnd {
    let end = run_chunks(server, request(server, &TenantId::anonymous(), rules), usize::MAX);
    assert!(end.error.is_none() && end.totals.rejected == 0, "{end:?}");
    end
}

/// All samples of all recorded series, staleness markers included, as text.
fn recorded(server: &Environment, tenant: &TenantId) -> BTreeMap<String, BTreeMap<i64, String>> {
    let store = server.service.lifecycle.opened().expect("open");
    let ctx = ReadContext::unlimited(server.clock.clone());
    let matchers = [Matcher::new("__name__", MatchOp::NotRegex, NOT_RECORDED).expect("valid")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let source = store.reader().queryable(tenant);
    let mut batches = source.select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let mut all = BTreeMap::new();
    for one in series {
        let mut columns = Columns::default();
        one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
        let text = |idx| match stored_value(&columns, idx) {
            SampleValue::Float(value) => format!("{value} {:x}", value.to_bits()),
            SampleValue::Stale => "stale".to_owned(),
            SampleValue::Histogram(histogram) => {
                let mut histogram = FloatHistogram::clone(&histogram);
                histogram.reset_hint = ResetHint::Unknown;
                format!("{histogram:?}")
            }
        };
        let points: BTreeMap<i64, String> =
            columns.times.iter().enumerate().map(|(idx, time_ms)| (*time_ms - START_MS, text(idx))).collect();
        if !points.is_empty() {
            all.insert(one.labels.to_string(), points);
        }
    }
    all
}

#[track_caller]
fn assert_equal(found: &Environment, want: &Environment, when: &str) {
    let tenant = TenantId::anonymous();
    let (found, want) = (recorded(found, &tenant), recorded(want, &tenant));
    for (series, points) in &want {
        let none = BTreeMap::new();
        let own = found.get(series).unwrap_or(&none);
        let missing: Vec<_> = points.iter().filter(|(at, value)| own.get(at) != Some(value)).collect();
        let extra: Vec<_> = own.iter().filter(|(at, value)| points.get(at) != Some(value)).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{when}: {series}: missing {missing:?}, extra {extra:?}"
        );
    }
    let more: Vec<&String> = found.keys().filter(|series| !want.contains_key(*series)).collect();
    assert!(more.is_empty(), "{when}: {more:?}");
}

#[test]
fn a_backfill_records_what_live_rounds_do_and_a_second_one_nothing() {
    for policy in [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins] {
        let live = live(policy);
        let server = without_rules(policy);
        let first = backfill(&server, RULES);
        let when = format!("{policy:?}");
        assert_equal(&server, &live, &when);
        assert!(recorded(&server, &TenantId::anonymous()).len() > 25, "{when}");
        let failed = live.service.rules.all().iter().map(|(_, group)| group.evaluations.failed).sum::<u64>();
        assert!(failed > 10, "rules that fail in some rounds: {failed}");
        assert_eq!(first.totals.failed_rounds, failed, "{when}: {:?}", first.first_failure);
        let samples = first.totals.samples;
        assert!(samples.added > 2000 && (samples.replaced, samples.removed, samples.equal) == (0, 0, 0));
        let blocks = server.service.rules.backfills.changed_samples.get();
        assert_eq!(blocks, samples.added);
        // Also once everything is in blocks.
        server.service.lifecycle.opened().expect("open").maintenance().run();
        for _ in 0..2 {
            let again = backfill(&server, RULES).totals;
            assert_eq!(
                (again.samples.added, again.samples.replaced, again.samples.removed),
                (0, 0, 0),
                "{when}"
            );
            assert_eq!(again.samples.equal, samples.added, "{when}");
            assert_eq!((again.rounds, again.series), (first.totals.rounds, first.totals.series), "{when}");
        }
        assert_equal(&server, &live, &when);
        // Over the samples of live rounds too.
        let on_live = backfill(&live, RULES).totals.samples;
        assert_eq!((on_live.added, on_live.replaced, on_live.removed), (0, 0, 0), "{when}");
    }
}

/// Each chunk is the last one of its process.
#[test]
fn a_backfill_that_is_killed_after_each_chunk_ends_with_the_same_samples() {
    let whole = without_rules(DuplicatePolicy::KeepFirst);
    backfill(&whole, RULES);
    for crashes in [false, true] {
        let mut server = without_rules(DuplicatePolicy::KeepFirst);
        let range = (START_MS - 9_999, server.clock.now_ms());
        let mut resume = None;
        let mut runs = 0;
        loop {
            let asked = BackfillRequest {
                resume: resume.take(),
                range,
                ..request(&server, &TenantId::anonymous(), RULES)
            };
            let end = run_chunks(&server, asked, 1);
            runs += 1;
            if end.error.is_none() {
                break;
            }
            resume = Some(end.resume);
            if crashes {
                server = server.restart(Duration::ZERO);
            }
        }
        assert!(runs > 10, "{runs} runs");
        assert_equal(&server, &whole, &format!("{runs} runs, crashes: {crashes}"));
    }
}

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let server = without_rules(DuplicatePolicy::KeepFirst);
    let tenant = TenantId::anonymous();
    let rules =
        "groups:\n- name: g\n  rules:\n  - {record: a, expr: 'x > 30'}\n  - {record: b, expr: 'sum(hist)'}\n";
    let dry = BackfillRequest { mode: BackfillMode::DryRun, ..request(&server, &tenant, rules) };
    assert!(!prepare(&server.service, dry.clone()).expect("valid").is_estimate());
    let counted = run_chunks(&server, dry, usize::MAX).totals;
    assert_eq!(recorded(&server, &tenant), BTreeMap::new());
    let written = backfill(&server, rules).totals;
    assert_eq!(counted, written);
    assert!(counted.series > 3 && counted.samples.added > 100, "{counted:?}");
    let dependent = BackfillRequest { mode: BackfillMode::DryRun, ..request(&server, &tenant, RULES) };
    assert!(prepare(&server.service, dependent).expect("valid").is_estimate());
}

/// Results of another expression: other values, series that are gone, and others that are new.
#[test]
fn a_rule_that_changed_replaces_and_removes_what_it_recorded() {
    for policy in [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins] {
        let before = RULES.replace("x > 60", "x > 30").replace("chain1 * 2", "chain1 * 3");
        let server = without_rules(policy);
        backfill(&server, &before);
        server.service.lifecycle.opened().expect("open").maintenance().run();
        let end = backfill(&server, RULES);
        let samples = end.totals.samples;
        assert!(samples.replaced > 100 && samples.removed > 50 && samples.equal > 500, "{samples:?}");
        let want = without_rules(policy);
        backfill(&want, RULES);
        assert_equal(&server, &want, &format!("{policy:?}"));
        let server = server.restart(Duration::ZERO);
        assert_equal(&server, &want, &format!("{policy:?}, after a restart"));
    }
}

#[test]
fn groups_are_chosen_by_name() {
    let server = without_rules(DuplicatePolicy::KeepFirst);
    let tenant = TenantId::anonymous();
    let asked =
        BackfillRequest { group_names: vec!["limited".to_owned()], ..request(&server, &tenant, RULES) };
    assert!(run_chunks(&server, asked, usize::MAX).error.is_none());
    let names: Vec<String> = recorded(&server, &tenant).into_keys().collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.contains("few")), "{names:?}");
}

#[test]
fn wrong_requests_are_refused_before_anything_is_evaluated() {
    let server = without_rules(DuplicatePolicy::KeepFirst);
    let tenant = TenantId::anonymous();
    let now_ms = server.clock.now_ms();
    let valid = || request(&server, &tenant, RULES);
    let alerts = "groups:\n- name: g\n  rules:\n  - {alert: A, expr: x}\n";
    let short = "groups:\n- name: g\n  interval: 1ms\n  rules:\n  - {record: a, expr: x}\n";
    let year_ms = 365 * 24 * 3_600_000;
    for (asked, want) in [
        (BackfillRequest { range: (now_ms, now_ms), ..valid() }, "start has to be before end"),
        (BackfillRequest { range: (now_ms, now_ms + 1), ..valid() }, "1 ms in the future"),
        (BackfillRequest { range: (now_ms - year_ms, now_ms), ..valid() }, "start is before the retention"),
        (BackfillRequest { group_names: vec!["z".to_owned()], ..valid() }, "there is no group \"z\""),
        (BackfillRequest { resume: Some("nonsense".to_owned()), ..valid() }, "is no position of a backfill"),
        (
            BackfillRequest { resume: Some("0.0.0".to_owned()), ..valid() },
            "of other rules, or of another range",
        ),
        (request(&server, &tenant, alerts), "there is no recording rule"),
        (
            BackfillRequest { range: (now_ms - 300_000_000, now_ms), ..request(&server, &tenant, short) },
            "divide the range or the rules",
        ),
    ] {
        match prepare(&server.service, asked).err() {
            Some(BackfillRefusal::Invalid(why)) => assert!(why.contains(want), "{why}"),
            other => panic!("{want}: {other:?}"),
        }
    }
    let running = prepare(&server.service, valid()).expect("valid");
    assert_eq!(prepare(&server.service, valid()).err(), Some(BackfillRefusal::Busy));
    drop(running);
    assert!(prepare(&server.service, valid()).is_ok());
    let twice = [(FILE.to_owned(), Vec::new()), (FILE.to_owned(), Vec::new())];
    assert!(read_groups(&server.service, &twice).is_err());
    let faulty = [("f.yml".to_owned(), b"groups: [{name: g, rules: [{record: a, expr: 'b ='}]}]".to_vec())];
    let why = read_groups(&server.service, &faulty).expect_err("an expression without its end");
    assert!(why.starts_with("f.yml: 1:"), "{why}");
}

#[test]
fn a_backfill_reads_and_writes_its_tenant_alone() {
    let server = started(|options| options.multitenancy = true);
    let [a, b] = ["a", "b"].map(|name| TenantId::new(name).expect("valid"));
    server.clock.advance(Duration::from_secs(900));
    for (tenant, value) in [(&a, 1.0), (&b, 2.0)] {
        (0..60).for_each(|step| {
            server.write(tenant, &[("__name__", "x")], START_MS + step * 15_000, value);
        });
    }
    let rules = "groups:\n- name: g\n  rules:\n  - {record: r, expr: 'sum(x)'}\n";
    let end = run_chunks(&server, request(&server, &a, rules), usize::MAX);
    assert!(end.error.is_none(), "{end:?}");
    assert_eq!(recorded(&server, &b), BTreeMap::new());
    let found = recorded(&server, &a);
    assert!(found["r"].values().all(|text| text.starts_with("1 ")) && found["r"].len() > 10, "{found:?}");
}

/// A rule that the server evaluates gets its history from before it was loaded, and a loaded rule that
/// reads it is repaired once. The last round of the server stays, as it is state of the group.
#[test]
fn history_continues_to_the_rounds_of_the_server_and_readers_are_repaired_once() {
    let server = server(DuplicatePolicy::KeepFirst, 3_600_000);
    run_live(&server, 1_800_000);
    let rules = "groups:\n- name: g\n  interval: 30s\n  rules:\n  - {record: r, expr: 'sum(x)'}\n";
    let reader =
        "groups:\n- name: i\n  interval: 30s\n  rules:\n  - {record: avg, expr: 'count_over_time(r[10m])'}\n";
    server.load("a.yml", rules).expect("valid");
    server.load("b.yml", reader).expect("valid");
    run_live(&server, 300_000);
    let tenant = TenantId::anonymous();
    let before = recorded(&server, &tenant);
    let end = backfill(&server, rules);
    let found = recorded(&server, &tenant);
    let (first, last) = (before["r"].keys().next().copied(), before["r"].keys().last().copied());
    assert!(
        before["r"].iter().all(|(at, value)| found["r"].get(at) == Some(value)),
        "rounds of the server stay"
    );
    assert_eq!(end.totals.samples.equal + 1, before["r"].len() as u64, "all but the last one");
    let times: Vec<i64> = found["r"].keys().copied().collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 30_000), "{times:?}");
    assert!(times[0] < 30_000 && found["r"].keys().last().copied() == last && first > Some(1_700_000));
    assert_eq!(found["avg"], before["avg"]);
    let repairs = &server.service.rules.repairs;
    assert_eq!(repairs.pending_rule_count(), 1, "the reader");
    run_live(&server, 60_000);
    assert_eq!(repairs.pending_rule_count(), 0);
    let repaired = repairs.corrected_samples.get();
    assert!(repaired > 5, "{repaired}");
    let corrected = recorded(&server, &tenant);
    assert!(corrected["avg"].values().all(|text| text.starts_with("20 ")), "{:?}", corrected["avg"]);
    run_live(&server, 300_000);
    assert_eq!((repairs.corrected_samples.get(), repairs.pending_rule_count()), (repaired, 0), "no loop");
    assert_eq!(repairs.given_up_rounds.get(), 0);
}

#[test]
fn a_stop_of_the_server_and_a_kill_end_a_backfill() {
    let server = without_rules(DuplicatePolicy::KeepFirst);
    let tenant = TenantId::anonymous();
    let identity = Identity::internal(&tenant);
    let class = &server.service.admission.rule_work.backfills;
    let admitted = server.service.try_admit(class, &identity, RULE_BACKFILL_TIME_MAX_MS).expect("a permit");
    let first = prepare(&server.service, request(&server, &tenant, RULES)).expect("begins");
    let mut chunks = 0;
    let end = first.run(&server.service, &admitted, &mut |_| {
        chunks += 1;
        server.service.rules.engine.stop(Duration::ZERO);
        Ok(())
    });
    assert!(matches!(end.error, Some(BackfillError::Stopping)) && chunks == 1, "{end:?}");
}
