//! Writers, readers and maintenance at the same time, with kills, power cuts and full disks: acknowledged
//! samples are there at every moment, in time order, with their values.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::Rng;
use chronolith_model::{StoreId, TenantId};
use chronolith_tsdb::{Tsdb, WalError, WriteError};
use parking_lot::Mutex;

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

const WRITER_COUNT: u64 = 4;
/// Batches that the writers try, all together, between two maintenance runs, and how many runs they may be
/// ahead.
const BATCHES_PER_ROUND: u64 = 20;
const ROUNDS_AHEAD_MAX: u64 = 4;
/// Time of the first sample of the writers.
const BEGIN_MS: i64 = START_MS - 60 * HOUR_MS;

/// Samples that were acknowledged to one writer.
type Acked = Mutex<BTreeMap<i64, u64>>;

/// The writers of one store, each with a series of its own.
#[derive(Default)]
struct Fleet {
    acked: [Acked; WRITER_COUNT as usize],
    stop: AtomicBool,
    batch_count: AtomicU64,
    round_count: AtomicU64,
}

fn series_of(writer: usize) -> (StoreId, String) {
    let tenant =
        StoreId::from(TenantId::new(if writer.is_multiple_of(2) { "a" } else { "b" }).expect("legal"));
    (tenant, format!("m{writer}"))
}

fn below(rng: &Rng, bound: u64) -> i64 {
    i64::try_from(rng.below(bound)).expect("small")
}

impl Fleet {
    /// Writes until it is stopped: ascending runs, at times an out-of-order sample. A time has one value
    /// whenever it comes.
    fn run_writer(&self, tsdb: &Tsdb, writer: usize, rng: &Rng) {
        let (tenant, name) = series_of(writer);
        let mut time = BEGIN_MS + below(rng, 30) * HOUR_MS;
        while !self.stop.load(Ordering::Relaxed) {
            let round_count = self.round_count.load(Ordering::Relaxed) + ROUNDS_AHEAD_MAX;
            if self.batch_count.load(Ordering::Relaxed) >= round_count * BATCHES_PER_ROUND {
                std::thread::yield_now();
                continue;
            }
            time += 1 + below(rng, 600_000);
            if time > START_MS - 10 * HOUR_MS {
                time = BEGIN_MS + below(rng, 1000);
            }
            let mut times: Vec<i64> = (0..=below(rng, 30)).map(|k| time + k * 700_000).collect();
            if rng.below(3) == 0 {
                times.push(time - below(rng, 40_000_000));
            }
            let samples: Vec<(i64, f64)> = times.into_iter().map(|t| (t, t as f64)).collect();
            match write(tsdb, &tenant, &name, &samples) {
                Ok(outcome) => {
                    assert_eq!(outcome.rejected_count(), 0);
                    self.acked[writer].lock().extend(samples.iter().map(|s| (s.0, s.1.to_bits())));
                }
                Err(WriteError::Wal(WalError::DiskFull | WalError::Poisoned(_))) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
            self.batch_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares stored samples with samples acknowledged before.
    fn check(&self, machine: &Machine, tsdb: &Tsdb, what: &str) {
        for (writer, acked) in self.acked.iter().enumerate() {
            let want = acked.lock().clone();
            let (tenant, name) = series_of(writer);
            let got = machine.read(tsdb, &tenant, &name);
            assert!(got.is_sorted_by(|a, b| a.0 < b.0), "{what}: series {name}: times ascend");
            let got: BTreeMap<i64, u64> = got.into_iter().collect();
            for (time, bits) in &want {
                assert_eq!(got.get(time), Some(bits), "{what}: series {name}, time {time}");
            }
        }
    }

    /// Lets all write while `round` is called `round_count` times, and `beside` runs until that is over.
    fn run(&self, tsdb: &Tsdb, seed: u64, round_count: u64, round: impl Fn(u64), beside: impl Fn() + Sync) {
        self.stop.store(false, Ordering::Relaxed);
        self.batch_count.store(0, Ordering::Relaxed);
        self.round_count.store(0, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let spawn_writer = |writer: usize| {
                scope.spawn(move || self.run_writer(tsdb, writer, &Rng::from_seed(seed * 77 + writer as u64)))
            };
            let mut threads: Vec<_> = (0..self.acked.len()).map(spawn_writer).collect();
            threads.push(scope.spawn(|| {
                while !self.stop.load(Ordering::Relaxed) {
                    beside();
                }
            }));
            // A thread that failed an assertion ends the waits.
            let all_run = || !threads.iter().any(|thread| thread.is_finished());
            for idx in 0..round_count {
                while self.batch_count.load(Ordering::Relaxed) < idx * BATCHES_PER_ROUND && all_run() {
                    std::thread::yield_now();
                }
                round(idx);
                self.round_count.store(idx + 1, Ordering::Relaxed);
            }
            self.stop.store(true, Ordering::Relaxed);
        });
    }
}

fn run_maintenance(machine: &Machine, tsdb: &Tsdb) {
    machine.clock.advance(Duration::from_secs(11));
    tsdb.maintenance().run();
}

/// Queries that ran during flushes, compactions and checkpoints could have
/// missed samples or seen them twice. Every acknowledged sample is there in every answer.
#[test]
fn readers_see_everything_acked_while_windows_become_blocks() {
    let mut machine = Machine::new(100);
    machine.options.compaction.block_bytes_max = 2 << 30;
    let tsdb = machine.open();
    let fleet = Fleet::default();
    let round = |idx: u64| {
        if idx.is_multiple_of(3) {
            tsdb.maintenance().flush_closed(START_MS).expect("flushes");
        } else {
            run_maintenance(&machine, &tsdb);
        }
    };
    fleet.run(&tsdb, 1, 150, round, || fleet.check(&machine, &tsdb, "while running"));
    drop(tsdb);
    machine.disk.crash();
    fleet.check(&machine, &machine.open(), "after a power cut");
}

/// Nothing tried kills, power cuts, full and failing disks under load, one after the other on the same files.
/// Whatever the order, everything acknowledged is there after the next start.
#[test]
fn lives_that_end_by_kill_or_power_cut_lose_nothing_acked() {
    for seed in 0..12 {
        let mut machine = Machine::new(500 + seed);
        machine.options.free_bytes_min = 0;
        machine.options.wal.segment_bytes = 64 << 10;
        let fleet = Fleet::default();
        for life in 0..4 {
            let tsdb = machine.open();
            let round = |idx: u64| {
                if idx.is_multiple_of(2) {
                    let _ = tsdb.maintenance().flush_closed(START_MS);
                } else {
                    run_maintenance(&machine, &tsdb);
                }
                if seed % 3 == 1 {
                    machine.disk.set_capacity_bytes(if idx % 4 == 1 { 1 << 20 } else { u64::MAX });
                } else if idx == 3 {
                    machine.disk.fail_after((seed * 37 + life * 11) % 211);
                }
            };
            fleet.run(&tsdb, seed * 4 + life, 6 + (seed * 31 + life * 17) % 9, round, std::thread::yield_now);
            machine.disk.set_capacity_bytes(u64::MAX);
            if seed % 2 == 0 && life == 2 {
                machine.disk.heal();
                let _ = tsdb.close();
            }
            drop(tsdb);
            if life % 2 == 0 {
                machine.disk.crash();
            } else {
                machine.disk.heal();
            }
            fleet.check(&machine, &machine.open(), &format!("seed {seed}, life {life}"));
        }
    }
}
