//! Sidecars of blocks of every shape have the series, names, offsets and files of the block; damage of the
//! block is an error.

use std::collections::BTreeSet;
use std::ops::Range;

use chronolith_base::crc::crc32c;
use chronolith_format::block::chunks::{ChunkRef, chunk_len};
use chronolith_format::bucket::sidecar::{
    Directory, FileSum, NameList, SegmentRange, SeriesPage, SharedTimes, SidecarFile, SidecarHead,
    SidecarSummary, SizedChunk, SparseOffsets,
};
use chronolith_model::{BlockEncoding, METRIC_NAME, MatchOp, TimeUnit, WordKind};
use proptest::prelude::{Strategy, prop, proptest};

use super::*;
use crate::chunk::{raw_chunk, times_offset};
use crate::source::BlockFile;
use crate::{IndexSidecar, SidecarBlock, write_sidecar};

pub(crate) fn sidecar_of(env: &Env, block: &Block) -> Result<(Vec<u8>, SidecarSummary), BlockError> {
    let mut out = Vec::new();
    let summary = write_sidecar(env, block, |bytes| out.extend_from_slice(bytes))?;
    Ok((out, summary))
}

/// Opens the block so that it is read by a sidecar that is made of it: as it is, and by postings lists
/// wherever possible. None if its files were removed, or it has no sidecar because it is damaged.
pub(crate) fn open_by_sidecar(env: &Env, block: &Block) -> Vec<SidecarBlock> {
    if !env.disk.exists(block.dir()) {
        return Vec::new();
    }
    let Ok((bytes, _)) = sidecar_of(env, block) else { return Vec::new() };
    let source = |bytes: &[u8]| open_sidecar(env, block, bytes, 64).unwrap();
    let of_index = sidecar_of_index(block).unwrap();
    let [direct, lists, of_index] = [source(&bytes), source(&bytes), source(&of_index)];
    let range = block.range();
    let direct = SidecarBlock::new(direct.1, range, Box::new(direct.0));
    let of_index = SidecarBlock::new(of_index.1, range, Box::new(of_index.0));
    vec![direct, SidecarBlock::by_lists(lists.1, range, Box::new(lists.0)), of_index]
}

/// The sidecar that is made of the index alone.
fn sidecar_of_index(block: &Block) -> Result<Vec<u8>, BlockError> {
    let mut out = Vec::new();
    let mut sidecar = IndexSidecar::new(block, |bytes: &[u8]| out.extend_from_slice(bytes))?;
    let budget = MemoryBudget::new("sidecar", u64::MAX);
    loop {
        let bytes = {
            let Some(wave) = sidecar.next_wave() else { break };
            block.contents().read(&*wave, &budget).unwrap()
        };
        sidecar.push(&bytes)?;
    }
    let summary = sidecar.finish()?;
    assert_eq!((summary.len, summary.crc), (out.len() as u64, crc32c(&out)));
    Ok(out)
}

/// Source of a block with the sidecar that has these bytes, and its head.
fn open_sidecar(
    env: &Env,
    block: &Block,
    sidecar: &[u8],
    gap_bytes: u64,
) -> Result<(RangedFiles, SidecarHead), BlockError> {
    let path = Path::new("/sidecars").join(format!("{}-{}", block.meta().ulid, sidecar.len()));
    env.disk.create_dir_all(Path::new("/sidecars")).unwrap();
    env.disk.create(&path).unwrap().write_at(sidecar, 0).unwrap();
    RangedFiles::open(env, block.dir(), gap_bytes)?.with_sidecar(env, &path)
}

fn part(bytes: &[u8], range: Range<u64>) -> &[u8] {
    &bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
}

/// Series of the sidecar: ref, labels, chunks.
type SidecarSeries = Vec<(u32, Labels, Vec<SizedChunk>)>;

fn series_of(head: &SidecarHead, bytes: &[u8]) -> SidecarSeries {
    let mut page = SeriesPage::new();
    let mut out = Vec::new();
    for entry in &head.pages {
        page.decode(entry, part(bytes, entry.offset..entry.offset + u64::from(entry.len))).unwrap();
        out.extend(page.iter().map(|one| (one.series_ref, one.labels(), one.chunks.to_vec())));
    }
    out
}

