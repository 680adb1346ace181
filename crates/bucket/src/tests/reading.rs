//! Blocks in the bucket answer as the same blocks on disk, over a client that fails.

use std::path::Path;
use std::sync::atomic::Ordering;

use chronolith_block::source::BlockFile;
use chronolith_block::{Block, BlockSource, BlockWriter};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_model::{
    BlockEncoding, Columns, Labels, LabelsBuilder, MatchOp, Matcher, QueryError, Queryable, ReadContext,
    Selector, SeriesBatches, TimeRange,
};
use tokio::runtime::Runtime;

use super::*;
use crate::store::meter::MeterSnapshot;
use crate::store::request::Operation;
use crate::{BlockCatalog, BucketBlock, CatalogOptions};

pub(super) const START_MS: i64 = 1_700_000_000_000;
const WINDOW_MS: i64 = 7_200_000;
pub(super) const TENANT: &str = "team-a";
/// A query with a deadline of less than a second fails within this time, also on a busy machine.
const FAILURE_TIME_MAX_NS: u64 = 20_000_000_000;

/// Series with their times and the bits of their values.
pub(super) type Answer = Vec<(Labels, Vec<(i64, u64)>)>;

/// Blocks in memory, on a disk and in a bucket.
pub(super) struct World {
    pub(super) runtime: Runtime,
    pub(super) rig: Rig,
    pub(super) catalog: Arc<BlockCatalog>,
    pub(super) disk: Env,
    pub(super) local: Vec<Arc<Block>>,
}

pub(super) fn window(idx: i64) -> TimeRange {
    TimeRange::new(START_MS + idx * WINDOW_MS, START_MS + (idx + 1) * WINDOW_MS)
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let mut builder = LabelsBuilder::default();
    pairs.iter().for_each(|(name, value)| builder.push(name, value));
    builder.finish()
}

impl World {
    pub(super) fn new(options: CatalogOptions) -> World {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let rig = {
            let _entered = runtime.enter();
            Rig::memory(FaultPlan::default())
        };
        let clock = rig.env.clock.clone();
        let catalog = BlockCatalog::new(rig.store.clone(), clock, runtime.handle().clone(), &options);
        let (disk, _, _) = Env::fake(START_MS, 7);
        World { runtime, rig, catalog, disk, local: Vec::new() }
    }

    /// A world with blocks of consecutive windows, each with 4 metrics of 30 series.
    pub(super) fn with_blocks(count: i64, encoding: BlockEncoding) -> World {
        World::with_options(count, encoding, CatalogOptions::default())
    }

    /// As [`World::with_blocks`], without room for anything in the cache.
    pub(super) fn without_cache(count: i64, encoding: BlockEncoding) -> World {
        World::with_options(
            count,
            encoding,
            CatalogOptions { memory_bytes_max: 1, ..CatalogOptions::default() },
        )
    }

    fn with_options(count: i64, encoding: BlockEncoding, options: CatalogOptions) -> World {
        let mut world = World::new(options);
        for idx in 0..count {
            let meta = world.write_block(window(idx), encoding);
            world.upload(meta.ulid, &[]);
        }
        world
    }

    pub(super) fn write_block(&mut self, range: TimeRange, encoding: BlockEncoding) -> BlockMeta {
        let mut writer =
            BlockWriter::create(&self.disk, Path::new("blocks")).unwrap().with_encoding(encoding);
        let rng = chronolith_base::Rng::from_seed(range.start.unsigned_abs());
        let times: Vec<i64> = (0..240).map(|i| range.start + i * 15_000 + (i * 7919) % 97).collect();
        for metric in 0..4 {
            for path in 0..6 {
                for pod in 0..5 {
                    let (metric, path, pod) =
                        (format!("m{metric}"), format!("/p/{path}"), format!("pod-{pod}"));
                    let labels = labels(&[("__name__", &metric), ("path", &path), ("pod", &pod)]);
                    let mut total = 0;
                    let values: Vec<f64> = times
                        .iter()
                        .map(|_| {
                            total += rng.below(1000);
                            total as f64
                        })
                        .collect();
                    writer.add_samples(&labels, &times, &values).unwrap();
                }
            }
        }
        let meta = writer.finish(BlockSource::head(range)).unwrap().unwrap();
        let dir = Path::new("blocks").join(meta.ulid.to_string());
        self.local.push(Block::open(&self.disk, &dir).unwrap());
        // Blocks of the same moment are in the order of their random parts.
        self.local.sort_by_key(|block| block.meta().ulid);
        meta
    }

