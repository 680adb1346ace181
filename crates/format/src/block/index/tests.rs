//! Index: golden blocks read and written again, old version 1, forged lengths, damage at every byte.

use std::collections::{BTreeMap, BTreeSet};

use chronolith_model::{Columns, TimeRange};

use super::*;
use crate::block::chunks::{self, ChunkRef};
use crate::chunk::xor;
use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{DecodeError, Mapped};
use chronolith_model::Labels;

#[path = "../../../testdata/golden/text.rs"]
mod text;

const TEXT: &str = include_str!("../../../testdata/golden/floats.om");
const INDEX_2: &[u8] = include_bytes!("../../../testdata/golden/prometheus-2.42/index");
const CHUNKS_2: &[u8] = include_bytes!("../../../testdata/golden/prometheus-2.42/chunks/000001");
const INDEX_3: &[u8] = include_bytes!("../../../testdata/golden/prometheus-3/index");
const CHUNKS_3: &[u8] = include_bytes!("../../../testdata/golden/prometheus-3/chunks/000001");

/// An index of which all bytes are at hand.
struct Index {
    bytes: Mapped,
    header: IndexHeader,
}

fn open(bytes: &[u8]) -> Result<Index, DecodeError> {
    let bytes = Mapped::from_slice(bytes);
    Ok(Index { header: IndexHeader::of_file(&bytes)?, bytes })
}

impl Index {
    fn bytes_from(&self, offset: u64) -> &[u8] {
        usize::try_from(offset).ok().and_then(|start| self.bytes.get(start..)).unwrap_or_default()
    }

    fn postings(&self, name: &str, value: &str) -> Result<Postings<'_>, DecodeError> {
        match self.header.postings_range(name, value)? {
            Some(list) => decode_postings(self.bytes_from(list.start), list.start),
            None => Ok(Postings::EMPTY),
        }
    }

    fn all_postings(&self) -> Result<Postings<'_>, DecodeError> {
        self.postings("", "")
    }

    fn series(&self, series_ref: u32, out: &mut SeriesEntry) -> Result<(), DecodeError> {
        let bytes = self.bytes_from(self.header.series_offset(series_ref));
        self.header.decode_series(series_ref, bytes, out)
    }

    fn toc(&self) -> &Toc {
        self.header.toc()
    }

    fn label_names(&self) -> impl Iterator<Item = &str> {
        self.header.label_names()
    }

    fn for_each_value(
        &self,
        name: &str,
        prefix: &str,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), DecodeError> {
        self.header.for_each_value(name, prefix, &mut |value, _| visit(value))
    }
}

type Stored = Vec<(Labels, Vec<ChunkMeta>)>;

fn all_series(index: &Index) -> Result<Stored, DecodeError> {
    let mut entry = SeriesEntry::new();
    let mut out = Vec::new();
    for series_ref in index.all_postings()?.iter() {
        index.series(series_ref, &mut entry)?;
        out.push((entry.labels(), entry.chunks.clone()));
    }
    Ok(out)
}

fn chunk_at(segment: &[u8], chunk_ref: ChunkRef) -> crate::chunk::RawChunk<'_> {
    let offset = chunk_ref.offset();
    chunks::decode_chunk(&segment[offset as usize..], offset).unwrap()
}

/// Float samples with their bits, and how many chunks hold something else.
fn decode_all(stored: &Stored, segment: &[u8]) -> (BTreeMap<Labels, Vec<(i64, u64)>>, usize) {
    let (mut out, mut others) = (BTreeMap::new(), 0);
    for (labels, metas) in stored {
        let mut columns = Columns::default();
        for meta in metas {
            let chunk = chunk_at(segment, meta.chunk_ref);
            if chunk.encoding == xor::ENCODING_XOR {
                let start = columns.len();
                xor::decode(chunk.bytes, TimeRange::ALL, &mut columns).unwrap();
                assert_eq!(columns.times[start], meta.min_time);
                assert_eq!(columns.times.last(), Some(&meta.max_time));
            } else {
                others += 1;
            }
        }
        let bits = columns.times.iter().copied().zip(columns.values.iter().map(|v| v.to_bits()));
        if !columns.is_empty() {
            out.insert(labels.clone(), bits.collect());
        }
    }
    (out, others)
}

