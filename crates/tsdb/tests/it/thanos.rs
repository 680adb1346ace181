//! Two servers upload to one bucket in Thanos's layout: each answers with its own samples as stored, to the
//! bit, whatever moves; a read-only process sees both with their external labels.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronolith_bucket::{BucketLayout, ExternalLabels};
use chronolith_model::query::TenantSources;
use chronolith_model::{
    BlockEncoding, Columns, Labels, Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange,
};
use chronolith_tsdb::{BucketSources, Tsdb};

use crate::damage::{Files, collect};
use crate::fixture::{HOUR_MS, START_MS, write};
use crate::upload::World;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Hours with samples: the first ones lie in the same day, so their blocks are compacted.
const HOURS: [i64; 4] = [-46, -44, -42, -2];
const NOTHING: TimeRange = TimeRange { start: 0, end: 0 };

/// Samples of one series: times and bits of values.
type Samples = Vec<(i64, u64)>;

/// A server with external labels, whose samples differ from other servers' by `offset`.
struct Server {
    cluster: &'static str,
    offset: i64,
}

const EU: Server = Server { cluster: "eu", offset: 0 };
const US: Server = Server { cluster: "us", offset: 500_000 };

impl Server {
    fn layout(&self) -> BucketLayout {
        let labels = format!("cluster={:?}", self.cluster);
        BucketLayout::Thanos { writer: Some(ExternalLabels::parse(&labels).expect("labels")) }
    }

    fn open(&self, world: &World, life: &str) -> Arc<Tsdb> {
        world.open_in(&format!("/{}-{life}", self.cluster), self.layout())
    }

    fn samples(&self, hour: i64, place: i64) -> Vec<(i64, f64)> {
        let time = |i: i64| START_MS + hour * HOUR_MS + i * 30_000 + place;
        (0..100).map(|i| (time(i), (self.offset + hour * 1000 + i) as f64 / 7.0)).collect()
    }

    /// Writes a block per hour and moves it to the bucket.
    fn fill(&self, world: &World, tsdb: &Tsdb) {
        for hour in HOURS {
            for (place, name) in (0..).zip(NAMES) {
                write(tsdb, &StoreId::anonymous(), name, &self.samples(hour, place)).expect("stored");
            }
            world.machine.clock.advance(Duration::from_millis(1));
            tsdb.maintenance().flush_closed(world.machine.env.clock.now_ms()).expect("flushes");
            for _ in 0..10 {
                tsdb.bucket_jobs().upload_blocks();
                world.machine.clock.advance(Duration::from_mins(2));
                tsdb.maintenance().run();
            }
            assert_eq!(tsdb.statistics().stats().blocks, 0, "no local copy is left");
        }
    }

    /// Samples of a series, without samples of `b` in `deleted`.
    fn want(&self, place: i64, deleted: TimeRange) -> Samples {
        let all = HOURS.iter().flat_map(|hour| self.samples(*hour, place));
        let kept = all.filter(|(time, _)| place != 1 || !deleted.contains(*time));
        kept.map(|(time, value)| (time, value.to_bits())).collect()
    }

    #[track_caller]
    fn compare(&self, world: &World, tsdb: &Tsdb, deleted: TimeRange, when: &str) {
        for (place, name) in (0..).zip(NAMES) {
            // Fails if there are two series of the name, with and without labels.
            let got = world.machine.read(tsdb, &StoreId::anonymous(), name);
            assert!(
                got == self.want(place, deleted),
                "{} {when}: {name}: {} samples",
                self.cluster,
                got.len()
            );
        }
        let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
        let all = Selector { matchers: &[], range: TimeRange::ALL };
        let names =
            tsdb.reader().queryable(&TenantId::anonymous()).label_names(&all, 0, &ctx).expect("names");
        assert_eq!(names, ["__name__", "a"], "{when}");
    }
}

/// All series of a read-only process, by labels.
fn read_all(world: &World, bucket: &BucketSources, matchers: &[Matcher]) -> Vec<(Labels, Samples)> {
    let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
    let selector = Selector { matchers, range: TimeRange::ALL };
    let mut batches = bucket.queryable(&TenantId::anonymous()).select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let read = series.into_iter().map(|one| {
        let mut columns = Columns::default();
        one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
        let bits = columns.values.into_iter().map(f64::to_bits);
        (one.labels, columns.times.into_iter().zip(bits).collect())
    });
    read.collect()
}

