//! Concurrent simulation: writers with series of their own in shared tenants, and one maintenance thread.
//!
//! Invariants: each writer compares its series with its own ledger while the others run, and all ledgers are
//! compared after each crash. The seed determines the operations, not the schedule of threads: repeating a
//! failure may need several runs.
//! Not here: retention and times ahead of the clock, which another thread moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_base::{Clock, Env, ManualClock, MemDisk, Rng};
use chronolith_model::TimeRange;
use chronolith_tsdb::{ReplayProgress, SnapshotHead, Tsdb, WalError, WriteError};

use crate::batch::{BatchGenerator, draw_matchers, draw_range, match_all};
use crate::compare::{Reader, Source};
use crate::failure::{Failure, Mode, catch_panic};
use crate::ledger::{AckState, TenantLedger};
use crate::op::Shape;
use crate::setup::{START_MS, Setup, Threads, pick};
use crate::tally::Tally;
use crate::write::{LedgerScope, write};

const WRITER_COUNT: usize = 3;
/// Operations per writer and round, unless the disk fails before.
const ROUND_OPS: u64 = 120;
/// Longest delay of a disk operation.
const PAUSE_US_MAX: u64 = 300;
const SHAPES: [Shape; 6] =
    [Shape::Scrape, Shape::Scrape, Shape::Run, Shape::OutOfOrder, Shape::Shuffled, Shape::Repeated];

/// Shared state of the threads of a round.
struct Round<'a> {
    setup: &'a Setup,
    tsdb: &'a Tsdb,
    clock: &'a ManualClock,
    read_clock: Arc<dyn Clock>,
    /// The disk fails at some point of this round.
    is_disk_failing: bool,
    is_over: AtomicBool,
}

struct Writer {
    owner: usize,
    ledgers: Vec<TenantLedger>,
    tally: Tally,
}

impl Writer {
    fn new(setup: &Setup, owner: usize) -> Writer {
        let ledger =
            |t: &crate::setup::TenantSetup| TenantLedger::new(t.id.clone(), t.limits.clone(), Some(owner));
        Writer { owner, ledgers: setup.tenants.iter().map(ledger).collect(), tally: Tally::default() }
    }

    fn run(&mut self, round: &Round<'_>, rng: &Rng) -> Result<(), String> {
        for _ in 0..ROUND_OPS {
            if round.is_over.load(Ordering::Relaxed) {
                break;
            }
            let tenant = rng.below(self.ledgers.len() as u64) as usize;
            let ledger = &mut self.ledgers[tenant];
            let now_ms = round.clock.now_ms();
            match rng.below(20) {
                0 => {
                    let selectors = [draw_matchers(rng, ledger, Some(self.owner))];
                    let range = draw_range(rng, ledger.unit(), now_ms);
                    let deleted = round.tsdb.admin().delete_series(&ledger.id, &selectors, range);
                    let ack = match deleted {
                        Ok(_) => AckState::Acked,
                        Err(_) if round.is_disk_failing => AckState::InFlight,
                        Err(error) => return Err(format!("deleting failed: {error}")),
                    };
                    ledger.delete(&selectors, range, ack);
                    self.tally.controls += 1;
                }
                1..4 => {
                    let matchers = draw_matchers(rng, ledger, Some(self.owner));
                    let reader = Reader::new(Source::Store(round.tsdb), round.read_clock.clone());
                    self.tally.compared +=
                        reader.compare(ledger, &matchers, draw_range(rng, ledger.unit(), now_ms))?;
                    self.tally.controls += 1;
                }
                _ => {
                    let content = BatchGenerator { rng, setup: round.setup, ledger, now_ms };
                    let parts = content.draw(pick(rng, &SHAPES));
                    self.tally.add_batch(&parts);
                    match write(round.tsdb, ledger, &parts, now_ms, LedgerScope::OwnSeries)? {
                        Ok(()) => {}
                        Err(WriteError::Wal(WalError::Poisoned(_)) | WriteError::Marker(_))
                            if round.is_disk_failing =>
                        {
                            break;
                        }
                        Err(error) => return Err(format!("a write failed: {error}")),
                    }
                }
            }
        }
        Ok(())
    }

    fn compare_all(&mut self, reader: &Reader<'_>) -> Result<(), String> {
        for ledger in &self.ledgers {
            self.tally.compared += reader.compare(ledger, &match_all(Some(self.owner)), TimeRange::ALL)?;
        }
        Ok(())
    }

    /// Resolves uncertain writes: samples that are found after a power cut are durable.
    fn resolve(&mut self, reader: &Reader<'_>) -> Result<(), String> {
        for ledger in &mut self.ledgers {
            for number in ledger.uncertain() {
                let found = reader.read_series(ledger, number)?;
                ledger.resolve(number, &found);
            }
        }
        Ok(())
    }
}