fn text_bits() -> BTreeMap<Labels, Vec<(i64, u64)>> {
    // A NaN of a text has Prometheus's bits, not Rust's.
    let bits = |v: f64| if v.is_nan() { chronolith_model::sample::NORMAL_NAN_BITS } else { v.to_bits() };
    let series = text::parse(TEXT).into_iter();
    series.map(|(l, samples)| (l, samples.into_iter().map(|(t, v)| (t, bits(v))).collect())).collect()
}

#[test]
fn prometheus_blocks_hold_what_their_text_says() {
    for (index, segment, others_wanted) in [(INDEX_2, CHUNKS_2, 0), (INDEX_3, CHUNKS_3, 2)] {
        let index = open(index).unwrap();
        chunks::check_header(segment).unwrap();
        let (found, others) = decode_all(&all_series(&index).unwrap(), segment);
        assert_eq!(found, text_bits());
        assert_eq!(others, others_wanted);
        assert_eq!(index.header.version(), 2);
    }
}

#[test]
fn label_values_and_postings_of_golden_blocks_agree_with_their_series() {
    for index in [INDEX_2, INDEX_3] {
        let index = open(index).unwrap();
        let mut want: BTreeMap<(String, String), Vec<u32>> = BTreeMap::new();
        let mut entry = SeriesEntry::new();
        for series_ref in index.all_postings().unwrap().iter() {
            index.series(series_ref, &mut entry).unwrap();
            for (name, value) in entry.pairs() {
                want.entry((name.to_owned(), value.to_owned())).or_default().push(series_ref);
            }
        }
        let mut found = BTreeMap::new();
        for name in index.label_names() {
            index
                .for_each_value(name, "", &mut |value| {
                    let refs = index.postings(name, value).unwrap().iter().collect();
                    found.insert((name.to_owned(), value.to_owned()), refs);
                    true
                })
                .unwrap();
        }
        assert_eq!(found, want);
        let mut with_prefix = Vec::new();
        let collect = &mut |value: &str| {
            with_prefix.push(value.to_owned());
            with_prefix.len() < 7
        };
        index.for_each_value("id", "03", collect).unwrap();
        assert_eq!(with_prefix, ["030", "031", "032", "033", "034", "035", "036"]);
        assert_eq!(index.header.label_value_count("id"), 70);
        assert!(index.postings("id", "0305").unwrap().is_empty());
        assert!(index.postings("nothing", "x").unwrap().is_empty());
    }
}

/// Writes series with this writer.
fn write(stored: &Stored) -> Vec<u8> {
    let texts = stored.iter().flat_map(|(labels, _)| labels.iter().flat_map(|(n, v)| [n, v]));
    // Prometheus has the key of "all series", the empty string, among its symbols.
    let strings: BTreeSet<&str> = texts.chain([""]).collect();
    let places: BTreeMap<&str, u32> = strings.iter().copied().zip(0..).collect();
    let mut w = IndexWriter::begin(Vec::new(), strings.iter().copied()).unwrap();
    let mut postings: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
    for (labels, chunks) in stored {
        let pairs: Vec<_> = labels.iter().map(|(n, v)| (places[n], places[v])).collect();
        let series_ref = w.series(pairs.into_iter(), chunks).unwrap();
        for key in std::iter::once(("", "")).chain(labels.iter()) {
            postings.entry(key).or_default().push(series_ref);
        }
    }
    w.end_series().unwrap();
    let entries: Vec<_> = postings
        .iter()
        .map(|(&(name, value), refs)| TableEntry { name, value, offset: w.postings(refs).unwrap() })
        .collect();
    w.finish(entries.iter().copied()).unwrap()
}

