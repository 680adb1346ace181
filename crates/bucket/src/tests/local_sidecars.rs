//! Local sidecars of blocks of other programs: requests, the same answers as from the block on disk,
//! damage, loss, restarts.

use std::path::Path;

use chronolith_base::disk::{Disk, MemDisk};
use chronolith_block::Block;
use chronolith_block::source::BlockFile;
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_model::{
    BlockEncoding, Columns, Labels, MatchOp, Matcher, Queryable, Selector, SeriesBatches, TimeRange,
};

use super::disk_cache::{files, restart};
use super::foreign::{add_wide_block, metric, rounds_of, select, select_local};
use super::reading::{World, check_equal, check_equal_with_retries, regex, window};
use super::*;
use crate::block::BucketBlock;
use crate::sidecar_queue::BuildRules;
use crate::{CatalogOptions, LocalSidecarSnapshot};

fn counters(world: &World) -> LocalSidecarSnapshot {
    world.catalog.cache().local_sidecars
}

/// Waits until no sidecar is being made.
fn wait(world: &World) {
    world.wait_until(|| world.catalog.sidecars().is_idle(), || counters(world));
}

/// Has sidecars made of the blocks of tests, whose indexes are small.
fn take_small(world: &World) {
    world.catalog.sidecars().set_rules(BuildRules { index_bytes_min: 0, delay: Duration::ZERO });
}

/// Checks that every block is read by a sidecar that was made of its index.
#[track_caller]
fn check_made(world: &World) {
    wait(world);
    assert!(world.blocks().unwrap().iter().all(|block| block.is_read_by_sidecar()), "{:?}", counters(world));
}

/// After the first query of a block another metric costs the chunks alone, also after its header was dropped
/// from memory.
#[test]
fn a_second_metric_takes_one_round() {
    let mut world = World::new(CatalogOptions::default());
    let local = add_wide_block(&mut world, 30);
    let block = world.blocks().unwrap().remove(0);
    select(&world, &block, &metric(7));
    check_made(&world);
    let found = counters(&world);
    assert_eq!((found.built, found.failures, found.losses), (1, 0, 0));
    assert!(found.built_bytes > 10_000 && world.catalog.cache().in_flight_bytes == 0, "{found:?}");
    for number in [8, 29, 0] {
        assert_eq!(rounds_of(&world, &block, &local, number), [["000001"]]);
    }
    crate::cache::HeaderOwner::drop_header(&*block);
    assert_eq!(rounds_of(&world, &block, &local, 9), [["meta.json"], ["000001"]]);
    wait(&world);
    assert_eq!(counters(&world).built, 1);
}

/// Many queries at once make one sidecar per block.
#[test]
fn queries_at_once_make_one_sidecar() {
    let world = World::with_blocks(6, BlockEncoding::Prometheus);
    take_small(&world);
    let blocks = world.blocks().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (world, blocks) = (&world, &blocks);
            scope.spawn(move || {
                for block in blocks {
                    let found =
                        select(world, block, &[Matcher::equal("__name__", &format!("m{}", thread % 4))]);
                    assert_eq!(found.len(), 30);
                }
            });
        }
    });
    check_made(&world);
    assert_eq!(counters(&world).built, 6);
}

/// Labels with all columns of their samples as text, values as bits, histograms included.
type Series = Vec<(Labels, String)>;

fn read_columns(batches: &mut dyn SeriesBatches, range: TimeRange) -> Series {
    let mut series = Vec::new();
    while batches.next_batch(&mut series).unwrap() {}
    let read = series.into_iter().map(|one| {
        let mut columns = Columns::default();
        one.samples.read(range, &mut columns).unwrap();
        let Columns { times, values, histograms, start_times } = columns;
        let bits: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
        (one.labels, format!("{times:?} {bits:?} {histograms:?} {start_times:?}"))
    });
    read.collect()
}

