//! The Graphite store of a tenant moves to a bucket and back: corrected and late points, what a fresh data
//! directory and a read-only server read, compaction and expiry by schemas.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Disk, Rng};
use chronolith_bucket::Folder;
use chronolith_model::databases::{BucketStoreId, CatalogChange};
use chronolith_model::query::{SelectRequest, TenantSources};
use chronolith_model::rollup::{RollupArchive, RollupRules, RollupSpan};
use chronolith_model::{Columns, Labels, Queryable, ReadContext, Selector, StoreId, TenantId, TimeRange};
use chronolith_tsdb::Tsdb;

use crate::fixture::{HOUR_MS, START_MS, write};
use crate::rollups;
use crate::upload::World;

const HOURS: [i64; 4] = [-10, -8, -6, -4];
/// Series whose points are kept for a day.
const SHORT: &str = "short.lived";
const DAY_MS: i64 = 24 * HOUR_MS;

/// Keeps one series for a day and all others for four.
struct Rules;

impl RollupRules for Rules {
    fn archives_of(&self, _: &Labels, _: &mut Vec<RollupArchive>) {}

    fn retention_ms(&self, labels: &Labels) -> Option<i64> {
        let days = if labels.get("__name__") == Some(SHORT) { 1 } else { 4 };
        Some(days * DAY_MS)
    }

    fn shortest_retention_ms(&self) -> Option<i64> {
        Some(DAY_MS)
    }
}

fn anonymous() -> TenantId {
    TenantId::anonymous()
}

/// The Graphite store, which is made if there is none.
fn graphite(tsdb: &Tsdb) -> StoreId {
    tsdb.databases().change(&anonymous(), &CatalogChange::CreateGraphiteStore).expect("created");
    let catalog = tsdb.databases().catalog();
    let policy = catalog.of(&anonymous()).and_then(|own| own.graphite.clone());
    policy.expect("a Graphite store").store
}

fn put(tsdb: &Tsdb, store: &StoreId, name: &str, hour: i64, value: f64) {
    let time = |i: i64| START_MS + hour * HOUR_MS + i * 10_000;
    let samples: Vec<(i64, f64)> = (0..50).map(|i| (time(i), value + i as f64)).collect();
    write(tsdb, store, name, &samples).expect("stored");
}

fn flush(world: &World, tsdb: &Tsdb) {
    world.machine.clock.advance(Duration::from_millis(1));
    tsdb.maintenance().flush_closed(world.machine.env.clock.now_ms()).expect("flushes");
}

/// A server whose blocks have points of several hours, some of them corrected by a later block.
fn filled(world: &World) -> Arc<Tsdb> {
    let tsdb = world.open("/data");
    let store = graphite(&tsdb);
    for hour in HOURS {
        put(&tsdb, &store, "a.b", hour, 1000.0);
        put(&tsdb, &store, SHORT, hour, 2000.0);
        flush(world, &tsdb);
    }
    put(&tsdb, &store, "a.b", -8, 5.0);
    write(&tsdb, &StoreId::anonymous(), "a.b", &[(START_MS - HOUR_MS, 1.0)]).expect("stored");
    flush(world, &tsdb);
    assert!(tsdb.statistics().stats().blocks > HOURS.len() as u64);
    tsdb
}

/// All series with all their samples, as text.
fn dump(world: &World, source: &Arc<dyn Queryable>) -> Vec<String> {
    let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut batches = source.select(&selector, &ctx).expect("selects");
    let mut series = Vec::new();
    while batches.next_batch(&mut series).expect("a batch") {}
    let text = |one: chronolith_model::SeriesRead| {
        let mut columns = Columns::default();
        one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
        format!("{:?} {:?} {:?}", one.labels, columns.times, columns.values)
    };
    series.into_iter().map(text).collect()
}

fn answer(world: &World, tsdb: &Tsdb) -> Vec<String> {
    dump(world, &tsdb.reader().queryable(&anonymous()))
}

#[test]
fn points_answer_alike_from_the_bucket_alone() {
    let world = World::new(31);
    let tsdb = filled(&world);
    let want = answer(&world, &tsdb);
    assert_eq!(want.len(), 2);
    assert!(want[0].contains("5.0, 6.0, 7.0"), "the correction counts: {}", want[0]);
    world.move_all(&tsdb, &|when| assert!(answer(&world, &tsdb) == want, "{when}"));

    let other = world.open("/empty");
    assert!(answer(&world, &other) == want, "a fresh data directory, at its first query");
    let reader = world.open_read_only();
    assert!(dump(&world, &reader.queryable(&anonymous())) == want, "a read-only server");

    // A fresh data directory that gets points before it has read the bucket.
    let third = world.open("/third");
    put(&third, &graphite(&third), "a.b", -10, 7.0);
    put(&tsdb, &graphite(&tsdb), "a.b", -10, 7.0);
    let corrected = answer(&world, &tsdb);
    assert!(corrected != want && answer(&world, &third) == corrected, "one store");
}

#[test]
fn blocks_are_compacted_in_the_bucket() {
    let world = World::new(32);
    let tsdb = filled(&world);
    let want = answer(&world, &tsdb);
    world.move_all(&tsdb, &|_| {});
    world.maintain(&tsdb, 48);
    assert!(tsdb.statistics().stats().metric("bucket_compactions_total").expect("a metric") > 0.0);
    assert!(answer(&world, &tsdb) == want);
    assert!(answer(&world, &world.open("/empty")) == want);
}

