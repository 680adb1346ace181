//! Blocks in the bucket read by their sidecars: answers, requests, damage.

use std::path::Path;
use std::sync::atomic::Ordering;

use chronolith_block::source::BlockFile;
use chronolith_block::{Block, BlockSource, BlockWriter, write_sidecar};
use chronolith_format::bucket::catalogue::{self, SidecarObject, TombstonesObject};
use chronolith_format::bucket::sidecar::{SIDECAR_OBJECT, SidecarHead};
use chronolith_model::{BlockEncoding, Matcher, QueryError, Queryable, Selector, SeriesBatches, TimeRange};

use super::catalogued::upload;
use super::reading::{
    Answer, TENANT, World, check_equal, check_equal_with_retries, labels, read_all, selections, window,
};
use super::*;
use crate::CatalogOptions;
use crate::block::{BlockIdentity, BucketBlock};
use crate::buffers::BufferPool;
use crate::cache::BlockCache;
use crate::remote::{ReadRules, Remote};
use crate::store::request::Operation;
use crate::store::retry::Outcome;

fn sidecar_of(world: &World, block: &Block) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_sidecar(&world.disk, block, |part| bytes.extend_from_slice(part)).unwrap();
    bytes
}

fn put_sidecar(world: &World, block: &Block, bytes: Vec<u8>) {
    world.put(&format!("{TENANT}/{}/{SIDECAR_OBJECT}", block.meta().ulid), bytes);
}

/// Blocks with their sidecars.
fn world_with_sidecars(count: i64, encoding: BlockEncoding) -> World {
    add_sidecars(World::with_blocks(count, encoding))
}

fn add_sidecars(world: World) -> World {
    world.local.iter().for_each(|block| put_sidecar(&world, block, sidecar_of(&world, block)));
    world
}

fn check_labels(world: &World) {
    let blocks = world.blocks().unwrap();
    let ctx = world.ctx(60_000);
    for matchers in selections() {
        for name in ["__name__", "pod", "none"] {
            let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
            let ask = |block: &dyn Queryable, selector: &Selector<'_>, ctx: &_| {
                let mut all = block.label_values(name, selector, 0, ctx)?;
                all.extend(block.label_names(selector, 0, ctx)?);
                Ok(all)
            };
            let want: Vec<Vec<String>> =
                world.local.iter().map(|block| ask(&**block, &selector, &ctx).unwrap()).collect();
            let owned = matchers.clone();
            let reading = ctx.clone();
            let work = move |_: &BucketBlock, block: &dyn Queryable| {
                ask(block, &Selector { matchers: &owned, range: TimeRange::ALL }, &reading)
            };
            let found = world.catalog.start_on_opened(&blocks, &ctx, work, |_, error| Err(error));
            assert_eq!(found.wait().unwrap(), want);
        }
    }
}

#[test]
fn blocks_with_sidecars_answer_as_those_on_disk() {
    for encoding in [BlockEncoding::Prometheus, BlockEncoding::Dense] {
        let world = world_with_sidecars(3, encoding);
        check_equal(&world);
        check_labels(&world);
        let lists = world.counters().requests(Operation::List, Outcome::Ok);
        assert_eq!(
            lists, 10,
            "catalogue; markers and blocks of the tenant, twice each; catalogue and markers once more, as \
             there are none; objects of each block"
        );
    }
}

#[test]
fn failing_requests_for_sidecars_change_no_answer() {
    let world = add_sidecars(World::without_cache(2, BlockEncoding::Dense));
    let plan = FaultPlan { unavailable: 150, cut: 100, delayed: 50, delay_ms: 3, ..FaultPlan::default() };
    world.rig.faults.set_plan(plan);
    check_equal_with_retries(&world);
    assert!(world.rig.faults.injected.load(Ordering::Relaxed) > 10);
}

/// Samples of all series of a selection.
fn select(world: &World, block: &Arc<BucketBlock>, matchers: &[Matcher]) -> Answer {
    let selector = Selector { matchers, range: TimeRange::ALL };
    let mut batches: Box<dyn SeriesBatches> = block.select(&selector, &world.ctx(60_000));
    read_all(&mut *batches, TimeRange::ALL).unwrap()
}

fn select_local(world: &World, block: &Block, matchers: &[Matcher]) -> Answer {
    let selector = Selector { matchers, range: TimeRange::ALL };
    read_all(&mut *block.select(&selector, &world.ctx(60_000)).unwrap(), TimeRange::ALL).unwrap()
}

