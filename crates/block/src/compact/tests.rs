//! Merging against a model: the sample written first wins at equal times, deleted samples are gone.

use std::collections::BTreeSet;

use chronolith_base::Rng;
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::{self, EncodedChunk};
use chronolith_model::histogram::{Buckets, Span};
use chronolith_model::time::TimeRange;
use chronolith_model::{Columns, Histogram, Queryable as _, Selector};

use super::*;
use crate::BlockWriter;
use crate::chunk::raw_chunk;
use crate::layout::TOMBSTONES_FILE;
use crate::tests::{
    Bits, DIR, StoredSeries, Unhurried, WINDOW, add_all, chunk_bytes, context, fake_block, labels,
    promtool::promtool, read_all, some_series, stored_series, write,
};

/// Per series and time the bits of the value.
type Model = std::collections::BTreeMap<Labels, std::collections::BTreeMap<i64, u64>>;

fn merge(env: &Env, inputs: &[Arc<Block>]) -> Result<Option<Arc<Block>>, CompactError> {
    merge_by(env, inputs, BlockEncoding::Prometheus, DuplicatePolicy::KeepFirst)
}

fn merge_by(
    env: &Env,
    inputs: &[Arc<Block>],
    encoding: BlockEncoding,
    duplicates: DuplicatePolicy,
) -> Result<Option<Arc<Block>>, CompactError> {
    let dir = inputs[0].dir().parent().unwrap();
    let rules = MergeRules { encoding, duplicates, output_bytes_max: u64::MAX };
    let mut outputs = compact(env, dir, None, inputs, rules, &Unhurried)?;
    assert!(outputs.len() <= 1, "without a limit nothing is split");
    Ok(outputs.pop())
}

fn block_of(env: &Env, series: &Bits, range: TimeRange) -> Arc<Block> {
    let meta = write(env, Path::new(DIR), series, range).unwrap();
    Block::open(env, &Path::new(DIR).join(meta.ulid.to_string())).unwrap()
}

/// A block with these chunks of the series `a="b"`.
fn block_with(env: &Env, chunks: &[EncodedChunk]) -> Arc<Block> {
    let mut writer = BlockWriter::create_after(env, Path::new(DIR), newest(env)).unwrap();
    writer.add(&labels(&[("a", "b")]), chunks).unwrap();
    let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
    Block::open(env, &Path::new(DIR).join(meta.ulid.to_string())).unwrap()
}

fn newest(env: &Env) -> Option<Ulid> {
    let entries = env.disk.list(Path::new(DIR)).unwrap_or_default();
    entries.iter().filter_map(|entry| entry.name.parse().ok()).max()
}

/// Samples from `first` on, one a second.
fn chunk(first: i64, count: i64) -> EncodedChunk {
    let times: Vec<i64> = (0..count).map(|i| WINDOW.start + (first + i) * 1000).collect();
    let values: Vec<f64> = (0..count).map(|i| (first + i) as f64 * 0.1).collect();
    xor::encode(&times, &values).remove(0)
}

fn chunks_of(block: &Block) -> Vec<(u8, i64, Vec<u8>)> {
    let series = &stored_series(block)[0];
    let bytes = chunk_bytes(block, &series.chunks);
    let one = |chunk: &ChunkMeta| {
        let raw = raw_chunk(&bytes, chunk.chunk_ref).unwrap();
        (raw.encoding, (chunk.min_time - WINDOW.start) / 1000, raw.bytes.to_vec())
    };
    series.chunks.iter().map(one).collect()
}

fn counts_of(block: &Block) -> Vec<u16> {
    chunks_of(block).iter().map(|(_, _, bytes)| u16::from_be_bytes([bytes[0], bytes[1]])).collect()
}

