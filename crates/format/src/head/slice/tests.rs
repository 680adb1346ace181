//! Entries and slices round-trip; a slice counts only whole; the golden file reads as it always has.

use super::*;
use crate::chunk::xor::XorState;
use crate::head::wal::STRIPE_NONE;

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

fn open_chunk() -> (XorState, Vec<u8>) {
    let (mut state, mut buffer) = (XorState::new(), vec![0; 200]);
    for (time, value) in [(-5, 1.5), (10, 1.5), (25, -2.0)] {
        state.append(&mut buffer, time, value);
    }
    buffer.truncate(state.byte_len());
    (state, buffer)
}

fn sealed(file: u32) -> SealedEntry {
    SealedEntry { file, offset: 20, len: 300, count: 120, min_time: -5, span_ms: 1_785_000 }
}

fn entries(open: &(XorState, Vec<u8>)) -> [SeriesEntry<'_>; 3] {
    [
        SeriesEntry { id: 7, open: Some((open.0, -5, &open.1)), ..SeriesEntry::default() },
        SeriesEntry {
            id: 7,
            last: Some((-9, 1)),
            sealed: vec![sealed(1), sealed(2)],
            ..SeriesEntry::default()
        },
        SeriesEntry { id: 1025, tenant: 1, late: b"late", ..SeriesEntry::default() },
    ]
}

fn payload() -> Vec<u8> {
    let (open, mut out, mut last) = (open_chunk(), Vec::new(), 0);
    for entry in entries(&open) {
        encode_entry(&entry, last, &mut out);
        last = entry.id;
    }
    out
}

fn tenants() -> Vec<(&'static str, Vec<WindowEntry>)> {
    vec![("team", vec![WindowEntry { start: -7_200_000, first_arrival_ms: 5 }]), ("b", Vec::new())]
}

/// Histograms and start times stand in an extension, which a reader that knows none passes over, as this one does with others.
#[test]
fn histograms_and_starts_of_an_entry_round_trip() {
    let chunk = SealedHistogramEntry {
        file: 3,
        offset: 20,
        len: 1 << 20,
        count: 120,
        encoding: 3,
        min_time: -5,
        span_ms: 1_785_000,
    };
    let whole = HistogramsEntry { open: Some((2, b"open")), late: b"late", sealed: vec![chunk, chunk] };
    let parts = [
        HistogramsEntry { open: whole.open, ..HistogramsEntry::default() },
        HistogramsEntry { late: whole.late, ..HistogramsEntry::default() },
        HistogramsEntry { sealed: whole.sealed.clone(), ..HistogramsEntry::default() },
        whole,
        HistogramsEntry::default(),
        HistogramsEntry::default(),
    ];
    let (mut payload, mut last) = (Vec::new(), 0);
    let starts = |id: u32| if id.is_multiple_of(2) { &b"starts"[..] } else { &[] };
    for (id, histograms) in (5u32..).zip(&parts) {
        let entry = SeriesEntry {
            id,
            last: Some((1, 2)),
            histograms: histograms.clone(),
            starts: starts(id),
            ..SeriesEntry::default()
        };
        encode_entry(&entry, last, &mut payload);
        last = id;
    }
    let mut reader = EntryReader::new(&payload);
    let mut entry = SeriesEntry::default();
    for (id, want) in (5u32..).zip(&parts) {
        assert_eq!(reader.next(&mut entry), Ok(true));
        assert_eq!((entry.id, entry.last, &entry.histograms), (id, Some((1, 2)), want));
        assert_eq!(entry.starts, starts(id));
    }
    assert_eq!(reader.next(&mut entry), Ok(false));
    for len in 0..payload.len() {
        let mut reader = EntryReader::new(&payload[..len]);
        while let Ok(true) = reader.next(&mut entry) {}
    }
    let other = [1, 0, 128, 3, 2, 9, 9, 1, 0, 0];
    let mut reader = EntryReader::new(&other);
    assert_eq!(reader.next(&mut entry), Ok(true));
    assert!(entry.histograms.is_empty());
    assert_eq!(reader.next(&mut entry), Ok(true));
}

