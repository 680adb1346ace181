//! Maintenance of a storage on a fake disk and clock: cancellation, pauses, statistics.

use std::path::PathBuf;

use chronolith_base::{Env, ManualClock, MemDisk};
use chronolith_head::{Head, HeadOptions, ReplayProgress, SyncMode};
use chronolith_model::{Labels, StoreId, TenantId, TenantLimits, WriteBatch};

use super::*;
use crate::blocks::BlockStore;
use crate::blocks::load::load_blocks;
use crate::blocks::tenant::TENANTS_DIR;
use crate::databases::DatabaseStore;
use crate::frame_log::copies::Findings;
use crate::graphite::GraphiteLog;
use crate::metadata::MetadataStore;
use crate::options::TsdbOptions;
use crate::storage::SideStores;
use crate::tenant_deletions::TenantDeletions;
use crate::window::WINDOW_MS;

/// 2026-11-20 00:00 UTC.
const START_MS: i64 = 1_795_132_800_000;

struct Fixture {
    maintenance: Maintenance,
    clock: Arc<ManualClock>,
    disk: Arc<MemDisk>,
}

impl Fixture {
    /// Tenants with one closed window each, which is due at once.
    fn with_due_windows(tenant_count: usize) -> Fixture {
        let (env, clock, disk) = Env::fake(START_MS, 1);
        let data_dir = PathBuf::from("/data");
        env.disk.create_dir_all(&data_dir.join(TENANTS_DIR)).expect("a directory");
        let mut options = TsdbOptions::new(data_dir.clone());
        options.flush.delay_ms = 0;
        options.flush.small_window_bytes = 0;
        options.compaction.block_bytes_max = 0;
        let (mut notes, mut repaired) = (Vec::new(), Vec::new());
        let loaded = load_blocks(&env, &options, &mut notes).expect("loads");
        let blocks = BlockStore::new(&env, &data_dir, options.open_blocks, loaded);
        let mut findings = Findings { notes: &mut notes, repaired: &mut repaired };
        let metadata = MetadataStore::open(&env, &data_dir, SyncMode::Os, &mut findings).expect("opens");
        let unsynced = TsdbOptions { sync: SyncMode::Os, ..options.clone() };
        let graphite = GraphiteLog::open(&env, &unsynced, &mut findings).expect("opens");
        let head_options = HeadOptions {
            window_ms: WINDOW_MS,
            wal_segment_bytes: 1 << 20,
            ..HeadOptions::new(data_dir.clone())
        };
        let (head, _) = Head::open(&env, head_options, &ReplayProgress::default()).expect("opens");
        for idx in 0..tenant_count {
            let mut batch = WriteBatch::from_labels();
            batch.push_labels(&Labels::from_pairs([("__name__", "m")]), &[(START_MS, 1.0)]);
            let tenant = StoreId::from(TenantId::new(&format!("t{idx:03}")).expect("legal"));
            let appended = head.append(&tenant, &TenantLimits::default(), START_MS, &batch);
            head.wait(appended.expect("stored").1).expect("durable");
        }
        clock.set_now_ms(START_MS + WINDOW_MS);
        let guarded = GuardedClock::open(&env, &data_dir, 0, None, &mut notes);
        let databases = Arc::new(DatabaseStore::open(&env, &data_dir, &mut repaired).expect("opens"));
        let deletions = Arc::new(TenantDeletions::open(&env, &data_dir).expect("opens"));
        let side = SideStores::new(metadata, databases, graphite, deletions);
        let storage = Storage::new(env, options, head, Arc::new(blocks), side, None);
        Fixture { maintenance: Maintenance::new(Arc::new(storage), guarded), clock, disk }
    }

    fn flushed_count(&self) -> u64 {
        self.maintenance.counters().flush.windows.get()
    }

    fn stats(&self, kind: JobKind) -> JobStats {
        self.maintenance.job_stats().into_iter().find(|stats| stats.kind == kind).expect("all kinds")
    }
}

