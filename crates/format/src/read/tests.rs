//! Round trips of random reads, the bytes of one, and bytes that are no read.

use chronolith_base::Rng;
use chronolith_model::{Selector, TenantId};

use super::*;

fn stores() -> [StoreId; 4] {
    let tenant = TenantId::new("team-a").expect("a tenant");
    let number = 0x1f;
    [
        StoreId::Default(tenant),
        StoreId::anonymous(),
        StoreId::Database { number },
        StoreId::Graphite { number: u64::MAX },
    ]
}

fn pick<T: Clone>(rng: &Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize].clone()
}

fn random_text(rng: &Rng) -> String {
    pick(rng, &["", "a", "job", "é", "\u{1f4a9}", "__name__", "a.b|c+"]).to_owned()
}

fn random_time(rng: &Rng) -> i64 {
    pick(rng, &[i64::MIN, -1, 0, 1, 1_700_000_000_000, i64::MAX])
}

fn random_projection(rng: &Rng) -> Option<Projection> {
    let mut names: Vec<String> = (0..rng.below(4)).map(|_| random_text(rng)).collect();
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (rng.below(2) == 0).then(|| Projection::new(&names, rng.below(2) == 0))
}

fn random_read(rng: &Rng) -> Read {
    let matchers: Vec<Matcher> = (0..rng.below(5))
        .map(|_| Matcher::new(&random_text(rng), pick(rng, &OPS), &random_text(rng)).expect("compiles"))
        .collect();
    let times = [random_time(rng), random_time(rng)];
    let range = TimeRange { start: times[0].min(times[1]), end: times[0].max(times[1]) };
    let name = Arc::from(random_text(rng));
    let wanted = match rng.below(6) {
        0 => Wanted::Series,
        1 => Wanted::Estimate,
        2 => Wanted::LabelNames,
        3 => Wanted::LabelValues { name },
        4 => Wanted::EachLabelValue { name, prefix: random_text(rng).into() },
        _ => Wanted::SoleLabelValues { name },
    };
    let count = 1 + rng.below(100) as u32;
    let request = SelectRequest {
        samples: pick(rng, &NEEDS),
        presence_only: rng.below(2) == 0,
        function: random_text(rng).into(),
        grouping: random_projection(rng),
        projection: random_projection(rng),
        step_ms: random_time(rng),
        range_ms: random_time(rng),
        column_type: pick(rng, &COLUMN_TYPES),
        shard: Shard::new(rng.below(2 * u64::from(count)) as u32, count),
        rollups: vec![RollupSpan { span_ms: 60_000, slot_ms: random_time(rng) }; rng.below(3) as usize],
        limit: pick(rng, &[0, 1, usize::MAX]),
        allows_partial: rng.below(2) == 0,
        ..SelectRequest::new(&Selector { matchers: &matchers, range })
    };
    Read { request, wanted }
}

#[test]
fn reads_are_decoded_as_they_were_encoded() {
    let rng = Rng::from_seed(11);
    for _ in 0..5000 {
        let (store, read) = (pick(&rng, &stores()), random_read(&rng));
        let mut bytes = Vec::new();
        put_read(&mut bytes, &store, &read);
        assert_eq!(decode_read(&bytes), Ok((store, read)));
    }
}

/// Machines of other versions read these bytes.
#[test]
fn the_bytes_of_a_read_stay_the_same() {
    let matchers =
        [Matcher::equal("job", "a"), Matcher::new("i", MatchOp::NotRegex, "b+").expect("compiles")];
    let selector = Selector { matchers: &matchers, range: TimeRange { start: -1, end: 300 } };
    let request = SelectRequest {
        presence_only: true,
        grouping: Some(Projection::new(&["x"], false)),
        shard: Shard::new(2, 5),
        rollups: vec![RollupSpan { span_ms: 60, slot_ms: 10 }],
        step_ms: 15,
        limit: 7,
        allows_partial: true,
        ..SelectRequest::newest(&selector)
    };
    let wanted = Wanted::LabelValues { name: "n".into() };
    let mut bytes = Vec::new();
    put_read(&mut bytes, &StoreId::Database { number: 3 }, &Read { request, wanted });
    let want: &[&[u8]] = &[
        b"\x01\x15__ns-0000000000000003",
        b"\x03\x01n",
        b"\x02\x00\x03job\x01a\x03\x01i\x02b+",
        b"\x01\xd8\x04",
        b"\x01\x00\x1b",
        b"\x00\x01\x01x",
        b"\x02\x05",
        b"\x00\x1e\x00",
        b"\x01\x78\x14",
        b"\x07",
    ];
    assert_eq!(bytes, want.concat());
}

/// A cut read is an error; a changed byte is one or gives another read, and never panics or takes memory for
/// numbers that nothing follows.
#[test]
fn damaged_reads_are_refused_or_other_reads() {
    let rng = Rng::from_seed(12);
    for _ in 0..300 {
        let mut bytes = Vec::new();
        put_read(&mut bytes, &pick(&rng, &stores()), &random_read(&rng));
        for len in 0..bytes.len() {
            assert!(decode_read(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << rng.below(8);
            if let Ok((store, read)) = decode_read(&damaged) {
                let mut again = Vec::new();
                put_read(&mut again, &store, &read);
                assert_eq!(decode_read(&again), Ok((store, read)));
            }
        }
        bytes.push(0);
        let error = decode_read(&bytes).expect_err("a byte too many").to_string();
        assert!(error.contains("expected 0 bytes, found 1"), "{error}");
    }
}

#[test]
fn unknown_versions_and_patterns_are_named() {
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut bytes = Vec::new();
    put_read(&mut bytes, &StoreId::anonymous(), &Read::of(&selector, Wanted::Series));
    for version in [0, 2, 255] {
        bytes[0] = version;
        let error = decode_read(&bytes).expect_err("another version").to_string();
        assert_eq!(error, format!("version of a read at offset 0: expected version 1, found {version}"));
    }
    let mut bytes = vec![READ_VERSION, 1, b'a', 0, 1, 2];
    put_text(&mut bytes, "pod");
    put_text(&mut bytes, "(");
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let error = decode_read(&bytes).expect_err("no pattern").to_string();
    assert!(error.starts_with("matcher on \"pod\": "), "{error}");
}