#[test]
fn writing_the_content_of_golden_blocks_again_gives_the_same_bytes() {
    let ours = write(&all_series(&open(INDEX_3).unwrap()).unwrap());
    let differ = ours.iter().zip(INDEX_3).position(|(a, b)| a != b);
    assert_eq!((ours.len(), differ), (INDEX_3.len(), None), "index of Prometheus 3");

    // Prometheus 2.42 still writes label indices between series and postings and their table after the
    // postings: its file equals ours up to the end of the series, and with other offsets in the rest.
    let theirs = open(INDEX_2).unwrap();
    let ours = write(&all_series(&theirs).unwrap());
    let series_end = usize::try_from(theirs.toc().label_indices).unwrap();
    assert!(ours[..series_end] == INDEX_2[..series_end], "symbols and series of Prometheus 2.42");
    assert_eq!(all_series(&open(&ours).unwrap()).unwrap(), all_series(&theirs).unwrap());

    for (index, segment) in [(INDEX_2, CHUNKS_2), (INDEX_3, CHUNKS_3)] {
        let mut ours = Vec::new();
        chunks::put_header(&mut ours);
        for meta in all_series(&open(index).unwrap()).unwrap().iter().flat_map(|(_, metas)| metas) {
            let chunk = chunk_at(segment, meta.chunk_ref);
            assert_eq!(ours.len() as u32, meta.chunk_ref.offset());
            if chunk.encoding != xor::ENCODING_XOR {
                // Histogram encoders come with native histograms; the bytes are taken over.
                chunks::put_chunk(&mut ours, chunk.encoding, chunk.bytes);
                continue;
            }
            let mut columns = Columns::default();
            xor::decode(chunk.bytes, TimeRange::ALL, &mut columns).unwrap();
            let again = encode_one(&columns);
            // Prometheus 2.42 begins the next byte as soon as one is full, so a chunk whose bits end with a
            // byte has a zero byte more there than with Prometheus 3 and here.
            let next_byte_begun =
                index == INDEX_2 && chunk.bytes.strip_suffix(&[0]) == Some(again.as_slice());
            let same = if next_byte_begun { chunk.bytes } else { again.as_slice() };
            chunks::put_chunk(&mut ours, xor::ENCODING_XOR, same);
        }
        assert!(ours == segment, "chunk segment");
    }
}

/// One chunk, however many samples: Prometheus 3 cuts by bytes too and may exceed 120.
fn encode_one(columns: &Columns) -> Vec<u8> {
    let mut state = xor::XorState::new();
    let mut buf = Vec::new();
    for (&time, &value) in columns.times.iter().zip(&columns.values) {
        buf.resize(state.byte_len_needed(), 0);
        state.append(&mut buf, time, value);
    }
    buf.truncate(state.byte_len());
    buf
}

fn small() -> Stored {
    let meta = |min_time, max_time, offset| ChunkMeta { min_time, max_time, chunk_ref: ChunkRef(offset) };
    let labels = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied());
    let mut out = vec![
        (labels(&[("a", "1")]), vec![meta(-5, -5, 8), meta(-4, 7, 90), meta(3, 9, 50)]),
        (labels(&[("a", "1"), ("b", "x")]), vec![]),
    ];
    out.extend(
        (100..140).map(|i| (labels(&[("c", &i.to_string())]), vec![meta(i64::MIN, i64::MAX, u64::MAX)])),
    );
    out
}

#[test]
fn unordered_and_overlapping_chunks_survive_the_index() {
    assert_eq!(all_series(&open(&write(&small())).unwrap()).unwrap(), small());
}

/// Reads whatever can be read.
fn walk(bytes: &[u8]) -> Result<Stored, DecodeError> {
    let index = open(bytes)?;
    for name in index.label_names() {
        let mut done = Ok(());
        index.for_each_value(name, "", &mut |value| {
            done = index.postings(name, value).map(|p| assert_eq!(p.iter().count(), p.len()));
            done.is_ok()
        })?;
        done?;
    }
    all_series(&index)
}