/// Deletes random intervals of random series of a block, on disk and in `kept`.
fn delete_some(env: &Env, rng: &Rng, block: &Block, kept: &mut Bits) -> Arc<Block> {
    let mut tombstones = Tombstones::new();
    for StoredSeries { series_ref, labels, .. } in stored_series(block) {
        for _ in 0..rng.below(3) {
            let first = WINDOW.start + rng.below(7_000_000).cast_signed();
            let last = first + rng.below(3_000_000).cast_signed();
            tombstones.add(u64::from(series_ref), Interval { first, last });
            kept.get_mut(&labels).unwrap().retain(|(time, _)| !(first..=last).contains(time));
        }
    }
    let mut bytes = Vec::new();
    tombstones.encode(&mut bytes);
    env.disk.create(&block.dir().join(TOMBSTONES_FILE)).unwrap().write_at(&bytes, 0).unwrap();
    Block::open(env, block.dir()).unwrap()
}

/// One series of a block: dense or sparse, in chunks of any size.
fn random_chunks(rng: &Rng) -> (Vec<EncodedChunk>, Vec<(i64, u64)>) {
    let step = 1 + rng.below(40_000);
    let mut times = BTreeSet::new();
    let start = rng.below(7_000_000);
    for _ in 0..1 + rng.below(400) {
        // Few distinct times, so that blocks repeat each other's.
        let time = start + rng.below(400) * step;
        times.insert(WINDOW.start + (time - time % 1000).min(7_199_000).cast_signed());
    }
    let samples: Vec<(i64, u64)> = times.into_iter().map(|time| (time, rng.next_u64())).collect();
    let (mut chunks, mut rest) = (Vec::new(), samples.as_slice());
    while !rest.is_empty() {
        let count = if rng.below(2) == 0 { 120 } else { 1 + rng.below(120) as usize };
        let (part, behind) = rest.split_at(count.min(rest.len()));
        let times: Vec<i64> = part.iter().map(|s| s.0).collect();
        let values: Vec<f64> = part.iter().map(|s| f64::from_bits(s.1)).collect();
        chunks.extend(xor::encode(&times, &values));
        rest = behind;
    }
    (chunks, samples)
}

fn random_case(seed: u64) {
    let encoding = if seed.is_multiple_of(2) { BlockEncoding::Dense } else { BlockEncoding::Prometheus };
    let duplicates =
        if seed.is_multiple_of(3) { DuplicatePolicy::LastWins } else { DuplicatePolicy::KeepFirst };
    let (env, clock, _) = Env::fake(WINDOW.end, seed);
    let rng = Rng::from_seed(seed);
    let mut want = Model::new();
    let mut inputs = Vec::new();
    for _ in 0..2 + rng.below(5) {
        clock.advance(std::time::Duration::from_millis(1));
        let mut writer = BlockWriter::create(&env, Path::new(DIR)).unwrap();
        let mut kept = Bits::new();
        for i in 0..6 {
            if i == 0 || rng.below(3) > 0 {
                let labels = labels(&[("__name__", "m"), ("i", &i.to_string())]);
                let (chunks, samples) = random_chunks(&rng);
                writer.add(&labels, &chunks).unwrap();
                kept.insert(labels, samples);
            }
        }
        let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
        let mut block = Block::open(&env, &Path::new(DIR).join(meta.ulid.to_string())).unwrap();
        if rng.below(2) == 0 {
            block = delete_some(&env, &rng, &block, &mut kept);
        }
        for (labels, samples) in kept {
            for (time, value) in samples {
                let slot = want.entry(labels.clone()).or_default().entry(time);
                match duplicates {
                    DuplicatePolicy::KeepFirst => slot.or_insert(value),
                    DuplicatePolicy::LastWins => slot.insert_entry(value).into_mut(),
                };
            }
        }
        inputs.insert(rng.below(inputs.len() as u64 + 1) as usize, block);
    }
    let mut output = merge_by(&env, &inputs, encoding, duplicates).unwrap();
    if let Some(block) = output.take_if(|_| seed.is_multiple_of(5)) {
        // Whatever one merge made, the next reads, in either encoding.
        let other = if seed.is_multiple_of(10) { BlockEncoding::Prometheus } else { BlockEncoding::Dense };
        output = merge_by(&env, &[block], other, duplicates).unwrap();
    }
    let got = output.as_ref().map(|block| read_all(&env, block).unwrap()).unwrap_or_default();
    let want: Bits = want.into_iter().map(|(l, s)| (l, s.into_iter().collect())).collect();
    assert!(got == want, "seed {seed}");
    if let Some(block) = output {
        assert_eq!(block.verify(), [], "seed {seed}");
        let samples: usize = want.values().map(Vec::len).sum();
        assert_eq!(block.meta().stats.num_samples, samples as u64, "seed {seed}");
    }
}