/// Series as the index and the segments have them, and the chunks with shared times.
fn series_of_index(block: &Block) -> (SidecarSeries, BTreeSet<(ChunkRef, u32)>) {
    let mut out = SidecarSeries::new();
    let mut times = BTreeSet::new();
    for series in stored_series(block) {
        let bytes = chunk_bytes(block, &series.chunks);
        let len_of = |chunk_ref: ChunkRef| {
            let segment = BlockFile::Segment(chunk_ref.segment_idx());
            u32::try_from(chunk_len(bytes.at(segment, u64::from(chunk_ref.offset()))).unwrap()).unwrap()
        };
        let mut chunks = Vec::new();
        for &meta in &series.chunks {
            chunks.push(SizedChunk { meta, len: len_of(meta.chunk_ref) });
            if let Some(offset) = times_offset(raw_chunk(&bytes, meta.chunk_ref).unwrap()).unwrap() {
                let times_ref = ChunkRef::new(meta.chunk_ref.segment_idx(), offset);
                times.insert((times_ref, len_of(times_ref)));
            }
        }
        out.push((series.series_ref, series.labels, chunks));
    }
    (out, times)
}

fn names_of(head: &SidecarHead) -> &NameList {
    match &head.directory {
        Directory::Inline(names) => names,
        Directory::Paged(_) => panic!("blocks of tests have few names"),
    }
}

fn check_names(env: &Env, block: &Block, head: &SidecarHead, series: &SidecarSeries) {
    let names = names_of(head);
    for (idx, (_, labels, _)) in (0u32..).zip(series) {
        let runs = names.runs(labels.metric_name().unwrap_or(""));
        assert_eq!(runs.iter().filter(|run| run.ordinals().contains(&idx)).count(), 1, "{labels}");
    }
    assert_eq!(
        names.iter().flat_map(|(_, runs)| runs).map(|run| run.count as usize).sum::<usize>(),
        series.len()
    );
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let values = block.label_values(METRIC_NAME, &all, 0, &context(env)).unwrap();
    let found: Vec<&str> = names.iter().map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
    assert_eq!(found, values);
}

fn check_times(head: &SidecarHead, times: &BTreeSet<(ChunkRef, u32)>) {
    let SharedTimes::Inline(ranges) = &head.times else { panic!("blocks of tests have few shared times") };
    let mut want: Vec<SegmentRange> = Vec::new();
    for (chunk_ref, len) in times {
        let (segment_idx, start) = (chunk_ref.segment_idx(), chunk_ref.offset());
        match want.last_mut() {
            Some(last) if last.segment_idx == segment_idx && last.end == start => last.end += len,
            _ => want.push(SegmentRange { segment_idx, start, end: start + len }),
        }
    }
    assert_eq!(*ranges, want);
}

fn check_offsets(env: &Env, block: &Block, head: &SidecarHead, bytes: &[u8]) {
    let section = head.offsets.unwrap();
    let offsets = SparseOffsets::decode(part(bytes, section.offset..section.offset + section.len)).unwrap();
    let header = block.contents().header();
    assert!(offsets.label_names().eq(header.label_names()));
    let index = env.disk.read(&block.dir().join("index")).unwrap();
    for name in header.label_names().map(str::to_owned).chain([String::new()]) {
        let mut want = Vec::new();
        header
            .for_each_value(&name, "", &mut |value, list| {
                want.push((value.to_owned(), list));
                true
            })
            .unwrap();
        let mut found = Vec::new();
        let range = offsets.range_of_prefix(&name, "").unwrap();
        offsets
            .visit(&range, part(&index, range.bytes.clone()), &mut |value, list| {
                found.push((value.to_owned(), list));
                true
            })
            .unwrap();
        assert_eq!(
            found.iter().map(|one| &one.0).collect::<Vec<_>>(),
            want.iter().map(|one| &one.0).collect::<Vec<_>>()
        );
        assert!(found.iter().zip(&want).all(|(a, b)| a.1.start == b.1.start));
    }
}