#[test]
fn blocks_expire_in_the_bucket_when_the_schema_of_none_of_their_series_keeps_them() {
    let world = World::new(33);
    let tsdb = world.open("/data");
    let store = graphite(&tsdb);
    put(&tsdb, &store, SHORT, -10, 1.0);
    flush(&world, &tsdb);
    put(&tsdb, &store, SHORT, -4, 2.0);
    put(&tsdb, &store, "kept", -4, 2.0);
    flush(&world, &tsdb);
    tsdb.maintenance().pause_compaction();
    world.move_all(&tsdb, &|_| {});
    let all = answer(&world, &tsdb);
    let count =
        |tsdb: &Tsdb| tsdb.statistics().stats().metric("bucket_expired_blocks_total").expect("a metric");
    world.maintain(&tsdb, 4);
    assert!(answer(&world, &tsdb) == all, "without rules nothing expires");

    tsdb.settings().set_rollup_rules(Some(Arc::new(Rules)));
    world.maintain(&tsdb, 2);
    assert!(answer(&world, &tsdb) == all && count(&tsdb) == 0.0, "not old enough");
    world.maintain(&tsdb, 20);
    assert_eq!(count(&tsdb), 1.0, "the block of the short-lived series alone");
    let left = answer(&world, &tsdb);
    assert!(left.len() == 2 && left != all && left[0] == all[0], "{left:?}");
    assert!(answer(&world, &world.open("/empty")) == left, "in the bucket");
    world.maintain(&tsdb, 4 * 24);
    assert!(answer(&world, &tsdb).is_empty() && count(&tsdb) == 2.0);
    let folder = Folder::of_store(&anonymous(), BucketStoreId::GRAPHITE);
    assert!(world.machine.disk.exists(Path::new(&format!("/bucket/{folder}/catalog/latest"))));
}

/// Roll-ups of blocks that only the bucket has, over random points, deletions, uploads and compactions.
fn run_rolled_up(seed: u64) -> usize {
    let world = World::new(100 + seed);
    let rng = Rng::from_seed(seed);
    let tsdb = world.open("/data");
    let store = graphite(&tsdb);
    tsdb.settings().set_rollup_rules(Some(Arc::new(rollups::Rules)));
    let mut model = rollups::Model::new();
    let machine = &world.machine;
    let mut windows = 0;
    for op in 0..60 {
        match rng.below(100) {
            0..45 => rollups::random_write(&rng, machine, &tsdb, &store, &mut model),
            45..50 => rollups::random_delete(&rng, machine, &tsdb, &store, &mut model),
            50..70 => {
                machine.clock.advance(Duration::from_secs(rng.below(7200)));
                (0..3).for_each(|_| tsdb.maintenance().run());
                tsdb.bucket_jobs().upload_blocks();
            }
            70..80 => world.maintain(&tsdb, rng.below(12)),
            _ => {
                let context = format!("seed {seed}, operation {op}");
                windows +=
                    rollups::compare(machine, &*tsdb.reader().queryable(&anonymous()), &model, &context);
            }
        }
    }
    machine.clock.advance(Duration::from_hours(12));
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    (0..4).for_each(|_| tsdb.maintenance().run());
    world.move_all(&tsdb, &|_| {});
    let check = |source: &dyn Queryable, which: &str| {
        rollups::compare(machine, source, &model, &format!("seed {seed}, {which}"))
    };
    windows += check(&*tsdb.reader().queryable(&anonymous()), "without local blocks");
    let other = world.open("/empty");
    windows += check(&*other.reader().queryable(&anonymous()), "a fresh data directory");
    let reader = world.open_read_only();
    assert!(check(&*reader.queryable(&anonymous()), "a read-only server") > 0, "seed {seed}");
    windows
}

#[test]
fn windows_of_blocks_in_the_bucket_are_those_of_their_samples() {
    let windows: usize = (0..6).map(run_rolled_up).sum();
    assert!(windows > 5000, "{windows}");
}

#[test]
fn a_panel_over_the_bucket_fetches_windows_instead_of_samples() {
    let world = World::new(41);
    let rng = Rng::from_seed(41);
    let tsdb = world.open("/data");
    let store = graphite(&tsdb);
    tsdb.settings().set_rollup_rules(Some(Arc::new(rollups::Rules)));
    let first_ms = START_MS - 30 * HOUR_MS;
    for name in ["a", "b", "c", "d"] {
        let value = |_| rng.below(1 << 40) as f64 / 3.0;
        let samples: Vec<(i64, f64)> =
            (0..20 * 360).map(|idx| (first_ms + idx * 10_000, value(idx))).collect();
        write(&tsdb, &store, name, &samples).expect("stored");
    }
    flush(&world, &tsdb);
    (0..20).for_each(|_| tsdb.maintenance().run());
    world.move_all(&tsdb, &|_| {});
    // Bytes that a fresh process fetches for all series with these hints.
    let fetched = |rollups: &[RollupSpan]| {
        let reader = world.open_read_only();
        let ctx = ReadContext::unlimited(world.machine.env.clock.clone());
        let selector = Selector { matchers: &[], range: TimeRange::ALL };
        let request = SelectRequest { rollups: rollups.to_vec(), ..SelectRequest::new(&selector) };
        let source = reader.queryable(&anonymous());
        let mut batches = source.open_series(request, &ctx).expect("selects");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        let sample_count: usize = series.iter().map(|one| one.samples.sample_count_hint()).sum();
        assert!((20_000..40_000).contains(&sample_count), "{sample_count}");
        reader.bucket().requests().operations.iter().map(|operation| operation.received_bytes).sum::<u64>()
    };
    let hour = RollupSpan { span_ms: HOUR_MS, slot_ms: 10_000 };
    let other = RollupSpan { span_ms: 2 * HOUR_MS, slot_ms: 10_000 };
    let (all, rolled_up) = (fetched(&[]), fetched(&[hour]));
    assert!(rolled_up * 3 < all, "{rolled_up} of {all}");
    assert_eq!(fetched(&[other]), all, "an archive that is not kept");
}