#[test]
fn any_blocks_merge_to_what_they_held_together() {
    for seed in 0..300 {
        random_case(seed);
    }
}

#[test]
fn the_output_names_where_it_comes_from() {
    let (env, clock, _) = Env::fake(WINDOW.end, 1);
    let half = WINDOW.start + 3_600_000;
    let (first, second) = (TimeRange::new(WINDOW.start, half), TimeRange::new(half, WINDOW.end));
    let a = block_of(&env, &some_series(3, 10), first);
    clock.advance(std::time::Duration::from_millis(1));
    let late =
        some_series(3, 10).into_iter().map(|(l, s)| (l, s.iter().map(|s| (s.0 + 3_600_000, s.1)).collect()));
    let b = block_of(&env, &late.collect(), second);
    let ab = merge(&env, &[b.clone(), a.clone()]).unwrap().unwrap();
    let meta = ab.meta();
    assert_eq!((meta.compaction.level, ab.range()), (2, WINDOW));
    assert_eq!(meta.compaction.sources, [a.meta().ulid, b.meta().ulid]);
    let parents: Vec<_> = meta.compaction.parents.iter().map(|p| (p.ulid, p.min_time, p.max_time)).collect();
    let want = [(a.meta().ulid, first.start, first.end), (b.meta().ulid, second.start, second.end)];
    assert_eq!(parents, want);
    assert_eq!((meta.stats.num_series, meta.stats.num_samples), (3, 60));
    assert!(meta.ulid > b.meta().ulid, "the name sorts behind those of the inputs at the same millisecond");
    assert_eq!(precedence(meta), (a.meta().ulid, meta.ulid), "it stands where its first input stood");
    let again = merge(&env, std::slice::from_ref(&ab)).unwrap().unwrap();
    assert_eq!(again.meta().compaction.level, 2, "it is only rewritten");
    assert_eq!(again.meta().compaction.parents[0].ulid, meta.ulid);
    assert_eq!(read_all(&env, &again).unwrap(), read_all(&env, &ab).unwrap());
}

#[test]
fn full_chunks_are_copied_and_small_ones_joined() {
    #[track_caller]
    fn check(blocks: &[&[(i64, i64)]], want: &[u16]) {
        let (env, _, _) = Env::fake(WINDOW.end, 1);
        let of = |chunks: &&[(i64, i64)]| {
            block_with(&env, &chunks.iter().map(|&(first, count)| chunk(first, count)).collect::<Vec<_>>())
        };
        let inputs: Vec<_> = blocks.iter().map(of).collect();
        let output = merge(&env, &inputs).unwrap().unwrap();
        assert_eq!(counts_of(&output), want);
        assert_eq!(output.verify(), []);
        for (_, first, bytes) in chunks_of(&output) {
            let count = i64::from(u16::from_be_bytes([bytes[0], bytes[1]]));
            assert_eq!(bytes, chunk(first, count).bytes, "chunk at {first}");
        }
    }
    check(&[&[(0, 120), (240, 120)], &[(120, 120)]], &[120, 120, 120]);
    check(&[&[(0, 60)], &[(60, 60)]], &[120]);
    check(&[&[(0, 100)], &[(100, 100)], &[(200, 100)]], &[120, 120, 60]);
    check(&[&[(0, 120), (150, 120)], &[(120, 30)]], &[120, 30, 120]);
    check(&[&[(0, 120)], &[(60, 120)]], &[120, 60]);
    check(&[&[(0, 120), (200, 120)], &[(100, 50), (320, 120)]], &[120, 30, 120, 120]);
}