/// Matchers of every kind, also on labels that no series has, drawn from the labels of `all`.
fn drawn_matchers(all: &Series, rng: &chronolith_base::Rng) -> Vec<Matcher> {
    let draw = |count: usize| usize::try_from(rng.below(count as u64)).unwrap();
    let matcher = |_| {
        let labels = &all[draw(all.len())].0;
        let pairs: Vec<(&str, &str)> = labels.iter().collect();
        let (name, value) = pairs[draw(pairs.len())];
        let name = if draw(6) == 0 { "none" } else { name };
        let half: String = value.chars().take(value.chars().count() / 2).collect();
        match draw(7) {
            0 => Matcher::equal(name, value),
            1 => Matcher::equal(name, ""),
            2 => regex(name, MatchOp::NotEqual, value),
            3 => regex(name, MatchOp::Regex, &format!("{value}|x")),
            4 => regex(name, MatchOp::Regex, &format!("{half}.*")),
            5 => regex(name, MatchOp::NotRegex, &format!(".*{half}")),
            _ => regex(name, MatchOp::Regex, ".+"),
        }
    };
    (0..draw(4)).map(matcher).collect()
}

/// Checks drawn selections over drawn times, with all columns bit by bit, and their label names.
#[track_caller]
fn check_drawn(world: &World, seed: u64) {
    let rng = chronolith_base::Rng::from_seed(seed);
    let blocks = world.blocks().unwrap();
    assert_eq!(blocks.len(), world.local.len());
    for (block, local) in blocks.iter().zip(&world.local) {
        let all = Selector { matchers: &[], range: TimeRange::ALL };
        let all = read_columns(&mut *local.select(&all, &world.ctx(60_000)).unwrap(), TimeRange::ALL);
        for _ in 0..60 {
            let matchers = drawn_matchers(&all, &rng);
            let whole = local.range();
            let width = u64::try_from(whole.end - whole.start).unwrap();
            let start = whole.start + i64::try_from(rng.below(width)).unwrap();
            let range = if rng.below(2) == 0 { whole } else { TimeRange::new(start, whole.end) };
            let selector = Selector { matchers: &matchers, range };
            let want = read_columns(&mut *local.select(&selector, &world.ctx(60_000)).unwrap(), range);
            let found = read_columns(&mut *block.select(&selector, &world.ctx(60_000)), range);
            assert!(found == want, "{matchers:?} {range:?}");
            let names = local.label_names(&selector, 0, &world.ctx(60_000)).unwrap();
            let (matchers, ctx) = (matchers.clone(), world.ctx(60_000));
            let reading = ctx.clone();
            let work = move |_: &BucketBlock, opened: &dyn Queryable| {
                opened.label_names(&Selector { matchers: &matchers, range }, 0, &reading)
            };
            let of_block = std::slice::from_ref(block);
            assert_eq!(
                world.catalog.start_on_opened(of_block, &ctx, work, |_, e| Err(e)).wait().unwrap(),
                [names]
            );
        }
    }
}

/// Puts a block that Prometheus wrote into the bucket, and opens its files on disk.
fn add_golden(world: &mut World, name: &str, ulid: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/testdata/golden").join(name);
    let dir = Path::new("blocks").join(ulid);
    world.disk.disk.create_dir_all(&dir.join("chunks")).unwrap();
    for file in ["meta.json", "index", "tombstones", "chunks/000001"] {
        let bytes = Env::real().disk.read(&from.join(file)).unwrap();
        let bytes = match file {
            // Both blocks of the test data have the same name.
            "meta.json" => {
                let mut meta = BlockMeta::decode(&bytes).unwrap();
                meta.ulid = ulid.parse::<Ulid>().unwrap();
                let mut text = Vec::new();
                meta.encode(&mut text);
                text
            }
            _ => bytes,
        };
        world.disk.disk.create(&dir.join(file)).unwrap().write_at(&bytes, 0).unwrap();
    }
    world.local.push(Block::open(&world.disk, &dir).unwrap());
    world.upload(ulid.parse().unwrap(), &[]);
}

