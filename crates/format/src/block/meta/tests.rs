//! meta.json: golden files byte for byte, unknown fields, refusals; ULIDs.

use super::*;

const GOLDEN_2: &[u8] = include_bytes!("../../../testdata/golden/prometheus-2.42/meta.json");
const GOLDEN_3: &[u8] = include_bytes!("../../../testdata/golden/prometheus-3/meta.json");

fn text(meta: &BlockMeta) -> String {
    let mut out = Vec::new();
    meta.encode(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn golden_files_survive_byte_for_byte() {
    for golden in [GOLDEN_2, GOLDEN_3] {
        let meta = BlockMeta::decode(golden).unwrap();
        assert_eq!(text(&meta).as_bytes(), golden);
        assert_eq!((meta.min_time, meta.max_time), (1_600_000_000_000, 1_600_004_485_001));
        assert_eq!(meta.compaction.sources, [meta.ulid]);
    }
}

#[test]
fn fields_of_others_survive_at_every_level() {
    let input = r#"{"ulid":"01M7WJAQ9GQ4Q7Y4C64X7H3QBR","minTime":-5,"maxTime":7,"stats":{"numSeries":1,"x":[1]},
        "compaction":{"level":3,"sources":null,"parents":[{"ulid":"01M7WJAQ9GQ4Q7Y4C64X7H3QBR","minTime":0,"maxTime":1}],
        "hints":["from-out-of-order"],"y":{"z":null}},"version":1,"thanos":{"labels":{"a":"ü"}}}"#;
    let meta = BlockMeta::decode(input.as_bytes()).unwrap();
    let again = text(&meta);
    for part in
        ["\"x\": [", "\"y\": {", "\"thanos\": {", "\"a\": \"ü\"", "from-out-of-order", "\"parents\": ["]
    {
        assert!(again.contains(part), "{part} in {again}");
    }
    assert_eq!(BlockMeta::decode(again.as_bytes()).unwrap(), meta);
}

#[test]
fn no_prefix_and_no_other_version_is_accepted() {
    for len in 0..GOLDEN_3.len() {
        assert!(BlockMeta::decode(&GOLDEN_3[..len]).is_err(), "cut at {len}");
    }
    let with = |from: &str, to: &str| {
        let text = String::from_utf8(GOLDEN_3.to_vec()).unwrap();
        assert!(text.contains(from));
        BlockMeta::decode(text.replace(from, to).as_bytes())
    };
    assert!(matches!(with("\"version\": 1", "\"version\": 2"), Err(MetaError::Version(2))));
    assert!(matches!(with("1600004485001", "1500000000000"), Err(MetaError::Times { .. })));
    assert!(matches!(with("\"01M7", "\"81M7"), Err(MetaError::Json(_))));
    assert!(matches!(with("1600004485001", "1e99"), Err(MetaError::Json(_))));
}

#[test]
fn ulids_are_text_and_number_in_the_same_order() {
    let zero = Ulid::new(0, 0);
    assert_eq!(zero.to_string(), "00000000000000000000000000");
    let last = Ulid::new(i64::MAX, u128::MAX);
    assert_eq!(last.to_string(), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    let some = Ulid::new(1_600_000_000_123, 42);
    assert_eq!(some.time_ms(), 1_600_000_000_123);
    assert_eq!(some.to_string().parse::<Ulid>(), Ok(some));
    assert!(zero < some && some < last && zero.to_string() < some.to_string());
    for bad in
        ["", "0", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "0000000000000000000000000I", "0000000000000000000000000a"]
    {
        assert!(bad.parse::<Ulid>().is_err(), "{bad}");
    }
}

#[test]
fn the_range_of_a_store_in_nanoseconds_is_exact() {
    let mut meta = BlockMeta::decode(GOLDEN_3).unwrap();
    assert_eq!((meta.time_unit(), meta.range().start), (TimeUnit::Milli, meta.min_time));
    for range in [TimeRange::new(-1, 1_000_001), TimeRange::new(i64::MIN, i64::MAX)] {
        meta.set_range(TimeUnit::Nano, range);
        let again = BlockMeta::decode(text(&meta).as_bytes()).unwrap();
        assert_eq!((again.time_unit(), again.range()), (TimeUnit::Nano, range));
        assert_eq!(again, meta);
        assert!(again.min_time <= range.start.div_euclid(1_000_000));
    }
    meta.set_range(TimeUnit::Nano, TimeRange::new(-1, 1_000_001));
    assert_eq!((meta.min_time, meta.max_time), (-1, 2), "rounded outwards");
    let with = |from: &str, to: &str| {
        let text = text(&meta);
        assert!(text.contains(from), "{text}");
        BlockMeta::decode(text.replace(from, to).as_bytes())
    };
    assert!(matches!(with("\"ns\"", "\"ps\""), Err(MetaError::Json(_))), "a unit of a later version");
    assert!(matches!(with("1000001", "2000001"), Err(MetaError::Ticks { .. })));
    assert!(with("\"time_unit\"", "\"later\": [1], \"time_unit\"").is_ok_and(|m| text(&m).contains("later")));
    meta.set_range(TimeUnit::Milli, TimeRange::new(1_600_000_000_000, 1_600_004_485_001));
    assert_eq!(text(&meta).as_bytes(), GOLDEN_3);
}

#[test]
fn a_block_replaces_its_inputs_and_what_they_were_made_of() {
    let ulid = |n: u64| Ulid::new(1, u128::from(n));
    let meta = |n: u64, sources: &[u64], parents: &[u64], split_set: Option<u64>| {
        let json = r#"{"ulid":"00000000000000000000000000","minTime":0,"maxTime":1,"version":1,"compaction":{"level":1}}"#;
        let mut meta = BlockMeta::decode(json.as_bytes()).unwrap();
        meta.ulid = ulid(n);
        meta.compaction.sources = sources.iter().map(|n| ulid(*n)).collect();
        let parent = |n: &u64| BlockDesc { ulid: ulid(*n), min_time: 0, max_time: 1 };
        meta.compaction.parents = parents.iter().map(parent).collect();
        meta.compaction.split_set = split_set.map(ulid);
        meta
    };
    let replaces = |newer: &BlockMeta, older: &BlockMeta| newer.replaces(older.provenance());
    let head = |n: u64| meta(n, &[n], &[], None);
    let compacted = meta(9, &[1, 2, 3], &[3, 8], None);
    assert!(replaces(&compacted, &head(3)), "a direct input");
    assert!(replaces(&compacted, &head(1)), "an input of an input");
    assert!(replaces(&compacted, &meta(7, &[1, 2, 3], &[], None)), "the same samples, rewritten");
    assert!(replaces(&compacted, &meta(8, &[], &[], None)), "a direct input that records no sources");
    assert!(!replaces(&compacted, &compacted), "itself");
    assert!(!replaces(&compacted, &head(4)), "another block");
    assert!(!replaces(&compacted, &meta(5, &[1, 4], &[], None)), "a block with more samples");
    assert!(!replaces(&compacted, &meta(10, &[1, 2, 3], &[], None)), "a later one with the same samples");
    assert!(!replaces(&compacted, &meta(6, &[], &[], None)), "a block that records no sources");
    let of_set = |n: u64, parents: &[u64]| meta(n, &[1, 2], parents, Some(8));
    assert!(replaces(&of_set(9, &[1, 2]), &head(2)), "an input of a split compaction");
    assert!(!replaces(&of_set(9, &[1, 2]), &of_set(8, &[1, 2])), "the other block of its set");
    let rewritten = of_set(11, &[9]);
    assert!(replaces(&rewritten, &of_set(9, &[1, 2])), "the block that it was rewritten from");
    assert!(
        !replaces(&rewritten, &of_set(8, &[1, 2])),
        "the other block of its set, which was not rewritten"
    );
    assert!(replaces(&meta(12, &[1, 2], &[], None), &of_set(8, &[1, 2])), "a later compaction of the set");
}
