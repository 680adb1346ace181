//! Blocks read by range: waves and requests of typical selectors.

use chronolith_base::Rng;
use chronolith_model::{BlockEncoding, MatchOp};

use super::*;
use crate::source::RangedStats;

/// Metrics `m00` to `m09`, each with 10 paths on 10 pods; values of a counter, so that chunks differ in
/// length.
fn counters(env: &Env, encoding: BlockEncoding) -> PathBuf {
    let mut writer = BlockWriter::create(env, Path::new(DIR)).unwrap().with_encoding(encoding);
    let rng = Rng::from_seed(9);
    let times: Vec<i64> = (0..240).map(|i| WINDOW.start + i * 15_000 + (i * 7919) % 97).collect();
    for metric in 0..10 {
        for path in 0..10 {
            for pod in 0..10 {
                let (metric, path) = (format!("m{metric:02}"), format!("/api/{path}"));
                let pod = format!("pod-{pod}");
                let labels = labels(&[("__name__", &metric), ("path", &path), ("pod", &pod)]);
                let mut total = 0;
                let mut values = Vec::new();
                for _ in &times {
                    total += rng.below(1000);
                    values.push(total as f64);
                }
                writer.add_samples(&labels, &times, &values).unwrap();
            }
        }
    }
    block_dir(&writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap())
}

/// Waves, rounds, requests and series of one selection with all its samples.
#[track_caller]
fn check(env: &Env, dir: &Path, gap_bytes: u64, matchers: &[Matcher], want: [u64; 4]) {
    let files = RangedFiles::open(env, dir, gap_bytes).unwrap();
    let meter = files.meter();
    let block = Block::open_source(env, dir, Box::new(files)).unwrap();
    let opened = meter.stats();
    assert_eq!((opened.waves, opened.rounds), (1, 1), "opening");
    let found = read_one_source(env, &*block, matchers, TimeRange::ALL).unwrap();
    let RangedStats { waves, rounds, requests, .. } = meter.stats();
    let used = [waves - opened.waves, rounds - opened.rounds, requests - opened.requests, found.len() as u64];
    assert_eq!(used, want, "waves, rounds, requests, series");
    let mapped = Block::open(env, dir).unwrap();
    assert!(read_one_source(env, &*mapped, matchers, TimeRange::ALL).unwrap() == found);
}

fn regex(name: &str, op: MatchOp, text: &str) -> Matcher {
    Matcher::new(name, op, text).unwrap()
}

#[test]
fn a_selection_takes_three_waves_and_few_requests() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let dir = counters(&env, BlockEncoding::Prometheus);
    let name = || Matcher::equal("__name__", "m03");
    // Series and chunks of one metric are next to each other, lists of one label too: one request each.
    check(&env, &dir, 4096, &[name()], [3, 3, 3, 100]);
    check(&env, &dir, 4096, &[name(), Matcher::equal("path", "/api/4")], [3, 3, 4, 10]);
    check(&env, &dir, 4096, &[name(), regex("path", MatchOp::Regex, "/api/[45]")], [3, 3, 4, 20]);
    // The list of `/api/0` is near the list of the metric.
    check(&env, &dir, 4096, &[name(), regex("path", MatchOp::NotRegex, ".*[0-6]")], [3, 3, 3, 30]);
    let not = Matcher::new("path", MatchOp::NotEqual, "/api/4").unwrap();
    // The chunks of the series left out are a hole.
    check(&env, &dir, 4096, &[name(), not], [3, 3, 5, 90]);
}

#[test]
fn matchers_without_series_read_nothing() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let dir = counters(&env, BlockEncoding::Prometheus);
    check(&env, &dir, 4096, &[Matcher::equal("__name__", "m99")], [0, 0, 0, 0]);
    let nothing = [Matcher::equal("__name__", "m01"), regex("path", MatchOp::Regex, "/none/.+")];
    check(&env, &dir, 4096, &nothing, [0, 0, 0, 0]);
}

/// One pod of each path: two lists, entries near each other, and chunks that are apart.
#[test]
fn ranges_apart_are_requests_of_the_same_wave() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let dir = counters(&env, BlockEncoding::Prometheus);
    let matchers = [Matcher::equal("__name__", "m03"), Matcher::equal("pod", "pod-4")];
    check(&env, &dir, 0, &matchers, [3, 3, 2 + 1 + 10, 10]);
}

/// The times of a scrape target are stored once per segment: chunks refer to another one, read in a further
/// round.
#[test]
fn chunks_with_shared_times_take_one_round_more() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let dir = counters(&env, BlockEncoding::Dense);
    check(&env, &dir, 4096, &[Matcher::equal("__name__", "m03")], [3, 4, 4, 100]);
}

#[test]
fn memory_of_ranges_is_reserved_until_the_series_are_dropped() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let dir = counters(&env, BlockEncoding::Prometheus);
    let (block, meter) = open_ranged(&env, &dir).unwrap();
    let before = meter.stats().bytes;
    let budget = MemoryBudget::new("query", u64::MAX);
    let ctx = ReadContext::new(env.clock.clone(), u64::MAX, budget.clone());
    let matchers = [Matcher::equal("__name__", "m03")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let mut batches = block.select(&selector, &ctx).unwrap();
    let mut found = Vec::new();
    while batches.next_batch(&mut found).unwrap() {}
    drop(batches);
    let used = budget.used_bytes();
    assert!(used > 20_000 && used <= meter.stats().bytes - before, "{used} bytes of chunks");
    drop(found);
    assert_eq!(budget.used_bytes(), 0);
    let small = ReadContext::new(env.clock.clone(), u64::MAX, MemoryBudget::new("query", 2000));
    let refused = block.select(&selector, &small).and_then(|mut batches| batches.next_batch(&mut Vec::new()));
    assert!(matches!(refused, Err(QueryError::Memory(_))));
}

/// Writes 40 series of 117 chunks and `short_count` of one chunk.
fn write_long_entries(env: &Env, short_count: i64) -> PathBuf {
    let mut writer = BlockWriter::create(env, Path::new(DIR)).unwrap();
    let times: Vec<i64> = (0..14_000).map(|i| WINDOW.start + i * 500 + (i * 7919) % 97).collect();
    let values: Vec<f64> = times.iter().map(|time| (time % 7919) as f64).collect();
    for idx in 0..40 {
        let labels = labels(&[("__name__", "m"), ("i", &format!("{idx:02}"))]);
        writer.add(&labels, &xor::encode(&times, &values)).unwrap();
    }
    for idx in 0..short_count {
        let labels = labels(&[("__name__", "n"), ("short", &format!("{idx:03}"))]);
        writer.add(&labels, &xor::encode(&times[..10], &values[..10])).unwrap();
    }
    block_dir(&writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap())
}

/// Entries that are longer than their ranges are read again, in one round for all of them.
#[test]
fn items_longer_than_expected_are_read_in_one_round_more() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let dir = write_long_entries(&env, 900);
    check(&env, &dir, 0, &[Matcher::equal("i", "07")], [3, 4, 4, 1]);
    check(&env, &dir, 0, &[regex("i", MatchOp::Regex, "0[1357]")], [3, 4, 4 + 4 + 4 + 4, 4]);
}

/// If all entries are long, the expected length is long, too.
#[test]
fn entries_of_average_length_are_read_at_once() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let dir = write_long_entries(&env, 0);
    check(&env, &dir, 0, &[Matcher::equal("i", "07")], [3, 3, 3, 1]);
    check(&env, &dir, 0, &[regex("i", MatchOp::Regex, "0[1357]")], [3, 3, 4 + 4 + 4, 4]);
}
