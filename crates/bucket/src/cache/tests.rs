//! The cache against the contents of a file: random ranges, evictions, tenants that share the budget.

use chronolith_base::Rng;
use chronolith_block::source::BlockFile;
use proptest::prelude::*;

use super::*;
use crate::remote::parts::PartSet;

const FILE_BYTES: u64 = 4096;
const SPEED: Speed = Speed { first_byte_us: 10.0, bytes_per_us: 1.0, connection_count: 4 };

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn contents() -> Bytes {
    let mut bytes = vec![0; FILE_BYTES as usize];
    Rng::from_seed(3).fill(&mut bytes);
    bytes.into()
}

fn range(segment: u32, start: u64, end: u64) -> ByteRange {
    ByteRange { file: BlockFile::Segment(segment), start, end }
}

/// Reads a range as a query does, its requests answered at once.
fn read(cache: &Arc<BlockCache>, block: BlockKey, name: &str, wanted: ByteRange) -> PartSet {
    let file = contents();
    let mut parts = PartSet::default();
    let looked = cache.look_up(block, &tenant(name), &[wanted], &SPEED, 1, None);
    parts.extend(looked.found);
    for flight in looked.own {
        let ByteRange { file: name, start, end } = flight.range();
        let bytes = Bytes::copy_from_slice(&file[start as usize..end as usize]);
        flight.complete(&bytes);
        parts.extend([FetchedPart { file: name, start, bytes }]);
    }
    assert!(parts.gaps(&[wanted]).is_empty());
    parts.stitch(&[wanted], |_| Ok::<(), ()>(())).unwrap();
    parts
}

fn kept_bytes(cache: &BlockCache) -> u64 {
    let snapshot = cache.snapshot();
    snapshot.header_bytes + snapshot.range_bytes + snapshot.in_flight_bytes
}

proptest! {
    /// Every read has the bytes of the file in one part; the budget holds after each step and all sums are
    /// exact.
    #[test]
    fn reads_equal_the_file_within_the_budget(
        bytes_max in 0u64..20_000,
        steps in prop::collection::vec((0u64..3, 0u32..2, 0u64..FILE_BYTES, 1u64..700, 0u8..20), 1..120),
    ) {
        let cache = BlockCache::new(bytes_max, None);
        let blocks = [cache.new_block(), cache.new_block(), cache.new_block()];
        let file = contents();
        for (idx, segment, start, len, action) in steps {
            let block = blocks[idx as usize];
            let wanted = range(segment, start, (start + len).min(FILE_BYTES));
            match action {
                0 => {
                    cache.remove_block(block);
                }
                1 => cache.remove_ranges(block, &[wanted]),
                // A query that is dropped before its requests are answered.
                2 => drop(cache.look_up(block, &tenant("a"), &[wanted], &SPEED, 1, None)),
                _ => {
                    let name = if idx == 0 { "a" } else { "b" };
                    let parts = read(&cache, block, name, wanted).into_parts();
                    let holds = |part: &FetchedPart| {
                        let end = part.start + part.bytes.len() as u64;
                        part.file == wanted.file && part.start <= wanted.start && wanted.end <= end
                    };
                    prop_assert!(parts.iter().any(holds));
                    for part in parts {
                        let start = part.start as usize;
                        prop_assert_eq!(&part.bytes[..], &file[start..start + part.bytes.len()]);
                    }
                }
            }
            prop_assert_eq!(cache.snapshot().in_flight_bytes, 0);
            prop_assert!(kept_bytes(&cache) <= bytes_max);
            prop_assert!(cache.state.lock().is_consistent());
        }
    }
}

#[test]
fn a_second_read_is_a_reference_to_the_first() {
    let cache = BlockCache::new(1 << 20, None);
    let block = cache.new_block();
    let first = read(&cache, block, "a", range(0, 100, 300)).into_parts();
    let second = read(&cache, block, "a", range(0, 150, 200)).into_parts();
    assert_eq!(first[0].bytes.as_ptr(), second[0].bytes.as_ptr());
    let CacheSnapshot { hits, misses, range_bytes, .. } = cache.snapshot();
    assert_eq!((hits, misses, range_bytes), (1, 1, 200));
    cache.remove_block(block);
    assert_eq!(cache.snapshot().range_bytes, 0);
}