#[test]
fn what_is_not_known_is_copied_where_nothing_overlaps_and_refused_elsewhere() {
    let (env, _, _) = Env::fake(WINDOW.end, 1);
    let encoding = 7;
    let other = EncodedChunk { encoding, ..chunk(200, 10) };
    let mixed = block_with(&env, &[chunk(0, 120), other.clone()]);
    let output = merge(&env, &[mixed.clone(), block_with(&env, &[chunk(120, 50)])]).unwrap().unwrap();
    let got = chunks_of(&output);
    assert_eq!(got.iter().map(|c| c.0).collect::<Vec<_>>(), [1, 1, encoding]);
    assert_eq!(got[2].2, other.bytes);
    let before = env.disk.list(Path::new(DIR)).unwrap().len();
    let text = merge(&env, &[mixed, block_with(&env, &[chunk(205, 1)])]).err().unwrap().to_string();
    assert!(text.contains("000001") && text.contains(&format!("encoding {encoding}")), "{text}");
    assert_eq!(env.disk.list(Path::new(DIR)).unwrap().len(), before + 1, "only the second input was added");
}

#[test]
fn damage_is_reported_and_leaves_nothing() {
    let (env, dir) = fake_block(&some_series(2, 50));
    let segment = dir.join("chunks/000001");
    let mut bytes = env.disk.read(&segment).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    env.disk.create(&segment).unwrap().write_at(&bytes, 0).unwrap();
    let block = Block::open(&env, &dir).unwrap();
    let error = merge(&env, &[block]).err().unwrap();
    assert!(matches!(error, CompactError::Read(_)) && error.to_string().contains("checksum"), "{error}");
    assert_eq!(env.disk.list(Path::new(DIR)).unwrap().len(), 1);
}

#[test]
fn a_stop_and_an_empty_result_leave_nothing() {
    let (env, dir) = fake_block(&some_series(2, 50));
    let block = Block::open(&env, &dir).unwrap();
    struct Stop;
    impl Pace for Stop {
        fn spend(&self, _bytes: u64) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    let (encoding, duplicates) = (BlockEncoding::Dense, DuplicatePolicy::KeepFirst);
    let rules = MergeRules { encoding, duplicates, output_bytes_max: u64::MAX };
    let stopped = compact(&env, Path::new(DIR), None, std::slice::from_ref(&block), rules, &Stop);
    assert!(matches!(stopped, Err(CompactError::Stopped)));
    let mut tombstones = Tombstones::new();
    for StoredSeries { series_ref, .. } in stored_series(&block) {
        tombstones.add(u64::from(series_ref), Interval { first: i64::MIN, last: i64::MAX });
    }
    let mut bytes = Vec::new();
    tombstones.encode(&mut bytes);
    env.disk.create(&dir.join(TOMBSTONES_FILE)).unwrap().write_at(&bytes, 0).unwrap();
    assert!(merge(&env, &[Block::open(&env, &dir).unwrap()]).unwrap().is_none());
    assert_eq!(env.disk.list(Path::new(DIR)).unwrap().len(), 1);
}

#[test]
fn promtool_reads_a_merged_block() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real();
    env.disk.create_dir_all(&dir.path().join("wal")).unwrap();
    let (mut inputs, mut previous) = (Vec::new(), None);
    for shift in [0, 500] {
        let moved = |(l, s): (Labels, Vec<(i64, u64)>)| (l, s.iter().map(|s| (s.0 + shift, s.1)).collect());
        let series: Bits = some_series(50, 300).into_iter().map(moved).collect();
        let writer = add_all(BlockWriter::create_after(&env, dir.path(), previous).unwrap(), &series);
        let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
        previous = Some(meta.ulid);
        inputs.push(Block::open(&env, &dir.path().join(meta.ulid.to_string())).unwrap());
    }
    let block = merge(&env, &inputs).unwrap().unwrap();
    for input in &inputs {
        crate::remove(&env, input.dir()).unwrap();
    }
    let path = dir.path().to_str().unwrap();
    let Some(dump) = promtool(&["tsdb", "dump", path]) else { return };
    assert_eq!(dump.lines().count(), 50 * 600);
    assert_eq!(crate::tests::promtool::parse_dump(&dump), read_all(&env, &block).unwrap());
    let analysis = promtool(&["tsdb", "analyze", path]).unwrap();
    assert!(analysis.contains("Series: 50"), "{analysis}");
    assert_eq!(read_all(&env, &inputs[0]).unwrap(), some_series(50, 300), "removed files stay readable");
}

