//! Bytes of a catalogue snapshot, and milliseconds to encode and decode it.
//!
//! `cargo bench -p chronolith-format --bench catalogue_size`. `cargo test` runs one round over few blocks.
//!
//! Blocks of one tenant over years: each was merged from head blocks of its own, twelve or one hundred of
//! them, and has a sidecar. Times are the best of several rounds of wall clock on one thread.

use chronolith_base::{Clock, SystemClock};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::SnapshotKey;
use chronolith_format::bucket::catalogue::{
    Ancestry, BlockCounts, BlockFiles, BlockFolder, BucketBlock, EtagSums, SidecarObject, Snapshot,
};
use chronolith_model::{DuplicatePolicy, TimeRange, TimeUnit};

/// Size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    block_count: u64,
    round_count: usize,
}

const MEASURED: Size = Size { block_count: 10_000, round_count: 7 };
const TESTED: Size = Size { block_count: 100, round_count: 1 };
const HEAD_BLOCK_MS: u64 = 7_200_000;

/// Block `n` of those from the head, or of those that a compaction wrote; the random part does not compress.
fn ulid(n: u64, is_compacted: bool) -> Ulid {
    let random = (u128::from(n) * 2 + u128::from(is_compacted))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Ulid::new((1_600_000_000_000 + n * HEAD_BLOCK_MS).cast_signed(), random)
}

fn block(n: u64, source_count: u64) -> BucketBlock {
    let first = n * source_count;
    let start = (1_600_000_000_000 + first * HEAD_BLOCK_MS).cast_signed();
    let span = (source_count * HEAD_BLOCK_MS).cast_signed();
    BucketBlock {
        ulid: ulid(first + source_count, true),
        folder: BlockFolder::Mimir,
        time_unit: TimeUnit::Milli,
        range: TimeRange { start, end: start + span },
        counts: BlockCounts {
            series: 1_000_000 + n,
            chunks: 12_000_000 + n * 7,
            samples: n << 20,
            tombstones: 0,
        },
        files: BlockFiles {
            index: 90_000_000 + n * 13,
            segments: vec![536_870_000 + n % 912; 3],
            meta: 1200,
            rollups: Vec::new(),
        },
        etags: EtagSums {
            index: n as u32 ^ 0x5bd1_e995,
            segments: (1..4).map(|idx| (n as u32).wrapping_mul(0x85eb_ca6b ^ idx)).collect(),
            rollups: Vec::new(),
            sidecar: (n as u32).wrapping_mul(0xc2b2_ae35),
        },
        sidecar: Some(SidecarObject {
            len: 50_000_000 + n * 17,
            head_len: 40_000 + n as u32,
            crc: (n as u32).wrapping_mul(0x9e37_79b9),
        }),
        tombstones: None,
        ancestry: Ancestry {
            level: 2,
            oldest_source: ulid(first, false),
            sources: (first..first + source_count).map(|n| ulid(n, false)).collect(),
            parents: (first..first + source_count.min(12)).map(|n| ulid(n, false)).collect(),
            split_set: None,
            split_blocks: Vec::new(),
            is_compaction_failed: false,
        },
        uploaded_ms: start + span + 60_000 + n.cast_signed(),
    }
}

fn measure(source_count: u64, size: Size) {
    let clock = SystemClock::new();
    let snapshot = Snapshot {
        number: 7,
        writer: [1; 16],
        created_ms: 0,
        blocks: (0..size.block_count).map(|n| block(n, source_count)).collect(),
        duplicates: DuplicatePolicy::default(),
        deletion_marks: Vec::new(),
        cuts: Vec::new(),
    };
    let mut bytes = Vec::new();
    let mut encode_ns = u64::MAX;
    let mut decode_ns = u64::MAX;
    for _ in 0..size.round_count {
        bytes.clear();
        let start = clock.mono_ns();
        snapshot.encode("anonymous", &mut bytes).expect("encodes");
        let encoded = clock.mono_ns();
        let decoded =
            Snapshot::decode(&bytes, SnapshotKey { folder: "anonymous", number: 7 }).expect("decodes");
        decode_ns = decode_ns.min(clock.mono_ns() - encoded);
        encode_ns = encode_ns.min(encoded - start);
        assert!(decoded == snapshot);
    }
    println!(
        "{} blocks, {source_count:3} sources: {:8} bytes, {:6.1} each, {:5.1} ms encode, {:5.1} ms decode",
        size.block_count,
        bytes.len(),
        bytes.len() as f64 / size.block_count as f64,
        encode_ns as f64 / 1e6,
        decode_ns as f64 / 1e6,
    );
}

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let size = if is_measured { MEASURED } else { TESTED };
    for source_count in [1, 12, 100] {
        measure(source_count, size);
    }
}
