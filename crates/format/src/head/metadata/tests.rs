//! Entries round-trip; damaged files end without panic and give no wrong entry; the golden file reads as
//! ever.

use super::*;
use crate::head::wal::{FrameHeader, STRIPE_NONE, scan_segment_from};

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

const KINDS: [MetricKind; 8] = [
    MetricKind::Unknown,
    MetricKind::Counter,
    MetricKind::Gauge,
    MetricKind::Histogram,
    MetricKind::GaugeHistogram,
    MetricKind::Summary,
    MetricKind::Info,
    MetricKind::StateSet,
];

fn entries() -> Vec<MetadataEntry> {
    let entry = |(idx, kind): (usize, &MetricKind)| MetadataEntry {
        metric: format!("metric_{idx}"),
        kind: *kind,
        help: "Größe.".repeat(idx),
        unit: if idx % 2 == 0 { String::new() } else { "bytes".to_owned() },
    };
    KINDS.iter().enumerate().map(entry).collect()
}

fn payload(tenant: &str, entries: &[MetadataEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    put_tenant(tenant, &mut out);
    entries.iter().for_each(|entry| put_entry(entry, &mut out));
    out
}

/// Entries of a payload, and whether it ends well.
fn read(payload: &[u8]) -> (Vec<MetadataEntry>, bool) {
    let mut out = Vec::new();
    let Ok(mut reader) = EntriesReader::decode(payload) else { return (out, false) };
    loop {
        match reader.next_entry() {
            Ok(Some(entry)) => out.push(entry.to_entry()),
            Ok(None) => return (out, true),
            Err(_) => return (out, false),
        }
    }
}

/// A file of two frames.
fn file() -> Vec<u8> {
    let mut out = FileHeader { key: KEY, is_mirrored: false }.encode().to_vec();
    let payloads = [payload("team", &entries()), payload("anonymous", &entries()[..1])];
    for (idx, payload) in payloads.iter().enumerate() {
        let header = FrameHeader::for_payload(KIND_ENTRIES, STRIPE_NONE, payload);
        FrameHeader { sequence: idx as u64 + 1, ..header }.put_frame(KEY, payload, &mut out);
    }
    out
}

/// Entries of all good frames, if the header is good.
fn read_file(bytes: &[u8]) -> Vec<(String, MetadataEntry)> {
    let Ok(header) = FileHeader::decode(bytes) else { return Vec::new() };
    let scan = scan_segment_from(bytes, header.key, FILE_HEADER_BYTES, 0);
    let mut out = Vec::new();
    for frame in scan.frames {
        let payload = &bytes[frame.payload];
        let tenant = EntriesReader::decode(payload).expect("under a checksum").tenant;
        let (entries, is_whole) = read(payload);
        assert!(is_whole, "under a checksum");
        out.extend(entries.into_iter().map(|entry| (tenant.to_owned(), entry)));
    }
    out
}

#[test]
fn entries_round_trip() {
    assert_eq!(read(&payload("team", &entries())), (entries(), true));
    assert_eq!(read(&payload("", &[])), (Vec::new(), true));
}

#[test]
fn a_payload_cut_anywhere_gives_only_whole_entries() {
    let bytes = payload("team", &entries());
    for len in 0..bytes.len() {
        let (found, _) = read(&bytes[..len]);
        assert_eq!(found, entries()[..found.len()], "cut to {len}");
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
fn a_file_cut_or_flipped_anywhere_gives_only_what_was_written() {
    let bytes = file();
    let whole = read_file(&bytes);
    assert_eq!(whole.len(), KINDS.len() + 1);
    for len in 0..bytes.len() {
        let found = read_file(&bytes[..len]);
        assert_eq!(found, whole[..found.len()], "cut to {len}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let found = read_file(&bad);
            assert!(found.iter().all(|entry| whole.contains(entry)), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn the_header_is_checked_whole() {
    let bytes = FileHeader { key: KEY, is_mirrored: true }.encode();
    assert_eq!(FileHeader::decode(&bytes), Ok(FileHeader { key: KEY, is_mirrored: true }));
    for at in 0..bytes.len() {
        let mut bad = bytes;
        bad[at] ^= 0x10;
        assert!(FileHeader::decode(&bad).is_err(), "byte {at}");
        assert!(FileHeader::decode(&bytes[..at]).is_err(), "cut to {at}");
    }
    let mut later = bytes;
    later[4] = 2;
    let sum = crc32c(&later[..28]);
    later[28..].copy_from_slice(&sum.to_le_bytes());
    let want = DecodeError::Invalid { what: "metadata version", offset: 4, expected: "1", found: 2 };
    assert_eq!(FileHeader::decode(&later), Err(want));
}

#[test]
fn the_golden_file_reads_as_ever() {
    let golden = include_bytes!("../../../testdata/metadata/two-tenants.metadata");
    assert_eq!(file(), golden, "what is written has changed: that needs a version");
    let team = entries().into_iter().map(|entry| ("team".to_owned(), entry));
    let other = ("anonymous".to_owned(), entries().remove(0));
    assert_eq!(read_file(golden), team.chain([other]).collect::<Vec<_>>());
}
