//! The store against a map of sorted maps, over random writes, repeats, out-of-order samples, flushes,
//! checkpoints, merging of blocks, restarts and power cuts: a server with its WAL, and an owner, which
//! flushes and merges nothing by itself. A failure prints its seed.

use std::collections::BTreeMap;

use chronolith_base::Rng;
use chronolith_format::store_name;
use chronolith_model::{StoreId, TenantId};
use chronolith_tsdb::BlockEncoding;

use crate::fixture::{HOUR_MS, Machine};

const SEEDS: u64 = 12;
const OPS: u64 = 250;
const NAMES: u64 = 6;

/// First written value of every tenant, series and time.
type Model = BTreeMap<(String, String), BTreeMap<i64, u64>>;

fn sample_time(rng: &Rng, now: i64) -> i64 {
    match rng.below(10) {
        0 => i64::try_from(rng.below(1_000_000)).expect("small"),
        1..4 => now - i64::try_from(rng.below(30 * HOUR_MS.unsigned_abs())).expect("fits"),
        _ => now - i64::try_from(rng.below(600_000)).expect("fits"),
    }
}

fn random_write(rng: &Rng, machine: &Machine, tsdb: &chronolith_tsdb::Tsdb, model: &mut Model) {
    let now = machine.env.clock.now_ms();
    let tenant = StoreId::from(TenantId::new(if rng.below(4) == 0 { "b" } else { "a" }).expect("legal"));
    let name = format!("s{}", rng.below(NAMES));
    let mut samples: Vec<(i64, f64)> =
        (0..=rng.below(40)).map(|_| (sample_time(rng, now), f64::from_bits(rng.next_u64()))).collect();
    if rng.below(2) == 0 {
        samples.sort_by_key(|s| s.0);
    }
    let known = model.entry((store_name(&tenant).into_owned(), name.clone())).or_default();
    let mut flushed_conflict = 0;
    let mut want_rejected = 0;
    for (time, value) in &samples {
        match known.get(time) {
            None => {
                known.insert(*time, value.to_bits());
            }
            Some(bits) if *bits == value.to_bits() => {}
            // The head does not read blocks: it accepts the sample, and queries return the first one.
            Some(_) => {
                flushed_conflict += 1;
                want_rejected += 1;
            }
        }
    }
    let outcome = machine.write(tsdb, &tenant, &name, &samples).expect("stored");
    assert_eq!(outcome.accepted_count + outcome.rejected_count(), samples.len() as u64);
    assert!(outcome.rejected_count() <= want_rejected, "only conflicts are rejected ({flushed_conflict})");
}

fn compare(machine: &Machine, tsdb: &chronolith_tsdb::Tsdb, model: &Model, seed: u64, op: u64) {
    for ((tenant, name), want) in model {
        let tenant = StoreId::from(TenantId::new(tenant).expect("legal"));
        let got = machine.read(tsdb, &tenant, name);
        let want: Vec<_> = want.iter().map(|(t, v)| (*t, *v)).collect();
        assert!(
            got == want,
            "seed {seed}, operation {op}, {tenant:?}/{name}: {} samples, {} wanted",
            got.len(),
            want.len()
        );
    }
}

fn compaction_count(tsdb: &chronolith_tsdb::Tsdb) -> u64 {
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
        match rng.below(100) {
            0..70 => random_write(&rng, &machine, &tsdb, &mut model),
            70..80 => {
                // Each round merges once at most, so several bring it forward between writes.
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
            93..96 => {
                tsdb.close().expect("closes");
                merge_count += compaction_count(&tsdb);
                drop(tsdb);
                tsdb = machine.open();
            }
            _ => compare(&machine, &tsdb, &model, seed, op),
        }
    }
    compare(&machine, &tsdb, &model, seed, OPS);
    assert_eq!(tsdb.statistics().stats().maintenance.error_count, 0, "seed {seed}");
    merge_count + compaction_count(&tsdb)
}

#[test]
fn the_store_answers_as_a_map_of_sorted_maps_would() {
    let mut merge_count = 0;
    for seed in 0..SEEDS {
        let [server, owner] = Machine::both(seed);
        merge_count += run(seed, server);
        assert_eq!(run(seed, owner), 0, "owners merge nothing");
    }
    assert!(merge_count > 5 * SEEDS, "only {merge_count} merges in {SEEDS} runs");
}
