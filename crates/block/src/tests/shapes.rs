//! Blocks that this writer does not make: overlapping chunks, deletions, chunks of other kinds.

use chronolith_format::block::chunks::{self, ChunkRef};
use chronolith_format::block::index::{ChunkMeta, IndexWriter, TableEntry};
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_format::chunk::dense;
use chronolith_format::chunk::xor::EncodedChunk;
use chronolith_model::query::SamplesPart;

use super::*;

fn put_file(env: &Env, path: &Path, bytes: &[u8]) {
    env.disk.create(path).unwrap().write_at(bytes, 0).unwrap();
}

/// Replaces index and chunks of a block by one series `a="b"` with these chunks.
fn replace(env: &Env, dir: &Path, stored: &[EncodedChunk]) -> u32 {
    replace_with_postings(env, dir, stored, &mut |series_ref| vec![series_ref])
}

fn replace_with_postings(
    env: &Env,
    dir: &Path,
    stored: &[EncodedChunk],
    postings_of: &mut dyn FnMut(u32) -> Vec<u32>,
) -> u32 {
    replace_with(env, dir, stored, postings_of, |offset| ChunkRef::new(0, offset))
}

fn replace_with(
    env: &Env,
    dir: &Path,
    stored: &[EncodedChunk],
    postings_of: &mut dyn FnMut(u32) -> Vec<u32>,
    chunk_ref_of: impl Fn(u32) -> ChunkRef,
) -> u32 {
    let mut segment = Vec::new();
    chunks::put_header(&mut segment);
    let mut metas = Vec::new();
    for chunk in stored {
        let chunk_ref = chunk_ref_of(segment.len() as u32);
        let (min_time, max_time) = (chunk.min_time, chunk.max_time);
        metas.push(ChunkMeta { min_time, max_time, chunk_ref });
        chunks::put_chunk(&mut segment, chunk.encoding, &chunk.bytes);
    }
    put_file(env, &dir.join("chunks/000001"), &segment);
    let mut w = IndexWriter::begin(Vec::new(), ["a", "b"].into_iter()).unwrap();
    let series_ref = w.series([(0, 1)].into_iter(), &metas).unwrap();
    w.end_series().unwrap();
    let all = w.postings(&[series_ref]).unwrap();
    let one = w.postings(&postings_of(series_ref)).unwrap();
    let entries =
        [TableEntry { name: "", value: "", offset: all }, TableEntry { name: "a", value: "b", offset: one }];
    put_file(env, &dir.join("index"), &w.finish(entries.into_iter()).unwrap());
    series_ref
}

fn chunk(samples: &[(i64, f64)]) -> EncodedChunk {
    let (times, values): (Vec<i64>, Vec<f64>) = samples.iter().map(|&(t, v)| (WINDOW.start + t, v)).unzip();
    xor::encode(&times, &values).remove(0)
}

fn read_one(env: &Env, dir: &Path, range: TimeRange) -> Vec<(i64, f64)> {
    let block = Block::open(env, dir).unwrap();
    let found = read_selected(env, &block, &[Matcher::equal("a", "b")], range).unwrap();
    let samples = found.into_values().next().unwrap_or_default();
    samples.into_iter().map(|(t, v)| (t - WINDOW.start, f64::from_bits(v))).collect()
}

#[test]
fn overlapping_and_unordered_chunks_come_out_merged() {
    let (env, dir) = fake_block(&some_series(1, 1));
    let stored = [
        chunk(&[(50, 5.0), (60, 6.0)]),
        chunk(&[(10, 1.0), (30, 3.0), (40, 4.0)]),
        chunk(&[(20, 2.0), (30, -3.0)]),
        chunk(&[(40, -4.0), (45, 4.5)]),
    ];
    replace(&env, &dir, &stored);
    let want = [(10, 1.0), (20, 2.0), (30, 3.0), (40, 4.0), (45, 4.5), (50, 5.0), (60, 6.0)];
    assert_eq!(read_one(&env, &dir, TimeRange::ALL), want);
    let part = TimeRange::new(WINDOW.start + 30, WINDOW.start + 46);
    assert_eq!(read_one(&env, &dir, part), want[2..5]);
}

#[test]
fn an_entry_that_names_a_chunk_twice_is_refused() {
    // A forged entry of a megabyte could otherwise decode one chunk hundreds of thousands of times.
    let (env, dir) = fake_block(&some_series(1, 1));
    let one = chunk(&[(10, 1.0), (30, 3.0)]);
    replace_with(&env, &dir, &[one.clone(), one], &mut |r| vec![r], |_| ChunkRef::new(0, 8));
    let error = read_all(&env, &Block::open(&env, &dir).unwrap()).unwrap_err().to_string();
    assert!(error.ends_with("names a chunk twice"), "{error}");
}

