//! Batches whose duplicate policy is not the one of their store: they win or lose against samples in the
//! head, in blocks and in the bucket alike, whatever is flushed, merged or restarted later. A failure prints
//! its seed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use chronolith_base::Rng;
use chronolith_model::batch::BatchExemplar;
use chronolith_model::change::ChangeWatch;
use chronolith_model::{
    Columns, Deletion, DuplicatePolicy, Exemplar, Labels, Matcher, ReadContext, Reject, Selector, StoreId,
    TenantId, TimeRange, WriteBatch,
};
use chronolith_tsdb::{OwnPolicyError, Tsdb};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};
use crate::kinds::{push, random_sample, text, texts};
use crate::upload::World;

use DuplicatePolicy::{KeepFirst, LastWins};

const SEEDS: u64 = 12;
const OPS: u64 = 200;
const NAMES: u64 = 4;

/// Visible sample of every series and time.
type Model = BTreeMap<String, BTreeMap<i64, String>>;

fn machine(seed: u64, of_store: DuplicatePolicy) -> Machine {
    let mut machine = Machine::new(seed);
    machine.options.limits.default.duplicates = of_store;
    machine
}

fn labels(name: &str) -> Labels {
    Labels::from_pairs([("__name__", name), ("a", "b")])
}

fn batch_of(name: &str, samples: &[(i64, f64)]) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&labels(name), samples);
    batch
}

fn read(machine: &Machine, tsdb: &Tsdb, name: &str) -> BTreeMap<i64, String> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let matchers = [Matcher::equal("__name__", name)];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let source = tsdb.reader().queryable(&TenantId::anonymous());
    let mut batches = source.select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    assert!(series.len() <= 1, "one series of that name");
    let mut columns = Columns::default();
    for one in &series {
        one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
    }
    texts(&columns).into_iter().collect()
}

fn random_write(rng: &Rng, machine: &Machine, tsdb: &Tsdb, model: &mut Model) {
    let now = machine.env.clock.now_ms();
    let name = format!("s{}", rng.below(NAMES));
    let mut samples = Vec::new();
    for _ in 0..=rng.below(30) {
        let age = if rng.below(3) == 0 { 30 * HOUR_MS.unsigned_abs() } else { 900_000 };
        // Few distinct times, so that most samples meet another one.
        let time = (now - i64::try_from(rng.below(age)).expect("fits")).div_euclid(20_000) * 20_000;
        samples.push((time, random_sample(rng, time.unsigned_abs() / 60_000 % 10_000)));
    }
    let policy = if rng.below(2) == 0 { KeepFirst } else { LastWins };
    let known = model.entry(name.clone()).or_default();
    for (time, sample) in &samples {
        match policy {
            KeepFirst => drop(known.entry(*time).or_insert_with(|| text(sample))),
            LastWins => drop(known.insert(*time, text(sample))),
        }
    }
    let mut batch = WriteBatch::from_labels();
    push(&mut batch, &labels(&name), &samples);
    tsdb.append_with_policy(&StoreId::anonymous(), &batch, policy).expect("stored");
}

/// Corrects a rule that is evaluated again: some samples of a series get other values, and some are gone.
fn correct(rng: &Rng, machine: &Machine, tsdb: &Tsdb, model: &mut Model) {
    let name = format!("s{}", rng.below(NAMES));
    let known = model.entry(name.clone()).or_default();
    let recent: Vec<i64> = known.keys().rev().take(40).copied().collect();
    let (mut samples, mut removed) = (Vec::new(), Vec::new());
    for time in recent.into_iter().rev() {
        match rng.below(6) {
            0 | 1 => {
                let sample = random_sample(rng, rng.below(10_000));
                known.insert(time, text(&sample));
                samples.push((time, sample));
            }
            2 => {
                known.remove(&time);
                let selectors = vec![vec![Matcher::equal("__name__", &name)]];
                let range = TimeRange::inclusive(time, time);
                removed.push(Deletion { store: StoreId::anonymous(), selectors, range });
            }
            _ => {}
        }
    }
    let new = machine.env.clock.now_ms().div_euclid(20_000) * 20_000;
    if let Entry::Vacant(free) = known.entry(new) {
        let sample = random_sample(rng, 7);
        free.insert(text(&sample));
        samples.push((new, sample));
    }
    let mut batch = WriteBatch::from_labels();
    push(&mut batch, &labels(&name), &samples);
    tsdb.correct(&StoreId::anonymous(), &batch, &removed).expect("stored");
}

