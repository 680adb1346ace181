//! Blocks of dense chunks: what series share, what segments cut, what conversions keep.

use std::sync::Arc;

use chronolith_format::chunk::dense::{
    ENCODING_DENSE, ENCODING_INTEGERS, ENCODING_PACKED, shared_times_offset,
};
use chronolith_model::kind::word_of_integer;
use chronolith_model::{BlockEncoding, WordKind};

use super::*;
use crate::chunk::raw_chunk;

/// Times of a scrape that jitters, the same for all series of target `target`.
fn times_of(target: i64, count: i64) -> Vec<i64> {
    let jitter = |i: i64| (i * 7919 + target * 104_729) % 97;
    (0..count).map(|i| WINDOW.start + i * 5000 + jitter(i)).collect()
}

fn values_of(series: i64, count: usize) -> Vec<f64> {
    (0..count as i64).map(|i| ((i * 31 + series * 17) % 113) as f64).collect()
}

fn write_targets(env: &Env, series_count: i64, segment_bytes_max: Option<u64>) -> (Arc<Block>, Bits) {
    let mut writer = BlockWriter::create(env, Path::new(DIR)).unwrap().with_encoding(BlockEncoding::Dense);
    if let Some(bytes_max) = segment_bytes_max {
        writer = writer.with_small_limits(bytes_max, 1 << 20);
    }
    let mut want = Bits::new();
    for series in 0..series_count {
        let labels = labels(&[("__name__", "m"), ("i", &format!("{series:04}"))]);
        let (times, values) = (times_of(series % 3, 700), values_of(series, 700));
        writer.add_samples(&labels, &times, &values).unwrap();
        let samples = times.iter().zip(&values).map(|(t, v)| (*t, v.to_bits())).collect();
        want.insert(labels, samples);
    }
    let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
    let block = Block::open(env, &Path::new(DIR).join(meta.ulid.to_string())).unwrap();
    (block, want)
}

/// Encodings of all chunks, and how many of them have their times elsewhere.
fn encodings_of(block: &Block) -> (Vec<u8>, usize) {
    let (mut encodings, mut shared_count) = (Vec::new(), 0);
    for series in stored_series(block) {
        let bytes = chunk_bytes(block, &series.chunks);
        for chunk in &series.chunks {
            let raw = raw_chunk(&bytes, chunk.chunk_ref).unwrap();
            encodings.push(raw.encoding);
            let is_shared = || shared_times_offset(raw.bytes).unwrap().is_some();
            shared_count += usize::from(raw.encoding == ENCODING_PACKED && is_shared());
        }
    }
    (encodings, shared_count)
}

#[test]
fn series_of_one_target_have_their_times_once() {
    let (env, _, _) = Env::fake(WINDOW.end, 1);
    let (block, want) = write_targets(&env, 30, None);
    assert_eq!(read_all(&env, &block).unwrap(), want);
    assert_eq!(block.verify(), []);
    let (encodings, shared_count) = encodings_of(&block);
    assert_eq!((encodings.len(), shared_count), (30, 27), "{encodings:?}");
    assert!(encodings.iter().all(|e| [ENCODING_DENSE, ENCODING_PACKED].contains(e)));
}

/// Integers share times with floats, and have their own encoding in every block.
#[test]
fn integers_are_chunks_of_integers() {
    for encoding in [BlockEncoding::Dense, BlockEncoding::Prometheus] {
        let (env, _, _) = Env::fake(WINDOW.end, 1);
        let mut writer = BlockWriter::create(&env, Path::new(DIR)).unwrap().with_encoding(encoding);
        let (mut want, times) = (Bits::new(), times_of(0, 700));
        for series in 0..6i64 {
            let kind = [WordKind::Float, WordKind::Integer][series as usize % 2];
            let labels = labels(&[("__name__", "m"), ("i", &format!("{series:04}"))]);
            let word = |i: i64| f64::from_bits(word_of_integer(i64::MAX - i * i * series % 977));
            let values: Vec<f64> = (0..700).map(word).collect();
            writer.set_kind(kind);
            writer.push_floats(&times, &values, &[]).unwrap();
            writer.end_series(&labels).unwrap();
            want.insert(labels, times.iter().zip(&values).map(|(t, v)| (*t, v.to_bits())).collect());
        }
        let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
        let block = Block::open(&env, &Path::new(DIR).join(meta.ulid.to_string())).unwrap();
        assert_eq!(read_all(&env, &block).unwrap(), want);
        assert_eq!(block.verify(), []);
        let of_integers = encodings_of(&block).0.into_iter().filter(|one| *one == ENCODING_INTEGERS).count();
        assert_eq!(of_integers, 3);
    }
}

#[test]
fn times_are_shared_within_a_segment_only() {
    let (env, _, _) = Env::fake(WINDOW.end, 1);
    let (block, want) = write_targets(&env, 60, Some(1500));
    let segment_count = block.contents().files().segment_count();
    assert!(segment_count > 4, "{segment_count} segments");
    assert_eq!(read_all(&env, &block).unwrap(), want);
    assert_eq!(block.verify(), []);
    let own_count = 60 - encodings_of(&block).1;
    assert!(own_count >= segment_count, "{own_count} chunks with their own times");
}

/// A flipped bit in the times that others share is found where each of them is read.
#[test]
fn damage_to_shared_times_is_named() {
    let (env, _, _) = Env::fake(WINDOW.end, 1);
    let (block, _) = write_targets(&env, 6, None);
    let segment = block.dir().join("chunks/000001");
    let mut bytes = env.disk.read(&segment).unwrap();
    bytes[40] ^= 1;
    env.disk.create(&segment).unwrap().write_at(&bytes, 0).unwrap();
    let block = Block::open(&env, block.dir()).unwrap();
    let damages = block.verify();
    assert_eq!(damages.len(), 2, "its own chunk and the one that refers to it: {damages:?}");
    assert!(damages.iter().all(|d| d.what.contains("checksum")), "{damages:?}");
}