#[test]
fn deleted_intervals_are_left_out() {
    let (env, dir) = fake_block(&some_series(1, 1));
    let stored = [chunk(&[(10, 1.0), (20, 2.0), (30, 3.0)]), chunk(&[(40, 4.0), (50, 5.0)])];
    let series_ref = replace(&env, &dir, &stored);
    let check = |intervals: &[(i64, i64)], want: &[i64]| {
        let mut tombstones = Tombstones::new();
        for &(first, last) in intervals {
            let (first, last) = (WINDOW.start + first, WINDOW.start + last);
            tombstones.add(u64::from(series_ref), Interval { first, last });
        }
        tombstones.add(u64::from(series_ref) + 1, Interval { first: i64::MIN, last: i64::MAX });
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        put_file(&env, &dir.join("tombstones"), &bytes);
        let found = read_one(&env, &dir, TimeRange::ALL);
        assert_eq!(found.iter().map(|s| s.0).collect::<Vec<_>>(), want, "{intervals:?}");
    };
    check(&[], &[10, 20, 30, 40, 50]);
    check(&[(20, 20)], &[10, 30, 40, 50]);
    check(&[(0, 10), (25, 45)], &[20, 50]);
    check(&[(11, 19), (51, 99)], &[10, 20, 30, 40, 50]);
    check(&[(40, 50)], &[10, 20, 30]);
    check(&[(0, 99)], &[]);
}

/// The samples of the one series in `range`, from chunks as they are and from decoded parts, and the
/// number of chunks that came as they are.
fn read_in_chunks(env: &Env, dir: &Path, range: TimeRange) -> Result<(Vec<(i64, f64)>, usize), QueryError> {
    let block = Block::open(env, dir).unwrap();
    let matchers = [Matcher::equal("a", "b")];
    let mut series = Vec::new();
    let mut batches = block.select(&Selector { matchers: &matchers, range }, &context(env))?;
    while batches.next_batch(&mut series)? {}
    let mut all = Columns::default();
    let mut stored = 0;
    for one in series {
        one.samples.visit_chunks(range, &|_| true, &mut Columns::default(), &mut |part| {
            match part {
                SamplesPart::Stored(chunk) => {
                    let before = all.len();
                    xor::decode(chunk.bytes, TimeRange::ALL, &mut all).unwrap();
                    let times = &all.times[before..];
                    assert_eq!((times.first(), times.last()), (Some(&chunk.min_time), Some(&chunk.max_time)));
                    assert_eq!(times.len(), chunk.sample_count);
                    stored += 1;
                }
                SamplesPart::Decoded(samples) => {
                    assert!(!samples.is_empty());
                    all.extend_from(samples, 0..samples.len());
                }
            }
            Ok(())
        })?;
    }
    let samples = all.times.iter().zip(&all.values).map(|(&t, &v)| (t - WINDOW.start, v));
    Ok((samples.collect(), stored))
}

/// Whatever the range and the deletions, chunks as they are and decoded parts are together the samples that a
/// read returns; only whole chunks without deletions and overlap come as they are.
#[test]
fn chunks_as_they_are_hold_what_a_read_returns() {
    let (env, dir) = fake_block(&some_series(1, 1));
    let stored = [
        chunk(&[(10, 1.0), (20, 2.0), (30, 3.0)]),
        chunk(&[(40, 4.0), (50, 5.0)]),
        chunk(&[(60, 6.0), (80, 8.0)]),
        chunk(&[(70, 7.0), (90, 9.0)]),
        chunk(&[(100, 10.0)]),
    ];
    let series_ref = replace(&env, &dir, &stored);
    assert_eq!(read_in_chunks(&env, &dir, TimeRange::ALL).unwrap().1, 3);
    for deleted in [None, Some((20, 20)), Some((45, 45)), Some((0, 99))] {
        let mut tombstones = Tombstones::new();
        if let Some((first, last)) = deleted {
            let (first, last) = (WINDOW.start + first, WINDOW.start + last);
            tombstones.add(u64::from(series_ref), Interval { first, last });
        }
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        put_file(&env, &dir.join("tombstones"), &bytes);
        for start in (0..=110).step_by(5) {
            for end in (start..=115).step_by(5) {
                let range = TimeRange::new(WINDOW.start + start, WINDOW.start + end);
                let (found, _) = read_in_chunks(&env, &dir, range).unwrap();
                assert_eq!(found, read_one(&env, &dir, range), "{start} to {end}, without {deleted:?}");
            }
        }
    }
}

/// A chunk with other times than in the index may belong to another block: it never goes out as it is.
#[test]
fn chunks_with_other_times_or_a_wrong_checksum_are_damage_however_they_are_read() {
    let (env, dir) = fake_block(&some_series(1, 1));
    for (min, max) in [(10, 15), (5, 20), (10, 25)] {
        let (min_time, max_time) = (WINDOW.start + min, WINDOW.start + max);
        let other = EncodedChunk { min_time, max_time, ..chunk(&[(10, 1.0), (20, 2.0)]) };
        replace(&env, &dir, &[chunk(&[(1, 1.0)]), other]);
        let decoded = read_all(&env, &Block::open(&env, &dir).unwrap()).map(drop);
        let in_chunks = read_in_chunks(&env, &dir, TimeRange::ALL).map(|(_, stored)| assert_eq!(stored, 1));
        assert_eq!(format!("{in_chunks:?}"), format!("{decoded:?}"), "{min} to {max}");
    }
    replace(&env, &dir, &[chunk(&[(10, 1.0), (20, 2.0)])]);
    let path = dir.join("chunks/000001");
    let mut bytes = env.disk.read(&path).unwrap();
    let last = bytes.len() - 6;
    bytes[last] ^= 1;
    put_file(&env, &path, &bytes);
    let error = read_in_chunks(&env, &dir, TimeRange::ALL).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}