/// A slice as the head writes it.
fn file() -> Vec<u8> {
    let mut list = Vec::new();
    encode_tenants(tenants().into_iter(), &mut list);
    let mut header = SliceHeader {
        slice: 4,
        generation: 6,
        sequence: 99,
        key: KEY,
        id_end: 2000,
        frame_count: 2,
        byte_len: 0,
        series_count: 2,
        sample_count: 247,
    };
    let mut out = vec![0; FILE_HEADER_BYTES];
    for (idx, (kind, payload)) in [(KIND_SERIES, payload()), (KIND_TENANTS, list)].into_iter().enumerate() {
        let frame = FrameHeader::for_payload(kind, STRIPE_NONE, &payload);
        let sequence = SliceHeader::frame_sequence(6, idx as u32);
        FrameHeader { sequence, ..frame }.put_frame(KEY, &payload, &mut out);
    }
    header.byte_len = out.len() as u64;
    out[..FILE_HEADER_BYTES].copy_from_slice(&header.encode());
    out
}

fn read_all(payload: &[u8]) -> Result<usize, DecodeError> {
    let (mut reader, mut entry, mut count) = (EntryReader::new(payload), SeriesEntry::default(), 0);
    while reader.next(&mut entry)? {
        count += 1;
    }
    Ok(count)
}

#[test]
fn entries_round_trip_and_damage_ends_without_panic() {
    let (open, bytes) = (open_chunk(), payload());
    let (mut reader, mut entry) = (EntryReader::new(&bytes), SeriesEntry::default());
    for want in entries(&open) {
        assert_eq!(reader.next(&mut entry), Ok(true));
        assert_eq!(entry, want);
    }
    assert_eq!(reader.next(&mut entry), Ok(false));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let _ = read_all(&bad);
        }
    }
}

#[test]
fn bytes_of_a_later_version_are_passed_over() {
    let mut bytes = Vec::new();
    encode_entry(&SeriesEntry { id: 3, ..SeriesEntry::default() }, 0, &mut bytes);
    bytes[2] |= 128;
    bytes.extend_from_slice(&[2, 9, 9]);
    encode_entry(&SeriesEntry { id: 4, ..SeriesEntry::default() }, 3, &mut bytes);
    assert_eq!(read_all(&bytes), Ok(2));
}

#[test]
fn states_that_no_chunk_has_are_refused() {
    let (state, _) = open_chunk();
    assert_eq!(XorState::from_bytes(&state.to_bytes()), Ok(state));
    for (at, value) in [(24, 0), (26, 255), (28, 0), (29, 1), (30, 32), (31, 64)] {
        let mut bad = state.to_bytes();
        bad[at] = value;
        assert!(XorState::from_bytes(&bad).is_err() || bad == state.to_bytes(), "byte {at}");
    }
}

#[test]
fn only_the_whole_slice_is_whole() {
    let bytes = file();
    let (header, frames) = decode_slice(&bytes).unwrap();
    assert_eq!((header.slice, header.generation, header.sequence, header.id_end), (4, 6, 99, 2000));
    assert_eq!(frames.len(), 2);
    for len in 0..bytes.len() {
        assert!(decode_slice(&bytes[..len]).is_err(), "length {len}");
    }
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 2;
        // Zeros between frames mean nothing.
        assert!(decode_slice(&bad).is_err() || is_padding(&bytes, at), "byte {at}");
    }
    let longer = [bytes.as_slice(), b"of an earlier writing"].concat();
    assert!(decode_slice(&longer).is_ok());
}

fn is_padding(bytes: &[u8], at: usize) -> bool {
    // Frames are aligned to eight bytes; the reserved byte of a frame header is under its checksum.
    bytes[at] == 0 && bytes[at..at.next_multiple_of(8)].iter().all(|&b| b == 0)
}

#[test]
fn a_frame_of_an_earlier_writing_does_not_count() {
    let mut bytes = file();
    let header = SliceHeader::decode(&bytes).unwrap();
    let other = SliceHeader { generation: 5, ..header };
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&other.encode());
    assert!(decode_slice(&bytes).is_err());
}

#[test]
fn the_golden_file_reads_as_ever() {
    let golden = include_bytes!("../../../testdata/slice/two-series.slice");
    assert_eq!(file(), golden, "what is written has changed: that needs a version");
    let (header, frames) = decode_slice(golden).unwrap();
    assert_eq!((header.series_count, header.sample_count), (2, 247));
    assert_eq!(frames[0], (KIND_SERIES, &*payload()));
    assert_eq!(decode_tenants(frames[1].1), Ok(tenants()));
}
