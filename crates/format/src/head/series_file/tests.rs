//! Payloads round-trip; damaged ones end without panic; the golden file reads as it always has.

use super::*;
use crate::head::wal::{FrameHeader, STRIPE_NONE, scan_segment_from};

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;
const PAIRS: [(&str, &str); 4] = [("__name__", "up"), ("__name__", "down"), ("a", "ä"), ("job", "")];

/// Id and labels.
type Series = (u32, Vec<(String, String)>);

fn payload() -> Vec<u8> {
    let mut writer = SeriesWriter::default();
    writer.push(7, [0, 2].into_iter(), |p| PAIRS[p as usize]);
    writer.push(1024, [1, 2, 3].into_iter(), |p| PAIRS[p as usize]);
    assert_eq!(writer.series_count(), 2);
    let mut out = Vec::new();
    writer.finish("team", &mut out);
    assert!(writer.is_empty());
    out
}

fn read(payload: &[u8]) -> Result<Vec<Series>, DecodeError> {
    let mut series = SeriesReader::decode(payload)?;
    let (mut out, mut members) = (Vec::new(), Vec::new());
    while let Some(id) = series.next(&mut members)? {
        let pair = |&m: &u32| {
            let (name, value) = series.pairs[m as usize];
            (series.names[name as usize].to_owned(), value.to_owned())
        };
        out.push((id, members.iter().map(pair).collect()));
    }
    Ok(out)
}

fn want() -> Vec<Series> {
    let pair = |p: usize| (PAIRS[p].0.to_owned(), PAIRS[p].1.to_owned());
    vec![(7, vec![pair(0), pair(2)]), (1024, vec![pair(1), pair(2), pair(3)])]
}

/// A file as the head writes it.
fn file() -> Vec<u8> {
    let mut out = FileHeader { generation: 3, key: KEY, is_mirrored: false }.encode().to_vec();
    let mut keys = Vec::new();
    encode_raw_key(5 << 70, 7, &mut keys);
    encode_raw_key(9, 1024, &mut keys);
    let mut mark = Vec::new();
    Mark { sequence: 99, next_id: 1025, series_count: 2 }.encode(&mut mark);
    for (idx, (kind, payload)) in
        [(KIND_SERIES, payload()), (KIND_RAW_KEYS, keys), (KIND_MARK, mark)].into_iter().enumerate()
    {
        let header = FrameHeader::for_payload(kind, STRIPE_NONE, &payload);
        FrameHeader { sequence: idx as u64 + 1, ..header }.put_frame(KEY, &payload, &mut out);
    }
    out
}

#[test]
fn series_round_trip_and_damage_ends_without_panic() {
    let bytes = payload();
    assert_eq!(SeriesReader::decode(&bytes).map(|s| s.tenant.to_owned()), Ok("team".to_owned()));
    assert_eq!(read(&bytes), Ok(want()));
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "cut to {len}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let _ = read(&bad);
        }
    }
}

#[test]
fn the_header_is_checked_whole() {
    let header = FileHeader { generation: 9, key: KEY, is_mirrored: true };
    let bytes = header.encode();
    assert_eq!(FileHeader::decode(&bytes), Ok(header));
    for at in 0..bytes.len() {
        assert!(FileHeader::decode(&bytes[..at]).is_err());
        let mut bad = bytes;
        bad[at] ^= 4;
        assert!(FileHeader::decode(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn the_golden_file_reads_as_ever() {
    let golden = include_bytes!("../../../testdata/definitions/two-series.definitions");
    assert_eq!(file(), golden, "what is written has changed: that needs a version");
    assert_eq!(FileHeader::decode(golden), Ok(FileHeader { generation: 3, key: KEY, is_mirrored: false }));
    let scan = scan_segment_from(golden, KEY, FILE_HEADER_BYTES, 0);
    assert!(scan.damage.is_empty());
    let payload = |idx: usize| &golden[scan.frames[idx].payload.clone()];
    assert_eq!(read(payload(0)), Ok(want()));
    assert_eq!(raw_keys(payload(1)).collect::<Vec<_>>(), [(5 << 70, 7), (9, 1024)]);
    assert_eq!(Mark::decode(payload(2)), Ok(Mark { sequence: 99, next_id: 1025, series_count: 2 }));
}
