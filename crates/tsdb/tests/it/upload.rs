//! Blocks move to a bucket and stay readable: while local copies go, after deletions, after a crash and
//! without the data directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_bucket::store::faults::{FaultStore, MemoryBucket};
use chronolith_bucket::{BucketLayout, Purpose, RequestContext, Store};
use chronolith_model::{Matcher, StoreId, TenantId, TimeRange};
use chronolith_tsdb::{Bucket, BucketOptions, BucketSources, ReplayProgress, Tsdb};
use tokio::runtime::Runtime;

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

const NAMES: [&str; 3] = ["a", "b", "c"];
const HOURS: [i64; 4] = [-10, -8, -6, -4];

/// A machine whose disk has the bucket as well.
pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(crate) runtime: Runtime,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let machine = Machine::new(seed);
        machine.env.disk.create_dir_all(Path::new("/bucket")).expect("a directory");
        World { machine, runtime: Runtime::new().expect("threads") }
    }

    pub(crate) fn open(&self, data_dir: &str) -> Arc<Tsdb> {
        self.open_in(data_dir, BucketLayout::Mimir)
    }

    pub(crate) fn open_in(&self, data_dir: &str, layout: BucketLayout) -> Arc<Tsdb> {
        let local_retention = Duration::from_secs(1);
        let mut options = BucketOptions { local_retention, ..BucketOptions::new("file:///bucket") };
        options.store.layout = layout;
        let bucket = Bucket::open(&options, &self.machine.env, self.runtime.handle()).expect("opens");
        let mut options = self.machine.options.clone();
        options.data_dir = PathBuf::from(data_dir);
        let (env, progress) = (self.machine.env.clone(), Arc::new(ReplayProgress::default()));
        Tsdb::open_with_bucket(env, options, progress, Some(Arc::new(bucket))).expect("opens")
    }

    /// The bucket of a process without a data directory.
    pub(crate) fn open_read_only(&self) -> BucketSources {
        self.open_read_only_in(BucketLayout::Mimir)
    }

    pub(crate) fn open_read_only_in(&self, layout: BucketLayout) -> BucketSources {
        let mut options = BucketOptions { is_read_only: true, ..BucketOptions::new("file:///bucket") };
        options.store.layout = layout;
        BucketSources::open(&options, &self.machine.env, self.runtime.handle()).expect("opens")
    }

    /// A read-only process whose requests go to `client`, with a cache directory or without.
    pub(crate) fn read_only_over(
        &self,
        client: Arc<FaultStore>,
        layout: BucketLayout,
        cache_dir: Option<PathBuf>,
    ) -> BucketSources {
        let handle = self.runtime.handle();
        let store = Store::simulated(client, &self.machine.env, handle.clone()).with_layout(layout);
        let options = BucketOptions { is_read_only: true, cache_dir, ..BucketOptions::new("memory://") };
        BucketSources::over(Arc::new(store), &options, &self.machine.env, handle)
    }

    /// A bucket in memory with these objects.
    pub(crate) fn bucket_of(&self, objects: impl IntoIterator<Item = (String, Vec<u8>)>) -> MemoryBucket {
        let bucket = MemoryBucket::new();
        let handle = self.runtime.handle();
        let store = Store::simulated(bucket.connect(0), &self.machine.env, handle.clone());
        let (clock, tenant) = (&*self.machine.env.clock, TenantId::anonymous());
        let request = RequestContext::with_timeout(clock, tenant, Duration::from_mins(1), Purpose::Tool);
        for (key, bytes) in objects {
            handle.block_on(store.put(&request, &key, bytes.into())).expect("written");
        }
        bucket
    }

    /// Lets `hours` pass and maintains the bucket until nothing is due.
    pub(crate) fn maintain(&self, tsdb: &Tsdb, hours: u64) {
        self.machine.clock.advance(Duration::from_secs(hours * 3600));
        tsdb.maintenance().run();
        for _ in 0..6 {
            self.machine.clock.advance(Duration::from_secs(1));
            tsdb.bucket_jobs().maintain();
        }
    }

    /// Uploads and removes local copies until none is left.
    pub(crate) fn move_all(&self, tsdb: &Tsdb, want: &dyn Fn(&str)) {
        for round in 0..20 {
            tsdb.bucket_jobs().upload_blocks();
            want(&format!("uploaded, round {round}"));
            self.machine.clock.advance(Duration::from_mins(2));
            tsdb.maintenance().run();
            want(&format!("after maintenance, round {round}"));
            if tsdb.statistics().stats().blocks == 0 {
                return;
            }
        }
        panic!("{} local blocks are left", tsdb.statistics().stats().blocks);
    }

    #[track_caller]
    fn compare(&self, tsdb: &Tsdb, hours: &[i64], deleted: TimeRange, when: &str) {
        for (place, name) in (0..).zip(NAMES) {
            let all = hours.iter().flat_map(|hour| samples(*hour, place));
            let kept = all.filter(|(time, _)| name != "b" || !deleted.contains(*time));
            let want: Vec<(i64, u64)> = kept.map(|(time, value)| (time, value.to_bits())).collect();
            let got = self.machine.read(tsdb, &StoreId::anonymous(), name);
            assert!(got == want, "{when}: {name}: {} samples, {} wanted", got.len(), want.len());
        }
    }
}

