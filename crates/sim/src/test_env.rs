//! Test environment: executes operations on the store, crashes and restarts it, and compares it with the
//! ledger.
//!
//! Invariants: an error of the store is accepted only if the disk has failed since the last start or is full;
//! any other difference from the ledger ends the run.
//! Not here: drawing operations (`op`), the rules (`ledger`, `write`, `compare`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock, Env, ManualClock, MemDisk, Rng};
use chronolith_model::{BlockEncoding, TenantLimits, TimeRange};
use chronolith_tsdb::check::{Damage, check_dir};
use chronolith_tsdb::{LimitsTable, ReplayProgress, SnapshotHead, Tsdb, TsdbOptions, WalError, WriteError};

use crate::batch::{BatchGenerator, SeriesSamples, draw_matchers, draw_range, match_all};
use crate::bucket::BucketWorld;
use crate::compare::{Reader, Source};
use crate::graphite::{self, compare_windows, draw_points};
use crate::ledger::{AckState, TenantLedger};
use crate::op::{CrashKind, Op, Shape};
use crate::setup::{START_MS, Setup};
use crate::tally::Tally;
use crate::write::{LedgerScope, write};

/// Time that a start takes. Without it, blocks of one millisecond are in no order if none of them is local.
const RESTART: Duration = Duration::from_secs(10);
/// Operations with a poisoned WAL before the process is restarted.
const POISONED_OPS_MAX: u64 = 5;

/// A crash at a disk operation.
#[derive(Clone, Copy)]
pub(crate) struct CrashPoint {
    /// Number of the first disk operation that fails, counted from the start of the simulation.
    pub(crate) at: u64,
    pub(crate) kind: CrashKind,
    pub(crate) seed: u64,
    /// Disk operations of the next start before a second crash.
    pub(crate) second_after: Option<u64>,
}

/// The store with its disk, clock and ledgers.
pub struct TestEnv {
    pub(crate) setup: Setup,
    pub(crate) env: Env,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) disk: Arc<MemDisk>,
    pub(crate) options: TsdbOptions,
    tsdb: Option<Arc<Tsdb>>,
    pub(crate) ledgers: Vec<TenantLedger>,
    pub(crate) crash_point: Option<CrashPoint>,
    /// Failed disk operations before the last start.
    refused_before: u64,
    is_full: bool,
    was_full: bool,
    poisoned_ops: Option<u64>,
    pub(crate) bucket: Option<BucketWorld>,
    pub(crate) tally: Tally,
}

/// Executes `ops`, at most `ops_max` in the count of [`Tally::ops`].
///
/// # Errors
/// Index of the operation that failed, and a message.
pub fn run_ops(setup: &Setup, ops: &[Op], ops_max: u64) -> Result<Tally, (usize, String)> {
    let mut env = TestEnv::new(setup.clone(), None).map_err(|text| (0, text))?;
    env.run(ops, ops_max)?;
    Ok(env.tally)
}

