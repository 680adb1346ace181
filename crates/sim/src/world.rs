//! A world: carries out operations on the store, ends and starts it, and compares it with the ledger.
//!
//! Holds: an error of the store is accepted only while the disk has refused something since the last start or
//! is full; everything else that is not as the ledger says is the end of the run.
//! Not here: which operations (`op`), the rules (`ledger`, `write`, `read`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock, Env, ManualClock, MemDisk, Rng};
use chronolith_model::{BlockEncoding, TenantLimits, TimeRange};
use chronolith_tsdb::{LimitsTable, ReplayProgress, SnapshotHead, Tsdb, TsdbOptions, WalError, WriteError};

use crate::ledger::{Fate, TenantLedger};
use crate::op::{Ending, Op, Shape};
use crate::read::Reader;
use crate::series::{Content, Part, draw_matchers, draw_range, match_all};
use crate::setup::{START_MS, Setup};
use crate::value::Value;
use crate::write::{Knowledge, write};

/// A poisoned log is left alone for so many operations before the process is started anew.
const POISONED_OPS_MAX: u64 = 5;

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples that were written, refused ones included.
    pub samples: u64,
    /// Of those, native histograms.
    pub histograms: u64,
    /// Operations of other kinds.
    pub controls: u64,
    /// Starts after the first.
    pub starts: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Processes that ended without the machine.
    pub kills: u64,
    /// Disk operations that were made to fail.
    pub refused: u64,
    /// Samples that were compared with the ledger.
    pub compared: u64,
    /// Windows that became blocks.
    pub flushes: u64,
    /// Merges of blocks.
    pub merges: u64,
    /// Slices of the checkpoint that were written.
    pub slices: u64,
}

impl Tally {
    /// One a sample that is written, one a control operation.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.samples + self.controls
    }

    /// Adds what is about to be written.
    pub(crate) fn add_parts(&mut self, parts: &[Part]) {
        for (_, value) in parts.iter().flat_map(|(_, samples)| samples) {
            self.samples += 1;
            self.histograms += u64::from(matches!(value, Value::Histogram(_)));
        }
    }

    /// Adds what another run did.
    pub fn add(&mut self, other: &Tally) {
        self.samples += other.samples;
        self.histograms += other.histograms;
        self.controls += other.controls;
        self.starts += other.starts;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.refused += other.refused;
        self.compared += other.compared;
        self.flushes += other.flushes;
        self.merges += other.merges;
        self.slices += other.slices;
    }
}

/// The disk works up to here.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    /// Number of the first disk operation that fails, counted from the beginning of the world.
    pub(crate) at: u64,
    pub(crate) ending: Ending,
    pub(crate) seed: u64,
    pub(crate) again_after: Option<u64>,
}

/// See the module.
pub struct World {
    setup: Setup,
    env: Env,
    clock: Arc<ManualClock>,
    pub(crate) disk: Arc<MemDisk>,
    options: TsdbOptions,
    tsdb: Option<Arc<Tsdb>>,
    ledgers: Vec<TenantLedger>,
    cut: Option<Cut>,
    /// Failed disk operations up to the last start.
    refused_before: u64,
    is_full: bool,
    was_full: bool,
    poisoned_ops: Option<u64>,
    pub(crate) tally: Tally,
}

/// Carries out `ops` until they or `ops_max` (as [`Tally::ops`] counts) are used up.
///
/// # Errors
/// Index of the operation that showed that something is wrong, and what.
pub fn run_ops(setup: &Setup, ops: &[Op], ops_max: u64) -> Result<Tally, (usize, String)> {
    let mut world = World::new(setup.clone(), None).map_err(|text| (0, text))?;
    world.run(ops, ops_max)?;
    Ok(world.tally)
}

