//! Bytes by metric against the chunks of a block, one by one.

use std::collections::BTreeMap;

use chronolith_base::{Env, Rng};
use chronolith_model::BlockEncoding;

use super::*;
use crate::tests::{Bits, DIR, WINDOW, add_all, block_dir, context, labels, open_ranged, some_series};
use crate::{BlockSource, BlockWriter, visit_chunks};

/// Bytes of length, encoding and checksum of a chunk.
fn frame_bytes(data_bytes: u64) -> u64 {
    let mut length = Vec::new();
    chronolith_base::bytes::put_uvarint(&mut length, data_bytes);
    length.len() as u64 + 1 + 4
}

/// Sums over all chunks.
fn expected(block: &Block) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let visited = visit_chunks(block, &mut |labels, chunks| {
        let bytes = chunks.iter().map(|chunk| chunk.data_bytes + frame_bytes(chunk.data_bytes));
        if let Some(name) = labels.get(METRIC_NAME) {
            *sums.entry(name.to_owned()).or_insert(0) += bytes.sum::<u64>();
        }
    });
    visited.unwrap();
    sums
}

/// Metrics of different numbers of series and samples. With `early_label` some have a label that sorts before
/// the metric name, and some have no name.
fn metrics(seed: u64, has_early_label: bool) -> Bits {
    let rng = Rng::from_seed(seed);
    let mut all = Bits::new();
    for metric in 0..12 {
        for series in 0..1 + rng.below(5) {
            let early = if has_early_label && rng.below(2) == 0 {
                format!("{}", rng.below(3))
            } else {
                String::new()
            };
            let name = if metric == 11 { String::new() } else { format!("m{metric:02}") };
            let labels = labels(&[("A", &early), ("__name__", &name), ("i", &series.to_string())]);
            let value = |_| (rng.below(1 << 40) as f64 / 7.0).to_bits();
            let samples = (0..1 + rng.below(400) as i64).map(|i| (WINDOW.start + i * 1000, value(i)));
            all.insert(labels, samples.collect());
        }
    }
    all
}

fn block_of(env: &Env, series: &Bits, encoding: BlockEncoding) -> std::sync::Arc<Block> {
    let writer = BlockWriter::create(env, std::path::Path::new(DIR)).unwrap().with_encoding(encoding);
    let meta = add_all(writer, series).finish(BlockSource::head(WINDOW)).unwrap().unwrap();
    Block::open(env, &block_dir(&meta)).unwrap()
}

fn by_metric(block: &Block, env: &Env) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let visited = visit_metric_bytes(block, &context(env), &mut |name, bytes| {
        assert!(found.insert(name.to_owned(), bytes).is_none());
        Ok(())
    });
    visited.unwrap();
    found
}

#[test]
fn bytes_are_those_of_all_chunks_of_a_metric() {
    for seed in 0..20 {
        for has_early_label in [false, true] {
            let (env, _, _) = Env::fake(WINDOW.end, seed);
            let encoding = [BlockEncoding::Dense, BlockEncoding::Prometheus][(seed % 2) as usize];
            let block = block_of(&env, &metrics(seed, has_early_label), encoding);
            let want = expected(&block);
            assert_eq!(by_metric(&block, &env), want, "seed {seed}, early label: {has_early_label}");
            let (ranged, _) = open_ranged(&env, block.dir()).unwrap();
            for (name, bytes) in &want {
                assert_eq!(metric_bytes(&block, name, &context(&env)).unwrap(), *bytes);
                assert_eq!(metric_bytes(&ranged, name, &context(&env)).unwrap(), *bytes);
            }
            assert_eq!(metric_bytes(&block, "m99", &context(&env)).unwrap(), 0);
        }
    }
}

/// All bytes of the segments but their headers are of a metric.
#[test]
fn no_byte_is_left_out() {
    let (env, _, _) = Env::fake(WINDOW.end, 3);
    let block = block_of(&env, &some_series(7, 300), BlockEncoding::Prometheus);
    assert_eq!(by_metric(&block, &env).values().sum::<u64>(), block.immutable_bytes().chunks - 8);
}

#[test]
fn the_visitor_and_the_deadline_end_it() {
    let (env, _, _) = Env::fake(WINDOW.end, 5);
    let block = block_of(&env, &metrics(5, false), BlockEncoding::Dense);
    let mut seen = 0;
    let visited = visit_metric_bytes(&block, &context(&env), &mut |_, _| {
        seen += 1;
        Err(QueryError::Canceled)
    });
    assert!(matches!(visited, Err(QueryError::Canceled)));
    assert_eq!(seen, 1);
    let budget = chronolith_base::MemoryBudget::new("query", u64::MAX);
    let late = ReadContext::new(env.clock.clone(), 0, budget);
    env.clock.sleep(std::time::Duration::from_secs(1));
    assert!(matches!(metric_bytes(&block, "m00", &late), Err(QueryError::Timeout)));
}

/// Bytes of the index are damaged one by one: an error, or the bytes of a block that is still readable.
#[test]
fn damage_is_an_error() {
    let (env, _, _) = Env::fake(WINDOW.end, 9);
    let block = block_of(&env, &metrics(9, false), BlockEncoding::Dense);
    let dir = block.dir().to_owned();
    let index = env.disk.read(&dir.join("index")).unwrap();
    let mut error_count = 0;
    for at in (0..index.len()).step_by(7) {
        let mut damaged = index.clone();
        damaged[at] ^= 0x10;
        env.disk.create(&dir.join("index")).unwrap().write_at(&damaged, 0).unwrap();
        let Ok(block) = Block::open(&env, &dir) else {
            error_count += 1;
            continue;
        };
        let visited = visit_metric_bytes(&block, &context(&env), &mut |_, _| Ok(()));
        assert!(matches!(visited, Ok(()) | Err(QueryError::Corrupt { .. })), "{visited:?}");
        error_count += usize::from(visited.is_err());
    }
    assert!(error_count > index.len() / 7 / 4, "{error_count} errors");
}