fn check_files(env: &Env, block: &Block, head: &SidecarHead) {
    let sum = |file: SidecarFile, name: &str| {
        let bytes = env.disk.read(&block.dir().join(name)).ok()?;
        Some(FileSum { file, len: bytes.len() as u64, crc: Some(crc32c(&bytes)) })
    };
    let segments = (0u32..).map_while(|idx| sum(SidecarFile::Segment(idx), &BlockFile::Segment(idx).name()));
    let mut want: Vec<FileSum> = sum(SidecarFile::Index, "index").into_iter().chain(segments).collect();
    want.extend(sum(SidecarFile::Meta, "meta.json"));
    want.extend(sum(SidecarFile::Tombstones, "tombstones"));
    assert_eq!(head.files, want);
}

/// The sidecar of a block that is not damaged has what the block has.
#[track_caller]
pub(crate) fn check_sidecar(env: &Env, block: &Block) -> SidecarHead {
    let (bytes, summary) = sidecar_of(env, block).unwrap();
    assert_eq!(sidecar_of(env, block).unwrap(), (bytes.clone(), summary), "equal blocks give equal bytes");
    assert_eq!((summary.len, summary.crc), (bytes.len() as u64, crc32c(&bytes)));
    let head = SidecarHead::decode(&bytes[bytes.len() - summary.head_len as usize..]).unwrap();
    let meta = block.meta();
    assert_eq!((head.block, head.time_unit), (meta.ulid, meta.time_unit()));
    let (series, times) = series_of_index(block);
    assert_eq!(series_of(&head, &bytes), series);
    let chunk_count: usize = series.iter().map(|(_, _, chunks)| chunks.len()).sum();
    assert_eq!((head.series_count as usize, head.chunk_count), (series.len(), chunk_count as u64));
    check_names(env, block, &head, &series);
    check_times(&head, &times);
    check_offsets(env, block, &head, &bytes);
    check_files(env, block, &head);
    // Read by range, the block gives the same bytes.
    let (ranged, _) = open_ranged(env, block.dir()).unwrap();
    assert!(sidecar_of(env, &ranged).unwrap().0 == bytes, "read by range");
    head
}

