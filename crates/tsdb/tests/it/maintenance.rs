//! Flushes and retention on a damaged, failing or interrupted disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::Disk;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange};
use chronolith_tsdb::Tsdb;
use parking_lot::Mutex;

use crate::fault_disk::{Fault, FaultDisk};
use crate::fixture::{HOUR_MS, Machine, START_MS, write};

fn tenant(name: &str) -> StoreId {
    StoreId::from(TenantId::new(name).expect("legal"))
}

/// `count` samples, one a second, from an hour before the start.
fn row(count: i32) -> Vec<(i64, f64)> {
    (0..count).map(|i| (START_MS - HOUR_MS + i64::from(i) * 1000, f64::from(i))).collect()
}

fn gauge(tsdb: &Tsdb, name: &str) -> f64 {
    tsdb.statistics().stats().metric(name).expect("a metric")
}

/// One flipped bit in a sealed chunk stopped all flushes and checkpoints of all tenants for good. The chunk
/// alone is left out of its block, and counted.
#[test]
fn a_damaged_chunk_costs_only_itself() {
    let machine = Machine::new(1);
    let (a, b) = (tenant("a"), tenant("b"));
    let tsdb = machine.open();
    write(&tsdb, &a, "m", &row(200)).expect("works");
    write(&tsdb, &b, "m", &row(200)).expect("works");
    tsdb.close().expect("closes");
    drop(tsdb);
    let file = machine.disk.open(Path::new("/data/chunks/00000001.sealed")).expect("a sealed file");
    let mut byte = [0];
    file.read_at(&mut byte, 100).expect("a byte of the first chunk, which is of tenant a");
    file.write_at(&[byte[0] ^ 1], 100).expect("damaged");
    let tsdb = machine.open();
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    tsdb.maintenance().run();
    let stats = tsdb.statistics().stats();
    assert_eq!((stats.blocks, stats.head.series, stats.maintenance.error_count), (2, 0, 0));
    assert_eq!(gauge(&tsdb, "flush_damaged_chunks_total").to_bits(), 1f64.to_bits());
    assert_eq!(machine.read(&tsdb, &a, "m").len(), 200 - 120);
    assert_eq!(machine.read(&tsdb, &b, "m").len(), 200);
}

/// Fails writes of blocks of tenant a while it is on, and counts them.
#[derive(Default)]
struct RefuseTenant {
    is_on: AtomicBool,
    refused_count: AtomicU64,
}

impl Fault for RefuseTenant {
    fn before_write(&self, path: &Path) -> io::Result<()> {
        if self.is_on.load(Ordering::SeqCst) && path.starts_with("/data/tenants/a") {
            self.refused_count.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::other("refused"));
        }
        Ok(())
    }
}

/// A window that could not be flushed was retried every ten seconds for ever, and none after it, of whatever
/// tenant, was. It waits twice as long each time, and the others go on.
#[test]
fn a_window_that_fails_backs_off_alone() {
    let mut machine = Machine::new(2);
    let fault = Arc::new(RefuseTenant::default());
    machine.env.disk = Arc::new(FaultDisk::new(machine.disk.clone(), fault.clone()));
    let (a, b) = (tenant("a"), tenant("b"));
    let tsdb = machine.open();
    write(&tsdb, &a, "m", &row(10)).expect("works");
    write(&tsdb, &b, "m", &row(10)).expect("works");
    fault.is_on.store(true, Ordering::SeqCst);
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    for _ in 0..360 {
        tsdb.maintenance().run();
        machine.clock.advance(std::time::Duration::from_secs(10));
    }
    assert_eq!(tsdb.statistics().stats().blocks, 1, "tenant b has its block");
    let refused_count = fault.refused_count.load(Ordering::SeqCst);
    assert!((8..=10).contains(&refused_count), "tried {refused_count} times in an hour");
    assert_eq!(machine.read(&tsdb, &a, "m").len(), 10);
    fault.is_on.store(false, Ordering::SeqCst);
    machine.clock.advance(std::time::Duration::from_secs(3600));
    tsdb.maintenance().run();
    assert_eq!((tsdb.statistics().stats().blocks, tsdb.statistics().stats().head.series), (2, 0));
    assert_eq!(machine.read(&tsdb, &a, "m").len(), 10);
}

/// A queryable that was made before its tenant had a block never saw one: the samples of a window vanished
/// from it with the flush. It reads the list of blocks when it selects.
#[test]
fn a_queryable_sees_the_first_block_of_its_tenant() {
    let machine = Machine::new(3);
    let tenant = tenant("t");
    let tsdb = machine.open();
    write(&tsdb, &tenant, "m", &[(START_MS - HOUR_MS, 1.0)]).expect("works");
    let queryable = tsdb.reader().queryable(tenant.tenant().expect("a default store"));
    let series_count = || {
        let context = ReadContext::unlimited(machine.env.clock.clone());
        let matchers = [Matcher::equal("__name__", "m")];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let mut batches = queryable.select(&selector, &context).expect("selects");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        series.len()
    };
    assert_eq!(series_count(), 1);
    tsdb.maintenance().flush_closed(START_MS).expect("flushes");
    assert_eq!(series_count(), 1);
}