impl World {
    pub(crate) fn new(setup: Setup, cut: Option<Cut>) -> Result<World, String> {
        let (env, clock, disk) = Env::fake(START_MS, setup.seed);
        let ledger = |t: &crate::setup::TenantSetup| TenantLedger::new(t.id.clone(), t.limits.clone(), None);
        let mut world = World {
            ledgers: setup.tenants.iter().map(ledger).collect(),
            options: setup.options.clone(),
            setup,
            env,
            clock,
            disk,
            tsdb: None,
            cut,
            refused_before: 0,
            is_full: false,
            was_full: false,
            poisoned_ops: None,
            tally: Tally::default(),
        };
        world.begin(Ending::Kill)?;
        Ok(world)
    }

    pub(crate) fn run(&mut self, ops: &[Op], ops_max: u64) -> Result<(), (usize, String)> {
        for (idx, op) in ops.iter().enumerate() {
            if self.tally.ops() >= ops_max {
                break;
            }
            let done = self.step(op).and_then(|()| self.after_step());
            done.map_err(|text| (idx, format!("operation {idx}, {op:?}: {text}")))?;
        }
        self.finish().map_err(|text| (ops.len(), format!("at the end: {text}")))
    }

    fn tsdb(&self) -> Arc<Tsdb> {
        self.tsdb.clone().expect("a world between two operations has a store")
    }

    /// Whether the store may say that something failed.
    fn may_fail(&self) -> bool {
        self.disk.refused_count() > self.refused_before || self.was_full || self.poisoned_ops.is_some()
    }

