//! Compaction of imported blocks: plain dense chunks are entropy-coded, and every sample keeps its bits.

use std::ops::ControlFlow;
use std::path::Path;

use crate::test_env::TestEnv;
use crate::test_env::log::{Packing, samples, segment, series};
use chronolith_base::{ByteReader, Rng};
use chronolith_block::{MergeRules, Pace, compact, open_dir};
use chronolith_format::chunk::dense::{ENCODING_DENSE, ENCODING_PACKED};
use chronolith_model::{BlockEncoding, DuplicatePolicy};

const TIME: i64 = 1_700_000_000_000;
const SERIES_COUNT: u64 = 12;
/// More than a day of samples: at least two blocks.
const SAMPLE_COUNT: i64 = 6_500;
/// Bytes before the chunks of a segment, and of the checksum after each chunk.
const SEGMENT_HEADER_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

struct Unhurried;

impl Pace for Unhurried {
    fn spend(&self, _bytes: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Encoding and length of every chunk of the block in `dir`.
fn chunks_of(test: &TestEnv, dir: &Path) -> Vec<(u8, usize)> {
    let mut chunks = Vec::new();
    for entry in test.env.disk.list(&dir.join("chunks")).unwrap() {
        let bytes = test.env.disk.read(&dir.join("chunks").join(entry.name)).unwrap();
        let mut reader = ByteReader::at(&bytes, SEGMENT_HEADER_BYTES);
        while !reader.is_empty() {
            let len = reader.length("chunk length").unwrap();
            chunks.push((reader.u8("encoding").unwrap(), len));
            reader.bytes("chunk and checksum", len + CHECKSUM_BYTES).unwrap();
        }
    }
    chunks
}

/// Records of counters with mostly small increments: products of two random numbers.
fn log() -> Vec<Vec<u8>> {
    let rng = Rng::from_seed(11);
    let mut records: Vec<Vec<u8>> = (1..=SERIES_COUNT)
        .map(|series_ref| series(series_ref, &[("__name__", "c"), ("n", &series_ref.to_string())]))
        .collect();
    let mut current = vec![0u64; SERIES_COUNT as usize];
    for step in 0..SAMPLE_COUNT {
        let scrape: Vec<_> = (1..)
            .zip(&mut current)
            .map(|(series_ref, value)| {
                *value += rng.below(64) * rng.below(64);
                (series_ref, TIME + step * 15_000, *value as f64)
            })
            .collect();
        records.push(samples(&scrape));
    }
    records
}

#[test]
fn compaction_entropy_codes_blocks_of_an_import() {
    let test = TestEnv::new();
    test.put(Path::new("wal/00000000"), &segment(&log(), Packing::Snappy));
    let report = test.import().unwrap();
    assert_eq!((report.damages.as_slice(), report.head.samples), (&[][..], SERIES_COUNT * 6_500));
    let imported = test.samples();
    let blocks_dir = Path::new(crate::test_env::BLOCKS);
    let (inputs, _) = open_dir(&test.env, blocks_dir);
    assert!(inputs.len() >= 2, "{} blocks", inputs.len());
    let plain: Vec<_> = inputs.iter().flat_map(|block| chunks_of(&test, block.dir())).collect();
    assert!(plain.iter().all(|&(encoding, _)| encoding == ENCODING_DENSE), "{plain:?}");
    let rules = MergeRules {
        encoding: BlockEncoding::Dense,
        duplicates: DuplicatePolicy::KeepFirst,
        output_bytes_max: u64::MAX,
    };
    let outputs = compact(&test.env, blocks_dir, None, &inputs, rules, &Unhurried).unwrap();
    for input in &inputs {
        chronolith_block::remove(&test.env, input.dir()).unwrap();
    }
    let coded: Vec<_> = outputs.iter().flat_map(|block| chunks_of(&test, block.dir())).collect();
    assert!(coded.iter().all(|&(encoding, _)| encoding == ENCODING_PACKED), "{coded:?}");
    let bytes = |chunks: &[(u8, usize)]| chunks.iter().map(|(_, len)| len).sum::<usize>();
    let (before, after) = (bytes(&plain), bytes(&coded));
    assert!(after * 20 < before * 19, "{before} bytes, {after} after compaction");
    assert_eq!(test.samples(), imported);
}