/// Series of all kinds in nanoseconds, some without a metric name; targets share their times.
pub(crate) fn block_of_kinds(env: &Env) -> Arc<Block> {
    let writer = BlockWriter::create(env, Path::new(DIR)).unwrap().with_unit(TimeUnit::Nano);
    let mut writer = writer.with_small_limits(6000, 1 << 20);
    let kinds = [WordKind::Boolean, WordKind::Float, WordKind::Integer, WordKind::Text, WordKind::Unsigned];
    let times: Vec<i64> = (0..400).map(|i| WINDOW.start + i * 9000 + (i * 7919) % 997).collect();
    let mut all = Vec::new();
    for kind in kinds {
        for field in 0..3 {
            for host in 0..4 {
                let (field, host) = (format!("f{field}"), format!("h{host}"));
                let name = ["cpu", ""][usize::from(host == "h3")];
                let labels = labels(&[
                    ("__field__", &field),
                    ("__kind__", kind.label_value()),
                    (METRIC_NAME, name),
                    ("host", &host),
                ]);
                all.push((labels, kind));
            }
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    for (idx, (labels, kind)) in (0u64..).zip(&all) {
        writer.set_kind(*kind);
        let word = |i: u64| if *kind == WordKind::Boolean { i % 2 } else { (i * idx) % 91 };
        match kind {
            WordKind::Text => {
                let texts: Vec<Arc<[u8]>> =
                    (0..400u64).map(|i| Arc::from(format!("text {}", word(i) % 7).as_bytes())).collect();
                writer.push_texts(&times, &texts).unwrap();
            }
            WordKind::Float | WordKind::Boolean => {
                let values: Vec<f64> = (0..400).map(|i| word(i) as f64).collect();
                writer.push_floats(&times, &values, &[]).unwrap();
            }
            _ => {
                let values: Vec<f64> = (0..400).map(|i| f64::from_bits(word(i))).collect();
                writer.push_floats(&times, &values, &[]).unwrap();
            }
        }
        writer.end_series(labels).unwrap();
    }
    let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
    Block::open(env, &block_dir(&meta)).unwrap()
}

#[test]
fn a_sidecar_has_the_series_of_the_block() {
    let (env, dir) = fake_block(&some_series(400, 300));
    let head = check_sidecar(&env, &Block::open(&env, &dir).unwrap());
    assert_eq!(head.series_count, 400);
    assert_eq!(names_of(&head).runs("m")[0].count, 400);
}

#[test]
fn a_sidecar_has_series_of_all_kinds() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let block = block_of_kinds(&env);
    let head = check_sidecar(&env, &block);
    assert_eq!((head.series_count, head.time_unit), (60, TimeUnit::Nano));
    assert!(names_of(&head).runs("cpu").len() > 10, "kinds and fields put series of one metric apart");
    assert!(names_of(&head).runs("").len() > 10);
    assert!(block.contents().files().segment_count() > 1);
    let SharedTimes::Inline(ranges) = &head.times else { panic!("few shared times") };
    assert!(!ranges.is_empty());
}

#[test]
fn a_sidecar_names_tombstones_that_exist() {
    let (env, dir) = fake_block(&some_series(3, 10));
    let block = Block::open(&env, &dir).unwrap();
    assert!(check_sidecar(&env, &block).file(SidecarFile::Tombstones).is_some());
    env.disk.remove_file(&dir.join("tombstones")).unwrap();
    assert_eq!(check_sidecar(&env, &block).file(SidecarFile::Tombstones), None);
    env.disk.remove_file(&dir.join("meta.json")).unwrap();
    let error = sidecar_of(&env, &block).unwrap_err().to_string();
    assert!(error.contains("meta.json"), "{error}");
}

/// Entries that a page cannot tell apart from others, or that would match otherwise than their postings.
#[test]
fn a_series_with_an_empty_or_a_repeated_label_has_no_sidecar() {
    use chronolith_format::block::index::{IndexWriter, TableEntry};
    for pairs in [[(1, 0), (2, 2)], [(1, 1), (1, 2)]] {
        let (env, dir) = fake_block(&some_series(1, 1));
        let mut w = IndexWriter::begin(Vec::new(), ["", "a", "b"].into_iter()).unwrap();
        let series_ref = w.series(pairs.into_iter(), &[]).unwrap();
        w.end_series().unwrap();
        let all = w.postings(&[series_ref]).unwrap();
        let entries = [TableEntry { name: "", value: "", offset: all }];
        let index = w.finish(entries.into_iter()).unwrap();
        env.disk.create(&dir.join("index")).unwrap().write_at(&index, 0).unwrap();
        let error = sidecar_of(&env, &Block::open(&env, &dir).unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("index: series entry at offset") && error.contains("each label once"),
            "{error}"
        );
    }
}

/// Flips every byte: the sidecar of a damaged block is an error that names the file, or the damage is where
/// no series, chunk or offset lies.
#[test]
fn a_damaged_block_has_no_sidecar() {
    let (env, dir) = fake_block(&some_series(3, 130));
    let block = Block::open(&env, &dir).unwrap();
    let head = check_sidecar(&env, &block);
    let want = series_of_index(&block).0;
    for (file, harmless_max) in [("index", 200), ("chunks/000001", 3)] {
        let path = dir.join(file);
        let good = env.disk.read(&path).unwrap();
        let mut harmless_count = 0;
        for at in 0..good.len() {
            for flip in [0x01, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                env.disk.create(&path).unwrap().write_at(&bad, 0).unwrap();
                let Ok(block) = Block::open(&env, &dir) else { continue };
                match sidecar_of(&env, &block) {
                    Ok((bytes, _)) => {
                        let found = SidecarHead::decode(&bytes).unwrap();
                        assert_eq!(series_of(&found, &bytes), want, "{file} byte {at}");
                        assert_ne!(found.files, head.files, "{file} byte {at}");
                        harmless_count += usize::from(flip == 1);
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains(file) && text.contains("at offset"), "byte {at}: {text}");
                    }
                }
            }
        }
        assert!(harmless_count <= harmless_max, "{file}: {harmless_count} bytes are not verified");
        env.disk.create(&path).unwrap().write_at(&good, 0).unwrap();
    }
}

