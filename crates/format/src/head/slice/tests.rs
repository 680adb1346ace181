//! Entries and slices round-trip; a slice is valid only as a whole; the golden files of each version read as
//! ever.

use super::*;
use crate::chunk::decimal_delta::{OpenState, reencode};
use crate::chunk::xor::XorState;
use crate::head::wal::{STRIPE_NONE, Samples};

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

fn open_chunk() -> (XorState, Vec<u8>) {
    let (mut state, mut buffer) = (XorState::new(), vec![0; 200]);
    for (time, value) in [(-5, 1.5), (10, 1.5), (25, -2.0)] {
        state.append(&mut buffer, time, value);
    }
    buffer.truncate(state.byte_len());
    (state, buffer)
}

fn decimal_delta_chunk() -> (OpenState, Vec<u8>) {
    let (times, mut bytes) = ([-5, 10, 25, 41], Vec::new());
    let state = reencode(&times, &[10.25, 93.75, 17.5, 0.25], &mut bytes);
    (state, bytes)
}

fn sealed(file: u32, encoding: u8) -> SealedEntry {
    SealedEntry { file, offset: 20, len: 1 << 20, count: 120, encoding, min_time: -5, span: 1_785_000 }
}

/// Two out-of-order floats of series 1025.
fn ooo() -> Samples {
    let mut samples = Samples::default();
    samples.push(1025, 10, 1);
    samples.push(1025, 20, u64::MAX);
    samples
}

fn ooo_payload() -> Vec<u8> {
    let mut out = Vec::new();
    ooo().encode_frames(&mut Vec::new(), |payload| out = payload.to_vec());
    out
}

/// Each part that version 2 has had alone, then all in one entry; start timestamps have the form of version
/// 4.
fn entries<'a>(open: &'a (XorState, Vec<u8>), ooo: &'a [u8]) -> Vec<SeriesEntry<'a>> {
    let (ooo, open_starts, old_starts) = (OooPayload::Samples(ooo), &b"starts"[..], &b""[..]);
    let open = vec![OpenChunk::Words(open.0.into(), -5, &open.1), OpenChunk::Histograms(2, b"open")];
    let sealed = vec![sealed(1, 1), sealed(2, 1), sealed(2, 3)];
    vec![
        SeriesEntry { id: 7, open: open[..1].to_vec(), ..SeriesEntry::default() },
        SeriesEntry { id: 7, last: Some((-9, 1)), sealed: sealed.clone(), ..SeriesEntry::default() },
        SeriesEntry { id: 1025, tenant: 1, ooo, ..SeriesEntry::default() },
        SeriesEntry { id: 1025, tenant: 1, open_starts, ..SeriesEntry::default() },
        SeriesEntry { id: 1026, open: open[1..].to_vec(), ..SeriesEntry::default() },
        SeriesEntry { id: 1027, tenant: 1, open, last: Some((1, 2)), ooo, sealed, open_starts, old_starts },
    ]
}

/// The part that version 3 has added.
fn decimal_delta_entry(open: &(OpenState, Vec<u8>)) -> SeriesEntry<'_> {
    let open = vec![OpenChunk::Words(open.0, -5, &open.1)];
    SeriesEntry { id: 5, open, ..SeriesEntry::default() }
}

fn payload_of<'a>(entries: impl IntoIterator<Item = SeriesEntry<'a>>) -> Vec<u8> {
    let (mut out, mut last) = (Vec::new(), 0);
    for entry in entries {
        encode_entry(&entry, last, &mut out);
        last = entry.id;
    }
    out
}

fn payload() -> Vec<u8> {
    let (open, decimal_delta, ooo) = (open_chunk(), decimal_delta_chunk(), ooo_payload());
    payload_of([decimal_delta_entry(&decimal_delta)].into_iter().chain(entries(&open, &ooo)))
}

fn tenants() -> Vec<(&'static str, Vec<WindowEntry>)> {
    vec![("team", vec![WindowEntry { start: -7_200_000, first_arrival_ms: 5 }]), ("b", Vec::new())]
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
        later_frames: 0,
        has_stores: false,
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
    let mut reader = EntryReader::new(KIND_SERIES, payload);
    let (mut entry, mut samples, mut count) = (SeriesEntry::default(), Samples::default(), 0);
    while reader.next(&mut entry)? {
        let _ = decode_ooo(&entry, &mut samples);
        count += 1;
    }
    Ok(count)
}