fn samples(hour: i64, place: i64) -> Vec<(i64, f64)> {
    (0..100).map(|i| (START_MS + hour * HOUR_MS + i * 30_000 + place, (hour * 1000 + i) as f64)).collect()
}

fn put(tsdb: &Tsdb, hour: i64) {
    for (place, name) in (0..).zip(NAMES) {
        write(tsdb, &StoreId::anonymous(), name, &samples(hour, place)).expect("stored");
    }
}

fn metric(tsdb: &Tsdb, name: &str) -> f64 {
    tsdb.statistics().stats().metric(name).expect("a metric")
}

#[test]
fn samples_stay_readable_while_their_blocks_move_to_the_bucket() {
    let nothing = TimeRange::new(0, 0);
    let part = TimeRange::new(START_MS - 8 * HOUR_MS + 600_000, START_MS - 4 * HOUR_MS + 900_000);
    let world = World::new(1);
    let tsdb = world.open("/data");
    for hour in HOURS {
        put(&tsdb, hour);
        world.machine.clock.advance(Duration::from_millis(1));
        tsdb.maintenance().flush_closed(world.machine.env.clock.now_ms()).expect("flushes");
    }
    assert!(tsdb.statistics().stats().blocks > 0);
    world.move_all(&tsdb, &|when| world.compare(&tsdb, &HOURS, nothing, when));
    assert_eq!(metric(&tsdb, "bucket_upload_waiting_blocks"), 0.0);
    assert!(metric(&tsdb, "bucket_uploaded_blocks_total") > 0.0);
    assert!(metric(&tsdb, "bucket_removed_local_copies_total") > 0.0);

    let by_name = [vec![Matcher::equal("__name__", "b")]];
    let report = tsdb.admin().delete_series(&StoreId::anonymous(), &by_name, part).expect("deletes");
    assert!(report.block_count > 0, "blocks that only the bucket has");
    world.compare(&tsdb, &HOURS, part, "deleted in the bucket");
    let again = tsdb.admin().delete_series(&StoreId::anonymous(), &by_name, TimeRange::new(0, 1));
    assert_eq!(again.expect("deletes").block_count, 0, "another time");

    let five: Vec<i64> = HOURS.into_iter().chain([-1]).collect();
    put(&tsdb, -1);
    world.compare(&tsdb, &five, part, "head and bucket");
    world.machine.disk.crash();
    drop(tsdb);
    let tsdb = world.open("/data");
    world.compare(&tsdb, &five, part, "after a crash");

    let other = world.open("/empty");
    world.compare(&other, &HOURS, part, "without the data directory");
}

#[test]
fn a_deletion_after_the_upload_goes_to_the_bucket_with_the_local_copy() {
    let part = TimeRange::new(START_MS - 8 * HOUR_MS + 600_000, START_MS - 4 * HOUR_MS + 900_000);
    let world = World::new(2);
    let tsdb = world.open("/data");
    for hour in HOURS {
        put(&tsdb, hour);
        world.machine.clock.advance(Duration::from_millis(1));
        tsdb.maintenance().flush_closed(world.machine.env.clock.now_ms()).expect("flushes");
    }
    tsdb.bucket_jobs().upload_blocks();
    let by_name = [vec![Matcher::equal("__name__", "b")]];
    tsdb.admin().delete_series(&StoreId::anonymous(), &by_name, part).expect("deletes");
    world.compare(&tsdb, &HOURS, part, "deleted in local blocks");
    world.move_all(&tsdb, &|when| world.compare(&tsdb, &HOURS, part, when));
    let other = world.open("/empty");
    world.compare(&other, &HOURS, part, "without the data directory");
}

/// Uploads compared the number of deleted intervals: a deletion that extended one did not reach the bucket,
/// and its samples came back with the removal of the local copy. The tombstones themselves are compared.
#[test]
fn a_deletion_that_extends_another_one_goes_to_the_bucket() {
    let start = START_MS - 8 * HOUR_MS + 600_000;
    let parts = [TimeRange::new(start, start + 300_000), TimeRange::new(start, start + 900_000)];
    let world = World::new(3);
    let tsdb = world.open("/data");
    for hour in HOURS {
        put(&tsdb, hour);
        world.machine.clock.advance(Duration::from_millis(1));
        tsdb.maintenance().flush_closed(world.machine.env.clock.now_ms()).expect("flushes");
    }
    let by_name = [vec![Matcher::equal("__name__", "b")]];
    for part in parts {
        tsdb.admin().delete_series(&StoreId::anonymous(), &by_name, part).expect("deletes");
        tsdb.bucket_jobs().upload_blocks();
        assert_eq!(metric(&tsdb, "bucket_upload_waiting_blocks"), 0.0);
        world.compare(&world.open("/empty"), &HOURS, part, "without the data directory");
    }
    drop(tsdb);
    let tsdb = world.open("/data");
    world.move_all(&tsdb, &|when| world.compare(&tsdb, &HOURS, parts[1], when));
}