fn any_matcher() -> impl Strategy<Value = Matcher> {
    let name = prop::sample::select(vec!["__name__", "a", "host", "none", "pod"]);
    let value = prop::sample::select(vec![
        "", ".*", ".+", "m1", "m[12]", "m1|m3|", "m.*", "x", "x|y|z", "pod-1.*", ".*7", "h1", "h1|h2",
        "h.*|", "pod-3",
    ]);
    let ops = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex];
    (name, prop::sample::select(ops.to_vec()), value).prop_map(|(n, op, v)| Matcher::new(n, op, v).unwrap())
}

/// Series of a few metrics, some without name or with a label less; several segments and pages.
fn mixed_block(env: &Env, encoding: BlockEncoding) -> Arc<Block> {
    let writer = BlockWriter::create(env, Path::new(DIR)).unwrap().with_encoding(encoding);
    let mut writer = writer.with_small_limits(40_000, 1 << 20);
    let mut all = Vec::new();
    for metric in ["", "m1", "m2", "m3", "other"] {
        for host in 0..5 {
            for pod in 0..60 {
                let a = ["", "x", "y"][pod % 3];
                let (host_text, pod_text) = (format!("h{host}"), format!("pod-{pod}-{}", metric.len() * pod));
                let pairs = [("__name__", metric), ("a", a), ("host", &host_text), ("pod", &pod_text)];
                all.push((labels(&pairs), host, pod));
            }
        }
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    for (labels, host, pod) in &all {
        let first = WINDOW.start + i64::try_from(pod / 20).unwrap() * 1_800_000;
        let times: Vec<i64> = (0..150).map(|i| first + i * 9000 + (i * 7919 + host * 31) % 97).collect();
        let values: Vec<f64> = (0..150).map(|i| ((i * 31) % (7 + host)) as f64).collect();
        writer.add_samples(labels, &times, &values).unwrap();
    }
    let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
    Block::open(env, &block_dir(&meta)).unwrap()
}

/// Blocks of every shape, one with deletions.
fn blocks(env: &Env) -> Vec<Arc<Block>> {
    let dense = mixed_block(env, BlockEncoding::Dense);
    let deleted = mixed_block(env, BlockEncoding::Dense);
    let range = TimeRange::new(WINDOW.start, WINDOW.start + 700_000);
    let selectors = [vec![Matcher::equal("host", "h1")], vec![Matcher::equal("pod", "pod-3-6")]];
    let deleted = deleted.delete(env, &selectors, range).unwrap().unwrap().block;
    vec![dense, deleted, mixed_block(env, BlockEncoding::Prometheus), block_of_kinds(env)]
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(5))]
    /// Any matchers over any range select the same samples by sidecar and index, and the same labels.
    #[test]
    fn a_block_reads_the_same_by_sidecar(
        questions in prop::collection::vec(
            (prop::collection::vec(any_matcher(), 0..4), 0i64..7_200_000, 1i64..7_200_000), 1..12),
    ) {
        let (env, _, _) = Env::fake(WINDOW.end, 7);
        for block in blocks(&env) {
            for (matchers, start, len) in &questions {
                let range = TimeRange::new(WINDOW.start + start, WINDOW.start + start + len);
                let selector = Selector { matchers, range };
                read_selected(&env, &block, matchers, range).unwrap();
                for name in ["__name__", "host", "pod", "none"] {
                    label_values(&env, &block, name, &selector, 0).unwrap();
                    label_values(&env, &block, name, &selector, 3).unwrap();
                }
                label_names(&env, &block, &selector, 0).unwrap();
            }
        }
    }
}