#[track_caller]
fn compare(machine: &Machine, tsdb: &Tsdb, model: &Model, when: &str) {
    for (name, want) in model {
        let got = read(machine, tsdb, name);
        let differs = want.iter().find(|(time, sample)| got.get(time) != Some(sample));
        assert_eq!((differs, got.len()), (None, want.len()), "{when}: {name}");
    }
}

fn delete(rng: &Rng, machine: &Machine, tsdb: &Tsdb, model: &mut Model) {
    let name = format!("s{}", rng.below(NAMES));
    let start = machine.env.clock.now_ms() - i64::try_from(rng.below(36 * 3_600_000)).expect("fits");
    let range = TimeRange::new(start, start + HOUR_MS);
    if let Some(known) = model.get_mut(&name) {
        known.retain(|time, _| !range.contains(*time));
    }
    let selectors = vec![vec![Matcher::equal("__name__", &name)]];
    tsdb.admin().delete_series(&StoreId::anonymous(), &selectors, range).expect("deletes");
}

fn metric(tsdb: &Tsdb, name: &str) -> f64 {
    tsdb.statistics().stats().metric(name).expect("is there")
}

/// Returns the numbers of merges and of blocks of batches with a policy of their own.
fn run(seed: u64) -> (f64, f64) {
    let machine = machine(seed, if seed.is_multiple_of(2) { KeepFirst } else { LastWins });
    let rng = Rng::from_seed(seed);
    let mut tsdb = machine.open();
    let mut model = Model::new();
    let mut counts = (0.0, 0.0);
    let count = |tsdb: &Tsdb, counts: (f64, f64)| {
        let (merges, blocks) =
            (metric(tsdb, "compaction_runs_total"), metric(tsdb, "own_policy_blocks_total"));
        (counts.0 + merges, counts.1 + blocks)
    };
    for op in 0..OPS {
        match rng.below(100) {
            0..50 => random_write(&rng, &machine, &tsdb, &mut model),
            50..60 => correct(&rng, &machine, &tsdb, &mut model),
            60..74 => {
                for _ in 0..=rng.below(4) {
                    machine.clock.advance(Duration::from_secs(rng.below(900)));
                    tsdb.maintenance().run();
                }
            }
            74..82 => tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes"),
            82..86 => delete(&rng, &machine, &tsdb, &mut model),
            86..94 => {
                counts = count(&tsdb, counts);
                machine.disk.crash();
                drop(tsdb);
                tsdb = machine.open();
            }
            _ => compare(&machine, &tsdb, &model, &format!("seed {seed}, operation {op}")),
        }
    }
    compare(&machine, &tsdb, &model, &format!("seed {seed}, at the end"));
    assert_eq!(metric(&tsdb, "compaction_failures_total"), 0.0, "seed {seed}");
    count(&tsdb, counts)
}

#[test]
fn batches_of_both_policies_answer_as_a_sorted_map_would() {
    let counts: Vec<(f64, f64)> = (0..SEEDS).map(run).collect();
    assert!(counts.iter().all(|(merges, blocks)| *merges > 0.0 && *blocks > 10.0), "{counts:?}");
}