impl TestEnv {
    pub(crate) fn new(setup: Setup, crash_point: Option<CrashPoint>) -> Result<TestEnv, String> {
        let (env, clock, disk) = Env::fake(START_MS, setup.seed);
        let ledger = |t: &crate::setup::TenantSetup| TenantLedger::new(t.id.clone(), t.limits.clone(), None);
        let mut env = TestEnv {
            ledgers: setup.tenants.iter().map(ledger).collect(),
            options: setup.options.clone(),
            setup,
            env,
            clock,
            disk,
            tsdb: None,
            crash_point,
            refused_before: 0,
            is_full: false,
            was_full: false,
            poisoned_ops: None,
            bucket: None,
            tally: Tally::default(),
        };
        env.make_bucket()?;
        env.begin(CrashKind::Kill)?;
        Ok(env)
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

    pub(crate) fn tsdb(&self) -> Arc<Tsdb> {
        self.tsdb.clone().expect("the store runs between two operations")
    }

    /// Returns true if the store may return errors.
    pub(crate) fn may_fail(&self) -> bool {
        self.may_disk_fail() || self.bucket.as_ref().is_some_and(BucketWorld::may_fail)
    }

    /// Returns true if the disk may return errors.
    pub(crate) fn may_disk_fail(&self) -> bool {
        self.disk.refused_count() > self.refused_before || self.was_full || self.poisoned_ops.is_some()
    }

    pub(crate) fn allow_failure<T>(
        &self,
        what: &str,
        result: Result<T, impl std::fmt::Display>,
    ) -> Result<Option<T>, String> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(_) if self.may_fail() => Ok(None),
            Err(error) => Err(format!("{what} failed, and the disk did not: {error}")),
        }
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        self.tally.controls += u64::from(!matches!(op, Op::Write { .. } | Op::WriteCarbon { .. }));
        let tsdb = self.tsdb();
        match *op {
            Op::Write { tenant, shape, seed } => return self.write(tenant, shape, seed),
            Op::WriteCarbon { seed } => return self.write_carbon(seed),
            Op::AdvanceClock { ms, rounds } => self.advance_clock(&tsdb, ms, rounds),
            Op::SetClockBack { ms } => {
                let now_ms = self.clock.now_ms();
                self.clock.set_now_ms(now_ms - ms.cast_signed());
            }
            Op::Checkpoint => tsdb.wal_jobs().roll_checkpoint(),
            Op::Flush => {
                let flushed = tsdb.maintenance().flush_closed(self.clock.now_ms());
                self.allow_failure("flushing", flushed)?;
            }
            Op::Delete { tenant, seed } => return self.delete(&tsdb, tenant, seed),
            Op::CleanTombstones { tenant } => {
                let cleaned = tsdb.admin().clean_tombstones(&self.ledgers[tenant].id);
                self.allow_failure("cleaning tombstones", cleaned)?;
            }
            Op::Snapshot => return self.snapshot(&tsdb),
            Op::PauseCompaction => tsdb.maintenance().pause_compaction(),
            Op::ResumeCompaction => tsdb.maintenance().resume_compaction(),
            Op::SwitchEncoding { tenant } => self.switch_encoding(&tsdb, tenant),
            Op::Query { seed } => return self.query(&tsdb, seed),
            Op::Labels { seed } => return self.query_labels(&tsdb, seed),
            Op::CompareAll => return self.check_all(),
            Op::Close => return self.close(tsdb),
            Op::Crash { kind, seed } => {
                drop(tsdb);
                return self.restart(kind, seed);
            }
            Op::CrashDuring { after, kind, seed, second_after } if self.crash_point.is_none() => {
                self.crash_point =
                    Some(CrashPoint { at: self.disk.op_count() + after, kind, seed, second_after });
                self.arm_crash_point();
            }
            Op::FailDisk { after, count } if self.crash_point.is_none() => self.disk.fail_some(after, count),
            Op::FillDisk { slack_bytes } => {
                self.disk.set_capacity_bytes(self.disk.len_bytes() + slack_bytes);
                (self.is_full, self.was_full) = (true, true);
            }
            Op::FreeDisk => return self.free_disk(&tsdb),
            Op::CrashDuring { .. } | Op::FailDisk { .. } => {}
            _ => {
                drop(tsdb);
                return self.step_bucket(op);
            }
        }
        Ok(())
    }

    /// Crashes if the operation reached the crash point; restarts a store whose WAL is poisoned.
    fn after_step(&mut self) -> Result<(), String> {
        let now_ms = self.clock.now_ms();
        self.ledgers.iter_mut().for_each(|ledger| ledger.expire(now_ms));
        if let Some(kill) = self.bucket.as_mut().and_then(BucketWorld::take_ended) {
            self.tally.bucket.kills += 1;
            return self.restart(kill.crash, kill.seed);
        }
        if let Some(point) = self.crash_point.filter(|point| self.disk.op_count() > point.at) {
            self.crash_point = None;
            return self.restart_at_crash_point(point);
        }
        if let Some(ops) = &mut self.poisoned_ops {
            *ops += 1;
            if *ops > POISONED_OPS_MAX {
                let seed = self.tally.ops();
                let kind =
                    if self.setup.survives_power_cut() { CrashKind::PowerCutPartly } else { CrashKind::Kill };
                return self.restart(kind, seed);
            }
        }
        Ok(())
    }

    fn write(&mut self, tenant: usize, shape: Shape, seed: u64) -> Result<(), String> {
        let (tsdb, rng, now_ms) = (self.tsdb(), Rng::from_seed(seed), self.clock.now_ms());
        let ledger = &self.ledgers[tenant];
        let parts = BatchGenerator { rng: &rng, setup: &self.setup, ledger, now_ms }.draw(shape);
        self.write_parts(&tsdb, tenant, &parts)
    }

    fn write_carbon(&mut self, seed: u64) -> Result<(), String> {
        let Some(tenant) = self.setup.graphite else { return Ok(()) };
        let parts = draw_points(&Rng::from_seed(seed), &self.ledgers[tenant], self.clock.now_ms());
        self.write_parts(&self.tsdb(), tenant, &parts)
    }

    fn write_parts(&mut self, tsdb: &Tsdb, tenant: usize, parts: &[SeriesSamples]) -> Result<(), String> {
        self.tally.add_batch(parts);
        let was_poisoned = self.poisoned_ops.is_some();
        let now_ms = self.clock.now_ms();
        match write(tsdb, &mut self.ledgers[tenant], parts, now_ms, LedgerScope::AllSeries)? {
            Ok(()) if was_poisoned => Err("a poisoned WAL acknowledged a write".to_owned()),
            Ok(()) => Ok(()),
            Err(WriteError::Wal(WalError::Poisoned(_))) if self.may_fail() => {
                self.poisoned_ops.get_or_insert(0);
                Ok(())
            }
            Err(WriteError::Wal(WalError::DiskFull)) if self.is_full => Ok(()),
            Err(WriteError::Marker(_)) if self.may_fail() => Ok(()),
            Err(error) => Err(format!("a write failed, and the disk did not: {error}")),
        }
    }

    fn advance_clock(&self, tsdb: &Tsdb, ms: u64, rounds: u64) {
        for _ in 0..rounds {
            self.clock.advance(Duration::from_millis(ms / rounds));
            tsdb.maintenance().run();
            tsdb.wal_jobs().roll_checkpoint();
            tsdb.wal_jobs().prepare_segment();
            tsdb.wal_jobs().sync();
        }
    }

    fn delete(&mut self, tsdb: &Tsdb, tenant: usize, seed: u64) -> Result<(), String> {
        let (rng, now_ms) = (Rng::from_seed(seed), self.clock.now_ms());
        let ledger = &self.ledgers[tenant];
        let selectors: Vec<_> = (0..=rng.below(2)).map(|_| draw_matchers(&rng, ledger, None)).collect();
        let range = draw_range(&rng, ledger.unit(), now_ms);
        let deleted = tsdb.admin().delete_series(&ledger.id, &selectors, range);
        let ack = match self.allow_failure("deleting", deleted)? {
            Some(_) => AckState::Acked,
            None => AckState::InFlight,
        };
        self.ledgers[tenant].delete(&selectors, range, ack);
        // Compactions soon remove the samples from the blocks, and their roll-ups.
        if self.setup.graphite == Some(tenant) { self.compare_windows(tsdb) } else { Ok(()) }
    }

    /// Compares the windows of the Graphite store, if there is one.
    fn compare_windows(&mut self, tsdb: &Tsdb) -> Result<(), String> {
        if let Some(tenant) = self.setup.graphite {
            self.tally.rolled_up_windows += compare_windows(tsdb, &self.ledgers[tenant], &self.env.clock)?;
        }
        Ok(())
    }

    fn snapshot(&mut self, tsdb: &Tsdb) -> Result<(), String> {
        let mut tenants: Vec<_> = self.ledgers.iter().map(|ledger| ledger.id.clone()).collect();
        tenants.extend(self.setup.graphite.map(|_| graphite::owner().into()));
        let made = tsdb.admin().snapshot(&tenants, SnapshotHead::Include);
        let Some(name) = self.allow_failure("a snapshot", made)? else { return Ok(()) };
        let dir = self.options.data_dir.join("snapshots").join(name);
        // Opening the snapshot takes disk operations, which must not count or fail.
        // It has no blocks that only the bucket has.
        if self.crash_point.is_none() && !self.may_fail() && self.bucket.is_none() {
            self.compare_snapshot(&dir).map_err(|text| format!("snapshot: {text}"))?;
        }
        // On a failing disk it may remain; it is not read again.
        let _ = self.env.disk.remove_dir_all(&dir);
        Ok(())
    }

    fn compare_snapshot(&mut self, dir: &Path) -> Result<(), String> {
        let options = TsdbOptions { data_dir: dir.to_owned(), ..self.options.clone() };
        let copy = Tsdb::open(self.env.clone(), options, Arc::new(ReplayProgress::default()));
        let copy = copy.map_err(|error| error.to_string())?;
        self.compare_all(&copy)
    }

    fn switch_encoding(&mut self, tsdb: &Tsdb, tenant: usize) {
        let limits: &mut LimitsTable = &mut self.options.limits;
        let of_tenant = self.ledgers[tenant].id.tenant().and_then(|id| limits.by_tenant.get_mut(id));
        let own: &mut TenantLimits = of_tenant.unwrap_or(&mut limits.default);
        own.block_encoding = match own.block_encoding {
            BlockEncoding::Dense => BlockEncoding::Prometheus,
            BlockEncoding::Prometheus => BlockEncoding::Dense,
        };
        tsdb.settings().set_limits(limits.clone());
    }

    fn query(&mut self, tsdb: &Tsdb, seed: u64) -> Result<(), String> {
        let rng = Rng::from_seed(seed);
        let ledger = &self.ledgers[rng.below(self.ledgers.len() as u64) as usize];
        let matchers = draw_matchers(&rng, ledger, None);
        let range = draw_range(&rng, ledger.unit(), self.clock.now_ms());
        self.tally.compared += self.ask(tsdb, |reader| reader.compare(ledger, &matchers, range))?;
        Ok(())
    }

    fn query_labels(&mut self, tsdb: &Tsdb, seed: u64) -> Result<(), String> {
        let rng = Rng::from_seed(seed);
        let ledger = &self.ledgers[rng.below(self.ledgers.len() as u64) as usize];
        let matchers = draw_matchers(&rng, ledger, None);
        let range = draw_range(&rng, ledger.unit(), self.clock.now_ms());
        self.ask(tsdb, |reader| reader.compare_labels(ledger, &matchers, range).map(|()| 0)).map(drop)
    }

    pub(crate) fn check_all(&mut self) -> Result<(), String> {
        let tsdb = self.tsdb();
        self.compare_all(&tsdb)?;
        let errors = tsdb.statistics().stats().maintenance.error_count;
        if errors > 0 && !self.may_fail() {
            return Err(format!("{errors} maintenance runs failed, and the disk did not"));
        }
        Ok(())
    }

    fn compare_all(&mut self, tsdb: &Tsdb) -> Result<(), String> {
        for ledger in &self.ledgers {
            self.tally.compared +=
                self.ask(tsdb, |reader| reader.compare(ledger, &match_all(None), TimeRange::ALL))?;
        }
        self.compare_windows(tsdb)
    }

    fn close(&mut self, tsdb: Arc<Tsdb>) -> Result<(), String> {
        let closed = tsdb.close();
        let closed = self.allow_failure("a clean stop", closed)?;
        drop(tsdb);
        // A clean stop makes everything durable in any sync mode.
        let kind = if closed.is_some() && !self.may_fail() { CrashKind::PowerCut } else { CrashKind::Kill };
        self.restart(kind, 0)
    }

    fn free_disk(&mut self, tsdb: &Tsdb) -> Result<(), String> {
        self.disk.set_capacity_bytes(u64::MAX);
        if !std::mem::replace(&mut self.is_full, false) {
            return Ok(());
        }
        for _ in 0..3 {
            self.clock.advance(Duration::from_secs(1));
            tsdb.wal_jobs().sync();
        }
        let is_refused = self.disk.refused_count() > self.refused_before;
        if tsdb.statistics().stats().head.wal.is_disk_full && !is_refused {
            return Err("the disk was freed, and writes are still refused".to_owned());
        }
        Ok(())
    }

    fn arm_crash_point(&self) {
        if let Some(point) = &self.crash_point {
            self.disk.fail_after(point.at.saturating_sub(self.disk.op_count()));
        }
    }

    /// Crashes and starts again.
    pub(crate) fn restart(&mut self, kind: CrashKind, seed: u64) -> Result<(), String> {
        self.crash(kind, seed);
        self.begin(kind)
    }

    /// Starts after a crash of the given kind, repeatedly if the start crashes as well or the process ends at
    /// one of its first requests to the bucket.
    pub(crate) fn begin(&mut self, kind: CrashKind) -> Result<(), String> {
        let mut kind = kind;
        loop {
            let begun = self.begin_once(kind);
            let Some(kill) = self.bucket.as_mut().and_then(BucketWorld::take_ended) else { return begun };
            self.tally.bucket.kills += 1;
            self.crash(kill.crash, kill.seed);
            // Samples that may be lost are still to be resolved.
            if kind == CrashKind::Kill {
                kind = kill.crash;
            }
        }
    }

    fn begin_once(&mut self, kind: CrashKind) -> Result<(), String> {
        let mut is_resolving = kind != CrashKind::Kill;
        while let Err(text) = self.start() {
            // The start reached the crash point, or the disk is full.
            match self.crash_point.take_if(|point| self.disk.op_count() > point.at) {
                Some(point) => {
                    self.crash(point.kind, point.seed ^ 1);
                    is_resolving = point.kind != CrashKind::Kill;
                }
                None if self.is_full => {
                    self.is_full = false;
                    self.disk.set_capacity_bytes(u64::MAX);
                }
                None => return Err(text),
            }
        }
        if is_resolving {
            self.resolve()?;
        }
        let tsdb = self.tsdb();
        self.compare_all(&tsdb).map_err(|text| format!("after a start: {text}"))
    }

    fn restart_at_crash_point(&mut self, point: CrashPoint) -> Result<(), String> {
        let second = |after| CrashPoint { at: self.disk.op_count() + after, second_after: None, ..point };
        self.crash_point = point.second_after.map(second);
        self.restart(point.kind, point.seed)
    }

    pub(crate) fn crash(&mut self, kind: CrashKind, seed: u64) {
        if let Some(tsdb) = &self.tsdb {
            let stats = tsdb.statistics().stats();
            let count = |name: &str| stats.metric(name).unwrap_or(0.0) as u64;
            self.tally.bucket.uploads += count("bucket_uploaded_blocks_total");
            self.tally.bucket.removed_copies += count("bucket_removed_local_copies_total");
            self.tally.bucket.compactions += count("bucket_compactions_total");
            self.tally.bucket.expired += count("bucket_expired_blocks_total");
            self.tally.bucket.removed += count("bucket_removed_blocks_total");
            self.tally.rolled_up_blocks += count("rollup_blocks_total");
            self.tally.flushes += stats.maintenance.flush_count;
            self.tally.slices += stats.head.checkpoint.slice_count;
            self.tally.merges += stats.metric("compaction_runs_total").unwrap_or(0.0) as u64;
        }
        match kind {
            CrashKind::Kill => self.disk.kill(),
            CrashKind::PowerCut => self.disk.crash(),
            CrashKind::PowerCutPartly => self.disk.crash_partly(&Rng::from_seed(seed)),
        }
        self.tsdb = None;
        match kind {
            CrashKind::Kill => self.tally.kills += 1,
            CrashKind::PowerCut | CrashKind::PowerCutPartly => self.tally.power_cuts += 1,
        }
        self.tally.starts += 1;
    }

    /// Opens the store; an error if that fails or the disk fails meanwhile.
    fn start(&mut self) -> Result<(), String> {
        let refused = self.disk.refused_count();
        self.arm_crash_point();
        let progress = Arc::new(ReplayProgress::default());
        let bucket = self.bucket.as_mut().map(|bucket| {
            self.clock.advance(RESTART);
            bucket.connect(&self.env, &self.disk)
        });
        let opened = Tsdb::open_with_bucket(self.env.clone(), self.options.clone(), progress, bucket);
        let opened = opened.map_err(|error| format!("the store does not start: {error}"))?;
        if self.setup.graphite.is_some() {
            graphite::open(&opened)?;
        }
        if self.disk.refused_count() > refused {
            return Err("the disk failed during the start".to_owned());
        }
        self.tsdb = Some(opened);
        self.refused_before = refused;
        self.was_full = self.is_full;
        self.poisoned_ops = None;
        Ok(())
    }

    /// Resolves uncertain writes: samples that are found after a power cut are durable.
    fn resolve(&mut self) -> Result<(), String> {
        let tsdb = self.tsdb();
        if let Some(bucket) = &self.bucket {
            bucket.pause_faults();
        }
        let reader = Reader::new(Source::Store(&tsdb), self.clock.clone());
        for ledger in &mut self.ledgers {
            for number in ledger.uncertain() {
                let matchers = [chronolith_model::Matcher::equal("id", &number.to_string())];
                reader
                    .compare(ledger, &matchers, TimeRange::ALL)
                    .map_err(|e| format!("after a power cut: {e}"))?;
                let found = reader.read_series(ledger, number)?;
                ledger.resolve(number, &found);
            }
        }
        if let Some(bucket) = &self.bucket {
            bucket.apply_faults();
        }
        Ok(())
    }

    /// Verifies all checksums of the data directory.
    fn check_files(&self) -> Result<Vec<Damage>, String> {
        let report = check_dir(&self.env, &self.options.data_dir).map_err(|error| error.to_string())?;
        Ok(report.damages)
    }

    /// Compares all samples, stops, verifies all checksums, starts and compares again.
    fn finish(&mut self) -> Result<(), String> {
        let tsdb = self.tsdb();
        self.free_disk(&tsdb)?;
        drop(tsdb);
        self.crash_point = None;
        self.disk.heal();
        if let Some(bucket) = &mut self.bucket {
            bucket.set_faulty(false);
        }
        if self.may_fail() {
            self.restart(CrashKind::Kill, 0)?;
        }
        self.check_all()?;
        self.finish_bucket()?;
        let tsdb = self.tsdb();
        self.close(tsdb)?;
        let mut damages = self.check_files()?;
        if self.tally.power_cuts > 0 && damages.iter().all(|damage| is_segment(&damage.path)) {
            // A power cut leaves holes of frames that were never acknowledged. They are removed with their
            // segment, once both copies of the checkpoint cover it.
            let tsdb = self.tsdb();
            (0..2).for_each(|_| tsdb.wal_jobs().roll_checkpoint());
            self.close(tsdb)?;
            damages = self.check_files()?;
        }
        if !damages.is_empty() {
            return Err(format!("damage: {damages:?}"));
        }
        self.check_all()?;
        self.crash(CrashKind::Kill, 0);
        self.tally.refused = self.disk.refused_count();
        if let Some(bucket) = &self.bucket {
            self.tally.bucket.requests = bucket.request_count();
            self.tally.bucket.faults = bucket.fault_count();
        }
        Ok(())
    }
}

/// Returns true if the path names a WAL segment.
fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "seg")
}
