//! Samples of both kinds through every stage: open, out of order, sealed, block, compacted block, restart,
//! power cut; they stay what they were, bit for bit. The same for an owner, which has no blocks of its own. A
//! failure prints its seed.

use std::collections::BTreeMap;

use chronolith_base::Rng;
use chronolith_model::{
    Columns, Labels, Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange, WriteBatch,
};
use chronolith_tsdb::{BlockEncoding, Tsdb};

use crate::fixture::{HOUR_MS, Machine};
use crate::kinds::{push, random_sample, text, texts};

const SEEDS: u64 = 10;
const OPS: u64 = 220;
const NAMES: u64 = 5;

/// First written sample of every series and time.
type Model = BTreeMap<String, BTreeMap<i64, String>>;

fn labels(name: &str) -> Labels {
    Labels::from_pairs([("__name__", name), ("a", "b")])
}

fn read(machine: &Machine, tsdb: &Tsdb, name: &str) -> BTreeMap<i64, String> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let matchers = [Matcher::equal("__name__", name)];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let mut batches =
        tsdb.reader().queryable(&TenantId::anonymous()).select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let mut columns = Columns::default();
    for one in &series {
        one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
    }
    assert!(columns.times.is_sorted_by(|a, b| a < b), "times ascend");
    texts(&columns).into_iter().collect()
}

fn random_write(rng: &Rng, machine: &Machine, tsdb: &Tsdb, model: &mut Model) {
    let now = machine.env.clock.now_ms();
    let name = format!("s{}", rng.below(NAMES));
    let mut samples = Vec::new();
    for _ in 0..=rng.below(40) {
        let age = if rng.below(4) == 0 { 30 * HOUR_MS.unsigned_abs() } else { 600_000 };
        let time = now - i64::try_from(rng.below(age)).expect("fits");
        samples.push((time, random_sample(rng, time.unsigned_abs() / 60_000 % 10_000)));
    }
    if rng.below(3) > 0 {
        samples.sort_by_key(|sample| sample.0);
    }
    let mut batch = WriteBatch::from_labels();
    push(&mut batch, &labels(&name), &samples);
    let known = model.entry(name).or_default();
    for (time, sample) in &samples {
        // The head does not read blocks: it accepts the sample, and queries return the first one.
        known.entry(*time).or_insert_with(|| text(sample));
    }
    let outcome = machine.append(tsdb, &StoreId::anonymous(), &batch).expect("stored");
    assert_eq!(outcome.accepted_count + outcome.rejected_count(), samples.len() as u64);
}

fn compare(machine: &Machine, tsdb: &Tsdb, model: &Model, when: &str) {
    for (name, want) in model {
        let got = read(machine, tsdb, name);
        let differs: Vec<_> =
            want.iter().filter(|(time, text)| got.get(time) != Some(text)).take(3).collect();
        let found: Vec<_> = differs.iter().map(|(time, _)| got.get(time)).collect();
        assert!(differs.is_empty(), "{when}: {name}: {found:?} instead of {differs:?}");
        assert_eq!(got.len(), want.len(), "{when}: {name}");
    }
}

fn compaction_count(tsdb: &Tsdb) -> u64 {
    tsdb.statistics().stats().metric("compaction_runs_total").expect("is there") as u64
}

/// Returns the number of compactions.
fn run(seed: u64, mut machine: Machine) -> u64 {
    if seed % 2 == 1 {
        machine.options.limits.default.block_encoding = BlockEncoding::Prometheus;
    }
    let rng = Rng::from_seed(seed);
    let mut tsdb = machine.open();
    let mut model = Model::new();
    let mut merge_count = 0;
    for op in 0..OPS {
        let when = format!("seed {seed}, operation {op}");
        match rng.below(100) {
            0..70 => random_write(&rng, &machine, &tsdb, &mut model),
            70..80 => {
                for _ in 0..=rng.below(4) {
                    machine.clock.advance(std::time::Duration::from_secs(rng.below(900)));
                    tsdb.maintenance().run();
                }
            }
            80..86 if machine.is_owner() => {
                tsdb.wal_jobs().sync();
                tsdb.wal_jobs().roll_checkpoint();
            }
            80..86 => tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes"),
            86..93 => {
                merge_count += compaction_count(&tsdb);
                machine.disk.crash();
                drop(tsdb);
                tsdb = machine.open();
            }
            _ => compare(&machine, &tsdb, &model, &when),
        }
    }
    compare(&machine, &tsdb, &model, &format!("seed {seed} at its end"));
    assert_eq!(tsdb.statistics().stats().maintenance.error_count, 0, "seed {seed}");
    merge_count + compaction_count(&tsdb)
}

#[test]
fn both_kinds_stay_what_they_were_through_every_stage() {
    let mut merge_count = 0;
    for seed in 0..SEEDS {
        let [server, owner] = Machine::both(seed);
        merge_count += run(seed, server);
        assert_eq!(run(seed, owner), 0, "owners merge nothing");
    }
    assert!(merge_count > 3 * SEEDS, "only {merge_count} merges in {SEEDS} runs");
}
