//! Sections and files survive; damaged ones are refused.

use chronolith_model::TimeRange;
use chronolith_model::rollup::{RolledWindows, RollupFacts, RollupMethod, RollupMethods};
use proptest::prelude::*;

use super::*;
use crate::chunk::dense::DenseScratch;

const SPAN_MS: i64 = 60_000;

fn windows(numbers: &[i64], methods: &[RollupMethod]) -> RolledWindows {
    let mut windows = RolledWindows::new(RollupMethods::of(methods));
    for number in numbers {
        windows.push(number * SPAN_MS, |method| match method {
            RollupMethod::Count => 6.0,
            // A column of another method.
            RollupMethod::Last => *number as f64 / 10.0 + f64::from(RollupMethod::Max as u8),
            method => *number as f64 / 10.0 + f64::from(method as u8),
        });
    }
    windows
}

const SERIES_REF: u32 = 0x0102_0304;

fn encoded(windows: &RolledWindows) -> Vec<u8> {
    encoded_of(SERIES_REF, windows)
}

fn encoded_of(series_ref: u32, windows: &RolledWindows) -> Vec<u8> {
    let mut out = Vec::new();
    encode_section(series_ref, windows, RollupFacts::OF_NONE, SPAN_MS, &mut DenseScratch::new(), &mut out);
    out
}

fn read(bytes: &[u8], range: TimeRange, methods: RollupMethods) -> RolledWindows {
    let section = Section::decode(bytes, SERIES_REF, SPAN_MS).expect("a section");
    let mut out = RolledWindows::new(methods);
    section.read(range, &mut out).expect("its parts");
    out
}

/// Lists of windows: one, with gaps, several parts, before 1970.
fn lists() -> Vec<Vec<i64>> {
    vec![
        vec![5],
        vec![-3, -2, 0, 7, 8, 9],
        (100..100 + 3 * PART_WINDOWS_MAX as i64 + 1).collect(),
        (0..2000).map(|at| at * at).collect(),
    ]
}

#[test]
fn facts_survive() {
    let all = windows(&[1, 2], &[RollupMethod::Count]);
    for has_every_sample in [false, true] {
        for has_small_integers in [false, true] {
            let facts = RollupFacts { has_every_sample, has_small_integers };
            let mut bytes = Vec::new();
            encode_section(SERIES_REF, &all, facts, SPAN_MS, &mut DenseScratch::new(), &mut bytes);
            let section = Section::decode(&bytes, SERIES_REF, SPAN_MS).expect("a section");
            assert_eq!((section.facts(), section.methods()), (facts, all.methods()));
        }
    }
}

#[test]
fn sections_survive() {
    for numbers in lists() {
        let all = windows(&numbers, &RollupMethod::ALL);
        let bytes = encoded(&all);
        let section = Section::decode(&bytes, SERIES_REF, SPAN_MS).expect("a section");
        assert_eq!(section.methods(), all.methods());
        assert!(Section::decode(&bytes, SERIES_REF + 1, SPAN_MS).is_err(), "of another series");
        let ends = TimeRange::new(numbers[0] * SPAN_MS, (numbers[numbers.len() - 1] + 1) * SPAN_MS);
        assert_eq!(section.range(), Some(ends));
        assert_eq!(read(&bytes, TimeRange::ALL, all.methods()), all);
        // Part of the windows and methods.
        let middle = numbers[numbers.len() / 2];
        let range = TimeRange::new(middle * SPAN_MS, ends.end - 1);
        let late: Vec<i64> = numbers.iter().copied().filter(|number| *number >= middle).collect();
        let some = [RollupMethod::Sum, RollupMethod::Last];
        assert_eq!(read(&bytes, range, RollupMethods::of(&some)), windows(&late, &some), "{middle}");
    }
}

#[test]
fn damaged_sections_are_refused() {
    for numbers in lists() {
        let bytes = encoded(&windows(&numbers, &[RollupMethod::Count, RollupMethod::Max]));
        let step = (bytes.len() / 300).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let decoded = Section::decode(&damaged, SERIES_REF, SPAN_MS)
                .and_then(|section| section.read(TimeRange::ALL, &mut RolledWindows::new(section.methods())));
            assert!(decoded.is_err(), "byte {at}");
            assert!(Section::decode(&bytes[..at], SERIES_REF, SPAN_MS).is_err(), "cut at {at}");
        }
    }
}

