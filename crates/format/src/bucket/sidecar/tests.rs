//! Sidecars round-trip for real and for drawn series; the golden file reads as ever; damage of any byte is
//! noticed, and forged pages end without panic.

use std::ops::Range;

use chronolith_base::crc::crc32c;
use chronolith_model::TimeUnit;
use proptest::prelude::{any, prop};
use proptest::strategy::Strategy;

use super::super::packed::{Unpacker, put_packed};
use super::*;
use crate::block::chunks::ChunkRef;
use crate::block::index::ChunkMeta;
use crate::block::meta::Ulid;

/// A series as it is written.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    series_ref: u32,
    labels: Vec<(String, String)>,
    chunks: Vec<SizedChunk>,
}

fn pairs(series: &Series) -> impl Iterator<Item = (&str, &str)> + Clone {
    series.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

fn sized(min_time: i64, max_time: i64, chunk_ref: u64, len: u32) -> SizedChunk {
    SizedChunk { meta: ChunkMeta { min_time, max_time, chunk_ref: ChunkRef(chunk_ref) }, len }
}

const FILES: [FileSum; 5] = [
    FileSum { file: SidecarFile::Index, len: 12_345, crc: Some(1) },
    FileSum { file: SidecarFile::Segment(0), len: 1 << 29, crc: Some(u32::MAX) },
    FileSum { file: SidecarFile::Segment(1), len: 77, crc: None },
    FileSum { file: SidecarFile::Meta, len: 500, crc: Some(4) },
    FileSum { file: SidecarFile::Tombstones, len: 9, crc: Some(0) },
];

fn block() -> Ulid {
    "01JDB5W8X9YZ0123456789ABCD".parse().expect("is a ULID")
}

fn written(series: &[Series], times: &[(u64, u32)]) -> (Vec<u8>, SidecarSummary) {
    let mut out = Vec::new();
    let mut writer = SidecarWriter::new(block(), TimeUnit::Nano, |bytes: &[u8]| out.extend_from_slice(bytes));
    for one in series {
        writer.add_series(one.series_ref, pairs(one), &one.chunks).expect("is in order");
    }
    times.iter().for_each(|(chunk_ref, len)| writer.add_times_chunk(ChunkRef(*chunk_ref), *len));
    let summary = writer.finish(&FILES, None);
    assert_eq!(summary.len, out.len() as u64);
    assert_eq!(summary.crc, crc32c(&out));
    (out, summary)
}

fn at(bytes: &[u8], range: Range<u64>) -> &[u8] {
    &bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
}

fn page_bytes<'a>(bytes: &'a [u8], page: &PageEntry) -> &'a [u8] {
    at(bytes, page.offset..page.offset + u64::from(page.len))
}

fn read(bytes: &[u8]) -> (SidecarHead, Vec<Series>) {
    let head = SidecarHead::decode(bytes).expect("decodes");
    let mut page = SeriesPage::new();
    let mut out = Vec::new();
    for entry in &head.pages {
        page.decode(entry, page_bytes(bytes, entry)).expect("decodes");
        assert_eq!(entry.first_ordinal as usize, out.len());
        for series in page.iter() {
            let labels = series.pairs().map(|(name, value)| (name.to_owned(), value.to_owned()));
            let series_ref = series.series_ref;
            out.push(Series { series_ref, labels: labels.collect(), chunks: series.chunks.to_vec() });
        }
    }
    (head, out)
}