fn histograms(first: i64, count: i64, level: u64) -> Columns {
    let mut out = Columns::default();
    for i in 0..count {
        let counts = vec![level + i as u64, 2 * level];
        let histogram = chronolith_model::IntHistogram {
            count: counts.iter().sum(),
            sum: (first + i) as f64,
            positive: Buckets { spans: vec![Span { offset: 1, length: 2 }], counts },
            ..Default::default()
        };
        out.push_histogram(WINDOW.start + (first + i) * 1000, Arc::new(Histogram::Int(histogram)));
    }
    out
}

fn chunks_of_columns(columns: &Columns) -> Vec<EncodedChunk> {
    let mut out = Vec::new();
    kinds::encode(columns, &mut out);
    out
}

/// Everything of the one series of a block.
fn columns_of(env: &Env, block: &Block) -> Columns {
    let mut batches =
        block.select(&Selector { matchers: &[], range: TimeRange::ALL }, &context(env)).unwrap();
    let mut found = Vec::new();
    while batches.next_batch(&mut found).unwrap() {}
    let mut out = Columns::default();
    found.iter().for_each(|series| series.samples.read(TimeRange::ALL, &mut out).unwrap());
    out
}

fn assert_same(got: &Columns, want: &Columns) {
    assert_eq!(got.times, want.times);
    for at in 0..want.len() {
        match (got.histogram_at(at), want.histogram_at(at)) {
            (Some(got), Some(want)) => assert!(got.is_equivalent(want), "sample {at}: {got:?}, not {want:?}"),
            (None, None) => assert_eq!(got.values[at].to_bits(), want.values[at].to_bits(), "sample {at}"),
            (got, want) => panic!("sample {at}: {got:?}, not {want:?}"),
        }
    }
}

/// A series that changes its kind, in blocks that overlap and in blocks that do not: merged as samples, the
/// block that was written first counts; deleted samples are gone; chunks without overlap stay byte by byte.
#[test]
fn histograms_are_merged_with_floats_and_each_other() {
    let (env, _, _) = Env::fake(WINDOW.end, 1);
    let first = histograms(100, 150, 5);
    let second = histograms(175, 150, 900);
    let blocks = [
        block_with(&env, &chunks_of_columns(&first)),
        block_with(&env, &[chunk(0, 50)]),
        block_with(&env, &chunks_of_columns(&second)),
    ];
    for encoding in [BlockEncoding::Dense, BlockEncoding::Prometheus] {
        let output = merge_by(&env, &blocks, encoding, DuplicatePolicy::KeepFirst).unwrap().unwrap();
        let mut want = columns_of(&env, &blocks[1]);
        want.extend_from(&first, 0..150);
        want.extend_from(&second, 75..150);
        assert_same(&columns_of(&env, &output), &want);
        assert_eq!(output.verify(), []);
        assert_eq!(output.meta().stats.num_histogram_samples, 225);
        assert_eq!(output.meta().stats.num_float_samples, 50);
    }
    let alone = merge(&env, &[blocks[0].clone(), blocks[1].clone()]).unwrap().unwrap();
    let kept: Vec<_> = chunks_of_columns(&first).into_iter().map(|chunk| chunk.bytes).collect();
    let found = chunks_of(&alone);
    assert_eq!(found[1..].iter().map(|(_, _, bytes)| bytes.clone()).collect::<Vec<_>>(), kept);
}