#[test]
fn parts_above_a_quarter_of_the_budget_are_not_kept() {
    let cache = BlockCache::new(1000, None);
    let block = cache.new_block();
    read(&cache, block, "a", range(0, 0, 251));
    assert_eq!(cache.snapshot().range_bytes, 0);
    read(&cache, block, "a", range(0, 0, 250));
    assert_eq!(cache.snapshot().range_bytes, 250);
}

/// A part that was used since the last pass stays when others of its tenant are evicted.
#[test]
fn used_parts_outlive_a_scan() {
    let cache = BlockCache::new(1000, None);
    let (used, scanned) = (cache.new_block(), cache.new_block());
    read(&cache, used, "a", range(0, 0, 100));
    for idx in 0..30 {
        read(&cache, used, "a", range(0, 0, 100));
        read(&cache, scanned, "a", range(0, idx * 100, idx * 100 + 100));
    }
    assert_eq!(cache.snapshot().misses, 31);
    assert!(cache.snapshot().evictions >= 20);
}

/// A tenant that scans takes no more than its share from one that does not.
#[test]
fn a_scan_of_one_tenant_leaves_the_share_of_another() {
    let cache = BlockCache::new(2000, None);
    let (small, large) = (cache.new_block(), cache.new_block());
    for idx in 0..9 {
        read(&cache, small, "small", range(0, idx * 100, idx * 100 + 100));
    }
    for round in 0..5 {
        for idx in 0..40 {
            read(&cache, large, "large", range(round, idx * 100, idx * 100 + 100));
        }
    }
    let state = cache.state.lock();
    assert_eq!(state.share_bytes(&tenant("small")), 900);
    assert_eq!(state.share_bytes(&tenant("large")), 1100);
}

/// A tenant that arrives at a full cache gets its share from the tenant that has more.
#[test]
fn a_tenant_that_arrives_gets_its_share() {
    let cache = BlockCache::new(2000, None);
    let (first, second) = (cache.new_block(), cache.new_block());
    for idx in 0..40 {
        read(&cache, first, "first", range(0, idx * 100, idx * 100 + 100));
    }
    for idx in 0..40 {
        read(&cache, second, "second", range(0, idx * 100, idx * 100 + 100));
    }
    let state = cache.state.lock();
    assert_eq!(state.share_bytes(&tenant("first")), 1000);
    assert_eq!(state.share_bytes(&tenant("second")), 1000);
}

/// Requests in flight count in the share of their tenant: others keep what they have within theirs.
#[test]
fn requests_of_one_tenant_evict_nothing_within_the_share_of_another() {
    let cache = BlockCache::new(2000, None);
    let (small, large) = (cache.new_block(), cache.new_block());
    for idx in 0..9 {
        read(&cache, small, "small", range(0, idx * 100, idx * 100 + 100));
    }
    let wanted: Vec<ByteRange> = (0..30).map(|idx| range(0, idx * 120, idx * 120 + 100)).collect();
    let looked = cache.look_up(large, &tenant("large"), &wanted, &SPEED, 1, None);
    assert_eq!(cache.snapshot().in_flight_bytes, 3000);
    assert_eq!(cache.state.lock().share_bytes(&tenant("small")), 900);
    drop(looked);
    assert_eq!(cache.snapshot().in_flight_bytes, 0);
    assert!(cache.state.lock().is_consistent());
}

#[test]
#[should_panic(expected = "a request is completed with its whole range")]
fn a_request_is_not_completed_with_fewer_bytes() {
    let cache = BlockCache::new(1 << 20, None);
    let looked = cache.look_up(cache.new_block(), &tenant("a"), &[range(0, 0, 100)], &SPEED, 1, None);
    looked.own.into_iter().for_each(|flight| flight.complete(&contents().slice(..99)));
}

#[test]
#[should_panic(expected = "a round asks for each byte once")]
fn a_round_of_overlapping_ranges_is_a_bug() {
    let cache = BlockCache::new(1 << 20, None);
    let ranges = [range(0, 0, 100), range(0, 99, 200)];
    cache.look_up(cache.new_block(), &tenant("a"), &ranges, &SPEED, 1, None);
}

#[test]
#[should_panic(expected = "a range is stitched once it has no gap")]
fn a_range_with_a_gap_is_not_stitched() {
    let mut parts = PartSet::default();
    let part = |start: u64| FetchedPart { file: BlockFile::Index, start, bytes: contents().slice(..10) };
    parts.extend([part(0), part(11)]);
    let wanted = ByteRange { file: BlockFile::Index, start: 0, end: 21 };
    let _ = parts.stitch(&[wanted], |_| Ok::<(), ()>(()));
}
