//! Maintenance of the bucket by a server: compaction of blocks without a local copy, removal of replaced
//! ones, retention; after each step every process reads the same samples.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_model::{Matcher, StoreId, TimeRange};
use chronolith_tsdb::{Bucket, BucketOptions, ReplayProgress, Tsdb};
use tokio::runtime::Runtime;

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Hours with samples: the first ones lie in the same day, so their blocks are compacted.
const HOURS: [i64; 6] = [-46, -44, -42, -40, -38, -2];

/// A machine whose disk has the bucket as well.
struct BucketMachine {
    machine: Machine,
    runtime: Runtime,
}

impl BucketMachine {
    fn new(seed: u64) -> BucketMachine {
        let machine = Machine::new(seed);
        machine.env.disk.create_dir_all(Path::new("/bucket")).expect("a directory");
        BucketMachine { machine, runtime: Runtime::new().expect("threads") }
    }

    fn open(&self, data_dir: &str) -> Arc<Tsdb> {
        let local_retention = Duration::from_secs(1);
        self.open_with(data_dir, &BucketOptions { local_retention, ..BucketOptions::new("file:///bucket") })
    }

    /// Opens a process that maintains the bucket of a cluster.
    fn open_maintenance(&self, data_dir: &str) -> Arc<Tsdb> {
        let options = BucketOptions {
            compaction_delay: Some(Duration::from_secs(1)),
            has_original_databases: true,
            ..BucketOptions::new("file:///bucket")
        };
        self.open_with(data_dir, &options)
    }

    fn open_with(&self, data_dir: &str, options: &BucketOptions) -> Arc<Tsdb> {
        let bucket = Bucket::open(options, &self.machine.env, self.runtime.handle()).expect("opens");
        let mut options = self.machine.options.clone();
        options.data_dir = PathBuf::from(data_dir);
        let (env, progress) = (self.machine.env.clone(), Arc::new(ReplayProgress::default()));
        Tsdb::open_with_bucket(env, options, progress, Some(Arc::new(bucket))).expect("opens")
    }

    /// A store whose samples are in one block per hour, all of them in the bucket alone.
    fn with_blocks(seed: u64) -> (BucketMachine, Arc<Tsdb>) {
        BucketMachine::new(seed).filled()
    }

    fn filled(self) -> (BucketMachine, Arc<Tsdb>) {
        let machine = self;
        let tsdb = machine.open("/data");
        for hour in HOURS {
            for (place, name) in (0..).zip(NAMES) {
                write(&tsdb, &StoreId::anonymous(), name, &samples(hour, place)).expect("stored");
            }
            machine.machine.clock.advance(Duration::from_millis(1));
            tsdb.maintenance().flush_closed(machine.machine.env.clock.now_ms()).expect("flushes");
            for _ in 0..10 {
                tsdb.bucket_jobs().upload_blocks();
                machine.machine.clock.advance(Duration::from_mins(2));
                tsdb.maintenance().run();
            }
            assert_eq!(tsdb.statistics().stats().blocks, 0, "no local copy is left");
        }
        (machine, tsdb)
    }

    /// Lets `hours` pass and maintains the bucket until nothing is due.
    fn maintain(&self, tsdb: &Tsdb, hours: u64) {
        self.machine.clock.advance(Duration::from_secs(hours * 3600));
        tsdb.maintenance().run();
        for _ in 0..6 {
            self.machine.clock.advance(Duration::from_secs(1));
            tsdb.bucket_jobs().maintain();
        }
    }

    /// Maintains the bucket until the disk fails, and ends the process then. Returns true if it has failed.
    fn maintain_until_failure(&self, tsdb: &Tsdb) -> bool {
        let has_failed = || self.machine.disk.refused_count() > 0;
        std::thread::scope(|scope| {
            let maintenance = scope.spawn(|| {
                for _ in 0..3 {
                    self.machine.clock.advance(Duration::from_secs(1));
                    tsdb.bucket_jobs().maintain();
                }
            });
            while !maintenance.is_finished() {
                if has_failed() {
                    tsdb.bucket_jobs().stop();
                }
                std::thread::yield_now();
            }
        });
        has_failed()
    }

