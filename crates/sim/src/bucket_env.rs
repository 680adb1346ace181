//! Operations of the test environment on its bucket.
//!
//! Invariants: a query may fail only while requests to the bucket may, and succeeds once they do; an answer
//! from the bucket alone has no value that was never written, and has everything of earlier answers.
//! Not here: the bucket (`bucket`), its expected content (`bucket_ledger`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Env, MemDisk, Rng};
use chronolith_bucket::store::faults::Kill;
use chronolith_model::TimeRange;
use chronolith_tsdb::{ReplayProgress, Tsdb};

use crate::batch::{draw_matchers, draw_range, match_all};
use crate::bucket::{BucketWorld, RequestKill};
use crate::bucket_ledger::BucketState;
use crate::compare::{Reader, Source};
use crate::ledger::TenantLedger;
use crate::op::{CrashKind, Op};
use crate::setup::DAY_MS;
use crate::test_env::TestEnv;

/// Calls in a row: a compaction is followed by the next one.
const MAINTENANCE_STEPS: usize = 3;
/// Attempts until everything is uploaded.
const UPLOADS_MAX: usize = 4;
/// Longest pause after a failed upload.
const UPLOAD_PAUSE: Duration = Duration::from_secs(301);

/// Expectation of a reader of the bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expectation {
    /// Any state since the last one that was seen.
    SinceLastSeen,
    /// Everything that was acknowledged.
    Everything,
}

impl TestEnv {
    /// Makes the bucket of the setup.
    pub(crate) fn make_bucket(&mut self) -> Result<(), String> {
        let Some(setup) = self.setup.bucket else { return Ok(()) };
        let local_retention = Duration::from_millis(setup.local_retention_ms.unsigned_abs());
        self.bucket = Some(BucketWorld::new(self.setup.seed, local_retention, &self.env)?);
        self.ledgers.iter_mut().for_each(|ledger| ledger.bucket = Some(Default::default()));
        Ok(())
    }