proptest! {
    /// With valid checksums, too, no bytes make a reader panic or allocate more than a part may have.
    #[test]
    fn forged_parts_are_refused_or_read(part in prop::collection::vec(any::<u8>(), 0..60), extent in 0u64..3000) {
        let mut bytes = SERIES_REF.to_le_bytes().to_vec();
        bytes.extend_from_slice(&3u16.to_le_bytes());
        chronolith_base::bytes::put_uvarint(&mut bytes, 1);
        chronolith_base::bytes::put_varint(&mut bytes, 1);
        chronolith_base::bytes::put_uvarint(&mut bytes, extent);
        chronolith_base::bytes::put_uvarint(&mut bytes, part.len() as u64);
        bytes.extend_from_slice(&chronolith_base::crc::crc32c(&part).to_le_bytes());
        let sum = chronolith_base::crc::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&part);
        let section = Section::decode(&bytes, SERIES_REF, SPAN_MS).expect("a valid head");
        let mut out = RolledWindows::new(section.methods());
        let done = section.read(TimeRange::ALL, &mut out);
        prop_assert!(out.len() <= PART_WINDOWS_MAX);
        prop_assert!(done.is_ok() || out.is_empty());
    }
}

/// A file with a section for each series.
fn file(series: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut out = encode_header(RollupSpan { span_ms: SPAN_MS, slot_ms: 10_000 }).to_vec();
    let mut table = Vec::new();
    for (series_ref, section) in series {
        put_entry(*series_ref, out.len() as u64, section.len() as u32, &mut table);
        out.extend_from_slice(section);
    }
    out.extend_from_slice(&table);
    out.extend_from_slice(&encode_trailer(&table));
    out
}

/// Requires that the end of a file names the same sections, with any bytes before its table.
fn check_tails(bytes: &[u8], series: &[(u32, Vec<u8>)]) {
    let tail_bytes = usize::try_from(RollupTail::bytes_max(series.len() as u64)).expect("fits");
    for start in [0, 1, bytes.len() - tail_bytes] {
        let tail = RollupTail::decode(&bytes[start..], bytes.len() as u64).expect("a tail");
        for (series_ref, section) in series {
            let place = tail.place(*series_ref).expect("a place");
            assert_eq!(&bytes[place.start as usize..place.end as usize], &section[..]);
        }
        assert_eq!(tail.place(5), None);
        assert!(tail.heap_bytes() >= series.len() * ENTRY_BYTES);
    }
    assert!(RollupTail::decode(&bytes[bytes.len() - tail_bytes + 1..], bytes.len() as u64).is_err());
    // Sections beyond the start of the table are none.
    let short = RollupTail::decode(&bytes[bytes.len() - tail_bytes..], tail_bytes as u64).expect("a tail");
    assert_eq!(short.place(series[0].0), None);
}

#[test]
fn series_are_found_by_their_refs() {
    let series: Vec<(u32, Vec<u8>)> = [3, 4, 90, u32::MAX]
        .map(|series_ref| {
            (series_ref, encoded_of(series_ref, &windows(&[i64::from(series_ref)], &[RollupMethod::Sum])))
        })
        .to_vec();
    let bytes = file(&series);
    let span = decode_header(&bytes).expect("a header");
    assert_eq!(span, RollupSpan { span_ms: SPAN_MS, slot_ms: 10_000 });
    let table = RollupTable::find(&bytes).expect("a table");
    assert_eq!((table.len(), table.is_empty()), (4, false));
    for (idx, (series_ref, section)) in series.iter().enumerate() {
        assert_eq!(table.section(&bytes, *series_ref), Ok(Some(&section[..])));
        let found = table.section_at(&bytes, idx).expect("a section");
        assert_eq!((found.series_ref, found.bytes), (*series_ref, &section[..]));
        assert_eq!(&bytes[found.offset..][..section.len()], &section[..]);
    }
    for missing in [0, 5, 91, u32::MAX - 1] {
        assert_eq!(table.section(&bytes, missing), Ok(None));
    }
    check_tails(&bytes, &series);
    let empty = file(&[]);
    assert!(RollupTable::find(&empty).expect("an empty table").is_empty());
    // Each damaged byte of header, table or trailer is found.
    let table_start = bytes.len() - TRAILER_BYTES - series.len() * ENTRY_BYTES;
    for at in (0..HEADER_BYTES).chain(table_start..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let is_found = decode_header(&damaged).is_err() || RollupTable::find(&damaged).is_err();
        assert!(is_found, "byte {at}");
    }
    for len in 0..bytes.len() {
        assert!(RollupTable::find(&bytes[..len]).is_err(), "cut at {len}");
    }
}

#[test]
fn names_of_files_name_archives() {
    let span = RollupSpan { span_ms: 3_600_000, slot_ms: 10_000 };
    assert_eq!(archive_of_name(&file_name(span)), Some(span));
    for name in ["", "1", "1-", "01-1", "+5-1", "1-1.tmp", "a-b"] {
        assert_eq!(archive_of_name(name), None, "{name}");
    }
}