#[test]
fn damage_at_any_byte_gives_an_error_or_the_right_answer() {
    let bytes = write(&small());
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bad = bytes.clone();
            bad[at] ^= flip;
            if let Ok(found) = walk(&bad) {
                assert_eq!(found, small(), "byte {at} ^ {flip}");
            }
        }
        assert!(walk(&bytes[..at]).is_err(), "cut at {at}");
    }
}

/// Replaces bytes within a framed section and makes its checksum fit again.
fn forge(bytes: &[u8], section: usize, at: usize, with: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at..at + with.len()].copy_from_slice(with);
    let len = u32::from_be_bytes(out[section..section + 4].try_into().unwrap()) as usize;
    let sum = crc32c(&out[section + 4..section + 4 + len]);
    out[section + 4 + len..section + 8 + len].copy_from_slice(&sum.to_be_bytes());
    out
}

#[test]
fn forged_counts_and_lengths_with_good_checksums_are_errors() {
    let bytes = write(&small());
    let toc = *open(&bytes).unwrap().toc();
    let huge = u32::MAX.to_be_bytes();
    for section in [toc.symbols, toc.postings_table] {
        let section = usize::try_from(section).unwrap();
        assert!(open(&forge(&bytes, section, section + 4, &huge)).is_err(), "count");
        assert!(open(&forge(&bytes, section, section + 8, &[0xff, 0xff, 0xff, 0x7f])).is_err(), "length");
    }
    let postings = usize::try_from(toc.postings.next_multiple_of(4)).unwrap();
    assert!(walk(&forge(&bytes, postings, postings + 4, &huge)).is_err(), "postings count");
    let backwards = walk(&forge(&bytes, postings, postings + 8, &huge));
    assert!(backwards.unwrap_err().to_string().contains("ascending"), "postings order");
    for section in 0..6 {
        let toc_start = bytes.len() - TOC_BYTES;
        let mut bad = bytes.clone();
        bad[toc_start + 8 * section..toc_start + 8 * section + 8].copy_from_slice(&u64::MAX.to_be_bytes());
        let sum = crc32c(&bad[toc_start..bytes.len() - 4]);
        bad[bytes.len() - 4..].copy_from_slice(&sum.to_be_bytes());
        assert!(open(&bad).is_err(), "section {section}");
    }
}

#[test]
fn no_byte_forged_behind_a_good_checksum_panics() {
    let bytes = write(&small());
    let index = open(&bytes).unwrap();
    let toc = *index.toc();
    let mut found_count = 0;
    for section in [toc.symbols, toc.postings_table, toc.postings.next_multiple_of(4)] {
        let section = usize::try_from(section).unwrap();
        let len = u32::from_be_bytes(bytes[section..section + 4].try_into().unwrap()) as usize;
        for at in section + 4..section + 4 + len {
            for with in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1] {
                found_count += usize::from(walk(&forge(&bytes, section, at, &[with])).is_ok());
            }
        }
    }
    for series_ref in index.all_postings().unwrap().iter() {
        let start = usize::try_from(index.header.series_offset(series_ref)).unwrap();
        let len = usize::from(bytes[start]);
        for at in start + 1..start + 1 + len {
            for with in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1] {
                let mut bad = bytes.clone();
                bad[at] = with;
                let sum = crc32c(&bad[start + 1..start + 1 + len]);
                bad[start + 1 + len..start + 5 + len].copy_from_slice(&sum.to_be_bytes());
                found_count += usize::from(walk(&bad).is_ok());
            }
        }
    }
    assert!(found_count > 0, "forging reaches the readers");
}