    /// Asks the store; again without faults if it fails because requests do. 0 if its process has ended.
    pub(crate) fn ask(
        &self,
        tsdb: &Tsdb,
        question: impl Fn(&Reader<'_>) -> Result<u64, String>,
    ) -> Result<u64, String> {
        let reader = Reader::new(Source::Store(tsdb), self.clock.clone());
        let answer = question(&reader);
        let Some(bucket) = &self.bucket else { return answer };
        if answer.is_ok() || !reader.has_failed() || !bucket.may_fail() {
            return answer;
        }
        bucket.pause_faults();
        let again = question(&reader);
        bucket.apply_faults();
        if bucket.has_ended() { Ok(0) } else { again }
    }

    pub(crate) fn step_bucket(&mut self, op: &Op) -> Result<(), String> {
        let tsdb = self.tsdb();
        let Some(bucket) = &mut self.bucket else { return Ok(()) };
        match *op {
            Op::Upload => {
                tsdb.bucket_jobs().upload_blocks();
                Ok(())
            }
            Op::UploadEverything => self.upload_everything(&tsdb),
            Op::MaintainBucket => {
                for _ in 0..MAINTENANCE_STEPS {
                    tsdb.bucket_jobs().maintain();
                    self.clock.advance(Duration::from_secs(1));
                }
                Ok(())
            }
            Op::LoseDisk => {
                drop(tsdb);
                self.lose_disk()
            }
            Op::ReadBucket { seed } => self.read_bucket(seed),
            Op::BreakBucket => {
                bucket.set_faulty(true);
                Ok(())
            }
            Op::RepairBucket => {
                bucket.set_faulty(false);
                Ok(())
            }
            Op::CrashDuringRequest { after, is_carried_out, kind, seed } => {
                let at = bucket.request_count() + after;
                let end = if is_carried_out { Kill::EndsAfter } else { Kill::EndsBefore };
                bucket.set_kill(RequestKill { at, kill: end, crash: kind, seed });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Flushes all windows and uploads until nothing waits, then compares the bucket with the ledgers.
    fn upload_everything(&mut self, tsdb: &Tsdb) -> Result<(), String> {
        self.with_bucket(|bucket| bucket.pause_faults());
        let flushed = tsdb.maintenance().flush_closed(self.clock_now_ms() + DAY_MS);
        let flushed = self.allow_failure("flushing", flushed)?;
        let waiting =
            |tsdb: &Tsdb| tsdb.statistics().stats().metric("bucket_upload_waiting_blocks").unwrap_or(0.0);
        for _ in 0..UPLOADS_MAX {
            tsdb.bucket_jobs().upload_blocks();
            if waiting(tsdb) == 0.0 {
                break;
            }
            self.clock.advance(UPLOAD_PAUSE);
        }
        self.with_bucket(|bucket| bucket.apply_faults());
        if flushed.is_none() || self.may_disk_fail() || self.has_ended() {
            return Ok(());
        }
        let waiting = waiting(tsdb);
        if waiting > 0.0 {
            return Err(format!("{waiting} blocks are not uploaded, and no request failed"));
        }
        let now_ms = self.clock_now_ms();
        self.ledgers.iter_mut().for_each(|ledger| ledger.expire(now_ms));
        self.probe(Expectation::Everything)
    }

    fn with_bucket(&self, change: impl FnOnce(&BucketWorld)) {
        if let Some(bucket) = &self.bucket {
            change(bucket);
        }
    }

    fn has_ended(&self) -> bool {
        self.bucket.as_ref().is_some_and(BucketWorld::has_ended)
    }

    fn clock_now_ms(&self) -> i64 {
        self.env.clock.now_ms()
    }

    /// Opens a store with an empty directory over the bucket, compares it with the ledgers and records what
    /// the bucket has.
    fn probe(&mut self, expectation: Expectation) -> Result<(), String> {
        let env = Env { disk: Arc::new(MemDisk::new()), ..self.env.clone() };
        let Some(bucket) = &mut self.bucket else { return Ok(()) };
        let sources = bucket.connect_probe(&env);
        let progress = Arc::new(ReplayProgress::default());
        let tsdb =
            Tsdb::open_with_bucket(env, self.options.clone(), progress, Some(sources.bucket().clone()));
        let tsdb = tsdb.map_err(|error| format!("a store over the bucket does not start: {error}"))?;
        let reader = Reader::new(Source::Store(&tsdb), self.clock.clone());
        for ledger in &mut self.ledgers {
            let is_uploaded = ledger.id.is_default();
            let is_exact = expectation == Expectation::Everything && is_uploaded;
            let in_bucket = (!is_exact).then(|| ledger.in_bucket(BucketState::Present));
            let expected = in_bucket.as_ref().unwrap_or(&*ledger);
            let compared = reader.compare(expected, &match_all(None), TimeRange::ALL);
            self.tally.bucket.compared += compared.map_err(|text| format!("the bucket alone: {text}"))?;
            let found = reader.read_times(ledger)?;
            let Some(bucket) = &mut ledger.bucket else { continue };
            if is_exact {
                bucket.forget_earlier();
            }
            for (number, times) in found {
                times.into_iter().for_each(|time| bucket.confirm(number, time));
            }
        }
        Ok(())
    }

    /// Reads the bucket by a new process or by the process that runs all the time.
    fn read_bucket(&mut self, seed: u64) -> Result<(), String> {
        let rng = Rng::from_seed(seed);
        if rng.below(3) == 0 {
            return self.probe(Expectation::SinceLastSeen);
        }
        let now_ms = self.clock_now_ms();
        let ledger = &self.ledgers[rng.below(self.ledgers.len() as u64) as usize];
        if !ledger.id.is_default() {
            return Ok(());
        }
        let matchers = draw_matchers(&rng, ledger, None);
        let range = draw_range(&rng, ledger.unit(), now_ms);
        let Some(bucket) = &mut self.bucket else { return Ok(()) };
        let is_new = rng.below(2) == 0;
        let sources = if is_new { bucket.connect_probe(&self.env) } else { bucket.reader() };
        let expected = ledger.in_bucket(if is_new { BucketState::Present } else { BucketState::Any });
        let reader = Reader::new(Source::Bucket(&sources), self.clock.clone());
        let compared = reader.compare(&expected, &matchers, range);
        let which = if is_new { "a new read-only process" } else { "the read-only process" };
        self.tally.bucket.compared += compared.map_err(|text| format!("{which}: {text}"))?;
        Ok(())
    }

    /// Starts with an empty data directory. Samples that the bucket does not have are lost.
    fn lose_disk(&mut self) -> Result<(), String> {
        if self.crash_point.is_some() {
            return Ok(());
        }
        self.crash(CrashKind::Kill, 0);
        self.tally.bucket.lost_disks += 1;
        let dir = self.options.data_dir.clone();
        self.env.disk.remove_dir_all(&dir).map_err(|error| format!("removing {}: {error}", dir.display()))?;
        for ledger in &mut self.ledgers {
            *ledger = ledger.in_bucket(BucketState::Present);
        }
        // The start shows the remaining samples, as after a power cut.
        self.begin(CrashKind::PowerCut)?;
        self.ledgers.iter_mut().for_each(TenantLedger::confirm_all);
        Ok(())
    }

    /// Uploads everything, loses the disk, and finds everything in the bucket.
    pub(crate) fn finish_bucket(&mut self) -> Result<(), String> {
        if self.bucket.is_none() {
            return Ok(());
        }
        let tsdb = self.tsdb();
        tsdb.maintenance().resume_compaction();
        self.upload_everything(&tsdb)?;
        drop(tsdb);
        self.lose_disk().map_err(|text| format!("after the loss of the disk: {text}"))?;
        self.check_all()
    }
}