#[test]
fn deleted_histograms_are_gone_before_and_after_merging() {
    let (env, _, _) = Env::fake(WINDOW.end, 1);
    let all = histograms(0, 200, 3);
    let block = block_with(&env, &chunks_of_columns(&all));
    let deleted = TimeRange::new(WINDOW.start + 30_000, WINDOW.start + 70_000);
    let mut tombstones = Tombstones::new();
    for StoredSeries { series_ref, .. } in stored_series(&block) {
        let interval = Interval { first: deleted.start, last: deleted.end - 1 };
        tombstones.add(u64::from(series_ref), interval);
    }
    let mut bytes = Vec::new();
    tombstones.encode(&mut bytes);
    env.disk.create(&block.dir().join(TOMBSTONES_FILE)).unwrap().write_at(&bytes, 0).unwrap();
    let block = Block::open(&env, block.dir()).unwrap();
    let mut want = all.clone();
    want.remove(want.indices_in(deleted));
    assert_eq!(want.len(), 160);
    assert_same(&columns_of(&env, &block), &want);
    assert_same(&columns_of(&env, &merge(&env, &[block]).unwrap().unwrap()), &want);
}

/// A block above the size of outputs was never compacted: its deleted samples and overlapping blocks stayed.
/// An output that would grow too large is split by series instead.
#[test]
fn an_output_that_would_grow_too_large_is_split_by_series() {
    let (env, _, _) = Env::fake(WINDOW.end, 11);
    let series = some_series(40, 300);
    let part = |of: usize| -> Bits {
        let all = series.clone().into_iter().enumerate();
        all.filter(|(at, _)| usize::from(at % 3 < 2) == of).map(|(_, one)| one).collect()
    };
    let inputs = [series.clone(), part(0), part(1)].map(|part| block_of(&env, &part, WINDOW));
    let (encoding, duplicates) = (BlockEncoding::Prometheus, DuplicatePolicy::KeepFirst);
    let whole = merge(&env, &inputs).unwrap().unwrap();
    let output_bytes_max = whole.size_bytes() / 4;
    let rules = MergeRules { encoding, duplicates, output_bytes_max };
    let outputs = compact(&env, Path::new(DIR), None, &inputs, rules, &Unhurried).unwrap();
    assert!((4..=6).contains(&outputs.len()), "{} outputs", outputs.len());
    let ulids: Vec<Ulid> = outputs.iter().map(|block| block.meta().ulid).collect();
    let mut found = Bits::new();
    for block in &outputs {
        assert!(block.size_bytes() < 2 * output_bytes_max, "{} bytes", block.size_bytes());
        assert_eq!(block.meta().compaction.split_blocks, ulids);
        assert_eq!(block.meta().compaction.split_set, Some(ulids[0]));
        assert_eq!(block.meta().compaction.parents.len(), 3);
        assert!(block.verify().is_empty());
        let of_block = read_all(&env, block).unwrap();
        assert!(found.last_key_value().is_none_or(|(last, _)| of_block.keys().all(|labels| labels > last)));
        found.extend(of_block);
    }
    assert_eq!(found, series);
}

/// Whatever fails while a set is named, either all of its blocks are there or none, or the error lists those
/// that are left.
#[test]
fn a_failure_while_a_set_is_named_leaves_none_of_it_or_says_which() {
    let (encoding, duplicates) = (BlockEncoding::Prometheus, DuplicatePolicy::KeepFirst);
    for survived in 0.. {
        let (env, _, disk) = Env::fake(WINDOW.end, 12);
        let input = block_of(&env, &some_series(12, 100), WINDOW);
        let rules = MergeRules { encoding, duplicates, output_bytes_max: input.size_bytes() / 3 };
        disk.fail_after(survived);
        let compacted = compact(&env, Path::new(DIR), None, &[input], rules, &Unhurried);
        disk.heal();
        let names = env.disk.list(Path::new(DIR)).unwrap();
        let named_count = names.iter().filter(|entry| entry.name.parse::<Ulid>().is_ok()).count() - 1;
        match compacted {
            Ok(outputs) => {
                assert_eq!(outputs.len(), named_count);
                return;
            }
            Err(CompactError::LeftBehind { dirs, .. }) => assert!(dirs.len() >= named_count),
            Err(_) => assert_eq!(named_count, 0, "{survived}"),
        }
    }
}