/// Blocks of Prometheus, one with native histograms, and blocks of this program whose sidecar is missing: one
/// with Prometheus's encodings and deletions, one whose chunks take their times from others.
fn foreign_world() -> World {
    let mut world = World::new(CatalogOptions::default());
    let meta = world.write_block(window(0), BlockEncoding::Prometheus);
    let local = world.local.remove(0);
    let range = TimeRange::new(window(0).start + 300_000, window(0).start + 900_000);
    let selectors = [vec![Matcher::equal("pod", "pod-1")]];
    world.local.push(local.delete(&world.disk, &selectors, range).unwrap().unwrap().block);
    world.upload(meta.ulid, &[]);
    let meta = world.write_block(window(1), BlockEncoding::Dense);
    world.upload(meta.ulid, &[]);
    add_golden(&mut world, "prometheus-2.42", "01M7WK3E014HA48J5BYXZ0VZ3Q");
    add_golden(&mut world, "prometheus-3", "01M7WK3E024HA48J5BYXZ0VZ3Q");
    // The list is in order of the oldest sources.
    let blocks = world.blocks().unwrap();
    let position = |block: &Block| blocks.iter().position(|other| other.ulid() == block.meta().ulid);
    world.local.sort_by_key(|block| position(block).unwrap());
    world
}

/// Answers by the index, by the local sidecar, and after a restart by the one in the cache directory.
#[test]
fn answers_by_local_sidecars_equal_those_of_the_blocks_on_disk() {
    let disk = MemDisk::new();
    let mut world = foreign_world();
    for is_on_disk in [false, true] {
        if is_on_disk {
            restart(&mut world, &disk, 64 << 20);
        }
        check_drawn(&world, 1);
        take_small(&world);
        check_drawn(&world, 2);
        check_made(&world);
        assert_eq!(counters(&world).built, 4);
        check_drawn(&world, 3);
    }
    restart(&mut world, &disk, 64 << 20);
    check_drawn(&world, 4);
    check_made(&world);
    check_drawn(&world, 5);
    let found = counters(&world);
    assert_eq!((found.built, found.losses), (0, 0), "those of the process before");
}

/// After a restart with a cache directory a query for another metric takes the chunks alone, next to the
/// listing and `meta.json`.
#[test]
fn a_restart_finds_the_sidecar_in_the_cache_directory() {
    let disk = MemDisk::new();
    let mut world = World::new(CatalogOptions::default());
    let local = add_wide_block(&mut world, 30);
    restart(&mut world, &disk, 64 << 20);
    let block = world.blocks().unwrap().remove(0);
    select(&world, &block, &metric(7));
    drop(block);
    check_made(&world);
    // Without memory the pages come from the directory each time.
    for memory_bytes_max in [64 << 20, 1] {
        restart(&mut world, &disk, memory_bytes_max);
        let block = world.blocks().unwrap().remove(0);
        let found = rounds_of(&world, &block, &local, if memory_bytes_max == 1 { 11 } else { 8 });
        assert_eq!(found, [["000001"]]);
        assert_eq!(counters(&world).losses, 0);
    }
    // Another object under the same name: what the directory has is not of this index.
    let path = Path::new("blocks").join(local.meta().ulid.to_string()).join("index");
    let index = world.disk.disk.read(&path).unwrap();
    world.put(&format!("{}/{}/index", super::reading::TENANT, local.meta().ulid), index);
    restart(&mut world, &disk, 64 << 20);
    let block = world.blocks().unwrap().remove(0);
    select(&world, &block, &metric(12));
    wait(&world);
    assert_eq!(counters(&world).built, 1, "the one in the directory has another version");
}