/// An index whose only series entry has the given content.
fn with_entry(symbols: &[&str], content: &[u8]) -> Vec<u8> {
    let mut w = IndexWriter::begin(Vec::new(), symbols.iter().copied()).unwrap();
    w.series([].into_iter(), &[]).unwrap();
    w.end_series().unwrap();
    let offset = w.postings(&[4096]).unwrap();
    let mut out = w.finish([TableEntry { name: "", value: "", offset }].into_iter()).unwrap();
    // The entry goes in front of the table of contents, where the format does not mind it.
    let toc = out.split_off(out.len() - TOC_BYTES);
    out.resize(4096 * 16, 0);
    put_uvarint(&mut out, content.len() as u64);
    out.extend_from_slice(content);
    out.extend_from_slice(&crc32c(content).to_be_bytes());
    out.extend_from_slice(&toc);
    out
}

#[test]
fn forged_series_entries_are_errors() {
    let read = |content: &[u8]| all_series(&open(&with_entry(&["a", "b"], content)).unwrap());
    assert_eq!(read(&[1, 0, 1, 1, 2, 3, 8]).unwrap()[0].1[0].max_time, 4, "the frame works");
    assert!(read(&[1, 0, 2, 0]).is_err(), "symbol that is not there");
    assert!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_err(), "labels");
    assert!(read(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err(), "chunks");
    let mut end = vec![0, 1];
    put_varint(&mut end, 5);
    put_uvarint(&mut end, u64::MAX);
    end.push(0);
    assert!(read(&end).is_err(), "end of a chunk beyond the end of time");

    // 1 MiB of text, a thousand times: more than any series has.
    let long = "x".repeat(1 << 20);
    let mut content = Vec::new();
    put_uvarint(&mut content, 1000);
    content.extend([0; 2000]);
    content.push(0);
    let result = all_series(&open(&with_entry_of_long(&long, &content)).unwrap());
    assert!(result.unwrap_err().to_string().contains("label text"));
}

fn with_entry_of_long(symbol: &str, content: &[u8]) -> Vec<u8> {
    let mut w = IndexWriter::begin(Vec::new(), std::iter::once(symbol)).unwrap();
    let series_ref = w.series([(0, 0); 1000].into_iter(), &[]).unwrap();
    w.end_series().unwrap();
    let offset = w.postings(&[series_ref]).unwrap();
    let out = w.finish([TableEntry { name: "", value: "", offset }].into_iter()).unwrap();
    assert!(out.windows(content.len()).any(|w| w == content), "the entry is as meant");
    out
}