/// Checks that a read-only process has the series of both servers with their labels.
#[track_caller]
fn compare_read_only(world: &World, deleted: TimeRange, when: &str) {
    let bucket = world.open_read_only_in(BucketLayout::Thanos { writer: None });
    let mut want = Vec::new();
    for (place, name) in (0..).zip(NAMES) {
        for (server, deleted) in [(EU, deleted), (US, NOTHING)] {
            let labels = Labels::from_pairs([("__name__", name), ("a", "b"), ("cluster", server.cluster)]);
            want.push((labels, server.want(place, deleted)));
        }
    }
    let found = read_all(world, &bucket, &[]);
    let shown: Vec<&Labels> = found.iter().map(|(labels, _)| labels).collect();
    assert!(found == want, "{when}: {shown:?}");
    let of_us = read_all(world, &bucket, &[Matcher::equal("cluster", "us"), Matcher::equal("__name__", "b")]);
    assert_eq!(of_us.len(), 1, "{when}");
}

/// Two servers in one bucket, whose blocks are compacted. Returns the objects before the second one began.
pub(crate) fn fill_two_servers(world: &World) -> Files {
    let eu = EU.open(world, "1");
    EU.fill(world, &eu);
    let mut earlier = Files::new();
    collect(&world.machine.disk, Path::new("/bucket"), &mut earlier);
    US.fill(world, &US.open(world, "1"));
    world.maintain(&eu, 24);
    earlier
}

#[test]
fn two_servers_in_one_bucket_keep_apart() {
    let mut world = World::new(31);
    world.machine.options.limits.default.block_encoding = BlockEncoding::Prometheus;
    let (eu, us) = (EU.open(&world, "1"), US.open(&world, "1"));
    EU.fill(&world, &eu);
    US.fill(&world, &us);
    let compare = |deleted, when: &str| {
        EU.compare(&world, &eu, deleted, when);
        US.compare(&world, &us, NOTHING, when);
        EU.compare(&world, &EU.open(&world, &format!("empty {when}")), deleted, "on an empty directory");
        compare_read_only(&world, deleted, when);
    };
    compare(NOTHING, "moved");

    let part = TimeRange::new(START_MS - 46 * HOUR_MS + 600_000, START_MS - 42 * HOUR_MS + 900_000);
    let by_name = [vec![Matcher::equal("__name__", "b")]];
    let report = eu.admin().delete_series(&StoreId::anonymous(), &by_name, part).expect("deletes");
    assert!(report.block_count > 0, "blocks that only the bucket has");
    compare(part, "deleted");

    let maintain = |tsdb: &Tsdb, hours: u64| {
        world.machine.clock.advance(Duration::from_secs(hours * 3600));
        tsdb.maintenance().run();
        for _ in 0..6 {
            world.machine.clock.advance(Duration::from_secs(1));
            tsdb.bucket_jobs().maintain();
        }
    };
    let metric = |tsdb: &Tsdb, name: &str| tsdb.statistics().stats().metric(name).expect("a metric");
    maintain(&eu, 24);
    assert!(metric(&eu, "bucket_compactions_total") > 0.0);
    compare(part, "compacted");
    maintain(&eu, 13);
    assert!(metric(&eu, "bucket_removed_blocks_total") > 0.0);
    assert!(metric(&eu, "bucket_foreign_blocks") >= HOURS.len() as f64, "those of the other server");
    assert_eq!(metric(&eu, "bucket_maintenance_failures_total"), 0.0);
    compare(part, "inputs removed");
    let top = world.machine.env.disk.list(Path::new("/bucket")).expect("a directory");
    let names = top.iter().map(|entry| entry.name.as_str());
    let others = names.filter(|name| name.len() != 26 && !name.starts_with('.'));
    assert_eq!(others.collect::<Vec<_>>(), ["chronolith"]);
}

/// Labels of a data directory that change would make the blocks look like two servers'.
#[test]
fn a_data_directory_keeps_its_external_labels() {
    let world = World::new(32);
    let tsdb = EU.open(&world, "1");
    write(&tsdb, &StoreId::anonymous(), "a", &EU.samples(-10, 0)).expect("stored");
    world.machine.clock.advance(Duration::from_millis(1));
    tsdb.maintenance().flush_closed(world.machine.env.clock.now_ms()).expect("flushes");
    tsdb.bucket_jobs().upload_blocks();
    assert_eq!(tsdb.statistics().stats().metric("bucket_upload_waiting_blocks"), Some(0.0));
    drop(tsdb);
    let relabeled = world.open_in("/eu-1", US.layout());
    relabeled.bucket_jobs().upload_blocks();
    assert!(relabeled.statistics().stats().metric("bucket_upload_failures_total").expect("a metric") > 0.0);
    assert!(relabeled.statistics().stats().metric("bucket_upload_waiting_blocks").expect("a metric") > 0.0);
    let bucket = world.open_read_only_in(BucketLayout::Thanos { writer: None });
    let found = read_all(&world, &bucket, &[]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, Labels::from_pairs([("__name__", "a"), ("a", "b"), ("cluster", "eu")]));
}