/// More names than the head has room for, and more ranges of shared times.
#[test]
fn a_block_with_many_names_reads_the_same() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let mut writer = BlockWriter::create(&env, Path::new(DIR)).unwrap().with_encoding(BlockEncoding::Dense);
    for metric in 0..4000 {
        for host in 0..2 {
            let name = format!("{metric:05}_{:08x}_total", u32::wrapping_mul(metric, 0x9e37_79b9));
            let labels = labels(&[("__name__", &name), ("host", &format!("h{host}"))]);
            let jitter = |i: i64| (i * 7919 + i64::from(metric) * 31) % 997;
            let times: Vec<i64> = (0..40).map(|i| WINDOW.start + i * 15_000 + jitter(i)).collect();
            let values: Vec<f64> = (0..40).map(|i| (i % 7) as f64).collect();
            writer.add_samples(&labels, &times, &values).unwrap();
        }
    }
    let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
    let block = Block::open(&env, &block_dir(&meta)).unwrap();
    let (bytes, _) = sidecar_of(&env, &block).unwrap();
    let head = SidecarHead::decode(&bytes).unwrap();
    assert!(matches!(&head.directory, Directory::Paged(pages) if pages.len() > 1));
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    assert_eq!(label_values(&env, &block, "__name__", &all, 0).unwrap().len(), 4000);
    let name = |metric: u32| format!("{metric:05}_{:08x}_total", u32::wrapping_mul(metric, 0x9e37_79b9));
    for (op, value, want) in [
        (MatchOp::Equal, name(7), 2),
        (MatchOp::Equal, "none".to_owned(), 0),
        (MatchOp::Equal, String::new(), 0),
        (MatchOp::Regex, format!("{}|{}", name(0), name(3999)), 4),
        (MatchOp::Regex, "039.*".to_owned(), 200),
        (
            MatchOp::Regex,
            ".*00_total".to_owned(),
            2 * (0..4000).filter(|m| name(*m).ends_with("00_total")).count(),
        ),
        (MatchOp::NotRegex, "0[0-2].*".to_owned(), 2000),
    ] {
        let matchers = [Matcher::new("__name__", op, &value).unwrap()];
        assert_eq!(read_selected(&env, &block, &matchers, TimeRange::ALL).unwrap().len(), want, "{value}");
        let matchers = [matchers[0].clone(), Matcher::equal("host", "h1")];
        assert_eq!(
            read_selected(&env, &block, &matchers, TimeRange::ALL).unwrap().len(),
            want / 2,
            "{value}"
        );
    }
}

/// Every byte of a sidecar flipped: the right answer, or an error after which the damage is known.
#[test]
fn a_damaged_sidecar_never_gives_a_wrong_answer() {
    let (env, dir) = fake_block(&some_series(4, 40));
    let block = Block::open(&env, &dir).unwrap();
    let (good, _) = sidecar_of(&env, &block).unwrap();
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let matchers = [vec![Matcher::equal("__name__", "m")], vec![Matcher::equal("i", "002")]];
    let want: Vec<Bits> =
        matchers.iter().map(|m| read_one_source(&env, &*block, m, TimeRange::ALL).unwrap()).collect();
    let names = block.label_names(&all, 0, &context(&env)).unwrap();
    let mut right_count = 0;
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            let Ok((files, head)) = open_sidecar(&env, &block, &bad, 0) else { continue };
            let sidecar = SidecarBlock::by_lists(head, block.range(), Box::new(files));
            let mut answers = vec![sidecar.label_names(&all, 0, &context(&env)).map(|found| found == names)];
            for (matchers, want) in matchers.iter().zip(&want) {
                let found = read_one_source(&env, &sidecar, matchers, TimeRange::ALL);
                answers.push(found.map(|found| found == *want));
            }
            for answer in answers {
                match answer {
                    Ok(is_right) => assert!(is_right, "byte {at}"),
                    Err(error) => {
                        assert!(sidecar.damage().is_some(), "byte {at}: {error}");
                        assert!(error.to_string().contains("chronolith.sidecar"), "{error}");
                    }
                }
            }
            right_count += usize::from(sidecar.damage().is_none());
        }
    }
    assert!(right_count < 30, "{right_count}: only the first bytes are not verified");
}