/// A block of its own: 100,000 series with 100 metric names.
fn write_wide_block(world: &mut World, encoding: BlockEncoding) -> Arc<Block> {
    let range = window(0);
    let mut writer = BlockWriter::create(&world.disk, Path::new("blocks")).unwrap().with_encoding(encoding);
    for metric in 0..100 {
        for pod in 0..1000i64 {
            let metric = format!("m{metric:02}");
            let pod_text = format!("pod-{pod:04}");
            let labels = labels(&[("__name__", &metric), ("pod", &pod_text)]);
            let times: Vec<i64> = (0..5).map(|i| range.start + i * 15_000 + (i * pod) % 97).collect();
            writer.add_samples(&labels, &times, &[1.0, 2.5, 3.0, 1e9, pod as f64]).unwrap();
        }
    }
    let meta = writer.finish(BlockSource::head(range)).unwrap().unwrap();
    let block = Block::open(&world.disk, &Path::new("blocks").join(meta.ulid.to_string())).unwrap();
    world.local.push(block.clone());
    world.upload(meta.ulid, &[]);
    put_sidecar(world, &block, sidecar_of(world, &block));
    block
}

/// `meta.json`, sidecar, chunks, each byte once, and both ends of the index: a listing has no record of the
/// sidecar, and most listed blocks have none. No request for a query that is repeated.
#[test]
fn a_cold_query_for_one_metric_of_a_wide_block_takes_four_requests() {
    for encoding in [BlockEncoding::Prometheus, BlockEncoding::Dense] {
        let mut world = World::new(CatalogOptions::default());
        let local = write_wide_block(&mut world, encoding);
        let block = world.blocks().unwrap().remove(0);
        let before = world.gets();
        let matchers = [Matcher::equal("__name__", "m42")];
        let found = select(&world, &block, &matchers);
        let cold = world.gets() - before;
        assert!(found == select_local(&world, &local, &matchers));
        assert_eq!((found.len(), cold), (1000, 4), "series, requests");
        select(&world, &block, &matchers);
        assert_eq!(world.gets() - before - cold, 0, "from the cache");
    }
}

/// Deletions are read together with the pages. An object that the record names is read in place of the file.
#[test]
fn deletions_come_with_the_pages() {
    let mut world = World::new(CatalogOptions::default());
    // Chunks without shared times: one request.
    let meta = world.write_block(window(0), BlockEncoding::Prometheus);
    let local = world.local.remove(0);
    let range = TimeRange::new(window(0).start + 300_000, window(0).start + 900_000);
    let selectors = [vec![Matcher::equal("pod", "pod-1")]];
    let deleted = local.delete(&world.disk, &selectors, range).unwrap().unwrap().block;
    world.local.push(deleted.clone());
    world.upload(meta.ulid, &[]);
    put_sidecar(&world, &deleted, sidecar_of(&world, &deleted));
    let block = world.blocks().unwrap().remove(0);
    let before = world.gets();
    let matchers = [Matcher::equal("__name__", "m1")];
    assert!(select(&world, &block, &matchers) == select_local(&world, &deleted, &matchers));
    assert_eq!(world.gets() - before, 5, "both ends of the index, head, tombstones, chunks");
    check_equal(&world);

    let more = [vec![Matcher::equal("pod", "pod-2")]];
    let later = deleted.delete(&world.disk, &more, range).unwrap().unwrap().block;
    let bytes = world.disk.disk.read(&later.dir().join("tombstones")).unwrap();
    let name = "tombstones-2".to_owned();
    let len = bytes.len() as u64;
    let crc = chronolith_base::crc::crc32c(&bytes);
    world.put(&format!("{TENANT}/{}/{name}", meta.ulid), bytes);
    let place = sidecar_object(&world);
    let record = upload(&world, meta.ulid);
    let object = TombstonesObject { name, len, crc };
    let tombstones = Some(object.clone());
    for sidecar in [None, Some(place)] {
        let record = catalogue::BucketBlock { sidecar, tombstones: tombstones.clone(), ..record.clone() };
        let block = recorded(&world, &record);
        assert!(select(&world, &block, &matchers) == select_local(&world, &later, &matchers), "{sidecar:?}");
    }
    // Tombstones of the sidecar are not the block's any more.
    let mut undeleted = catalogue::BucketBlock { sidecar: Some(place), tombstones: None, ..record.clone() };
    undeleted.counts.tombstones = 0;
    let undeleted = recorded(&world, &undeleted);
    assert!(select(&world, &undeleted, &matchers) == select_local(&world, &local, &matchers));
    // A sidecar whose length cannot be: by the index.
    let want = select_local(&world, &later, &matchers);
    let sidecar = Some(SidecarObject { len: place.len - 1, ..place });
    let shorter = catalogue::BucketBlock { sidecar, tombstones: tombstones.clone(), ..record.clone() };
    assert!(select(&world, &recorded(&world, &shorter), &matchers) == want);
    // Deletions that differ from the record: of another block, or damaged.
    let others = [(0, crc), (len - 1, crc), (len + 1, crc), (len, crc ^ 1), (len, 0)];
    for (sidecar, (len, crc)) in
        [None, Some(place)].into_iter().flat_map(|one| others.map(|other| (one, other)))
    {
        let tombstones = Some(TombstonesObject { len, crc, ..object.clone() });
        let block = recorded(&world, &catalogue::BucketBlock { sidecar, tombstones, ..record.clone() });
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let found = read_all(&mut *block.select(&selector, &world.ctx(60_000)), TimeRange::ALL);
        assert!(matches!(found, Err(QueryError::Corrupt { .. })), "{sidecar:?} {len} {crc}");
    }
}