    fn tolerate<T>(
        &self,
        what: &str,
        result: Result<T, impl std::fmt::Display>,
    ) -> Result<Option<T>, String> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(_) if self.may_fail() => Ok(None),
            Err(error) => Err(format!("{what} failed on a disk that works: {error}")),
        }
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        self.tally.controls += u64::from(!matches!(op, Op::Write { .. }));
        let tsdb = self.tsdb();
        match *op {
            Op::Write { tenant, shape, seed } => return self.write(tenant, shape, seed),
            Op::Pass { ms, rounds } => self.pass(&tsdb, ms, rounds),
            Op::StepBack { ms } => {
                let now_ms = self.clock.now_ms();
                self.clock.set_now_ms(now_ms - ms.cast_signed());
            }
            Op::Roll => tsdb.roll_checkpoint(),
            Op::Flush => {
                let flushed = tsdb.flush_closed(self.clock.now_ms());
                self.tolerate("cutting windows", flushed)?;
            }
            Op::Delete { tenant, seed } => return self.delete(&tsdb, tenant, seed),
            Op::Clean { tenant } => {
                let cleaned = tsdb.clean_tombstones(&self.ledgers[tenant].id);
                self.tolerate("cleaning tombstones", cleaned)?;
            }
            Op::Snapshot => return self.snapshot(&tsdb),
            Op::Pause => tsdb.pause_compaction(),
            Op::Resume => tsdb.resume_compaction(),
            Op::TurnEncoding { tenant } => self.turn_encoding(&tsdb, tenant),
            Op::Query { seed } => return self.query(&tsdb, seed),
            Op::Labels { seed } => return self.query_labels(&tsdb, seed),
            Op::CheckAll => return self.check_all(),
            Op::Close => return self.close(tsdb),
            Op::End { ending, seed } => {
                drop(tsdb);
                return self.restart(ending, seed);
            }
            Op::Cut { after, ending, seed, again_after } if self.cut.is_none() => {
                self.cut = Some(Cut { at: self.disk.op_count() + after, ending, seed, again_after });
                self.arm();
            }
            Op::Fail { after, count } if self.cut.is_none() => self.disk.fail_some(after, count),
            Op::Full { slack_bytes } => {
                self.disk.set_capacity_bytes(self.disk.len_bytes() + slack_bytes);
                (self.is_full, self.was_full) = (true, true);
            }
            Op::Room => return self.make_room(&tsdb),
            Op::Cut { .. } | Op::Fail { .. } => {}
        }
        Ok(())
    }

    /// Notices what the operation has shown about the disk.
    fn after_step(&mut self) -> Result<(), String> {
        let now_ms = self.clock.now_ms();
        self.ledgers.iter_mut().for_each(|ledger| ledger.expire(now_ms));
        if let Some(cut) = self.cut.filter(|cut| self.disk.op_count() > cut.at) {
            self.cut = None;
            return self.restart_again(cut);
        }
        if let Some(ops) = &mut self.poisoned_ops {
            *ops += 1;
            if *ops > POISONED_OPS_MAX {
                let seed = self.tally.ops();
                let ending =
                    if self.setup.survives_power_cut() { Ending::PowerCutPartly } else { Ending::Kill };
                return self.restart(ending, seed);
            }
        }
        Ok(())
    }

    fn write(&mut self, tenant: usize, shape: Shape, seed: u64) -> Result<(), String> {
        let (tsdb, rng, now_ms) = (self.tsdb(), Rng::from_seed(seed), self.clock.now_ms());
        let ledger = &mut self.ledgers[tenant];
        let parts = Content { rng: &rng, setup: &self.setup, ledger, now_ms }.draw(shape);
        self.tally.add_parts(&parts);
        let was_poisoned = self.poisoned_ops.is_some();
        match write(&tsdb, ledger, &parts, now_ms, Knowledge::Whole)? {
            Ok(()) if was_poisoned => Err("a poisoned log has acknowledged a write".to_owned()),
            Ok(()) => Ok(()),
            Err(WriteError::Wal(WalError::Poisoned(_))) if self.may_fail() => {
                self.poisoned_ops.get_or_insert(0);
                Ok(())
            }
            Err(WriteError::Wal(WalError::DiskFull)) if self.is_full => Ok(()),
            Err(error) => Err(format!("a write failed on a disk that works: {error}")),
        }
    }

    fn pass(&self, tsdb: &Tsdb, ms: u64, rounds: u64) {
        for _ in 0..rounds {
            self.clock.advance(Duration::from_millis(ms / rounds));
            tsdb.run_maintenance();
            tsdb.roll_checkpoint();
            tsdb.prepare_log();
            tsdb.sync_log();
        }
    }

    fn delete(&mut self, tsdb: &Tsdb, tenant: usize, seed: u64) -> Result<(), String> {
        let (rng, now_ms) = (Rng::from_seed(seed), self.clock.now_ms());
        let ledger = &self.ledgers[tenant];
        let selectors: Vec<_> = (0..=rng.below(2)).map(|_| draw_matchers(&rng, ledger, None)).collect();
        let range = draw_range(&rng, now_ms);
        let deleted = tsdb.delete_series(&ledger.id, &selectors, range);
        let fate = match self.tolerate("deleting", deleted)? {
            Some(_) => Fate::Acked,
            None => Fate::InFlight,
        };
        self.ledgers[tenant].delete(&selectors, range, fate);
        Ok(())
    }

    fn snapshot(&mut self, tsdb: &Tsdb) -> Result<(), String> {
        let tenants: Vec<_> = self.ledgers.iter().map(|ledger| ledger.id.clone()).collect();
        let made = tsdb.snapshot(&tenants, SnapshotHead::Include);
        let Some(name) = self.tolerate("a snapshot", made)? else { return Ok(()) };
        let dir = self.options.data_dir.join("snapshots").join(name);
        // Looking at it takes disk operations, which are those of another machine.
        if self.cut.is_none() && !self.may_fail() {
            self.check_copy(&dir).map_err(|text| format!("snapshot: {text}"))?;
        }
        // What a failing disk keeps stays; nobody looks at it again.
        let _ = self.env.disk.remove_dir_all(&dir);
        Ok(())
    }

    fn check_copy(&mut self, dir: &Path) -> Result<(), String> {
        let options = TsdbOptions { data_dir: dir.to_owned(), ..self.options.clone() };
        let copy = Tsdb::open(self.env.clone(), options, Arc::new(ReplayProgress::default()));
        let copy = copy.map_err(|error| error.to_string())?;
        self.compare_all(&copy)
    }

    fn turn_encoding(&mut self, tsdb: &Tsdb, tenant: usize) {
        let limits: &mut LimitsTable = &mut self.options.limits;
        let own: &mut TenantLimits =
            limits.by_tenant.get_mut(&self.ledgers[tenant].id).expect("each tenant has its own");
        own.block_encoding = match own.block_encoding {
            BlockEncoding::Dense => BlockEncoding::Prometheus,
            BlockEncoding::Prometheus => BlockEncoding::Dense,
        };
        tsdb.set_limits(limits.clone());
    }

    fn query(&mut self, tsdb: &Tsdb, seed: u64) -> Result<(), String> {
        let rng = Rng::from_seed(seed);
        let ledger = &self.ledgers[rng.below(self.ledgers.len() as u64) as usize];
        let (matchers, range) = (draw_matchers(&rng, ledger, None), draw_range(&rng, self.clock.now_ms()));
        let reader = Reader { tsdb, clock: self.clock.clone() };
        self.tally.compared += reader.compare(ledger, &matchers, range)?;
        Ok(())
    }

    fn query_labels(&mut self, tsdb: &Tsdb, seed: u64) -> Result<(), String> {
        let rng = Rng::from_seed(seed);
        let ledger = &self.ledgers[rng.below(self.ledgers.len() as u64) as usize];
        let (matchers, range) = (draw_matchers(&rng, ledger, None), draw_range(&rng, self.clock.now_ms()));
        Reader { tsdb, clock: self.clock.clone() }.compare_labels(ledger, &matchers, range)
    }

    fn check_all(&mut self) -> Result<(), String> {
        let tsdb = self.tsdb();
        self.compare_all(&tsdb)?;
        let errors = tsdb.stats().maintenance.error_count;
        if errors > 0 && !self.may_fail() {
            return Err(format!("{errors} rounds of background work failed on a disk that works"));
        }
        Ok(())
    }

    fn compare_all(&mut self, tsdb: &Tsdb) -> Result<(), String> {
        let reader = Reader { tsdb, clock: self.clock.clone() };
        for ledger in &self.ledgers {
            self.tally.compared += reader.compare(ledger, &match_all(None), TimeRange::ALL)?;
        }
        Ok(())
    }

    fn close(&mut self, tsdb: Arc<Tsdb>) -> Result<(), String> {
        let closed = tsdb.close();
        let closed = self.tolerate("a clean stop", closed)?;
        drop(tsdb);
        // A clean stop makes everything durable, whatever the sync mode.
        let ending = if closed.is_some() && !self.may_fail() { Ending::PowerCut } else { Ending::Kill };
        self.restart(ending, 0)
    }

    fn make_room(&mut self, tsdb: &Tsdb) -> Result<(), String> {
        self.disk.set_capacity_bytes(u64::MAX);
        if !std::mem::replace(&mut self.is_full, false) {
            return Ok(());
        }
        for _ in 0..3 {
            self.clock.advance(Duration::from_secs(1));
            tsdb.sync_log();
        }
        let is_refused = self.disk.refused_count() > self.refused_before;
        if tsdb.stats().disk_full && !is_refused {
            return Err("there is room again, and writes are still refused".to_owned());
        }
        Ok(())
    }

    fn arm(&self) {
        if let Some(cut) = &self.cut {
            self.disk.fail_after(cut.at.saturating_sub(self.disk.op_count()));
        }
    }

    /// Ends the process or the machine, and starts again.
    fn restart(&mut self, ending: Ending, seed: u64) -> Result<(), String> {
        self.end(ending, seed);
        self.begin(ending)
    }

    /// Starts, again and again while the start is cut off, after an end of the given kind.
    fn begin(&mut self, ending: Ending) -> Result<(), String> {
        let mut is_settling = ending != Ending::Kill;
        while let Err(text) = self.start() {
            // The start was cut off as well, or could not do with what is left of the disk.
            match self.cut.take_if(|cut| self.disk.op_count() > cut.at) {
                Some(cut) => {
                    self.end(cut.ending, cut.seed ^ 1);
                    is_settling = cut.ending != Ending::Kill;
                }
                None if self.is_full => {
                    self.is_full = false;
                    self.disk.set_capacity_bytes(u64::MAX);
                }
                None => return Err(text),
            }
        }
        if is_settling {
            self.settle()?;
        }
        let tsdb = self.tsdb();
        self.compare_all(&tsdb).map_err(|text| format!("after a start: {text}"))
    }

    fn restart_again(&mut self, cut: Cut) -> Result<(), String> {
        let again = |after| Cut { at: self.disk.op_count() + after, again_after: None, ..cut };
        self.cut = cut.again_after.map(again);
        self.restart(cut.ending, cut.seed)
    }

    fn end(&mut self, ending: Ending, seed: u64) {
        if let Some(tsdb) = &self.tsdb {
            let stats = tsdb.stats();
            self.tally.flushes += stats.maintenance.flush_count;
            self.tally.slices += stats.checkpoint.slice_count;
            self.tally.merges += stats.metric("compaction_runs_total").unwrap_or(0.0) as u64;
        }
        match ending {
            Ending::Kill => self.disk.kill(),
            Ending::PowerCut => self.disk.crash(),
            Ending::PowerCutPartly => self.disk.crash_partly(&Rng::from_seed(seed)),
        }
        self.tsdb = None;
        match ending {
            Ending::Kill => self.tally.kills += 1,
            Ending::PowerCut | Ending::PowerCutPartly => self.tally.power_cuts += 1,
        }
        self.tally.starts += 1;
    }

    /// Opens the store; an error if that fails or the disk refused something meanwhile.
    fn start(&mut self) -> Result<(), String> {
        let refused = self.disk.refused_count();
        self.arm();
        let progress = Arc::new(ReplayProgress::default());
        let opened = Tsdb::open(self.env.clone(), self.options.clone(), progress);
        let opened = opened.map_err(|error| format!("the store does not start: {error}"))?;
        if self.disk.refused_count() > refused {
            return Err("the disk refused something during the start".to_owned());
        }
        self.tsdb = Some(opened);
        self.refused_before = refused;
        self.was_full = self.is_full;
        self.poisoned_ops = None;
        Ok(())
    }

    /// What is found after a power cut is durable: it stays so.
    fn settle(&mut self) -> Result<(), String> {
        let tsdb = self.tsdb();
        let reader = Reader { tsdb: &tsdb, clock: self.clock.clone() };
        for ledger in &mut self.ledgers {
            for number in ledger.unsettled() {
                let matchers = [chronolith_model::Matcher::equal("id", &number.to_string())];
                reader
                    .compare(ledger, &matchers, TimeRange::ALL)
                    .map_err(|e| format!("after a power cut: {e}"))?;
                let found = reader.read_series(ledger, number)?;
                ledger.settle(number, &found);
            }
        }
        Ok(())
    }

    /// Compares everything, stops, verifies every checksum, starts and compares again.
    fn finish(&mut self) -> Result<(), String> {
        let tsdb = self.tsdb();
        self.make_room(&tsdb)?;
        drop(tsdb);
        self.cut = None;
        self.disk.heal();
        if self.may_fail() {
            self.restart(Ending::Kill, 0)?;
        }
        self.check_all()?;
        let tsdb = self.tsdb();
        self.close(tsdb)?;
        let report = chronolith_tsdb::check::check_dir(&self.env, &self.options.data_dir);
        let report = report.map_err(|error| error.to_string())?;
        if !report.damages.is_empty() {
            return Err(format!("damage: {:?}", report.damages));
        }
        self.check_all()?;
        self.end(Ending::Kill, 0);
        self.tally.refused = self.disk.refused_count();
        Ok(())
    }
}
