//! Segments built by hand, and damage.

use chronolith_model::kind::{integer_of_word, unsigned_of_word};

use super::*;

fn entry(entry_type: u8, plain: &[u8]) -> Vec<u8> {
    let compressed = snap::raw::Encoder::new().compress_vec(plain).unwrap();
    [&[entry_type][..], &(compressed.len() as u32).to_be_bytes(), &compressed].concat()
}

/// Points of one key of a write: the bytes after each time are given.
fn points(value_type: u8, key: &str, values: &[(i64, &[u8])]) -> Vec<u8> {
    let mut out = vec![value_type];
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(&(values.len() as u32).to_be_bytes());
    for (time, value) in values {
        out.extend_from_slice(&time.to_be_bytes());
        out.extend_from_slice(value);
    }
    out
}

fn show(item: &WalItem<'_>) -> String {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    match item {
        WalItem::Delete { key, first, last } => format!("delete {} {first}..={last}", text(key)),
        WalItem::Points(points) => {
            let values = points.iter().map(|(time, value)| match (value, points.kind) {
                (WalValue::Text(bytes), _) => format!("{time}={:?}", text(bytes)),
                (WalValue::Word(word), WordKind::Integer) => {
                    format!("{time}={}i", integer_of_word(word.to_bits()))
                }
                (WalValue::Word(word), WordKind::Unsigned) => {
                    format!("{time}={}u", unsigned_of_word(word.to_bits()))
                }
                (WalValue::Word(word), _) => format!("{time}={word}"),
            });
            format!("{} {:?} {}", text(points.key), points.kind, values.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Items, and damage as offset and end.
fn read(segment: &[u8]) -> (Vec<String>, Vec<(usize, bool)>) {
    let (mut items, mut damages) = (Vec::new(), Vec::new());
    for_each(segment, &mut |item| items.push(show(item)), &mut |damage| {
        damages.push((damage.error.offset(), damage.is_end));
    });
    (items, damages)
}

fn entries() -> Vec<Vec<u8>> {
    let write = [
        points(1, "a", &[(1, &1.5f64.to_be_bytes()), (2, &(-0.0f64).to_be_bytes())]),
        points(2, "b", &[(-3, &i64::MIN.to_be_bytes())]),
        points(3, "c", &[(4, &[1]), (5, &[0])]),
        points(4, "d", &[(6, b"\0\0\0\x02hi"), (7, &[0, 0, 0, 0])]),
        points(5, "e", &[(8, &u64::MAX.to_be_bytes())]),
    ];
    let mut range = [1i64.to_be_bytes(), 2i64.to_be_bytes()].concat();
    range.extend_from_slice(b"\0\0\0\x01a\0\0\0\x02bb");
    vec![entry(1, &write.concat()), entry(2, b"a\nb"), entry(3, &range)]
}

#[test]
fn writes_and_deletions_come_in_order() {
    let (items, damages) = read(&entries().concat());
    let whole = format!("{}..={}", i64::MIN, i64::MAX);
    let want = [
        "a Float 1=1.5 2=-0",
        "b Integer -3=-9223372036854775808i",
        "c Boolean 4=1 5=0",
        "d Text 6=\"hi\" 7=\"\"",
        "e Unsigned 8=18446744073709551615u",
        &format!("delete a {whole}"),
        &format!("delete b {whole}"),
        "delete a 1..=2",
        "delete bb 1..=2",
    ];
    assert_eq!((items.as_slice(), damages.len()), (&want.map(str::to_owned)[..], 0));
}

#[test]
fn a_cut_segment_keeps_the_entries_before_the_cut() {
    let entries = entries();
    let segment = entries.concat();
    let ends = [0, entries[0].len(), entries[0].len() + entries[1].len()];
    let (whole, _) = read(&segment);
    for end in 0..segment.len() {
        let (items, damages) = read(&segment[..end]);
        assert!(whole.starts_with(&items), "{end}");
        let start = ends.iter().rposition(|&start| start <= end).unwrap();
        assert_eq!(items.len(), [0, 5, 7][start], "{end}");
        assert_eq!(damages.is_empty(), ends.contains(&end), "{end}");
        assert!(damages.iter().all(|(_, is_end)| *is_end));
    }
}

/// Damage within an entry costs that entry; damage of its header, the rest of the segment.
#[test]
fn damage_is_contained() {
    let entries = entries();
    let mut damaged = entries.concat();
    // The first element of the second snappy block becomes a copy of bytes that are not there.
    let second = entries[0].len();
    damaged[second + 6] = 0xff;
    let (items, damages) = read(&damaged);
    assert_eq!((items.len(), damages.as_slice()), (7, &[(second, false)][..]));
    damaged[second] = 9;
    let (items, damages) = read(&damaged);
    assert_eq!((items.len(), damages.as_slice()), (5, &[(second, true)][..]));
    for at in 0..damaged.len() * 8 {
        let mut flipped = entries.concat();
        flipped[at / 8] ^= 1 << (at % 8);
        read(&flipped);
    }
}

#[test]
fn counts_that_the_entry_does_not_back_are_damage() {
    let mut many = points(1, "a", &[(1, &1.5f64.to_be_bytes())]);
    many[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    let (items, damages) = read(&entry(1, &many));
    assert_eq!((items.len(), damages.len()), (0, 1));
    let claim = [&[1u8][..], &6u32.to_be_bytes(), &[0xff, 0xff, 0xff, 0xff, 0x0f, 0]].concat();
    assert_eq!(read(&claim).1, [(0, false)], "a snappy block of 4 GiB");
}