#[test]
fn version_1_names_symbols_by_offset_and_needs_no_order() {
    let mut out = MAGIC.to_be_bytes().to_vec();
    out.push(1);
    let framed = |out: &mut Vec<u8>, content: &[u8]| {
        let start = out.len() as u64;
        out.extend_from_slice(&(content.len() as u32).to_be_bytes());
        out.extend_from_slice(content);
        out.extend_from_slice(&crc32c(content).to_be_bytes());
        start
    };
    // Offsets in the file: "a" 13, "1" 15, "2" 17.
    let symbols = framed(&mut out, b"\0\0\0\x03\x01a\x011\x012");
    let series = out.len() as u64;
    let mut refs = Vec::new();
    for value in [15u8, 17] {
        refs.push(out.len() as u32);
        let content = [1, 13, value, 1, 2, 3, 8];
        put_uvarint(&mut out, content.len() as u64);
        out.extend_from_slice(&content);
        out.extend_from_slice(&crc32c(&content).to_be_bytes());
    }
    let list = |refs: &[u32]| {
        let all = std::iter::once(refs.len() as u32).chain(refs.iter().copied());
        all.flat_map(u32::to_be_bytes).collect::<Vec<_>>()
    };
    let postings = out.len() as u64;
    let lists = [("a", "2", &refs[1..]), ("", "", &refs[..]), ("a", "1", &refs[..1])];
    let mut table = 3u32.to_be_bytes().to_vec();
    for (name, value, refs) in lists {
        let offset = framed(&mut out, &list(refs));
        put_uvarint(&mut table, 2);
        for text in [name, value] {
            put_uvarint(&mut table, text.len() as u64);
            table.extend_from_slice(text.as_bytes());
        }
        put_uvarint(&mut table, offset);
    }
    let postings_table = framed(&mut out, &table);
    Toc { symbols, series, postings, postings_table, ..Toc::default() }.encode(&mut out);

    let index = open(&out).unwrap();
    let found: Vec<_> = all_series(&index).unwrap().into_iter().map(|(l, _)| l.to_string()).collect();
    assert_eq!(found, [r#"{a="1"}"#, r#"{a="2"}"#]);
    let mut values = Vec::new();
    index
        .for_each_value("a", "", &mut |v| {
            values.push(v.to_owned());
            true
        })
        .unwrap();
    assert_eq!(values, ["1", "2"]);
    assert_eq!(index.postings("a", "2").unwrap().iter().collect::<Vec<_>>(), refs[1..]);
}

#[test]
fn an_empty_index_is_an_index() {
    let mut w = IndexWriter::begin(Vec::new(), std::iter::empty()).unwrap();
    w.end_series().unwrap();
    let offset = w.postings(&[]).unwrap();
    let bytes = w.finish([TableEntry { name: "", value: "", offset }].into_iter()).unwrap();
    let index = open(&bytes).unwrap();
    assert!(index.all_postings().unwrap().is_empty());
    assert_eq!(index.label_names().count(), 0);
    assert_eq!(index.header.symbol_count(), 0);
}

/// Ranges that end where the next list starts contain the whole list, padding included.
#[test]
fn ranges_of_lists_hold_the_whole_list() {
    for bytes in [INDEX_2, INDEX_3, &write(&small())] {
        let index = open(bytes).unwrap();
        let mut list_count = 0;
        for name in index.label_names().chain([""]) {
            let visit = &mut |value: &str, list: std::ops::Range<u64>| {
                assert_eq!(index.header.postings_range(name, value).unwrap(), Some(list.clone()));
                let len = postings_len(index.bytes_from(list.start)).unwrap();
                assert!((len..len + 4).contains(&(list.end - list.start)), "{name}={value}: {list:?}, {len}");
                list_count += 1;
                true
            };
            index.header.for_each_value(name, "", visit).unwrap();
        }
        assert!(list_count > 40);
    }
}

/// A part of the file decodes like the whole file, and errors have the same offsets.
#[test]
fn parts_of_the_file_decode_like_the_whole() {
    for bytes in [INDEX_3, &write(&small())] {
        let whole = open(bytes).unwrap();
        let (version, toc, file_len) = (whole.header.version(), *whole.toc(), bytes.len() as u64);
        let sections = |bytes: &[u8]| {
            [toc.symbols, toc.postings_table].map(|start| {
                let section = toc.section(start, file_len);
                let part = &bytes[section.start as usize..section.end as usize];
                SectionBytes::new(Mapped::from_slice(part), start)
            })
        };
        let header = IndexHeader::of_sections(version, toc, file_len, sections(bytes)).unwrap();
        let (mut entry, mut want) = (SeriesEntry::new(), SeriesEntry::new());
        for series_ref in whole.all_postings().unwrap().iter() {
            let start = header.series_offset(series_ref);
            let len = series_len(whole.bytes_from(start)).unwrap();
            let part = &bytes[start as usize..(start + len) as usize];
            header.decode_series(series_ref, part, &mut entry).unwrap();
            whole.series(series_ref, &mut want).unwrap();
            assert_eq!((entry.labels(), &entry.chunks), (want.labels(), &want.chunks));
            let mut bad = bytes.to_vec();
            bad[start as usize + 2] ^= 1;
            let bad_part = &bad[start as usize..(start + len) as usize];
            let error = header.decode_series(series_ref, bad_part, &mut entry).unwrap_err();
            assert_eq!(Err(error), open(&bad).unwrap().series(series_ref, &mut want));
        }
        for at in [toc.symbols as usize + 9, toc.postings_table as usize + 9] {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            let error = IndexHeader::of_sections(version, toc, file_len, sections(&bad)).err();
            assert_eq!(error, open(&bad).err());
        }
    }
}
