//! Blocks in the bucket read by their sidecars: answers, requests, damage.

use std::path::Path;
use std::sync::atomic::Ordering;

use chronolith_block::source::TombstonesFile;
use chronolith_block::{Block, BlockSource, BlockWriter, write_sidecar};
use chronolith_format::bucket::sidecar::{SIDECAR_OBJECT, SidecarHead};
use chronolith_model::{BlockEncoding, Matcher, Queryable, Selector, SeriesBatches, TimeRange};

use super::reading::{
    Answer, TENANT, World, check_equal, check_equal_with_retries, labels, read_all, selections, window,
};
use super::*;
use crate::block::{BlockIdentity, BucketBlock};
use crate::headers::HeaderBudget;
use crate::remote::Remote;
use crate::store::request::Operation;
use crate::store::retry::Outcome;
use crate::{BlockObjects, CatalogOptions, SidecarPlace};

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
    let world = World::with_blocks(count, encoding);
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
            let found = world.catalog.for_each_opened(&blocks, &ctx, move |block| {
                ask(block, &Selector { matchers: &owned, range: TimeRange::ALL }, &reading)
            });
            assert_eq!(found.unwrap(), want);
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
        assert_eq!(lists, 2, "the listing of the tenant alone");
    }
}

#[test]
fn failing_requests_for_sidecars_change_no_answer() {
    let world = world_with_sidecars(2, BlockEncoding::Dense);
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

/// Head, pages, chunks: three requests, each byte once; the head is not read again.
#[test]
fn a_cold_query_for_one_metric_of_a_wide_block_takes_three_requests() {
    for encoding in [BlockEncoding::Prometheus, BlockEncoding::Dense] {
        let mut world = World::new(CatalogOptions::default());
        let local = write_wide_block(&mut world, encoding);
        let block = world.blocks().unwrap().remove(0);
        let before = world.gets();
        let matchers = [Matcher::equal("__name__", "m42")];
        let found = select(&world, &block, &matchers);
        let cold = world.gets() - before;
        assert!(found == select_local(&world, &local, &matchers));
        assert_eq!((found.len(), cold), (1000, 3), "series, requests");
        select(&world, &block, &matchers);
        assert_eq!(world.gets() - before - cold, 2, "pages and chunks");
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
    assert_eq!(world.gets() - before, 4, "head, pages and tombstones, chunks");
    check_equal(&world);

    let more = [vec![Matcher::equal("pod", "pod-2")]];
    let later = deleted.delete(&world.disk, &more, range).unwrap().unwrap().block;
    let name = "tombstones-2".to_owned();
    let bytes = world.disk.disk.read(&later.dir().join("tombstones")).unwrap();
    let tombstones = Some(TombstonesFile { name: name.clone(), len: bytes.len() as u64 });
    world.put(&format!("{TENANT}/{}/{name}", meta.ulid), bytes);
    // Of a length that cannot be: by the index.
    let empty = Some(TombstonesFile { name: "tombstones-2".to_owned(), len: 0 });
    let block = block_of(&world, &later, BlockObjects { sidecar: recorded(&world), tombstones: empty });
    assert!(select(&world, &block, &matchers) == select_local(&world, &later, &matchers));
    for sidecar in [SidecarPlace::Unknown, SidecarPlace::Nowhere, recorded(&world)] {
        let block = block_of(&world, &later, BlockObjects { sidecar, tombstones: tombstones.clone() });
        assert!(select(&world, &block, &matchers) == select_local(&world, &later, &matchers), "{sidecar:?}");
    }
}

/// Place of the sidecar of the first block as a record has it.
fn recorded(world: &World) -> SidecarPlace {
    let summary = write_sidecar(&world.disk, &world.local[0], |_| ()).unwrap();
    SidecarPlace::Recorded { len: summary.len, head_len: summary.head_len }
}

/// The block in the bucket with objects as a record has them.
fn block_of(world: &World, local: &Block, objects: BlockObjects) -> Arc<BucketBlock> {
    let ulid = local.meta().ulid;
    let identity = BlockIdentity { ulid, range: local.range(), precedence: (ulid, ulid) };
    let remote = Remote {
        store: world.rig.store.clone(),
        clock: world.rig.env.clock.clone(),
        handle: world.runtime.handle().clone(),
        tenant: super::reading::tenant(),
        key: format!("{TENANT}/{ulid}"),
    };
    BucketBlock::new(identity, objects, remote, Arc::new(HeaderBudget::new(u64::MAX)))
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
        let block = block_of(&world, &local, BlockObjects::default());
        for (matchers, want) in questions.iter().zip(&want) {
            assert!(select(&world, &block, matchers) == *want, "byte {at}");
        }
    }
    // Cut, empty, of another block, of a later version.
    let other = world_with_sidecars(2, BlockEncoding::Dense);
    let others = sidecar_of(&other, &other.local[1]);
    for bad in [good[1..].to_vec(), good[..good.len() - 1].to_vec(), b"x".to_vec(), others] {
        put_sidecar(&world, &local, bad);
        let block = block_of(&world, &local, BlockObjects::default());
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
