//! States round-trip; damaged ones end without panic; golden files read as ever.

use super::*;

fn pairs_of(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn group() -> StoredGroup {
    let firing = StoredAlert {
        state: StoredAlertState::Firing,
        labels: pairs_of(&[("alertname", "Größe"), ("job", "x")]),
        annotations: pairs_of(&[("summary", "is 1e+06"), ("empty", "")]),
        value: 1e6,
        active_at_ns: 1_700_000_000_123_456_789,
        fired_at_ns: Some(1_700_000_060_123_456_789),
        resolved_at_ns: None,
        last_sent_at_ns: Some(1_700_000_120_123_456_789),
        keep_firing_since_ns: Some(i64::MAX),
    };
    let pending = StoredAlert {
        state: StoredAlertState::Pending,
        labels: Vec::new(),
        annotations: Vec::new(),
        value: f64::NEG_INFINITY,
        active_at_ns: -1,
        fired_at_ns: None,
        resolved_at_ns: None,
        last_sent_at_ns: None,
        keep_firing_since_ns: None,
    };
    let resolved = StoredAlert {
        state: StoredAlertState::Resolved,
        resolved_at_ns: Some(i64::MIN),
        fired_at_ns: Some(0),
        ..pending.clone()
    };
    let rule = |name: &str, ordinal: u64, alerts: Vec<StoredAlert>| {
        let labels = pairs_of(&[("severity", "{{ $labels.severity }}")]);
        StoredRule { name: name.to_owned(), labels, ordinal, alerts }
    };
    StoredGroup {
        file: "/etc/prometheus/rules.yml".to_owned(),
        name: "node".to_owned(),
        last_round_ns: Some(1_700_000_120_123_456_789),
        rules: vec![
            rule("Größe", 0, vec![firing, pending]),
            rule("Größe", 300, vec![resolved]),
            rule("", 1, Vec::new()),
        ],
        rounds: StoredRounds {
            runs: vec![(1_700_000_000_123, 1_700_000_060_123), (-1, i64::MAX)],
            rules: vec![
                StoredRecordingRule { hash: u64::MAX, since_ms: 1_700_000_000_123 },
                StoredRecordingRule { hash: 0, since_ms: i64::MIN },
            ],
        },
        recordings: Some(vec![
            StoredRecording {
                name: "job:up:sum".to_owned(),
                labels: pairs_of(&[("team", "a")]),
                ordinal: 0,
                label_names: vec!["env".to_owned(), "job".to_owned()],
                series: vec![
                    vec![String::new(), "api".to_owned()],
                    vec!["prod".to_owned(), "Größe".to_owned()],
                ],
            },
            StoredRecording {
                name: "r".to_owned(),
                labels: Vec::new(),
                ordinal: 300,
                label_names: Vec::new(),
                series: vec![Vec::new()],
            },
        ]),
    }
}

fn bytes_of(group: &StoredGroup) -> Vec<u8> {
    let mut out = Vec::new();
    group.encode(&mut out);
    out
}

#[test]
fn a_state_round_trips() {
    let empty = StoredGroup {
        file: String::new(),
        name: String::new(),
        last_round_ns: None,
        rules: Vec::new(),
        rounds: StoredRounds::default(),
        recordings: None,
    };
    let without_rules = StoredGroup { recordings: Some(Vec::new()), ..empty.clone() };
    for group in [group(), empty, without_rules] {
        assert_eq!(StoredGroup::decode(&bytes_of(&group)), Ok(group));
    }
}

#[test]
fn the_bits_of_a_value_are_kept() {
    let mut group = group();
    let nan = f64::from_bits(0x7ff0_0000_0000_0002);
    group.rules[0].alerts[0].value = nan;
    let found = StoredGroup::decode(&bytes_of(&group)).expect("whole");
    assert_eq!(found.rules[0].alerts[0].value.to_bits(), nan.to_bits());
}

#[test]
fn a_state_that_is_cut_or_longer_is_an_error() {
    let bytes = bytes_of(&group());
    for len in 0..bytes.len() {
        assert!(StoredGroup::decode(&bytes[..len]).is_err(), "cut to {len}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(StoredGroup::decode(&longer), Err(DecodeError::Invalid { found: 1, .. })));
}

#[test]
fn a_flipped_bit_never_panics() {
    let bytes = bytes_of(&group());
    for at in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[at / 8] ^= 1 << (at % 8);
        // Bits of values, times and letters are not checked: the frame around the state has a checksum.
        if let Ok(found) = StoredGroup::decode(&bad) {
            assert!(bytes_of(&found).len() <= bad.len(), "bit {at}");
        }
    }
}

#[test]
fn a_later_version_is_refused() {
    let mut bytes = bytes_of(&group());
    bytes[0] = STATE_VERSION + 1;
    let want = DecodeError::Invalid { what: "rule state version", offset: 0, expected: "1 or 2", found: 3 };
    assert_eq!(StoredGroup::decode(&bytes), Err(want));
}

#[test]
fn a_file_that_is_cut_or_has_a_flipped_bit_is_an_error() {
    let file = StateFile { tenant: "team-a".to_owned(), state: group() };
    let bytes = file.encode();
    assert_eq!(StateFile::decode(&bytes), Ok(file));
    for len in 0..bytes.len() {
        assert!(StateFile::decode(&bytes[..len]).is_err(), "cut to {len}");
    }
    for at in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[at / 8] ^= 1 << (at % 8);
        assert!(StateFile::decode(&bad).is_err(), "bit {at}");
    }
}

#[test]
fn states_of_groups_are_read_as_they_were_written() {
    let file = |tenant: &str| StateFile { tenant: tenant.to_owned(), state: group() };
    for files in [vec![], vec![file("team-a")], vec![file("a"), file("b"), file("")]] {
        let bytes = encode_states(files.iter());
        assert_eq!(decode_states(&bytes), Ok(files));
        for len in 0..bytes.len() {
            assert!(decode_states(&bytes[..len]).is_err(), "cut to {len}");
        }
        assert!(decode_states(&[&bytes[..], &[0]].concat()).is_err(), "longer");
        for at in (0..bytes.len() * 8).step_by(7) {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(decode_states(&bad).is_err(), "bit {at}");
        }
    }
    let empty = *b"CHRLRULS\x51\x53\x7d\x52\x00";
    assert_eq!(encode_states([].iter()), empty, "what is written has changed: that needs a version");
}

#[test]
fn golden_files_read_as_ever() {
    let golden = include_bytes!("../../testdata/rules/group-state-2.bin");
    assert_eq!(bytes_of(&group()), golden, "what is written has changed: that needs a version");
    assert_eq!(StoredGroup::decode(golden), Ok(group()));
    let of_alerts = include_bytes!("../../testdata/rules/group-state.bin");
    let want = StoredGroup { rounds: StoredRounds::default(), recordings: None, ..group() };
    assert_eq!(StoredGroup::decode(of_alerts), Ok(want), "version 1");
}

/// A file of 50 bytes must not ask for memory for 2^60 series without labels.
#[test]
fn more_series_than_labels_can_tell_apart_are_an_error() {
    let bytes = bytes_of(&group());
    let mut many = bytes.clone();
    *many.last_mut().expect("bytes") = 2;
    assert!(matches!(StoredGroup::decode(&many), Err(DecodeError::Invalid { what: "series count", .. })));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        drop(StoredGroup::decode(&bytes));
        drop(StoredGroup::decode(&[&[STATE_VERSION][..], &bytes].concat()));
    }

    #[test]
    fn any_alert_round_trips(
        value in proptest::prelude::any::<f64>(),
        active_at_ns in proptest::prelude::any::<i64>(),
        times in proptest::prelude::any::<[Option<i64>; 4]>(),
        labels in proptest::collection::vec((".*", ".*"), 0..4),
    ) {
        let [fired_at_ns, resolved_at_ns, last_sent_at_ns, keep_firing_since_ns] = times;
        let mut group = group();
        group.rules[0].alerts[0] = StoredAlert {
            state: StoredAlertState::Pending,
            labels: labels.clone(),
            annotations: labels,
            value, active_at_ns, fired_at_ns, resolved_at_ns, last_sent_at_ns, keep_firing_since_ns,
        };
        let bytes = bytes_of(&group);
        let found = StoredGroup::decode(&bytes).expect("whole");
        proptest::prop_assert_eq!(bytes_of(&found), bytes);
    }
}