#[test]
fn entries_round_trip_and_damage_ends_without_panic() {
    let (open, decimal_delta, ooo_bytes) = (open_chunk(), decimal_delta_chunk(), ooo_payload());
    let bytes = payload();
    let (mut reader, mut entry) = (EntryReader::new(KIND_SERIES, &bytes), SeriesEntry::default());
    let mut samples = Samples::default();
    for want in [decimal_delta_entry(&decimal_delta)].into_iter().chain(entries(&open, &ooo_bytes)) {
        assert_eq!(reader.next(&mut entry), Ok(true));
        assert_eq!(entry, want);
        decode_ooo(&entry, &mut samples).unwrap();
        assert_eq!(samples.ids.is_empty(), want.ooo == OooPayload::None);
    }
    assert_eq!(samples, ooo());
    assert_eq!(reader.next(&mut entry), Ok(false));
    for at in 0..bytes.len() {
        let _ = read_all(&bytes[..at]);
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let _ = read_all(&bad);
        }
    }
}

#[test]
fn flags_of_a_later_version_are_refused() {
    let mut bytes = Vec::new();
    encode_entry(&SeriesEntry { id: 3, ..SeriesEntry::default() }, 0, &mut bytes);
    assert_eq!(read_all(&bytes), Ok(1));
    bytes[2] |= 128;
    assert!(read_all(&bytes).is_err());
}