/// A block of a record takes as many requests as one of a listing; its listing and `meta.json` are not read.
#[test]
fn the_head_is_read_where_the_record_has_it() {
    let mut world = World::new(CatalogOptions::default());
    let local = write_wide_block(&mut world, BlockEncoding::Dense);
    let sidecar = Some(sidecar_object(&world));
    let record = catalogue::BucketBlock { sidecar, ..upload(&world, local.meta().ulid) };
    let block = recorded(&world, &record);
    let before = world.gets();
    let matchers = [Matcher::equal("__name__", "m07")];
    assert!(select(&world, &block, &matchers) == select_local(&world, &local, &matchers));
    assert_eq!(world.gets() - before, 2, "sidecar, chunks");

    let files = catalogue::BlockFiles { index: record.files.index + 1, ..record.files.clone() };
    let other = recorded(&world, &catalogue::BucketBlock { files, ..record });
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let found = read_all(&mut *other.select(&selector, &world.ctx(10_000)), TimeRange::ALL);
    assert!(found.is_err(), "neither sidecar nor index are those of the record");
}

/// Place of the sidecar of the first block as a record has it.
fn sidecar_object(world: &World) -> SidecarObject {
    let summary = write_sidecar(&world.disk, &world.local[0], |_| ()).unwrap();
    SidecarObject { len: summary.len, head_len: summary.head_len, crc: 0 }
}

/// The folder `key` of the bucket.
fn remote(world: &World, key: String) -> Remote {
    Remote {
        store: world.rig.store.clone(),
        clock: world.rig.env.clock.clone(),
        handle: world.runtime.handle().clone(),
        folder: super::reading::tenant().into(),
        key,
        rules: ReadRules::default(),
        purpose: Purpose::Query,
        sidecars: Arc::default(),
        buffers: BufferPool::new(0),
    }
}

/// The block in the bucket by its record.
fn recorded(world: &World, record: &catalogue::BucketBlock) -> Arc<BucketBlock> {
    BucketBlock::recorded(record, &remote(world, TENANT.to_owned()), None, BlockCache::new(64 << 20, None))
}

/// The block in the bucket without a record.
fn listed(world: &World, local: &Block) -> Arc<BucketBlock> {
    let ulid = local.meta().ulid;
    let sources = Arc::default();
    let identity = BlockIdentity {
        ulid,
        range: local.range(),
        precedence: (ulid, ulid),
        sources,
        split_set: None,
        external_labels: None,
        is_of_chronolith: true,
    };
    BucketBlock::listed(
        identity,
        None,
        remote(world, format!("{TENANT}/{ulid}")),
        BlockCache::new(64 << 20, None),
    )
}

/// A flipped bit anywhere in the sidecar: the block answers by its index.
#[test]
fn a_damaged_sidecar_changes_no_answer() {
    let world = world_with_sidecars(1, BlockEncoding::Dense);
    let local = world.local[0].clone();
    let good = sidecar_of(&world, &local);
    let questions = [vec![], vec![Matcher::equal("__name__", "m2")]];
    let want = questions.each_ref().map(|matchers| select_local(&world, &local, matchers));
    let step = (good.len() / 60).max(1);
    for at in (0..good.len()).step_by(step).chain(good.len() - 30..good.len()) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        put_sidecar(&world, &local, bad);
        let block = listed(&world, &local);
        for (matchers, want) in questions.iter().zip(&want) {
            assert!(select(&world, &block, matchers) == *want, "byte {at}");
        }
    }
    // Cut, empty, of another block, of a later version.
    let other = world_with_sidecars(2, BlockEncoding::Dense);
    let others = sidecar_of(&other, &other.local[1]);
    for bad in [good[1..].to_vec(), good[..good.len() - 1].to_vec(), b"x".to_vec(), others] {
        put_sidecar(&world, &local, bad);
        let block = listed(&world, &local);
        assert!(select(&world, &block, &questions[1]) == want[1]);
    }
}