/// Wrong bits in memory and on disk: the index answers, and the sidecar is dropped.
#[test]
fn damage_of_a_local_sidecar_changes_no_answer() {
    let world = foreign_world();
    take_small(&world);
    check_drawn(&world, 1);
    check_made(&world);
    world.catalog.corrupt_cache(|file, offset| file == BlockFile::Sidecar && offset % 31 == 9);
    check_drawn(&world, 2);
    assert_eq!(counters(&world).losses, 4);
    wait(&world);
    assert_eq!(counters(&world).built, 4, "the next attempt waits");

    let mut damages = 0;
    for offset in [40, 3_000, 20_000] {
        let disk = MemDisk::new();
        let mut world = foreign_world();
        restart(&mut world, &disk, 64 << 20);
        take_small(&world);
        check_drawn(&world, 3);
        check_made(&world);
        restart(&mut world, &MemDisk::new(), 1);
        for path in files(&disk) {
            let mut bytes = disk.read(&path).unwrap();
            bytes.iter_mut().skip(offset).step_by(5_003).for_each(|byte| *byte ^= 4);
            disk.create(&path).unwrap().write_at(&bytes, 0).unwrap();
        }
        restart(&mut world, &disk, 1);
        check_drawn(&world, 4);
        damages += world.catalog.cache().disk.damages;
        check_drawn(&world, 5);
    }
    assert!(damages >= 3, "the damage was met");
}

/// A part of the sidecar was evicted: the index answers, and the sidecar is dropped.
#[test]
fn a_lost_part_changes_no_answer() {
    let mut world = World::new(CatalogOptions::default());
    let local = add_wide_block(&mut world, 30);
    let block = world.blocks().unwrap().remove(0);
    select(&world, &block, &metric(3));
    check_made(&world);
    let middle = counters(&world).built_bytes / 2;
    world.catalog.drop_cached(&block, middle..middle + 1);
    let all = [regex("__name__", MatchOp::Regex, "m.*")];
    let want = select_local(&world, &local, &all);
    assert_eq!(want.len(), 30_000);
    assert!(select(&world, &block, &all) == want);
    assert_eq!(counters(&world).losses, 1);
    assert!(!block.is_read_by_sidecar());
    assert!(select(&world, &block, &all) == want, "by the index from the start");
}

/// The bucket fails while sidecars are made: queries fail or answer in full.
#[test]
fn failing_requests_for_local_sidecars_change_no_answer() {
    let world = World::with_blocks(3, BlockEncoding::Prometheus);
    take_small(&world);
    let plan = FaultPlan { unavailable: 150, cut: 100, flipped: 100, ..FaultPlan::default() };
    world.rig.faults.set_plan(plan);
    check_equal_with_retries(&world);
    wait(&world);
    world.rig.faults.set_plan(FaultPlan::default());
    check_equal(&world);
}

/// Nothing is made of a damaged index; series whose entries are sound are read as before.
#[test]
fn a_damaged_index_gets_no_sidecar() {
    let mut world = World::new(CatalogOptions::default());
    let local = add_wide_block(&mut world, 30);
    let path = Path::new("blocks").join(local.meta().ulid.to_string()).join("index");
    let mut index = world.disk.disk.read(&path).unwrap();
    index[600_000] ^= 1;
    world.put(&format!("{}/{}/index", super::reading::TENANT, local.meta().ulid), index);
    let block = world.blocks().unwrap().remove(0);
    for _ in 0..2 {
        assert!(select(&world, &block, &metric(1)) == select_local(&world, &local, &metric(1)));
        wait(&world);
    }
    let found = counters(&world);
    assert_eq!((found.built, found.failures, found.losses), (0, 1, 0), "the next attempt waits");
    assert!(!block.is_read_by_sidecar());
}

/// Without room for it no sidecar is made.
#[test]
fn a_cache_without_room_gets_no_sidecar() {
    let world = World::without_cache(2, BlockEncoding::Prometheus);
    take_small(&world);
    check_equal(&world);
    wait(&world);
    let found = counters(&world);
    assert_eq!((found.built, found.failures), (0, 0));
}
