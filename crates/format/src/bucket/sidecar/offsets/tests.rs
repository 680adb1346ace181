//! Each label pair and each prefix is found in a small part of the table; damage of that part is noticed.

use super::*;

const TABLE_OFFSET: u64 = 1000;

/// A table as an index has it: entries under a checksum. The list of entry n is at 8 n.
fn table(pairs: &[(String, String)]) -> Vec<u8> {
    let mut content = u32::try_from(pairs.len()).unwrap().to_be_bytes().to_vec();
    for (n, (name, value)) in pairs.iter().enumerate() {
        put_uvarint(&mut content, 2);
        put_uvarint(&mut content, name.len() as u64);
        content.extend_from_slice(name.as_bytes());
        put_uvarint(&mut content, value.len() as u64);
        content.extend_from_slice(value.as_bytes());
        put_uvarint(&mut content, 8 * n as u64);
    }
    let mut out = u32::try_from(content.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(&content);
    out.extend_from_slice(&crc32c(&content).to_be_bytes());
    out
}

fn pairs() -> Vec<(String, String)> {
    let pair = |name: &str, value: String| (name.to_owned(), value);
    let mut pairs = vec![pair("", String::new())];
    pairs.extend((0..64).map(|n| pair("exact", format!("v{n:03}"))));
    pairs.extend((0..1000).map(|n| pair("many", format!("{}{n:04}", ["a", "b", "c"][n / 400]))));
    pairs.push(pair("one", "x".to_owned()));
    pairs
}

fn offsets(pairs: &[(String, String)]) -> (Vec<u8>, SparseOffsets) {
    let table = table(pairs);
    let made = SparseOffsets::of_table(&table, TABLE_OFFSET, 8 * pairs.len() as u64).expect("is a table");
    let mut section = Vec::new();
    made.encode(&mut section);
    let read = SparseOffsets::decode(&section).expect("decodes");
    assert_eq!(read, made);
    (table, read)
}

fn bytes_of<'a>(table: &'a [u8], range: &OffsetRange) -> &'a [u8] {
    let idx = |offset: u64| usize::try_from(offset - TABLE_OFFSET).unwrap();
    &table[idx(range.bytes.start)..idx(range.bytes.end)]
}

/// Values and lists of a range.
fn visited(table: &[u8], offsets: &SparseOffsets, range: &OffsetRange) -> Vec<(String, Range<u64>)> {
    let mut found = Vec::new();
    let visit = &mut |value: &str, list| {
        found.push((value.to_owned(), list));
        true
    };
    offsets.visit(range, bytes_of(table, range), visit).expect("is undamaged");
    found
}

#[test]
fn every_pair_is_found_in_at_most_32_entries() {
    let pairs = pairs();
    let (table, offsets) = offsets(&pairs);
    for (n, (name, value)) in (0u64..).zip(&pairs) {
        let range = offsets.range_of(name, value).expect("is there");
        let found = visited(&table, &offsets, &range);
        assert!(found.len() <= 32);
        assert!(found.contains(&(value.clone(), 8 * n..8 * n + 8)), "{name} {value}");
    }
    assert_eq!(offsets.label_names().collect::<Vec<_>>(), ["exact", "many", "one"]);
    assert_eq!(["exact", "many", "one", "none"].map(|name| offsets.value_count(name)), [64, 1000, 1, 0]);
}

#[test]
fn values_outside_of_a_name_need_no_read() {
    let (_, offsets) = offsets(&pairs());
    for (name, value) in [("none", "x"), ("exact", "a"), ("exact", "v064"), ("one", ""), ("one", "xx")] {
        assert_eq!(offsets.range_of(name, value), None, "{name} {value}");
    }
    for (name, prefix) in [("none", ""), ("many", "d"), ("many", "A"), ("one", "w"), ("one", "y")] {
        assert_eq!(offsets.range_of_prefix(name, prefix), None, "{name} {prefix}");
    }
}

#[test]
fn a_prefix_is_read_with_few_other_values() {
    let pairs = pairs();
    let (table, offsets) = offsets(&pairs);
    for (name, prefix) in [("many", ""), ("many", "b"), ("many", "b04"), ("many", "c0999"), ("exact", "v")] {
        let range = offsets.range_of_prefix(name, prefix).expect("is there");
        let found = visited(&table, &offsets, &range);
        let is_wanted = |value: &str| value.starts_with(prefix);
        let wanted = pairs.iter().filter(|(n, value)| n == name && is_wanted(value)).count();
        assert_eq!(found.iter().filter(|(value, _)| is_wanted(value)).count(), wanted, "{name} {prefix}");
        assert!(found.len() <= wanted + 62, "{name} {prefix}");
    }
}

#[test]
fn damage_of_the_table_is_noticed_in_the_part_that_is_read() {
    let (table, offsets) = offsets(&pairs());
    let range = offsets.range_of("many", "b0450").expect("is there");
    let whole = bytes_of(&table, &range);
    for at in 0..whole.len() {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0x20;
        let visit = &mut |_: &str, _| panic!("damaged entries are visited");
        assert!(offsets.visit(&range, &bytes, visit).is_err());
        assert!(offsets.visit(&range, &whole[..at], visit).is_err());
    }
}

#[test]
fn an_unordered_or_damaged_table_is_refused() {
    let mut pairs = pairs();
    let whole = table(&pairs);
    for at in 0..whole.len() {
        assert!(SparseOffsets::of_table(&whole[..at], 0, 0).is_err());
    }
    pairs.swap(3, 4);
    assert!(SparseOffsets::of_table(&table(&pairs), 0, 0).is_err());
    pairs.clear();
    assert_eq!(offsets(&pairs).1.label_names().count(), 0);
}

#[test]
fn a_damaged_section_is_refused() {
    let pairs = pairs();
    let (_, made) = offsets(&pairs[..100]);
    let mut section = Vec::new();
    made.encode(&mut section);
    for at in 0..section.len() {
        let mut bytes = section.clone();
        bytes[at] ^= 1;
        assert!(SparseOffsets::decode(&bytes).is_err(), "{at}");
        assert!(SparseOffsets::decode(&section[..at]).is_err(), "{at}");
    }
}