/// Crash tests with a single cut miss what a start makes of the files between a kill and a power cut. A flush
/// that is cut off at any operation keeps everything through both, and shows it once.
#[test]
fn a_kill_during_a_flush_and_then_a_power_cut() {
    for op_count in 0..500 {
        let machine = Machine::new(9);
        let tenant = tenant("t");
        let tsdb = machine.open();
        write(&tsdb, &tenant, "m", &row(300)).expect("works");
        let want = machine.read(&tsdb, &tenant, "m");
        machine.disk.fail_after(op_count);
        let all_worked = tsdb.maintenance().flush_closed(START_MS).is_ok();
        machine.disk.heal();
        drop(tsdb);
        let tsdb = machine.open();
        assert_eq!(machine.read(&tsdb, &tenant, "m"), want, "killed at operation {op_count}");
        drop(tsdb);
        machine.disk.crash();
        let tsdb = machine.open();
        assert_eq!(machine.read(&tsdb, &tenant, "m"), want, "power cut after a kill at operation {op_count}");
        if all_worked {
            return;
        }
    }
    panic!("the flush never comes to its end");
}

/// Times at the ends of the accepted range could overflow on their way to a window, a block or a checkpoint.
/// They are flushed, kept and read like any other.
#[test]
fn extreme_times_are_flushed() {
    let mut machine = Machine::new(77);
    machine.options.limits.default.future_ms_max = 0;
    let tenant = tenant("t");
    let tsdb = machine.open();
    let times = [TIME_MIN_MS, TIME_MIN_MS + 1, 0, TIME_MAX_MS - 1, TIME_MAX_MS, 5];
    write(&tsdb, &tenant, "m", &times.map(|time| (time, 1.0))).expect("works");
    let want = machine.read(&tsdb, &tenant, "m");
    assert_eq!(want.len(), times.len());
    for now_ms in [START_MS, START_MS + 5 * HOUR_MS] {
        machine.clock.set_now_ms(now_ms);
        tsdb.maintenance().run();
        tsdb.maintenance().flush_closed(now_ms).expect("flushes");
        assert_eq!(machine.read(&tsdb, &tenant, "m"), want);
    }
    tsdb.maintenance().flush_closed(i64::MAX).expect("flushes what is far ahead");
    assert_eq!(machine.read(&tsdb, &tenant, "m"), want);
    assert_eq!(tsdb.statistics().stats().head.series, 0);
    tsdb.close().expect("closes");
    drop(tsdb);
    machine.disk.crash();
    assert_eq!(machine.read(&machine.open(), &tenant, "m"), want);
}

/// The directories that were synced.
#[derive(Default)]
struct SyncedDirs(Mutex<Vec<PathBuf>>);

impl Fault for SyncedDirs {
    fn before_sync_dir(&self, dir: &Path) {
        self.0.lock().push(dir.to_owned());
    }
}

/// A data directory that the first start made was not durable itself: a power cut could take it with all that
/// was acknowledged. Every directory that is made has its name synced in the one above.
#[test]
fn a_fresh_data_directory_is_durable() {
    let mut machine = Machine::new(5);
    let synced = Arc::new(SyncedDirs::default());
    machine.env.disk = Arc::new(FaultDisk::new(machine.disk.clone(), synced.clone()));
    machine.options.data_dir = PathBuf::from("/srv/metrics/chronolith");
    let tsdb = machine.open();
    for dir in ["/", "/srv", "/srv/metrics", "/srv/metrics/chronolith"] {
        assert!(synced.0.lock().iter().any(|found| found == Path::new(dir)), "{dir} is synced");
    }
    drop(tsdb);
}

/// The size that forces a checkpoint counted the checkpoint's own bytes, so a head whose state was larger
/// than the limit wrote it every ten seconds for ever. Only log that a checkpoint would free counts.
#[test]
fn a_checkpoint_larger_than_the_limit_is_written_once() {
    let mut machine = Machine::new(8);
    machine.options.wal.checkpoint_bytes = 1 << 10;
    let tsdb = machine.open();
    write(&tsdb, &tenant("a"), "m", &(0..100).map(|i| (START_MS + i, i as f64 * 0.1)).collect::<Vec<_>>())
        .expect("works");
    machine.clock.set_now_ms(START_MS + 1000);
    for _ in 0..6 {
        tsdb.maintenance().run();
        machine.clock.advance(std::time::Duration::from_secs(11));
    }
    let stats = tsdb.statistics().stats();
    let bytes = stats.head.checkpoint.bytes;
    assert!(bytes > 1 << 10, "the checkpoint alone is {bytes} bytes");
    assert_eq!(stats.head.checkpoint.count, 1);
}