fn label(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// Series of some metrics over pods; every 50th has a label more, every 97th no chunks.
fn realistic(count: u32) -> Vec<Series> {
    let mut end = 8;
    let series = |n: u32| {
        let mut labels = vec![label("__name__", format!("metric_{}", n / 300))];
        if n.is_multiple_of(50) {
            labels.push(label("device", "eth0"));
        }
        labels.push(label("instance", format!("10.0.{}.{}:9100", n % 300 / 100, n % 100)));
        labels.push(label("pod", format!("pöd-{:08x}", (n % 300).wrapping_mul(0x9e37_79b9))));
        let chunk_count = if n.is_multiple_of(97) { 0 } else { 3 + i64::from(n / 700) };
        let chunk = |k: i64| {
            let len = 300 + (n * 7 + u32::try_from(k).unwrap()) % 40;
            end += u64::from(len);
            let start = 1_700_000_000_000 + k * 1_800_000 + i64::from(n % 300 / 100) * 17;
            sized(start, start + 1_785_000, end - u64::from(len), len)
        };
        Series { series_ref: 5 + 4 * n, labels, chunks: (0..chunk_count).map(chunk).collect() }
    };
    (0..count).map(series).collect()
}

#[test]
fn series_round_trip_page_by_page() {
    let series = realistic(5000);
    let (bytes, summary) = written(&series, &[(100, 20), (8, 10), (120, 5)]);
    let (head, found) = read(&bytes);
    assert_eq!(found, series);
    assert_eq!((head.block, head.time_unit, head.series_count), (block(), TimeUnit::Nano, 5000));
    assert_eq!(head.chunk_count, series.iter().map(|one| one.chunks.len() as u64).sum::<u64>());
    assert_eq!(head.files, FILES);
    assert_eq!(head.file(SidecarFile::Segment(1)), Some(&FILES[2]));
    let range = |start, end| SegmentRange { segment_idx: 0, start, end };
    assert_eq!(head.times, SharedTimes::Inline(vec![range(8, 18), range(100, 125)]));
    assert!(head.pages.len() > 2, "{} pages", head.pages.len());
    // The head is found from any suffix that has all of it.
    let suffix = |len: u32| &bytes[bytes.len() - len as usize..];
    assert_eq!(head_len(suffix(24)), Ok(summary.head_len));
    assert_eq!(SidecarHead::decode(suffix(summary.head_len)), Ok(head));
    let short = SidecarHead::decode(suffix(summary.head_len - 1));
    assert!(matches!(short, Err(chronolith_base::DecodeError::Short { .. })), "{short:?}");
}

#[test]
fn a_metric_is_read_from_the_pages_of_its_run() {
    let series = realistic(5000);
    let (bytes, _) = written(&series, &[]);
    let head = SidecarHead::decode(&bytes).expect("decodes");
    let Directory::Inline(names) = &head.directory else { panic!("a few names are inline") };
    assert_eq!(names.len(), 17);
    let [run] = names.runs("metric_7") else { panic!("one run") };
    assert_eq!(run.ordinals(), 2100..2400);
    let mut page = SeriesPage::new();
    let mut found = Vec::new();
    for entry in &head.pages[head.pages_of(run.ordinals())] {
        page.decode(entry, page_bytes(&bytes, entry)).expect("decodes");
        let first = run.first.saturating_sub(entry.first_ordinal) as usize;
        let end = (run.ordinals().end - entry.first_ordinal) as usize;
        let wanted = (first..end.min(page.series_count())).filter_map(|idx| page.series(idx));
        found.extend(wanted.map(|series| series.series_ref));
    }
    let wanted: Vec<u32> = series[2100..2400].iter().map(|one| one.series_ref).collect();
    assert_eq!(found, wanted);
    assert!(head.pages_of(0..1) == (0..1) && head.pages_of(5000..5001).is_empty());
    // By the ref that a postings list has.
    let idx = head.page_of_ref(series[3333].series_ref).expect("is there");
    page.decode(&head.pages[idx], page_bytes(&bytes, &head.pages[idx])).expect("decodes");
    let found = page.idx_of_ref(series[3333].series_ref).and_then(|idx| page.series(idx)).expect("is there");
    assert!(found.pairs().eq(pairs(&series[3333])) && found.chunks == series[3333].chunks);
    assert_eq!(found.labels().len(), series[3333].labels.len());
    assert_eq!(head.page_of_ref(0), None);
    assert_eq!(page.idx_of_ref(0), None);
}

#[test]
fn page_table_has_the_times_of_its_chunks() {
    let series = realistic(3000);
    let (bytes, _) = written(&series, &[]);
    for page in &SidecarHead::decode(&bytes).expect("decodes").pages {
        let first = page.first_ordinal as usize;
        let chunks = series[first..first + page.series_count as usize].iter().flat_map(|one| &one.chunks);
        assert_eq!(Some(page.min_time), chunks.clone().map(|chunk| chunk.meta.min_time).min());
        assert_eq!(Some(page.max_time), chunks.map(|chunk| chunk.meta.max_time).max());
    }
}

#[test]
fn a_block_without_series_has_a_sidecar() {
    let (bytes, _) = written(&[], &[]);
    let (head, found) = read(&bytes);
    assert!(found.is_empty() && head.pages.is_empty());
    assert_eq!(head.directory, Directory::Inline(NameList::default()));
    assert!(head.pages_of(0..10).is_empty());
}

#[test]
fn many_shared_times_have_a_section() {
    let times: Vec<(u64, u32)> = (0..5000).map(|n| (8 + n * 100, 40)).collect();
    let (bytes, _) = written(&realistic(10), &times);
    let head = SidecarHead::decode(&bytes).expect("decodes");
    let SharedTimes::Section(section) = head.times else { panic!("5000 ranges are inline") };
    let ranges = SharedTimes::decode_section(at(&bytes, section.offset..section.offset + section.len));
    assert_eq!(ranges.expect("decodes").len(), 5000);
}

#[test]
fn series_that_cannot_be_written_are_refused() {
    let mut writer = SidecarWriter::new(block(), TimeUnit::Milli, |_: &[u8]| {});
    let mut add =
        |series_ref, chunks: &[SizedChunk]| writer.add_series(series_ref, [("a", "b")].into_iter(), chunks);
    assert_eq!(add(7, &[sized(0, 0, 8, 1)]), Ok(()));
    assert_eq!(add(7, &[]), Err(SidecarError::Order { series_ref: 7, before: 7 }));
    assert_eq!(add(8, &[sized(0, 0, 8, 0)]), Err(SidecarError::Chunk { series_ref: 8 }));
    assert_eq!(add(8, &[sized(1, 0, 8, 9)]), Err(SidecarError::Chunk { series_ref: 8 }));
    let many = vec![sized(0, 0, 8, 1); PAGE_RAW_BYTES_MAX / 35 + 1];
    assert!(matches!(add(8, &many), Err(SidecarError::TooLong { series_ref: 8, .. })));
    assert_eq!(add(8, &[]), Ok(()));
}

/// Label sets with few distinct texts, so that sets and values repeat.
fn drawn_labels() -> impl Strategy<Value = Vec<(String, String)>> {
    let pair = ("[a-cA-C]{1,2}|__name__", "[a-zß]{1,3}");
    prop::collection::btree_map(pair.0, pair.1, 0..20).prop_map(|labels| labels.into_iter().collect())
}

fn drawn_chunks() -> impl Strategy<Value = Vec<SizedChunk>> {
    let regular =
        (any::<i32>(), 0..6usize, any::<u16>(), any::<u32>()).prop_map(|(start, count, len, at)| {
            let chunk = |k: usize| {
                let start = i64::from(start) + k as i64 * 1000;
                let len = u32::from(len) + 1;
                sized(start, start + 900, u64::from(at) + k as u64 * u64::from(len), len)
            };
            (0..count).map(chunk).collect()
        });
    let one = (any::<i64>(), any::<i64>(), any::<u64>(), 1..=u32::MAX);
    let one = one.prop_map(|(a, b, chunk_ref, len)| sized(a.min(b), a.max(b), chunk_ref, len));
    let wild = prop::collection::vec(one, 0..4);
    proptest::prop_oneof![3 => regular, 1 => wild]
}

fn drawn_series() -> impl Strategy<Value = Vec<Series>> {
    let one = (1..1000u32, drawn_labels(), drawn_chunks());
    prop::collection::vec(one, 0..60).prop_map(|all| {
        let mut series_ref = 0;
        let series = all.into_iter().map(|(step, labels, chunks)| {
            series_ref += step;
            Series { series_ref, labels, chunks }
        });
        series.collect()
    })
}

proptest::proptest! {
    #[test]
    fn drawn_series_round_trip(series in drawn_series()) {
        let (bytes, _) = written(&series, &[]);
        let (head, found) = read(&bytes);
        assert_eq!(found, series);
        let Directory::Inline(names) = &head.directory else { panic!("few names are inline") };
        for (name, runs) in names.iter() {
            let ordinals = runs.iter().flat_map(|run| run.ordinals());
            let wanted = series.iter().zip(0u32..).filter(|(one, _)| {
                pairs(one).find(|pair| pair.0 == "__name__").map_or("", |pair| pair.1) == name
            });
            assert!(ordinals.eq(wanted.map(|(_, ordinal)| ordinal)));
        }
    }

    #[test]
    fn forged_pages_end_without_panic(
        series in drawn_series(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        junk in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let (bytes, _) = written(&series, &[]);
        let head = SidecarHead::decode(&bytes).expect("decodes");
        let mut page = SeriesPage::new();
        for entry in &head.pages {
            let mut raw = Vec::new();
            let packed = page_bytes(&bytes, entry);
            Unpacker::default().unpack("page", packed, PAGE_RAW_BYTES_MAX, &mut raw).expect("unpacks");
            // A writer of valid checksums that is wrong or hostile.
            let idx = at.index(raw.len());
            raw[idx] = byte;
            for content in [raw.as_slice(), &junk] {
                let mut packed = Vec::new();
                put_packed(content, &mut packed);
                if page.decode(entry, &packed).is_ok() {
                    let count = page.iter().map(|one| one.pairs().count() + one.chunks.len()).sum::<usize>();
                    assert!(count <= 9 * content.len());
                }
            }
        }
    }

    #[test]
    fn forged_heads_end_without_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (bytes, summary) = written(&realistic(40), &[(8, 10), (100, 5)]);
        let start = bytes.len() - summary.head_len as usize;
        let packed = &bytes[start..bytes.len() - TRAILER_BYTES];
        let mut raw = Vec::new();
        Unpacker::default().unpack("head", packed, 1 << 20, &mut raw).expect("unpacks");
        let idx = at.index(raw.len());
        raw[idx] = byte;
        let mut forged = bytes[..start].to_vec();
        put_packed(&raw, &mut forged);
        let len = forged.len() - start + TRAILER_BYTES;
        forged.extend_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
        forged.extend_from_slice(&[1, 0, 0, 0]);
        forged.extend_from_slice(&((start + len) as u64).to_le_bytes());
        let sum = crc32c(&forged[forged.len() - 16..]);
        forged.extend_from_slice(&sum.to_le_bytes());
        forged.extend_from_slice(&MAGIC);
        assert_eq!(head_len(&forged), Ok(u32::try_from(len).unwrap()));
        if let Ok(head) = SidecarHead::decode(&forged) {
            let end = head.pages.last().map_or(0, |page| page.offset + u64::from(page.len));
            assert!(end <= start as u64);
        }
    }
}

#[test]
fn no_cut_and_no_flipped_bit_goes_unnoticed() {
    let series = realistic(40);
    let (bytes, _) = written(&series, &[(8, 10)]);
    let whole = SidecarHead::decode(&bytes).expect("decodes");
    let mut page = SeriesPage::new();
    for cut in 0..bytes.len() {
        assert!(SidecarHead::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for flipped in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[flipped] ^= 0x04;
        let head = SidecarHead::decode(&damaged);
        let is_head_whole = head.as_ref() == Ok(&whole);
        assert!(is_head_whole || head.is_err(), "byte {flipped}");
        let Ok(head) = head else { continue };
        let entry = &head.pages[0];
        let decoded = page.decode(entry, page_bytes(&damaged, entry));
        // The first eight bytes name the kind of file for people and tools; no reader uses them.
        assert!(decoded.is_err() || flipped < HEADER_BYTES, "byte {flipped}");
        assert_eq!(page.series_count() == 0, decoded.is_err());
    }
}

#[test]
fn a_page_is_not_taken_for_another_one() {
    let (bytes, _) = written(&realistic(5000), &[]);
    let head = SidecarHead::decode(&bytes).expect("decodes");
    let mut page = SeriesPage::new();
    assert!(page.decode(&head.pages[1], page_bytes(&bytes, &head.pages[0])).is_err());
    assert!(page.decode(&head.pages[1], page_bytes(&bytes, &head.pages[1])).is_ok());
}

const GOLDEN: &[u8] = include_bytes!("../../../testdata/bucket/version-1.sidecar");

#[test]
fn the_golden_file_reads_as_ever() {
    let (bytes, _) = written(&realistic(60), &[(8, 300), (1_000, 20)]);
    assert_eq!(bytes, GOLDEN, "the bytes that are written have changed: that needs a version");
    assert_eq!(read(GOLDEN).1, realistic(60));
}
