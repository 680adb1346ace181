//! Limits of what one query reads: at the limit it answers, one above it fails before it reads more.

use std::path::Path;
use std::sync::Arc;

use chronolith_base::MemoryBudget;
use chronolith_model::{BlockEncoding, FetchLimits, Matcher, QueryError, ReadContext, Selector, TimeRange};

use super::reading::{Answer, TENANT, World, read_all, window};
use crate::{BucketBlock, CatalogOptions, check_first_batches};

/// Series of each of four metrics in a block.
const SERIES: u64 = 30;

/// Reads one metric of one block.
fn read(world: &World, limits: FetchLimits) -> Result<Answer, QueryError> {
    let block = &world.blocks().unwrap()[0];
    let selector = Selector { matchers: &[Matcher::equal("__name__", "m1")], range: TimeRange::ALL };
    let ctx = world.ctx(60_000).with_fetch_limits(limits);
    read_all(&mut *block.select(&selector, &ctx), TimeRange::ALL)
}

#[track_caller]
fn check_refused(found: Result<Answer, QueryError>, setting: &str) {
    match found {
        Err(error @ QueryError::Limit { .. }) => assert!(error.to_string().contains(setting), "{error}"),
        other => panic!("{} is not applied: {:?}", setting, other.map(|answer| answer.len())),
    }
}

#[test]
fn series_are_refused_before_chunks_are_read() {
    for encoding in [BlockEncoding::Prometheus, BlockEncoding::Dense] {
        let world = World::with_blocks(1, encoding);
        let limits = |series_max| FetchLimits { series_max, ..FetchLimits::default() };
        check_refused(read(&world, limits(SERIES - 1)), "query.max-fetched-series");
        // All that the refused query needed is cached: a further request would be one for chunks.
        let before = world.gets();
        check_refused(read(&world, limits(SERIES - 1)), "query.max-fetched-series");
        assert_eq!(world.gets(), before);
        assert_eq!(read(&world, limits(SERIES)).unwrap().len() as u64, SERIES);
        assert!(world.gets() > before, "the chunks");
    }
}

#[test]
fn bytes_count_whether_they_are_cached_or_not() {
    let world = World::with_blocks(1, BlockEncoding::Prometheus);
    let limits = |bytes_max| FetchLimits { bytes_max, ..FetchLimits::default() };
    let without_cache = World::without_cache(1, BlockEncoding::Prometheus);
    // The least limit at which the query answers.
    let (mut low, mut high) = (0, 1 << 24);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        match read(&world, limits(middle)) {
            Ok(_) => high = middle,
            Err(_) => low = middle,
        }
    }
    // A sample of the block takes more than a byte.
    assert!((SERIES * 240..1 << 20).contains(&high), "{high} bytes");
    check_refused(read(&without_cache, limits(high - 1)), "query.max-fetched-bytes");
    assert_eq!(read(&without_cache, limits(high)).unwrap().len() as u64, SERIES);
}

/// Chunks are not read: those in the bucket are zeros.
#[test]
fn first_batches_that_cannot_be_in_memory_together_are_refused() {
    let mut world = World::new(CatalogOptions::default());
    for idx in 0..3 {
        let meta = world.write_block(window(idx), BlockEncoding::Prometheus);
        world.upload(meta.ulid, &["000001"]);
        let segment = format!("blocks/{}/chunks/000001", meta.ulid);
        let zeros = vec![0; world.disk.disk.read(Path::new(&segment)).unwrap().len()];
        world.put(&format!("{TENANT}/{}/chunks/000001", meta.ulid), zeros);
    }
    let blocks = world.blocks().unwrap();
    let check = |blocks: &[Arc<BucketBlock>], budget_bytes| {
        let clock = world.rig.env.clock.clone();
        let ctx = ReadContext::new(clock, u64::MAX, MemoryBudget::new("query", budget_bytes));
        let found = check_first_batches(blocks, &Selector { matchers: &[], range: TimeRange::ALL }, &ctx);
        assert_eq!(ctx.budget.used_bytes(), 0);
        found
    };
    // The least budget of one block, of which 120 series have 240 samples each.
    let (mut low, mut high) = (0, 1 << 24);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        match check(&blocks[..1], middle) {
            Ok(()) => high = middle,
            Err(_) => low = middle,
        }
    }
    assert!((120 * 240..1 << 20).contains(&high), "{high} bytes");
    assert!(matches!(check(&blocks, 2 * high), Err(QueryError::Memory(_))));
    check(&blocks, 4 * high).unwrap();
}