/// A correction that a crash interrupts was not acknowledged: either value may be there, and the old one is
/// not lost.
#[test]
fn a_crash_leaves_the_old_value_or_the_new_one() {
    let times: Vec<i64> = (0..6).map(|hour| START_MS - hour * 5 * HOUR_MS).collect();
    let samples = |value: f64| times.iter().rev().map(|time| (*time, value)).collect::<Vec<_>>();
    let written = |machine: &Machine| {
        let tsdb = machine.open();
        write(&tsdb, &StoreId::anonymous(), "m", &samples(1.0)).expect("stored");
        tsdb.maintenance().flush_closed(START_MS - HOUR_MS).expect("flushes");
        tsdb
    };
    let correct =
        |tsdb: &Tsdb| tsdb.append_with_policy(&StoreId::anonymous(), &batch_of("m", &samples(2.0)), LastWins);
    let first = machine(1, KeepFirst);
    let tsdb = written(&first);
    let before = first.disk.op_count();
    correct(&tsdb).expect("stored");
    let op_count = first.disk.op_count() - before;
    assert!(op_count > 30, "{op_count}");
    for survived in 0..=op_count {
        let machine = machine(1, KeepFirst);
        let tsdb = written(&machine);
        machine.disk.fail_after(survived);
        let corrected = correct(&tsdb);
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        let found = machine.read(&tsdb, &StoreId::anonymous(), "m");
        let when = format!("crash after {survived} of {op_count} operations");
        assert_eq!(found.len(), times.len(), "{when}");
        let values: Vec<f64> = found.iter().map(|one| f64::from_bits(one.1)).collect();
        assert!(values.iter().all(|value| [1.0, 2.0].contains(value)), "{when}: {values:?}");
        if corrected.is_ok() {
            assert_eq!(values, vec![2.0; times.len()], "{when}");
        }
        correct(&tsdb).expect("stored");
        let again = machine.read(&tsdb, &StoreId::anonymous(), "m");
        assert!(again.iter().all(|one| f64::from_bits(one.1) == 2.0), "{when}, repeated: {again:?}");
    }
}

/// Blocks that only the bucket has keep their rank there, for every process that reads it.
#[test]
fn the_policy_holds_over_blocks_of_the_bucket() {
    for (of_store, of_batch, want) in [(KeepFirst, LastWins, [3.0, 3.0]), (LastWins, KeepFirst, [1.0, 2.0])] {
        let mut world = World::new(31);
        world.machine.options.limits.default.duplicates = of_store;
        let tsdb = world.open("/data");
        let times = [START_MS - 10 * HOUR_MS, START_MS - 9 * HOUR_MS];
        let put = |policy: DuplicatePolicy, samples: &[(i64, f64)]| {
            tsdb.append_with_policy(&StoreId::anonymous(), &batch_of("m", samples), policy).expect("stored");
            world.machine.clock.advance(Duration::from_millis(1));
            tsdb.maintenance().flush_closed(START_MS).expect("flushes");
            world.move_all(&tsdb, &|_| {});
        };
        put(of_store, &[(times[0], 1.0)]);
        put(of_batch, &[(times[0], 2.0), (times[1], 2.0)]);
        put(of_batch, &[(times[0], 3.0), (times[1], 3.0)]);
        let values = |tsdb: &Tsdb| {
            let found = world.machine.read(tsdb, &StoreId::anonymous(), "m");
            found.into_iter().map(|one| f64::from_bits(one.1)).collect::<Vec<_>>()
        };
        assert_eq!(values(&tsdb), want, "the process that wrote them");
        assert_eq!(values(&world.open("/empty")), want, "a process with an empty directory");
    }
}

#[test]
fn samples_are_checked_as_those_of_other_batches_and_what_comes_with_them_is_kept() {
    let mut machine = machine(5, KeepFirst);
    machine.options.limits.default.retention_ms = 24 * HOUR_MS;
    let tsdb = machine.open();
    let store = StoreId::anonymous();
    let mut batch = batch_of("m", &[(START_MS - 30 * HOUR_MS, 1.0), (START_MS, 2.0), (START_MS, 3.0)]);
    batch.push_labels(&Labels::from_pairs([("a", "b")]), &[(START_MS, 1.0)]);
    let exemplar = Exemplar { labels: labels("e"), value: 1.0, time_ms: START_MS };
    batch.exemplars.push(BatchExemplar { series_idx: 0, exemplar });
    let outcome = tsdb.append_with_policy(&store, &batch, LastWins).expect("stored");
    assert_eq!((outcome.accepted_count, outcome.rejected_count(), outcome.exemplars_accepted), (2, 2, 1));
    assert_eq!(outcome.first_reject.map(|reject| reject.0), Some(Reject::TooOld));
    assert_eq!(outcome.rejected[Reject::NoMetricName as usize], 1);
    assert_eq!(machine.read(&tsdb, &store, "m"), [(START_MS, 3.0_f64.to_bits())], "the last of the batch");
    let nothing =
        tsdb.append_with_policy(&store, &WriteBatch::from_labels(), LastWins).expect("nothing to do");
    assert_eq!(nothing.accepted_count, 0);
    assert_eq!(metric(&tsdb, "own_policy_blocks_total"), 1.0);
}

