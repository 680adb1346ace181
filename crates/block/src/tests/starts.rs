//! Start times in blocks: written, read, merged and cut as what a map has, in both encodings.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_format::chunk::dense::ENCODING_DENSE_STARTS;
use chronolith_format::chunk::kinds;
use chronolith_model::histogram::ResetHint;
use chronolith_model::{BlockEncoding, DuplicatePolicy, Histogram, IntHistogram};

use super::*;
use crate::chunk::raw_chunk;
use crate::compact::{MergeRules, Pace, compact};

/// Bits of value, start time, kind.
type Stored = BTreeMap<i64, (u64, i64, bool)>;

struct Unhurried;

impl Pace for Unhurried {
    fn spend(&self, _bytes: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn columns_of(samples: &Stored) -> Columns {
    let mut out = Columns::default();
    for (&time, &(bits, start_ms, is_histogram)) in samples {
        let sum = f64::from_bits(bits);
        match is_histogram {
            true => {
                let reset_hint = if time % 3 == 0 { ResetHint::Gauge } else { ResetHint::Reset };
                let one = IntHistogram { sum, reset_hint, ..IntHistogram::default() };
                out.push_histogram(time, Arc::new(Histogram::Int(one)));
            }
            false => out.push(time, sum),
        }
        if start_ms != 0 {
            out.set_start_time(start_ms);
        }
    }
    out
}

fn read_series(env: &Env, block: &Block, idx: usize, range: TimeRange) -> Stored {
    same_answer(env, block, |block| read_series_of(env, block, idx, range)).unwrap()
}

fn read_series_of(
    env: &Env,
    block: &dyn Queryable,
    idx: usize,
    range: TimeRange,
) -> Result<Stored, QueryError> {
    let name = format!("{idx:03}");
    let matchers = [Matcher::equal("i", &name)];
    let mut batches = block.select(&Selector { matchers: &matchers, range }, &context(env))?;
    let mut found = Vec::new();
    while batches.next_batch(&mut found)? {}
    let mut columns = Columns::default();
    found.iter().for_each(|series| series.samples.read(range, &mut columns).unwrap());
    let hinted: usize = found.iter().map(|series| series.samples.sample_count_hint()).sum();
    assert!((columns.len()..5000).contains(&hinted), "{hinted} for {}", columns.len());
    let one = |at: usize| {
        let is_histogram = columns.histogram_at(at).is_some();
        (columns.times[at], (columns.values[at].to_bits(), columns.start_time_at(at), is_histogram))
    };
    Ok((0..columns.len()).map(one).collect())
}

/// As a window of the head comes: chunks with and without start times.
fn write_block(env: &Env, encoding: BlockEncoding, all: &[Stored], previous: Option<&Block>) -> Arc<Block> {
    let newest = previous.map(|block| block.meta().ulid);
    let writer = BlockWriter::create_after(env, Path::new(DIR), newest).unwrap();
    let mut writer = writer.with_encoding(encoding);
    for (idx, samples) in all.iter().enumerate() {
        let columns = columns_of(samples);
        let mut chunks = Vec::new();
        match (encoding, columns.histograms.is_empty()) {
            (BlockEncoding::Dense, true) => {
                writer.push_floats(&columns.times, &columns.values, &columns.start_times).unwrap();
            }
            _ => kinds::encode(&columns, &mut chunks),
        }
        chunks.iter().for_each(|chunk| writer.push_chunk(chunk).unwrap());
        writer.end_series(&labels(&[("__name__", "m"), ("i", &format!("{idx:03}"))])).unwrap();
    }
    let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
    Block::open(env, &block_dir(&meta)).unwrap()
}

fn random_series(rng: &Rng, idx: usize) -> Stored {
    let mut time = WINDOW.start + rng.below(1000) as i64;
    let restart = WINDOW.start - 77;
    let mut out = Stored::new();
    for _ in 0..rng.below(400) {
        time += 1000 + rng.below(2) as i64 * 500;
        let start_ms = match idx % 4 {
            0 => 0,
            1 => restart + (time - WINDOW.start) / 200_000 * 200_000,
            2 => time - 1000,
            _ => [0, 0, 5, time][rng.below(4) as usize],
        };
        let is_histogram = idx >= 4 && time / 100_000 % 2 == 0;
        out.insert(time, (f64::to_bits(rng.below(5) as f64), start_ms, is_histogram));
    }
    out
}

#[test]
fn blocks_have_the_start_times_that_were_written_and_merged() {
    for seed in 0..12 {
        let rng = Rng::from_seed(seed);
        let (env, _, _) = Env::fake(WINDOW.end, seed);
        let encoding = [BlockEncoding::Dense, BlockEncoding::Prometheus][seed as usize % 2];
        let duplicates = [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins][seed as usize / 2 % 2];
        let mut blocks: Vec<Arc<Block>> = Vec::new();
        let mut want: Vec<Stored> = vec![Stored::new(); 8];
        for _ in 0..3 {
            let all: Vec<Stored> = (0..8).map(|idx| random_series(&rng, idx)).collect();
            let block = write_block(&env, encoding, &all, blocks.last().map(|block| &**block));
            for (idx, samples) in all.iter().enumerate() {
                assert_eq!(&read_series(&env, &block, idx, TimeRange::ALL), samples, "seed {seed}, {idx}");
                let range = TimeRange::new(WINDOW.start + 50_000, WINDOW.start + 150_500);
                let part: Stored = samples.range(range.start..range.end).map(|(t, s)| (*t, *s)).collect();
                assert_eq!(read_series(&env, &block, idx, range), part);
                for (time, sample) in samples {
                    match duplicates {
                        DuplicatePolicy::KeepFirst => drop(want[idx].entry(*time).or_insert(*sample)),
                        DuplicatePolicy::LastWins => drop(want[idx].insert(*time, *sample)),
                    }
                }
            }
            assert_eq!(block.verify(), []);
            sidecars::check_sidecar(&env, &block);
            blocks.push(block);
        }
        let rules = MergeRules { encoding, duplicates, output_bytes_max: u64::MAX };
        let merged = compact(&env, Path::new(DIR), None, &blocks, rules, &Unhurried).unwrap().remove(0);
        assert_eq!(merged.verify(), []);
        // And once more with something deleted, into the other encoding.
        let deleted = Interval { first: WINDOW.start + 60_000, last: WINDOW.start + 90_000 };
        let mut tombstones = Tombstones::new();
        for series in stored_series(&merged) {
            tombstones.add(u64::from(series.series_ref), deleted);
        }
        for (idx, want) in want.iter().enumerate() {
            assert_eq!(&read_series(&env, &merged, idx, TimeRange::ALL), want, "seed {seed}, series {idx}");
        }
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        env.disk.create(&merged.dir().join("tombstones")).unwrap().write_at(&bytes, 0).unwrap();
        let merged = Block::open(&env, merged.dir()).unwrap();
        let other = [BlockEncoding::Prometheus, BlockEncoding::Dense][seed as usize % 2];
        let rules = MergeRules { encoding: other, duplicates, output_bytes_max: u64::MAX };
        let cut = compact(&env, Path::new(DIR), None, &[merged], rules, &Unhurried).unwrap().remove(0);
        for (idx, want) in want.iter_mut().enumerate() {
            want.retain(|time, _| !(deleted.first..=deleted.last).contains(time));
            assert_eq!(&read_series(&env, &cut, idx, TimeRange::ALL), want, "seed {seed}, series {idx}, cut");
        }
    }
}

/// Series of one scrape share their times; a series with start times has its own or refers to the times of
/// another one.
#[test]
fn chunks_with_start_times_share_times_one_way() {
    let (env, _, _) = Env::fake(WINDOW.end, 3);
    let rng = Rng::from_seed(3);
    let times: Vec<i64> = (0..500).map(|i| WINDOW.start + i * 1000 + rng.below(700) as i64).collect();
    let series = |start_ms: i64| -> Stored {
        times.iter().map(|&time| (time, (f64::to_bits(rng.below(9) as f64), start_ms, false))).collect()
    };
    let all = [series(7), series(0), series(0), series(9)];
    let block = write_block(&env, BlockEncoding::Dense, &all, None);
    let mut encodings = Vec::new();
    for series in stored_series(&block) {
        let bytes = chunk_bytes(&block, &series.chunks);
        let raw = raw_chunk(&bytes, series.chunks[0].chunk_ref).unwrap();
        encodings.push((raw.encoding == ENCODING_DENSE_STARTS, raw.bytes.len() > 700));
    }
    assert_eq!(encodings, [(true, true), (false, true), (false, false), (true, false)]);
    for (idx, want) in all.iter().enumerate() {
        assert_eq!(&read_series(&env, &block, idx, TimeRange::ALL), want);
    }
}