    /// Compares the samples of all names, as the process reads them, without samples of `b` in `deleted`.
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

fn metric(tsdb: &Tsdb, name: &str) -> f64 {
    tsdb.statistics().stats().metric(name).expect("a metric")
}

const NOTHING: TimeRange = TimeRange { start: 0, end: 0 };

#[test]
fn blocks_are_compacted_in_the_bucket_and_their_inputs_removed() {
    let (machine, tsdb) = BucketMachine::with_blocks(11);
    machine.maintain(&tsdb, 24);
    let compactions = metric(&tsdb, "bucket_compactions_total");
    assert!(compactions > 0.0);
    assert_eq!(metric(&tsdb, "bucket_maintenance_failures_total"), 0.0);
    assert_eq!(metric(&tsdb, "bucket_removed_blocks_total"), 0.0, "the delay is not over");
    assert!(!machine.machine.env.disk.exists(Path::new("/data/bucket-compaction")), "no files stay");
    machine.compare(&tsdb, &HOURS, NOTHING, "compacted");
    let other = machine.open("/empty");
    machine.compare(&other, &HOURS, NOTHING, "compacted, another process");

    machine.maintain(&tsdb, 13);
    let removed = metric(&tsdb, "bucket_removed_blocks_total");
    assert!(removed >= 2.0 * compactions, "{removed} blocks of {compactions} compactions");
    assert!(metric(&tsdb, "bucket_removed_bytes_total") > 0.0);
    machine.compare(&tsdb, &HOURS, NOTHING, "inputs removed");
    machine.compare(&other, &HOURS, NOTHING, "inputs removed, a process with an old list");
    machine.maintain(&other, 13);
    machine.compare(&other, &HOURS, NOTHING, "maintained by another process");
    assert_eq!(metric(&other, "bucket_removed_blocks_total"), 0.0);
}

#[test]
fn deletions_in_the_bucket_are_applied_by_rewriting() {
    let part = TimeRange::new(START_MS - 46 * HOUR_MS + 600_000, START_MS - 38 * HOUR_MS + 900_000);
    let (machine, tsdb) = BucketMachine::with_blocks(12);
    machine.maintain(&tsdb, 24);
    let before = metric(&tsdb, "bucket_compactions_total");
    let by_name = [vec![Matcher::equal("__name__", "b")]];
    let report = tsdb.admin().delete_series(&StoreId::anonymous(), &by_name, part).expect("deletes");
    assert!(report.block_count > 0);
    machine.compare(&tsdb, &HOURS, part, "deleted");
    machine.maintain(&tsdb, 1);
    assert!(metric(&tsdb, "bucket_compactions_total") > before);
    machine.compare(&tsdb, &HOURS, part, "rewritten");
    for hours in [13, 13] {
        machine.maintain(&tsdb, hours);
        machine.compare(&machine.open("/empty"), &HOURS, part, "inputs removed");
    }
    let disk = &machine.machine.env.disk;
    let tenant = Path::new("/bucket/anonymous");
    for folder in disk.list(tenant).expect("a directory") {
        let objects = disk.list(&tenant.join(&folder.name)).expect("a directory");
        let has_tombstones = objects.iter().any(|object| object.name.starts_with("tombstones"));
        assert!(!has_tombstones, "{}: the samples are gone for good", folder.name);
    }
}

/// Covers a regression: a deletion looked for samples by the list of blocks that queries had, without those
/// that another process had compacted since, and replaced tombstones of another process by its own.
#[test]
fn a_deletion_finds_the_blocks_and_tombstones_of_other_processes() {
    let start = START_MS - 46 * HOUR_MS + 600_000;
    let times = [start, start + 2 * HOUR_MS, start + 4 * HOUR_MS, start + 6 * HOUR_MS];
    let by_name = [vec![Matcher::equal("__name__", "b")]];
    let (machine, tsdb) = BucketMachine::with_blocks(14);
    machine.machine.clock.advance(Duration::from_secs(24 * 3600));
    tsdb.maintenance().run();
    let other = machine.open("/other");
    machine.compare(&other, &HOURS, NOTHING, "its list is read");
    machine.maintain(&tsdb, 0);
    assert!(metric(&tsdb, "bucket_compactions_total") > 0.0);
    let delete = |tsdb: &Tsdb, from, to| {
        let range = TimeRange::new(times[from], times[to]);
        let report = tsdb.admin().delete_series(&StoreId::anonymous(), &by_name, range).expect("deletes");
        assert!(report.block_count > 0, "{from}");
    };
    delete(&other, 0, 1);
    machine.compare(
        &machine.open("/third"),
        &HOURS,
        TimeRange::new(times[0], times[1]),
        "after a compaction",
    );
    delete(&tsdb, 1, 2);
    delete(&other, 2, 3);
    machine.compare(
        &machine.open("/fourth"),
        &HOURS,
        TimeRange::new(times[0], times[3]),
        "by both processes",
    );
}

#[test]
fn a_compaction_that_is_killed_at_any_operation_of_the_disk_is_ended_by_another_process() {
    let mut killed_count = 0;
    for step in 0.. {
        let (machine, tsdb) = BucketMachine::with_blocks(13);
        machine.machine.clock.advance(Duration::from_secs(24 * 3600));
        tsdb.maintenance().run();
        machine.machine.disk.fail_after(step * 13);
        let is_killed = machine.maintain_until_failure(&tsdb);
        machine.machine.disk.crash();
        drop(tsdb);
        machine.machine.disk.heal();
        machine.compare(&machine.open("/empty"), &HOURS, NOTHING, &format!("after the kill, step {step}"));
        let tsdb = machine.open("/other");
        for hours in [24, 13, 49, 13, 13] {
            machine.maintain(&tsdb, hours);
            machine.compare(&tsdb, &HOURS, NOTHING, &format!("after {hours} h, step {step}"));
        }
        assert_eq!(metric(&tsdb, "bucket_maintenance_failures_total"), 0.0, "step {step}");
        killed_count += u64::from(is_killed);
        if !is_killed {
            break;
        }
    }
    assert!(killed_count > 5, "{killed_count} kills");
}

#[test]
fn expired_blocks_leave_the_bucket() {
    let mut machine = BucketMachine::new(14);
    machine.machine.options.limits.default.bucket_retention_ms = 60 * HOUR_MS;
    let (machine, tsdb) = machine.filled();
    machine.maintain(&tsdb, 1);
    machine.compare(&tsdb, &HOURS, NOTHING, "all are younger");
    // Blocks of old windows end with their day.
    machine.maintain(&tsdb, 40);
    assert_eq!(metric(&tsdb, "bucket_maintenance_failures_total"), 0.0);
    assert!(metric(&tsdb, "bucket_expired_blocks_total") > 0.0);
    machine.compare(&machine.open("/empty"), &HOURS[5..], NOTHING, "the newest block is left");
    machine.maintain(&tsdb, 13);
    assert!(metric(&tsdb, "bucket_removed_blocks_total") > 0.0);
}

/// Lets `hours` pass and maintains the bucket from all processes at the same time.
fn maintain_together(machine: &BucketMachine, all: &[&Arc<Tsdb>], hours: u64) {
    machine.machine.clock.advance(Duration::from_hours(hours));
    all.iter().for_each(|tsdb| tsdb.maintenance().run());
    for _ in 0..6 {
        machine.machine.clock.advance(Duration::from_secs(1));
        std::thread::scope(|scope| {
            for tsdb in all {
                scope.spawn(|| tsdb.bucket_jobs().maintain());
            }
        });
    }
}

#[test]
fn two_processes_that_maintain_the_bucket_do_no_harm_next_to_a_server_that_uploads() {
    let (machine, tsdb) = BucketMachine::with_blocks(15);
    let [first, second] = ["/store-1", "/store-2"].map(|dir| machine.open_maintenance(dir));
    let sum = |name: &str| [&tsdb, &first, &second].map(|tsdb| metric(tsdb, name)).iter().sum::<f64>();
    for (hours, when) in [(24, "compacted"), (13, "inputs removed"), (13, "marks removed")] {
        maintain_together(&machine, &[&first, &second, &tsdb], hours);
        for tsdb in [&tsdb, &first, &second, &machine.open("/empty")] {
            machine.compare(tsdb, &HOURS, NOTHING, when);
        }
    }
    assert!(sum("bucket_compactions_total") > 0.0);
    assert!(sum("bucket_removed_blocks_total") >= 2.0, "{}", sum("bucket_removed_blocks_total"));
    assert_eq!(sum("bucket_maintenance_failures_total"), 0.0);
    // The server that uploads is gone: the others go on.
    tsdb.close().expect("closes");
    let late: Vec<i64> = HOURS.into_iter().chain([0]).collect();
    let last = machine.open("/last");
    for (place, name) in (0..).zip(NAMES) {
        write(&last, &StoreId::anonymous(), name, &samples(0, place)).expect("stored");
    }
    last.maintenance().flush_closed(machine.machine.env.clock.now_ms()).expect("flushes");
    last.bucket_jobs().upload_blocks();
    drop(last);
    maintain_together(&machine, &[&first, &second], 48);
    for tsdb in [&first, &second] {
        machine.compare(tsdb, &late, NOTHING, "without a server that uploads");
    }
    assert_eq!(sum("bucket_maintenance_failures_total"), 0.0);
}