/// A block of 100,000 series: the series of one metric take one request for pages and one for chunks.
#[test]
fn one_metric_of_many_takes_two_requests() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    for encoding in [BlockEncoding::Dense, BlockEncoding::Prometheus] {
        let mut writer = BlockWriter::create(&env, Path::new(DIR)).unwrap().with_encoding(encoding);
        for metric in 0..100 {
            for pod in 0..1000i64 {
                let (metric, pod_text) = (format!("m{metric:02}"), format!("pod-{pod:04}"));
                let labels = labels(&[("__name__", &metric), ("pod", &pod_text)]);
                let times: Vec<i64> = (0..6).map(|i| WINDOW.start + i * 15_000 + (i * pod) % 97).collect();
                writer.add_samples(&labels, &times, &[1.0, 2.5, 3.0, 7.25, 1e9, pod as f64]).unwrap();
            }
        }
        let meta = writer.finish(BlockSource::head(WINDOW)).unwrap().unwrap();
        let block = Block::open(&env, &block_dir(&meta)).unwrap();
        let (bytes, summary) = sidecar_of(&env, &block).unwrap();
        let (files, head) = open_sidecar(&env, &block, &bytes, 0).unwrap();
        let page_len_max = head.pages.iter().map(|page| u64::from(page.len)).max().unwrap();
        let meter = files.meter();
        let sidecar = SidecarBlock::new(head, block.range(), Box::new(files));
        let matchers = [Matcher::equal("__name__", "m42")];
        let found = read_one_source(&env, &sidecar, &matchers, TimeRange::ALL).unwrap();
        assert_eq!(found.len(), 1000);
        assert!(found == read_one_source(&env, &*block, &matchers, TimeRange::ALL).unwrap());
        let stats = meter.stats();
        assert_eq!((stats.waves, stats.rounds), (2, 2));
        assert!(stats.requests <= 3, "{stats:?}");
        let chunks: u64 = found.len() as u64 * 80;
        assert!(stats.bytes < 3 * page_len_max + chunks, "{stats:?}");
        assert!(u64::from(summary.head_len) < 64 << 10, "one suffix read has the head");
        // Again: nothing but pages and chunks.
        read_one_source(&env, &sidecar, &matchers, TimeRange::ALL).unwrap();
        assert_eq!(meter.stats().bytes, 2 * stats.bytes);
    }
}

/// Waves and rounds of one selection by sidecar, and its series.
#[track_caller]
fn check_waves(env: &Env, block: &Block, matchers: &[Matcher], is_by_lists: bool, want: [u64; 3]) {
    let (bytes, _) = sidecar_of(env, block).unwrap();
    let (files, head) = open_sidecar(env, block, &bytes, 0).unwrap();
    let meter = files.meter();
    let open = if is_by_lists { SidecarBlock::by_lists } else { SidecarBlock::new };
    let sidecar = open(head, block.range(), Box::new(files));
    let found = read_one_source(env, &sidecar, matchers, TimeRange::ALL).unwrap();
    let stats = meter.stats();
    assert_eq!([stats.waves, stats.rounds, found.len() as u64], want, "waves, rounds, series");
}

#[test]
fn lists_are_read_only_without_a_name_and_shared_times_with_the_chunks() {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let block = mixed_block(&env, BlockEncoding::Dense);
    let name = || Matcher::equal("__name__", "m2");
    let host = Matcher::equal("host", "h3");
    let SharedTimes::Inline(times) = check_sidecar(&env, &block).times else { panic!("few shared times") };
    assert!(times.len() > 3, "{times:?}");
    // Pages, chunks with their times.
    check_waves(&env, &block, &[name()], false, [2, 2, 300]);
    check_waves(&env, &block, std::slice::from_ref(&host), false, [2, 2, 300]);
    // Sparse offset table, entries, lists, pages, chunks.
    check_waves(&env, &block, std::slice::from_ref(&host), true, [5, 5, 300]);
    // A matcher that only removes series needs no list.
    let not = Matcher::new("host", MatchOp::NotEqual, "h3").unwrap();
    check_waves(&env, &block, std::slice::from_ref(&not), true, [3, 3, 1200]);
    check_waves(&env, &block, &[host, not], true, [4, 4, 0]);
    // No series has the label: the table shows it.
    check_waves(&env, &block, &[Matcher::equal("none", "h3")], true, [1, 1, 0]);
    check_waves(&env, &block, &[Matcher::equal("__name__", "none")], true, [0, 0, 0]);
}
