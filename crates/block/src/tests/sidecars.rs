//! Sidecars of blocks of every shape: their series, names, offsets and files are those of the block; damage
//! of the block is an error.

use std::collections::BTreeSet;
use std::ops::Range;

use chronolith_base::crc::crc32c;
use chronolith_format::block::chunks::{ChunkRef, chunk_len};
use chronolith_format::bucket::sidecar::{
    Directory, FileSum, NameList, SegmentRange, SeriesPage, SharedTimes, SidecarFile, SidecarHead,
    SidecarSummary, SizedChunk, SparseOffsets,
};
use chronolith_model::{METRIC_NAME, TimeUnit, WordKind};

use super::*;
use crate::chunk::{raw_chunk, times_offset};
use crate::source::BlockFile;
use crate::write_sidecar;

pub(crate) fn sidecar_of(env: &Env, block: &Block) -> Result<(Vec<u8>, SidecarSummary), BlockError> {
    let mut out = Vec::new();
    let summary = write_sidecar(env, block, |bytes| out.extend_from_slice(bytes))?;
    Ok((out, summary))
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