#[test]
fn a_run_yields_to_an_operator_after_one_window_and_goes_on_later() {
    let fixture = Fixture::with_due_windows(100);
    let waiting = fixture.maintenance.control.announce_operator();
    fixture.maintenance.run();
    assert_eq!((fixture.flushed_count(), fixture.stats(JobKind::Flush).queued_count), (1, 99));
    assert_eq!(fixture.stats(JobKind::Checkpoint).queued_count, 1, "it follows the flush in a later run");
    drop(waiting);
    fixture.maintenance.run();
    assert_eq!((fixture.flushed_count(), fixture.stats(JobKind::Flush).queued_count), (100, 0));
    assert_eq!(fixture.stats(JobKind::Checkpoint).run_count, 1);
}

#[test]
fn a_shutdown_ends_a_batch_between_two_windows_and_starts_no_other() {
    let fixture = Fixture::with_due_windows(100);
    let Maintenance { storage, control, counters, .. } = &fixture.maintenance;
    let batch = FlushJobs::closed_windows(storage, START_MS + WINDOW_MS);
    assert_eq!(batch.len(), 100);
    control.stop();
    let cx = JobContext::new(storage, control, counters, START_MS + WINDOW_MS);
    let finished = FlushJobs::default().run(&cx, batch);
    let count = |wanted: &Outcome| finished.iter().filter(|(_, outcome)| outcome == wanted).count();
    assert_eq!((count(&Outcome::Done), count(&Outcome::Interrupted)), (1, 99));
    fixture.maintenance.run();
    assert_eq!(fixture.flushed_count(), 1);
    assert!(fixture.maintenance.lock().is_none(), "no request runs after the shutdown");
}

#[test]
fn a_paused_kind_waits_and_others_run() {
    let fixture = Fixture::with_due_windows(3);
    fixture.maintenance.pause(&[JobKind::Flush]);
    fixture.maintenance.run();
    assert!(fixture.stats(JobKind::Flush).is_paused && !fixture.stats(JobKind::Scrub).is_paused);
    assert_eq!((fixture.flushed_count(), fixture.stats(JobKind::TenantCleanup).run_count), (0, 1));
    fixture.maintenance.resume(&[JobKind::Flush]);
    fixture.maintenance.pause(&JobKind::ALL);
    fixture.clock.advance(std::time::Duration::from_secs(3600));
    let runs = || fixture.maintenance.job_stats().iter().map(|stats| stats.run_count).sum::<u64>();
    let before = runs();
    fixture.maintenance.run();
    assert_eq!((fixture.flushed_count(), runs()), (0, before), "all kinds are paused");
    fixture.maintenance.resume(&[JobKind::Flush]);
    fixture.maintenance.run();
    assert_eq!(fixture.flushed_count(), 3);
}

#[test]
fn a_failed_flush_counts_per_kind_and_is_overdue_until_it_succeeds() {
    let fixture = Fixture::with_due_windows(2);
    fixture.disk.fail_after(0);
    fixture.maintenance.run();
    fixture.disk.heal();
    let stats = fixture.stats(JobKind::Flush);
    assert_eq!((stats.run_count, stats.failure_count, stats.queued_count), (2, 2, 2));
    assert!(stats.queued_bytes > 0);
    assert!(fixture.maintenance.counters().errors.get() >= 2);
    fixture.clock.set_now_ms(START_MS + WINDOW_MS + 15_000);
    assert_eq!(fixture.stats(JobKind::Flush).overdue_ms, 5_000, "the retry was due after 10 s");
    fixture.maintenance.run();
    let stats = fixture.stats(JobKind::Flush);
    assert_eq!((stats.run_count, stats.failure_count, stats.queued_count), (4, 2, 0));
    assert_eq!((fixture.flushed_count(), stats.overdue_ms, stats.queued_bytes), (2, 0, 0));
}

/// At the end of time a retry is due as soon as it has failed: the request would never return.
#[test]
fn a_request_to_flush_that_fails_returns_whatever_the_time() {
    let fixture = Fixture::with_due_windows(3);
    fixture.disk.fail_after(0);
    assert!(fixture.maintenance.flush_closed(i64::MAX).is_err());
    fixture.disk.heal();
    fixture.maintenance.run();
    assert_eq!(fixture.flushed_count(), 3);
}