/// The last page is damaged: series of pages before it were sent already, the index goes on after them.
#[test]
fn damage_of_a_later_page_neither_repeats_nor_loses_series() {
    let mut world = World::new(CatalogOptions::default());
    let local = write_wide_block(&mut world, BlockEncoding::Dense);
    let mut bytes = sidecar_of(&world, &local);
    let head = SidecarHead::decode(&bytes).unwrap();
    let matchers = [Matcher::new("__name__", chronolith_model::MatchOp::Regex, "m0.*").unwrap()];
    let want = select_local(&world, &local, &matchers);
    assert_eq!(want.len(), 10_000);
    let page = head.pages[head.pages_of(8000..8001).start];
    bytes[usize::try_from(page.offset).unwrap() + 100] ^= 1;
    put_sidecar(&world, &local, bytes);
    let block = world.blocks().unwrap().remove(0);
    assert!(select(&world, &block, &matchers) == want);
    assert!(select(&world, &block, &matchers) == want, "by the index from the start");
}

/// Damage of cached bytes is none of the sidecar: the block is read once more, and by its sidecar.
#[test]
fn damage_in_the_cache_leaves_the_sidecar_in_use() {
    type Picks = fn(BlockFile, u64) -> bool;
    let picks: [Picks; 4] = [
        |file, _| file == BlockFile::Sidecar,
        |file, _| file == BlockFile::Index,
        |file, _| matches!(file, BlockFile::Segment(_)),
        |_, offset| offset % 97 == 5,
    ];
    for encoding in [BlockEncoding::Prometheus, BlockEncoding::Dense] {
        let world = world_with_sidecars(2, encoding);
        for corrupts in picks {
            check_equal(&world);
            check_labels(&world);
            world.catalog.corrupt_cache(corrupts);
            check_labels(&world);
            check_equal(&world);
        }
        assert!(world.catalog.cache().damages > 0);
        assert!(world.blocks().unwrap().iter().all(|block| block.is_read_by_sidecar()));
    }
}

/// Shards need the index, and work on the index reads it next to the sidecar.
#[test]
fn shards_and_indexed_work_read_the_index() {
    let world = world_with_sidecars(1, BlockEncoding::Dense);
    let blocks = world.blocks().unwrap();
    let count = std::num::NonZeroU64::new(3).unwrap();
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut found = Answer::new();
    for idx in 0..3 {
        let shard = Some(chronolith_block::Shard { idx, count });
        let mut batches = blocks[0].select_shard(&selector, shard, &world.ctx(60_000));
        found.extend(read_all(&mut *batches, TimeRange::ALL).unwrap());
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found == select_local(&world, &world.local[0], &[]));
    let counts = world.catalog.start_on_indexed(&blocks, &world.ctx(60_000), |block| {
        block
            .tombstones_after(&[vec![Matcher::equal("pod", "pod-1")]], TimeRange::ALL)
            .map_err(|_| chronolith_model::QueryError::Canceled)
    });
    assert_eq!(counts.wait().unwrap()[0].1, 24);
    check_equal(&world);
    let header_bytes = world.catalog.cache().header_bytes;
    assert!(blocks[0].is_read_by_sidecar() && header_bytes > 0);
}

/// Selections without a metric name read pages until these have cost more than the index, which answers from
/// then on. Damage of the index leads back to the pages.
#[test]
fn selections_without_a_metric_change_to_the_index() {
    let world = world_with_sidecars(2, BlockEncoding::Prometheus);
    let damaged = &world.local[1];
    let path = Path::new("blocks").join(damaged.meta().ulid.to_string()).join("index");
    let mut index = world.disk.disk.read(&path).unwrap();
    index[16..].iter_mut().step_by(64).for_each(|byte| *byte ^= 1);
    world.put(&format!("{TENANT}/{}/index", damaged.meta().ulid), index);

    let matchers = [Matcher::equal("pod", "pod-1")];
    for (block, local) in world.blocks().unwrap().iter().zip(&world.local) {
        let want = select_local(&world, local, &matchers);
        assert!(select(&world, block, &matchers) == want);
        assert!(!block.has_index_reader() && !block.page_costs().prefers_index(), "the first one");
        let mut count = 1;
        while !block.page_costs().prefers_index() {
            assert!(select(&world, block, &matchers) == want);
            count += 1;
            assert!(count < 10_000, "the index is not due");
        }
        assert!(select(&world, block, &matchers) == want);
        let is_damaged = Arc::ptr_eq(local, damaged);
        assert_eq!(
            (block.has_index_reader(), block.page_costs().prefers_index()),
            (!is_damaged, !is_damaged)
        );
        assert!(select(&world, block, &matchers) == want);
        assert!(block.is_read_by_sidecar(), "with a metric name");
    }
}