    /// Puts the files of a block into the bucket, except for those that are left out.
    pub(super) fn upload(&self, ulid: Ulid, left_out: &[&str]) {
        let dir = Path::new("blocks").join(ulid.to_string());
        for sub in ["", "chunks"] {
            for entry in self.disk.disk.list(&dir.join(sub)).unwrap() {
                if entry.is_dir || left_out.contains(&entry.name.as_str()) {
                    continue;
                }
                let name = if sub.is_empty() { entry.name.clone() } else { format!("{sub}/{}", entry.name) };
                let body = self.disk.disk.read(&dir.join(&name)).unwrap();
                self.put(&format!("{TENANT}/{ulid}/{name}"), body);
            }
        }
    }

    pub(super) fn put(&self, key: &str, body: Vec<u8>) {
        let request = self.rig.query(10_000);
        self.runtime.block_on(self.rig.store.put(&request, key, body.into())).unwrap();
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.rig.env.clock.mono_ns()
    }

    /// Waits for a change in the background. Fails with what `found` returns if it does not come.
    #[track_caller]
    pub(super) fn wait_until<F: std::fmt::Debug>(
        &self,
        mut is_so: impl FnMut() -> bool,
        found: impl Fn() -> F,
    ) {
        let deadline_ns = self.now_ns() + WAIT_TIMEOUT_NS;
        while !is_so() {
            assert!(self.now_ns() < deadline_ns, "{:?}", found());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn ctx(&self, timeout_ms: u64) -> ReadContext {
        let clock = self.rig.env.clock.clone();
        let deadline_ns = clock.mono_ns() + timeout_ms * 1_000_000;
        ReadContext::new(clock, deadline_ns, chronolith_base::MemoryBudget::new("query", u64::MAX))
    }

    pub(super) fn blocks(&self) -> Result<Vec<Arc<crate::BucketBlock>>, QueryError> {
        self.catalog.blocks_in(tenant(), TimeRange::ALL, &self.ctx(10_000))
    }

    /// Ulids of the list, in its order.
    pub(super) fn ulids(&self) -> Vec<Ulid> {
        self.blocks().unwrap().iter().map(|block| block.ulid()).collect()
    }

    pub(super) fn counters(&self) -> MeterSnapshot {
        self.rig.store.counters()
    }

    pub(super) fn gets(&self) -> u64 {
        self.counters().requests(Operation::Get, crate::store::retry::Outcome::Ok)
    }
}

pub(super) fn tenant() -> TenantId {
    TenantId::new(TENANT).unwrap()
}

pub(super) fn read_all(batches: &mut dyn SeriesBatches, range: TimeRange) -> Result<Answer, QueryError> {
    let mut series = Vec::new();
    while batches.next_batch(&mut series)? {}
    let mut out = Vec::new();
    for one in series {
        let mut columns = Columns::default();
        one.samples.read(range, &mut columns)?;
        let samples = columns.times.iter().zip(&columns.values).map(|(time, value)| (*time, value.to_bits()));
        out.push((one.labels, samples.collect()));
    }
    Ok(out)
}

pub(super) fn regex(name: &str, op: MatchOp, text: &str) -> Matcher {
    Matcher::new(name, op, text).unwrap()
}

pub(super) fn selections() -> Vec<Vec<Matcher>> {
    let name = || Matcher::equal("__name__", "m2");
    vec![
        vec![],
        vec![name()],
        vec![name(), Matcher::equal("path", "/p/3")],
        vec![name(), regex("pod", MatchOp::Regex, "pod-[13]")],
        vec![regex("path", MatchOp::Regex, ".*[24]"), regex("pod", MatchOp::NotRegex, "pod-0")],
        vec![name(), regex("pod", MatchOp::NotEqual, "pod-4")],
        vec![Matcher::equal("__name__", "none")],
    ]
}

/// Checks every selection of every block, over parts of its time, against the block on disk, bit by bit.
#[track_caller]
pub(super) fn check_equal(world: &World) {
    let blocks = world.blocks().unwrap();
    assert_eq!(blocks.len(), world.local.len());
    for (remote, local) in blocks.iter().zip(&world.local) {
        let whole = local.range();
        for range in [whole, TimeRange::new(whole.start + 1_000_000, whole.start + 1_700_000)] {
            for matchers in selections() {
                let selector = Selector { matchers: &matchers, range };
                let ctx = world.ctx(60_000);
                let want = read_all(&mut *local.select(&selector, &ctx).unwrap(), range).unwrap();
                let found = read_all(&mut *remote.select(&selector, &ctx), range).unwrap();
                assert!(found == want, "{} of {} series", found.len(), want.len());
                assert_eq!(ctx.budget.used_bytes(), 0, "memory of fetched ranges is given back");
            }
        }
    }
}

#[test]
fn selections_equal_those_of_the_blocks_on_disk() {
    for encoding in [BlockEncoding::Prometheus, BlockEncoding::Dense] {
        check_equal(&World::with_blocks(3, encoding));
    }
}

/// A third of the requests fails, bodies are cut, answers are late: the answers stay equal. Nothing is
/// cached, so that every query meets faults.
#[test]
fn failing_requests_change_no_answer() {
    let world = World::without_cache(2, BlockEncoding::Dense);
    let plan = FaultPlan { unavailable: 150, cut: 100, delayed: 50, delay_ms: 3, ..FaultPlan::default() };
    world.rig.faults.set_plan(plan);
    check_equal_with_retries(&world);
    let injected_count = world.rig.faults.injected.load(Ordering::Relaxed);
    assert!(injected_count > 20, "{injected_count} faults");
}

/// Bits flip on the way from the bucket: an item that fails its checksum is read once more, and the answers
/// stay equal. A query whose second read is damaged as well fails.
#[test]
fn flipped_bits_of_answers_change_no_answer() {
    let world = World::without_cache(2, BlockEncoding::Dense);
    world.rig.faults.set_plan(FaultPlan { flipped: 200, ..FaultPlan::default() });
    check_equal_with_retries(&world);
    let injected_count = world.rig.faults.injected.load(Ordering::Relaxed);
    assert!(injected_count > 10, "{injected_count} faults");
    assert!(world.catalog.cache().damages > 5);
}

/// As [`check_equal`] where the budget of retries may run out: a query then fails and is asked again, but
/// never answers less.
#[track_caller]
pub(super) fn check_equal_with_retries(world: &World) {
    let blocks = loop {
        match world.blocks() {
            Ok(blocks) => break blocks,
            Err(error) => assert!(matches!(error, QueryError::Unavailable { .. }), "{error}"),
        }
    };
    for (remote, local) in blocks.iter().zip(&world.local) {
        for matchers in selections() {
            let selector = Selector { matchers: &matchers, range: local.range() };
            let want = read_all(&mut *local.select(&selector, &world.ctx(60_000)).unwrap(), local.range());
            let mut tries = 0;
            let found = loop {
                tries += 1;
                let ctx = world.ctx(60_000);
                match read_all(&mut *remote.select(&selector, &ctx), local.range()) {
                    Ok(found) => break found,
                    Err(error) => {
                        let is_expected = error.is_of_source();
                        assert!(is_expected && tries < 100, "{error}");
                    }
                }
            };
            assert!(found == want.unwrap());
        }
    }
}

#[test]
fn an_unreachable_bucket_is_unavailable_within_the_deadline() {
    let world = World::with_blocks(1, BlockEncoding::Dense);
    world.rig.faults.set_plan(FaultPlan { unavailable: 1000, ..FaultPlan::default() });
    let start_ns = world.now_ns();
    let found = world.catalog.blocks_in(tenant(), TimeRange::ALL, &world.ctx(300));
    assert!(matches!(found, Err(QueryError::Unavailable { .. } | QueryError::Timeout)));
    assert!(world.now_ns() - start_ns < FAILURE_TIME_MAX_NS);
    // Nothing of the failure is kept.
    world.rig.faults.set_plan(FaultPlan::default());
    check_equal(&world);

    let world = World::without_cache(1, BlockEncoding::Dense);
    let block = &world.blocks().unwrap()[0];
    world.rig.faults.set_plan(FaultPlan { unavailable: 1000, ..FaultPlan::default() });
    let selector = Selector { matchers: &[Matcher::equal("__name__", "m1")], range: TimeRange::ALL };
    let found = read_all(&mut *block.select(&selector, &world.ctx(300)), TimeRange::ALL);
    assert!(matches!(found, Err(QueryError::Unavailable { .. } | QueryError::Timeout)));
}

/// A query that allows a partial result gives up a block that does not answer while it has time left itself.
#[test]
fn a_partial_result_does_not_wait_for_a_block_until_the_deadline() {
    let world = World::without_cache(1, BlockEncoding::Dense);
    let block = &world.blocks().unwrap()[0];
    world.rig.faults.set_plan(FaultPlan { stalled: 1000, stall_ms: 60_000, ..FaultPlan::default() });
    let selector = Selector { matchers: &[Matcher::equal("__name__", "m1")], range: TimeRange::ALL };
    let ctx = world.ctx(2000).with_source_deadline();
    let found = read_all(&mut *block.select(&selector, &ctx), TimeRange::ALL);
    assert!(matches!(found, Err(QueryError::Timeout | QueryError::Unavailable { .. })), "{found:?}");
    assert!(ctx.check().is_ok(), "the query has time to go on");

    let ctx = world.ctx(2000).with_source_deadline();
    let reading = ctx.clone();
    let work = move |_: &BucketBlock, block: &dyn Queryable| {
        let selector = Selector { matchers: &[], range: TimeRange::ALL };
        block.label_names(&selector, 0, &reading)
    };
    let blocks = std::slice::from_ref(block);
    let found = world.catalog.start_on_opened(blocks, &ctx, work, |_, _| Ok(vec!["left out".to_owned()]));
    assert_eq!(found.wait().unwrap(), [["left out"]]);
    assert!(ctx.check().is_ok(), "the query has time to go on");
    let other = TenantId::new("team-b").unwrap();
    let found = world.catalog.blocks_in(&other, TimeRange::ALL, &world.ctx(300));
    assert!(matches!(found, Err(QueryError::Unavailable { .. })));
}

/// Reads stall until one of each block is at work; one block after the other would never get there.
#[test]
fn all_blocks_of_a_query_are_fetched_at_the_same_time() {
    let world = World::with_blocks(12, BlockEncoding::Dense);
    let blocks = world.blocks().unwrap();
    world.rig.faults.set_plan(FaultPlan { stalled: 1000, stall_ms: 3_600_000, ..FaultPlan::default() });
    let ctx = world.ctx(600_000);
    let selector = Selector { matchers: &[Matcher::equal("__name__", "m1")], range: TimeRange::ALL };
    let mut selected: Vec<_> = blocks.iter().map(|block| block.select(&selector, &ctx)).collect();
    let reads = &world.rig.faults.reads;
    world.wait_until(|| reads.open_key_count() == blocks.len(), || reads.open_key_count());
    world.rig.faults.set_plan(FaultPlan::default());
    for batches in &mut selected {
        assert_eq!(read_all(&mut **batches, TimeRange::ALL).unwrap().len(), 30);
    }
}

#[test]
fn a_dropped_selection_stops_and_gives_its_memory_back() {
    let world = World::with_blocks(1, BlockEncoding::Prometheus);
    let block = &world.blocks().unwrap()[0];
    let ctx = world.ctx(60_000);
    world.rig.faults.set_plan(FaultPlan { stalled: 1000, stall_ms: 30, ..FaultPlan::default() });
    for pause_ms in [0, 35, 70, 110] {
        let batches = block.select(&Selector { matchers: &[], range: TimeRange::ALL }, &ctx);
        std::thread::sleep(Duration::from_millis(pause_ms));
        drop(batches);
    }
    world.wait_until(|| ctx.budget.used_bytes() == 0, || ctx.budget.used_bytes());
}

#[test]
fn marked_incomplete_and_downsampled_blocks_are_left_out_and_damaged_ones_are_not() {
    let mut world = World::with_blocks(1, BlockEncoding::Dense);
    let marked = world.write_block(window(1), BlockEncoding::Dense).ulid;
    world.upload(marked, &[]);
    world.put(&format!("{TENANT}/markers/{marked}-deletion-mark.json"), b"{}".to_vec());
    let incomplete = world.write_block(window(2), BlockEncoding::Dense).ulid;
    world.upload(incomplete, &["meta.json"]);
    let downsampled = world.write_block(window(3), BlockEncoding::Dense);
    let mut text = Vec::new();
    downsampled.encode(&mut text);
    let thanos = b"\"thanos\": {\"labels\": {}, \"downsample\": {\"resolution\": 300000}},\n\t\"version\": 1";
    let text =
        String::from_utf8(text).unwrap().replace("\"version\": 1", std::str::from_utf8(thanos).unwrap());
    world.put(&format!("{TENANT}/{}/meta.json", downsampled.ulid), text.into_bytes());
    let damaged = Ulid::new(5, 5);
    world.put(&format!("{TENANT}/{damaged}/meta.json"), b"{".to_vec());
    assert_eq!(world.ulids().len(), 2);
    assert!(world.ulids().contains(&damaged));
    let left_out = world.catalog.left_out(tenant());
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    assert!(left_out.iter().any(|why| why.contains("downsampled by Thanos to 300000 ms")), "{left_out:?}");
}

/// A list is refreshed in the background once it is older than the poll interval, and blocks that stay keep
/// their headers.
#[test]
fn a_new_block_is_seen_by_a_later_query() {
    let options = CatalogOptions { poll: Duration::ZERO, ..CatalogOptions::default() };
    let mut world = World::new(options);
    let first = world.write_block(window(0), BlockEncoding::Dense).ulid;
    world.upload(first, &[]);
    let before = world.blocks().unwrap();
    assert_eq!(world.catalog.generation(tenant()), 1);
    let second = world.write_block(window(1), BlockEncoding::Dense).ulid;
    world.upload(second, &[]);
    let mut both = [first, second];
    both.sort_unstable();
    world.wait_until(|| world.ulids() == both, || world.ulids());
    assert_eq!(world.catalog.generation(tenant()), 2);
    assert!(world.blocks().unwrap().iter().any(|block| Arc::ptr_eq(block, &before[0])));
    check_equal(&world);
}

#[test]
fn tenants_see_their_own_blocks() {
    let world = World::with_blocks(1, BlockEncoding::Dense);
    let other = TenantId::new("team-b").unwrap();
    assert!(world.catalog.blocks_in(&other, TimeRange::ALL, &world.ctx(1000)).unwrap().is_empty());
    let elsewhere = TimeRange::new(0, START_MS);
    assert!(world.catalog.blocks_in(tenant(), elsewhere, &world.ctx(1000)).unwrap().is_empty());
    assert_eq!(world.blocks().unwrap().len(), 1);
}

/// Mimir's bucket index names the time of each block: no `meta.json` is read before a query needs the block.
#[test]
fn blocks_of_the_bucket_index_are_listed_without_a_request_for_each() {
    use std::io::Write;

    let world = World::with_blocks(5, BlockEncoding::Prometheus);
    let block = |block: &Arc<Block>| {
        let (ulid, range) = (block.meta().ulid, block.range());
        format!("{{\"block_id\":\"{ulid}\",\"min_time\":{},\"max_time\":{}}}", range.start, range.end)
    };
    let blocks: Vec<String> = world.local.iter().map(block).collect();
    let json = format!(
        "{{\"version\":2,\"blocks\":[{}],\"block_deletion_marks\":[],\"updated_at\":1}}",
        blocks.join(",")
    );
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(json.as_bytes()).unwrap();
    world.put(&format!("{TENANT}/bucket-index.json.gz"), gzip.finish().unwrap());
    let before = world.gets();
    assert_eq!(world.blocks().unwrap().len(), 5);
    assert_eq!(world.gets() - before, 1, "the bucket index alone");
    check_equal(&world);
}

/// Headers beyond their budget are dropped and read again by the next query.
#[test]
fn headers_stay_within_their_budget() {
    let mut world = World::new(CatalogOptions { memory_bytes_max: 1, ..CatalogOptions::default() });
    for idx in 0..4 {
        let meta = world.write_block(window(idx), BlockEncoding::Dense);
        world.upload(meta.ulid, &[]);
    }
    check_equal(&world);
    assert!(world.catalog.cache().header_count <= 1);
    check_equal(&world);
}

#[test]
fn questions_for_labels_equal_those_of_the_blocks_on_disk() {
    let world = World::with_blocks(3, BlockEncoding::Dense);
    let blocks = world.blocks().unwrap();
    let ctx = world.ctx(60_000);
    for matchers in selections() {
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let want: Vec<Vec<String>> =
            world.local.iter().map(|block| block.label_values("pod", &selector, 0, &ctx).unwrap()).collect();
        let (owned, reading) = (matchers.clone(), ctx.clone());
        let work = move |_: &BucketBlock, block: &dyn Queryable| {
            block.label_values("pod", &Selector { matchers: &owned, range: TimeRange::ALL }, 0, &reading)
        };
        let found = world.catalog.start_on_opened(&blocks, &ctx, work, |_, error| Err(error));
        assert_eq!(found.wait().unwrap(), want);
    }
}

/// Damage in the index or in a chunk is an error that names the object, not a shorter answer.
#[test]
fn damaged_objects_are_named() {
    let world = World::with_blocks(1, BlockEncoding::Prometheus);
    let ulid = world.local[0].meta().ulid;
    let key = format!("{TENANT}/{ulid}/chunks/000001");
    let path = Path::new("blocks").join(ulid.to_string()).join("chunks/000001");
    let mut segment = world.disk.disk.read(&path).unwrap();
    let middle = segment.len() / 2;
    segment[middle] ^= 0x10;
    world.put(&key, segment);
    let block = &world.blocks().unwrap()[0];
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let error = read_all(&mut *block.select(&selector, &world.ctx(10_000)), TimeRange::ALL).unwrap_err();
    assert!(matches!(error, QueryError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains(&key), "{error}");
}

/// A query that was answered before is answered from memory.
#[test]
fn a_warm_query_sends_no_request() {
    let world = World::with_blocks(2, BlockEncoding::Dense);
    check_equal(&world);
    let before = world.rig.faults.requests.load(Ordering::Relaxed);
    check_equal(&world);
    assert_eq!(world.rig.faults.requests.load(Ordering::Relaxed) - before, 0);
    let snapshot = world.catalog.cache();
    assert!(snapshot.hits > 0 && snapshot.range_bytes > 0 && snapshot.in_flight_bytes == 0);
}

/// A damaged item in the cache is a miss: it is dropped and read once more, lists, entries and chunks alike.
#[test]
fn damage_in_the_cache_changes_no_answer() {
    type Picks = fn(BlockFile, u64) -> bool;
    let picks: [Picks; 4] = [
        |file, _| file == BlockFile::Index,
        |file, _| file != BlockFile::Index,
        |_, offset| offset % 97 == 5,
        |_, offset| offset % 1009 == 5,
    ];
    for encoding in [BlockEncoding::Prometheus, BlockEncoding::Dense] {
        let world = World::with_blocks(2, encoding);
        check_equal(&world);
        for corrupts in picks {
            let before = world.catalog.cache();
            world.catalog.corrupt_cache(corrupts);
            check_equal(&world);
            let after = world.catalog.cache();
            assert!(after.damages > before.damages && after.misses > before.misses, "{after:?}");
            // The damage is gone. Sound items that were cached with a damaged one are read again.
            check_equal(&world);
            assert_eq!(world.catalog.cache().damages, after.damages);
            let whole = world.catalog.cache();
            check_equal(&world);
            assert_eq!(world.catalog.cache().misses, whole.misses);
        }
    }
}

#[test]
fn damage_in_the_cache_changes_no_label_values() {
    let world = World::with_blocks(1, BlockEncoding::Dense);
    let blocks = world.blocks().unwrap();
    let ask = || {
        let ctx = world.ctx(60_000);
        let work = move |_: &BucketBlock, block: &dyn Queryable| {
            let matchers = [Matcher::equal("__name__", "m2")];
            block.label_values("pod", &Selector { matchers: &matchers, range: TimeRange::ALL }, 0, &ctx)
        };
        world
            .catalog
            .start_on_opened(&blocks, &world.ctx(60_000), work, |_, error| Err(error))
            .wait()
            .unwrap()
    };
    let want = ask();
    world.catalog.corrupt_cache(|_, _| true);
    assert_eq!(ask(), want);
    assert_eq!(world.catalog.cache().damages, 1);
}