/// A slice of a later version must stop the start; a damaged one is replaced by its other copy.
#[test]
fn a_later_version_is_told_from_damage() {
    let header = SliceHeader::decode(&file()).unwrap().encode();
    let with = |version: u16| {
        let mut bytes = header;
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        let sum = crc32c(&bytes[..76]);
        bytes[76..].copy_from_slice(&sum.to_le_bytes());
        SliceHeader::decode(&bytes)
    };
    assert_eq!([1, 2, 3, 4, 5].map(|version| with(version).is_ok()), [true; 5]);
    assert_eq!(
        [0, 6].map(|version| SliceHeader::is_of_later_version(&with(version).unwrap_err())),
        [false, true]
    );
    let mut damaged = header;
    damaged[4] = 5;
    assert!(!SliceHeader::is_of_later_version(&SliceHeader::decode(&damaged).unwrap_err()));
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

/// Entries as versions 2 and 3 have them: the whole series shares its start timestamps.
fn with_old_starts(mut entries: Vec<SeriesEntry<'_>>) -> Vec<SeriesEntry<'_>> {
    for entry in &mut entries {
        entry.old_starts = std::mem::take(&mut entry.open_starts);
    }
    entries
}

#[track_caller]
fn check_entries(payload: &[u8], want: &[SeriesEntry<'_>]) {
    let (mut reader, mut entry) = (EntryReader::new(KIND_SERIES, payload), SeriesEntry::default());
    for want in want {
        assert_eq!(reader.next(&mut entry), Ok(true));
        assert_eq!(&entry, want);
    }
    assert_eq!(reader.next(&mut entry), Ok(false));
}

#[test]
fn the_golden_file_reads_as_ever() {
    let golden = include_bytes!("../../../testdata/slice/version-4.slice");
    assert_eq!(file(), golden, "what is written has changed: that needs a version");
    let (header, frames) = decode_slice(golden).unwrap();
    assert_eq!((header.series_count, header.sample_count), (2, 247));
    assert_eq!(frames[0], (KIND_SERIES, &*payload()));
    assert_eq!(decode_tenants(frames[1].1), Ok(tenants()));
}

#[test]
fn the_golden_files_of_versions_2_and_3_read_as_ever() {
    let (open, decimal_delta, ooo) = (open_chunk(), decimal_delta_chunk(), ooo_payload());
    let of_2 = with_old_starts(entries(&open, &ooo));
    let of_3 = [vec![decimal_delta_entry(&decimal_delta)], of_2.clone()].concat();
    let goldens: [(&[u8], _); 2] = [
        (include_bytes!("../../../testdata/slice/version-2.slice"), of_2),
        (include_bytes!("../../../testdata/slice/version-3.slice"), of_3),
    ];
    for (golden, want) in goldens {
        let (_, frames) = decode_slice(golden).unwrap();
        check_entries(frames[0].1, &want);
        assert_eq!(decode_tenants(frames[1].1), Ok(tenants()));
    }
}

/// The encoding byte and the state of a chunk name the same encoding, or the entry is damaged.
#[test]
fn a_state_of_another_encoding_is_refused() {
    let open = decimal_delta_chunk();
    let mut bytes = payload_of([decimal_delta_entry(&open)]);
    let at = bytes.iter().position(|&byte| byte == open.0.encoding()).unwrap();
    assert_eq!(read_all(&bytes), Ok(1));
    bytes[at] = crate::chunk::xor::ENCODING_XOR;
    assert!(read_all(&bytes).is_err());
}

/// Entries of the series frames of a slice of version 1, in which kinds of values had parts of their own.
fn old_entries(file: &[u8]) -> Vec<(SeriesEntry<'_>, Samples)> {
    let (_, frames) = decode_slice(file).unwrap();
    let mut out = Vec::new();
    for (kind, payload) in frames.into_iter().filter(|(kind, _)| is_series(*kind)) {
        assert_eq!(kind, KIND_OLD_SERIES);
        let (mut reader, mut entry) = (EntryReader::new(kind, payload), SeriesEntry::default());
        while reader.next(&mut entry).unwrap() {
            let mut samples = Samples::default();
            // The file with two series has bytes there that no head writes.
            let _ = decode_ooo(&entry, &mut samples);
            out.push((entry.clone(), samples));
        }
    }
    out
}

#[test]
fn the_golden_files_of_version_1_read_as_ever() {
    let open = open_chunk();
    let found = old_entries(include_bytes!("../../../testdata/slice/two-series.slice"));
    let chunks = [sealed(1, 1), sealed(2, 1)].map(|chunk| SealedEntry { len: 300, ..chunk });
    let want = [
        SeriesEntry {
            id: 7,
            open: vec![OpenChunk::Words(open.0.into(), -5, &open.1)],
            ..SeriesEntry::default()
        },
        SeriesEntry { id: 7, last: Some((-9, 1)), sealed: chunks.to_vec(), ..SeriesEntry::default() },
        SeriesEntry { id: 1025, tenant: 1, ooo: OooPayload::Old(b"late", b""), ..SeriesEntry::default() },
    ];
    assert_eq!(found.into_iter().map(|(entry, _)| entry).collect::<Vec<_>>(), want);

    let found = old_entries(include_bytes!("../../../testdata/slice/version-1-kinds.slice"));
    // Open chunks, sealed chunks with and without histograms, out-of-order samples with and without
    // histograms.
    let parts = found.iter().map(|(entry, samples)| {
        let of_histograms = |chunk: &&SealedEntry| chunk.encoding != 1;
        let starts = !entry.old_starts.is_empty();
        let sealed = (entry.sealed.len(), entry.sealed.iter().filter(of_histograms).count());
        (entry.open.len(), sealed, samples.ids.len(), samples.histograms.len(), starts)
    });
    let want = [
        (1, (1, 0), 10, 0, false),
        (1, (127, 90), 6, 2, false),
        (1, (115, 115), 28, 28, false),
        (1, (1, 0), 9, 0, true),
        (1, (132, 103), 6, 2, true),
        (1, (124, 124), 28, 28, true),
    ];
    assert_eq!(parts.collect::<Vec<_>>(), want);
}

#[test]
fn a_cut_entry_of_version_1_is_an_error() {
    let golden = include_bytes!("../../../testdata/slice/version-1-kinds.slice");
    let (_, frames) = decode_slice(golden).unwrap();
    let payload = frames.iter().find(|(kind, _)| *kind == KIND_OLD_SERIES).unwrap().1;
    let mut samples = Samples::default();
    for at in 0..payload.len() {
        let mut flipped = payload.to_vec();
        flipped[at] ^= 4;
        for bad in [&payload[..at], &flipped] {
            let (mut reader, mut entry) = (EntryReader::new(KIND_OLD_SERIES, bad), SeriesEntry::default());
            while let Ok(true) = reader.next(&mut entry) {
                let _ = decode_ooo(&entry, &mut samples);
            }
        }
    }
}
