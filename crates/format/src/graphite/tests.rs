//! Events and rules round-trip; damaged files end without panic and give nothing that was not written; the
//! golden file reads as ever.

use super::*;
use crate::head::frame_log::FrameWriter;
use crate::head::wal::scan_segment_from;

const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

fn events() -> Vec<StoredEvent> {
    let event = |id: u64| StoredEvent {
        id,
        when_s: 1_700_000_000 - 86_400 * id.cast_signed(),
        what: format!("Größe {id}"),
        tags: (0..id).map(|tag| format!("tag{tag}")).collect(),
        data: "x".repeat(id as usize * 7),
    };
    (0..4).map(event).chain([StoredEvent { when_s: -1, ..event(9) }]).collect()
}

fn rules() -> Vec<StoredMetaTags> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    vec![
        StoredMetaTags { tags: texts(&["dc=x", "tier=1"]), expressions: texts(&["host=~a.*"]) },
        StoredMetaTags { tags: texts(&[]), expressions: texts(&[]) },
    ]
}

fn events_payload(tenant: &str, events: &[StoredEvent]) -> Vec<u8> {
    let mut out = Vec::new();
    put_events_start(tenant, 10, &mut out);
    events.iter().for_each(|event| put_event(event, &mut out));
    out
}

fn rules_payload(tenant: &str, rules: &[StoredMetaTags]) -> Vec<u8> {
    let mut out = Vec::new();
    put_meta_tags(tenant, rules, &mut out);
    out
}

/// Events of a payload, and true if it ends well.
fn read(payload: &[u8]) -> (Vec<StoredEvent>, bool) {
    let mut out = Vec::new();
    let Ok(mut reader) = EventsReader::decode(payload) else { return (out, false) };
    loop {
        match reader.next_event() {
            Ok(Some(event)) => out.push(event),
            Ok(None) => return (out, true),
            Err(_) => return (out, false),
        }
    }
}

/// A file of two frames.
fn file() -> Vec<u8> {
    let mut frames = FrameWriter::with_header(KEY, &encode_header(KEY));
    frames.put(KIND_EVENTS, &events_payload("team", &events()));
    frames.put(KIND_META_TAGS, &rules_payload("anonymous", &rules()));
    frames.take()
}

/// Events and rules of all good frames, if the header is good.
fn read_file(bytes: &[u8]) -> (Vec<StoredEvent>, Vec<StoredMetaTags>) {
    let (mut events, mut rules) = (Vec::new(), Vec::new());
    let Ok(key) = decode_header(bytes) else { return (events, rules) };
    for frame in scan_segment_from(bytes, key, FILE_HEADER_BYTES, 0).frames {
        let payload = &bytes[frame.payload];
        if frame.header.kind == KIND_EVENTS {
            events.extend(read(payload).0);
        } else {
            let (tenant, found) = decode_meta_tags(payload).expect("under a checksum");
            assert_eq!(tenant, "anonymous");
            rules.extend(found);
        }
    }
    (events, rules)
}

#[test]
fn events_and_rules_round_trip() {
    let payload = events_payload("team", &events());
    assert_eq!(read(&payload), (events(), true));
    let reader = EventsReader::decode(&payload).expect("whole");
    assert_eq!((reader.tenant, reader.next_id), ("team", 10));
    assert_eq!(decode_meta_tags(&rules_payload("team", &rules())), Ok(("team", rules())));
    assert_eq!(decode_meta_tags(&rules_payload("", &[])), Ok(("", Vec::new())));
}

#[test]
fn a_payload_cut_or_flipped_anywhere_ends_without_panic() {
    let payload = events_payload("team", &events());
    for len in 0..payload.len() {
        let (found, _) = read(&payload[..len]);
        assert_eq!(found, events()[..found.len()], "cut to {len}");
    }
    let rules = rules_payload("team", &rules());
    for len in 0..rules.len() {
        drop(decode_meta_tags(&rules[..len]));
    }
    for payload in [payload, rules] {
        for at in 0..payload.len() * 8 {
            let mut bad = payload.clone();
            bad[at / 8] ^= 1 << (at % 8);
            drop((read(&bad), decode_meta_tags(&bad)));
        }
    }
}

#[test]
fn a_file_cut_or_flipped_anywhere_gives_only_what_was_written() {
    let bytes = file();
    for len in 0..bytes.len() {
        let (found, found_rules) = read_file(&bytes[..len]);
        assert!(found.is_empty() || found == events(), "cut to {len}");
        // A frame is whole without the zeros after its payload.
        assert!(found_rules.is_empty() || found_rules == rules(), "cut to {len}");
    }
    for at in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[at / 8] ^= 1 << (at % 8);
        let (found, found_rules) = read_file(&bad);
        assert!(found.iter().all(|event| events().contains(event)), "bit {at}");
        assert!(found_rules.iter().all(|rule| rules().contains(rule)), "bit {at}");
    }
}

#[test]
fn the_header_is_checked_whole() {
    let bytes = encode_header(KEY);
    assert_eq!(decode_header(&bytes), Ok(KEY));
    for at in 0..bytes.len() {
        let mut bad = bytes;
        bad[at] ^= 0x10;
        assert!(decode_header(&bad).is_err(), "byte {at}");
        assert!(decode_header(&bytes[..at]).is_err(), "cut to {at}");
    }
    let mut later = bytes;
    later[4] = 2;
    let sum = crc32c(&later[..28]);
    later[28..].copy_from_slice(&sum.to_le_bytes());
    let want = DecodeError::Invalid { what: VERSION_FIELD, offset: 4, expected: "1", found: 2 };
    assert_eq!(decode_header(&later), Err(want));
}

#[test]
fn the_golden_file_reads_as_ever() {
    let golden = include_bytes!("../../testdata/graphite/events-and-rules.log");
    assert_eq!(file(), golden, "what is written has changed: that needs a version");
    assert_eq!(read_file(golden), (events(), rules()));
}

proptest::proptest! {
    #[test]
    fn any_event_round_trips(
        id in proptest::prelude::any::<u64>(),
        when_s in proptest::prelude::any::<i64>(),
        what in ".*",
        tags in proptest::collection::vec(".*", 0..5),
        data in ".*",
    ) {
        let event = StoredEvent { id, when_s, what, tags, data };
        let payload = events_payload("t", std::slice::from_ref(&event));
        proptest::prop_assert_eq!(read(&payload), (vec![event], true));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        drop((read(&bytes), decode_meta_tags(&bytes), decode_header(&bytes)));
    }
}