#[test]
fn values_of_other_kinds_are_refused() {
    let machine = machine(6, KeepFirst);
    let tsdb = machine.open();
    let mut batch = WriteBatch::from_labels();
    batch.push_booleans(&labels("m"), &[(START_MS, true)]);
    let refused = tsdb.append_with_policy(&StoreId::anonymous(), &batch, LastWins);
    assert!(matches!(refused, Err(OwnPolicyError::OtherValues)));
    let mut limited = machine.options.limits.default;
    limited.ingestion.rate = 1;
    limited.ingestion.burst = 2;
    tsdb.settings().set_limits(limited.into());
    let samples: Vec<(i64, f64)> = (0..3).map(|i| (START_MS + i, 1.0)).collect();
    let refused = tsdb.append_with_policy(&StoreId::anonymous(), &batch_of("m", &samples), LastWins);
    assert!(matches!(refused, Err(OwnPolicyError::Write(_))), "the rate limit holds");
}

#[test]
fn caches_see_the_change() {
    let machine = machine(7, KeepFirst);
    let tsdb = machine.open();
    let store = StoreId::anonymous();
    let generation = tsdb.generation(&store);
    tsdb.append_with_policy(&store, &batch_of("m", &[(START_MS, 1.0)]), LastWins).expect("stored");
    let changed = tsdb.changed_since(&store, &generation);
    assert!(!changed.spares(START_MS, START_MS), "{changed:?}");
    assert!(changed.spares(START_MS + 10, i64::MAX), "{changed:?}");
}

/// A removal made a block of the newest window each time.
#[test]
fn a_removed_sample_of_the_head_needs_no_flush_and_stays_away() {
    for of_store in [KeepFirst, LastWins] {
        let machine = machine(8, of_store);
        let store = StoreId::anonymous();
        let tsdb = machine.open();
        let times = [START_MS - 120_000, START_MS - 60_000, START_MS];
        write(&tsdb, &store, "m", &times.map(|time| (time, 1.0))).expect("stored");
        write(&tsdb, &store, "n", &times.map(|time| (time, 1.0))).expect("stored");
        let generation = tsdb.generation(&store);
        let range = TimeRange::inclusive(times[1], times[1]);
        let selectors = vec![vec![Matcher::equal("__name__", "m")]];
        let removed = [Deletion { store: store.clone(), selectors, range }];
        tsdb.correct(&store, &WriteBatch::from_labels(), &removed).expect("removed");
        assert_eq!(metric(&tsdb, "own_policy_blocks_total"), 0.0);
        let block_count = |tsdb: &Tsdb| tsdb.statistics().stats().blocks;
        assert_eq!(block_count(&tsdb), 0);
        assert!(!tsdb.changed_since(&store, &generation).spares(times[1], times[1]));
        let of_others = tsdb.written_to_rules_since(&store, &generation);
        assert_eq!(of_others.next_from(i64::MIN), None, "no reason to evaluate rules: {of_others:?}");
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        let times_of =
            |name: &str| machine.read(&tsdb, &store, name).iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(times_of("m"), [times[0], times[2]]);
        assert_eq!(times_of("n"), times);
        write(&tsdb, &store, "m", &[(times[1], 2.0)]).expect("stored");
        assert_eq!(times_of("m"), times, "the time is free again");
    }
}