/// Maintenance until the writers are done; returns the number of operations.
fn run_maintenance(round: &Round<'_>, rng: &Rng) -> u64 {
    let mut controls = 0;
    while !round.is_over.load(Ordering::Relaxed) {
        controls += 1;
        match rng.below(12) {
            0..6 => {
                round.clock.advance(Duration::from_millis(rng.below(600_000)));
                round.tsdb.maintenance().run();
            }
            6..9 => round.tsdb.wal_jobs().roll_checkpoint(),
            9 => drop(round.tsdb.maintenance().flush_closed(round.clock.now_ms())),
            10 => {
                let tenants: Vec<_> = round.setup.tenants.iter().map(|t| t.id.clone()).collect();
                for tenant in &tenants {
                    // Failures show as missing or deleted samples.
                    drop(round.tsdb.admin().clean_tombstones(tenant));
                }
                drop(round.tsdb.admin().snapshot(&tenants, SnapshotHead::Include));
            }
            _ => {
                round.tsdb.wal_jobs().sync();
                round.tsdb.wal_jobs().prepare_segment();
            }
        }
        std::thread::yield_now();
    }
    controls
}

/// Runs `rounds` rounds of several threads with the setup of `seed`. Each round ends with a crash.
///
/// # Errors
/// The first failure.
pub fn run_concurrent(seed: u64, rounds: u64) -> Result<Tally, Failure> {
    let done = catch_panic(|| simulate(seed, rounds).map_err(|text| (0, text)));
    done.map_err(|(op_idx, text)| Failure { seed, op_idx, text, mode: Mode::Concurrent { rounds } })
}

fn simulate(seed: u64, rounds: u64) -> Result<Tally, String> {
    let setup = Setup::draw(seed, Threads::Many);
    let (env, clock, disk) = Env::fake(START_MS, seed);
    disk.slow_down(PAUSE_US_MAX);
    let rng = Rng::from_seed(seed ^ 0xc40d);
    let mut writers: Vec<Writer> = (0..WRITER_COUNT).map(|owner| Writer::new(&setup, owner)).collect();
    let mut tally = Tally::default();
    let mut tsdb = open(&env, &setup)?;
    for idx in 0..rounds {
        let is_disk_failing = rng.below(2) == 0;
        if is_disk_failing {
            disk.fail_after(rng.below(2000));
        }
        let read_clock: Arc<dyn Clock> = clock.clone();
        let round = Round {
            setup: &setup,
            tsdb: &tsdb,
            clock: &clock,
            read_clock: read_clock.clone(),
            is_disk_failing,
            is_over: AtomicBool::new(false),
        };
        tally.controls +=
            run_round(&round, &mut writers, &rng).map_err(|text| format!("round {idx}: {text}"))?;
        tally.refused += disk.refused_count();
        let is_power_cut = setup.survives_power_cut() && rng.below(3) > 0;
        crash(&disk, is_power_cut, &rng);
        drop(tsdb);
        tally.starts += 1;
        (tally.power_cuts, tally.kills) =
            (tally.power_cuts + u64::from(is_power_cut), tally.kills + u64::from(!is_power_cut));
        tsdb = open(&env, &setup)?;
        let reader = Reader::new(Source::Store(&tsdb), read_clock);
        for writer in &mut writers {
            writer.compare_all(&reader).map_err(|text| format!("after round {idx}: {text}"))?;
            if is_power_cut {
                writer.resolve(&reader)?;
            }
        }
    }
    writers.iter().for_each(|writer| tally.add(&writer.tally));
    Ok(tally)
}

fn crash(disk: &MemDisk, is_power_cut: bool, rng: &Rng) {
    match is_power_cut {
        true if rng.below(2) == 0 => disk.crash(),
        true => disk.crash_partly(rng),
        false => disk.kill(),
    }
}

fn open(env: &Env, setup: &Setup) -> Result<Arc<Tsdb>, String> {
    let progress = Arc::new(ReplayProgress::default());
    Tsdb::open(env.clone(), setup.options.clone(), progress)
        .map_err(|error| format!("the store does not start: {error}"))
}

/// Runs the writers and the maintenance thread; returns the number of maintenance operations.
fn run_round(round: &Round<'_>, writers: &mut [Writer], rng: &Rng) -> Result<u64, String> {
    std::thread::scope(|scope| {
        let maintenance_rng = Rng::from_seed(rng.next_u64());
        let maintenance = scope.spawn(move || run_maintenance(round, &maintenance_rng));
        let spawn = |writer| {
            let own = Rng::from_seed(rng.next_u64());
            scope.spawn(move || Writer::run(writer, round, &own))
        };
        let threads: Vec<_> = writers.iter_mut().map(spawn).collect();
        let panicked = |_| "a thread panicked".to_owned();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().map_err(panicked)).collect();
        round.is_over.store(true, Ordering::Relaxed);
        let controls = maintenance.join().map_err(panicked)?;
        results.into_iter().try_for_each(|result| result?)?;
        Ok(controls)
    })
}
