//! Start times through every stage of the store: open, late, sealed, block, merged block, restart, power cut;
//! with first value wins, in both encodings. A failure prints its seed.

use std::collections::BTreeMap;

use chronolith_base::Rng;
use chronolith_model::{
    Columns, Labels, Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange, WriteBatch,
};
use chronolith_tsdb::{BlockEncoding, Tsdb};

use crate::fixture::{HOUR_MS, Machine};
use crate::kinds::{Sample, push, random_sample, text, texts};

const SEEDS: u64 = 8;
const OPS: u64 = 180;
const NAMES: u64 = 4;

/// First written sample of every series and time, with its start time.
type Model = BTreeMap<u64, BTreeMap<i64, (String, i64)>>;

fn labels(name: u64) -> Labels {
    Labels::from_pairs([("__name__", &*format!("s{name}")), ("a", "b")])
}

fn read(machine: &Machine, tsdb: &Tsdb, name: u64, range: TimeRange) -> BTreeMap<i64, (String, i64)> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let matchers = [Matcher::equal("__name__", &format!("s{name}"))];
    let selector = Selector { matchers: &matchers, range };
    let mut batches =
        tsdb.reader().queryable(&TenantId::anonymous()).select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let mut columns = Columns::default();
    for one in &series {
        one.samples.read(range, &mut columns).expect("reads");
    }
    let all = texts(&columns).into_iter().enumerate();
    all.map(|(at, (time, text))| (time, (text, columns.start_time_at(at)))).collect()
}

fn random_write(rng: &Rng, machine: &Machine, tsdb: &Tsdb, model: &mut Model) {
    let now = machine.env.clock.now_ms();
    let name = rng.below(NAMES);
    let mut batch = WriteBatch::from_labels();
    let mut samples: BTreeMap<i64, (Sample, i64)> = BTreeMap::new();
    for _ in 0..=rng.below(40) {
        let age = if rng.below(4) == 0 { 30 * HOUR_MS.unsigned_abs() } else { 600_000 };
        let time = now - i64::try_from(rng.below(age)).expect("fits");
        let start_ms = match name {
            0 => time - 1000,
            1 => time.div_euclid(3 * HOUR_MS) * 3 * HOUR_MS,
            2 => [0, 5, time][rng.below(3) as usize],
            _ => 0,
        };
        let sample = match name {
            2 => random_sample(rng, time.unsigned_abs() / 60_000 % 10_000),
            _ => Sample::Float((time % 9) as f64),
        };
        samples.insert(time, (sample, start_ms));
    }
    let plain: Vec<(i64, Sample)> =
        samples.iter().map(|(time, (sample, _))| (*time, sample.clone())).collect();
    push(&mut batch, &labels(name), &plain);
    batch.start_times.extend(samples.values().map(|(_, start_ms)| start_ms));
    let known = model.entry(name).or_default();
    for (time, (sample, start_ms)) in &samples {
        known.entry(*time).or_insert_with(|| (text(sample), *start_ms));
    }
    tsdb.append(&StoreId::anonymous(), &batch).expect("stored");
}

#[track_caller]
fn compare(rng: &Rng, machine: &Machine, tsdb: &Tsdb, model: &Model, when: &str) {
    for (name, want) in model {
        let got = read(machine, tsdb, *name, TimeRange::ALL);
        let differs: Vec<_> = want.iter().filter(|(time, one)| got.get(time) != Some(one)).take(3).collect();
        let found: Vec<_> = differs.iter().map(|(time, _)| got.get(time)).collect();
        assert!(differs.is_empty(), "{when}: s{name}: {found:?} instead of {differs:?}");
        assert_eq!(got.len(), want.len(), "{when}: s{name}");
        let start = machine.env.clock.now_ms() - i64::try_from(rng.below(9 * 3_600_000)).expect("fits");
        let range = TimeRange::new(start, start + HOUR_MS);
        let part: BTreeMap<i64, (String, i64)> =
            want.range(range.start..range.end).map(|(time, one)| (*time, one.clone())).collect();
        assert_eq!(read(machine, tsdb, *name, range), part, "{when}: s{name} in {range:?}");
    }
}

fn run(seed: u64) {
    let mut machine = Machine::new(seed);
    if seed % 2 == 1 {
        machine.options.limits.default.block_encoding = BlockEncoding::Prometheus;
    }
    let rng = Rng::from_seed(seed ^ 0x57a7);
    let mut tsdb = machine.open();
    let mut model = Model::new();
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
            80..86 => tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes"),
            86..93 => {
                machine.disk.crash();
                drop(tsdb);
                tsdb = machine.open();
            }
            _ => compare(&rng, &machine, &tsdb, &model, &when),
        }
    }
    compare(&rng, &machine, &tsdb, &model, &format!("seed {seed} at its end"));
    let stats = tsdb.statistics().stats();
    assert!(stats.blocks > 0 && stats.maintenance.error_count == 0, "seed {seed}: {stats:?}");
}

#[test]
fn start_times_stay_with_their_samples_through_every_stage() {
    (0..SEEDS).for_each(run);
}