#[test]
fn chunks_of_unknown_encodings_are_an_error() {
    let (env, dir) = fake_block(&some_series(1, 1));
    for encoding in [0, 7, 0x43, 0x81] {
        let stored = [chunk(&[(10, 1.0)]), EncodedChunk { encoding, ..chunk(&[(20, 2.0)]) }];
        replace(&env, &dir, &stored);
        let block = Block::open(&env, &dir).unwrap();
        let error = read_all(&env, &block).unwrap_err().to_string();
        assert!(error.contains(&format!("unknown chunk encoding {encoding}")), "{error}");
        assert!(error.contains("000001") && error.contains("offset 30"), "{error}");
        assert_eq!(block.verify().len(), 1);
        let before = TimeRange::new(WINDOW.start, WINDOW.start + 20);
        assert_eq!(read_one(&env, &dir, before), [(10, 1.0)]);
    }
}

#[test]
fn a_missing_segment_and_a_lying_index_are_damage() {
    let (env, dir) = fake_block(&some_series(1, 1));
    replace(&env, &dir, &[EncodedChunk { max_time: WINDOW.start + 15, ..chunk(&[(10, 1.0), (20, 2.0)]) }]);
    let block = Block::open(&env, &dir).unwrap();
    let error = read_all(&env, &block).unwrap_err().to_string();
    assert!(error.contains("chunk times: expected "), "{error}");
    let part = TimeRange::new(WINDOW.start, WINDOW.start + 14);
    assert_eq!(read_one(&env, &dir, part), [(10, 1.0)], "the index bounds what is read of a part");
    assert!(block.verify()[0].what.contains("chunk times"));
    env.disk.rename(&dir.join("chunks/000001"), &dir.join("chunks/000002")).unwrap();
    let error = Block::open(&env, &dir).err().unwrap().to_string();
    assert!(error.ends_with("000001: chunk segment is missing"), "{error}");
    env.disk.remove_file(&dir.join("chunks/000002")).unwrap();
    let block = Block::open(&env, &dir).unwrap();
    assert!(read_all(&env, &block).is_err());
    assert!(!block.verify().is_empty());
}

#[test]
fn postings_that_miss_or_add_a_series_are_damage() {
    let (env, dir) = fake_block(&some_series(1, 1));
    let stored = [chunk(&[(10, 1.0)])];
    for postings in
        [&mut |_| vec![], &mut |r| vec![r, r + 1] as Vec<u32>] as [&mut dyn FnMut(u32) -> Vec<u32>; 2]
    {
        replace_with_postings(&env, &dir, &stored, postings);
        let damages = Block::open(&env, &dir).unwrap().verify();
        assert_eq!(damages.len(), 1);
        assert!(damages[0].what.contains("postings do not match"), "{}", damages[0].what);
    }
}

#[test]
fn dense_chunks_read_like_others() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let times: Vec<i64> = (0..300).map(|i| WINDOW.start + 20 + i * 10).collect();
    let values: Vec<f64> = (0..300).map(|i| f64::from(i) / 4.0).collect();
    let mut bytes = Vec::new();
    dense::encode(&times, &values, &mut dense::DenseScratch::new(), &mut bytes);
    let (min_time, max_time) = (times[0], times[299]);
    let dense = EncodedChunk { encoding: dense::ENCODING_DENSE, min_time, max_time, count: 300, bytes };
    let mut writer = BlockWriter::create(&env, Path::new(DIR)).unwrap();
    writer.add(&labels(&[("a", "b")]), &[chunk(&[(10, -1.0)]), dense.clone()]).unwrap();
    let dir = block_dir(&writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap());
    let found = read_one(&env, &dir, TimeRange::ALL);
    assert_eq!((found.len(), found[0], found[300]), (301, (10, -1.0), (3010, 74.75)));
    let part = TimeRange::new(WINDOW.start + 10, WINDOW.start + 31);
    assert_eq!(read_one(&env, &dir, part), [(10, -1.0), (20, 0.0), (30, 0.25)]);
    assert_eq!(Block::open(&env, &dir).unwrap().verify(), []);

    let mut cut = dense;
    cut.bytes.pop();
    replace(&env, &dir, &[cut]);
    let error = read_all(&env, &Block::open(&env, &dir).unwrap()).unwrap_err().to_string();
    assert!(error.contains("offset 8: dense"), "{error}");
}
