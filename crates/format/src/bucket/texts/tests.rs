//! Lists round-trip in any order; prefixes that are too long, and texts cut within a character, are refused.

use super::*;

fn encoded(texts: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    put_texts(texts.iter().copied(), &mut out);
    out
}

fn decoded(bytes: &[u8], count: usize) -> Result<Vec<String>, DecodeError> {
    let mut texts = Texts::default();
    texts.decode("texts", &mut ByteReader::new(bytes), count)?;
    Ok(texts.iter().map(str::to_owned).collect())
}

#[track_caller]
fn check(texts: &[&str]) {
    assert_eq!(decoded(&encoded(texts), texts.len()).expect("decodes"), texts);
}

#[test]
fn lists_round_trip() {
    check(&[]);
    check(&[""]);
    check(&["", "a", "ab", "abc", "abd", "b"]);
    check(&["z", "a", "a", "", "ü", "ö", "öö"]);
}

#[test]
fn shared_prefixes_are_stored_once() {
    let sorted = encoded(&["http_requests_total", "http_requests_total_sum"]);
    assert_eq!(sorted.len(), 1 + 4 + 1 + 19 + 4);
}

#[test]
fn a_sorted_list_is_searched() {
    let mut texts = Texts::default();
    ["a", "c", "ca", "d"].into_iter().for_each(|text| texts.push(text));
    assert_eq!(["a", "ca", "d"].map(|text| texts.find(text)), [Ok(0), Ok(2), Ok(3)]);
    assert_eq!(["", "b", "e"].map(|text| texts.find(text)), [Err(0), Err(1), Err(4)]);
}

#[test]
fn damage_is_an_error() {
    // A prefix that is longer than the text before; a text that ends within a character.
    assert!(decoded(&[4, 0, 1, 2, 0, 1, b'a'], 2).is_err());
    assert!(decoded(&[4, 0, 1, 0, 1, 2, 0xc3, 0xbc], 2).is_err());
    assert!(decoded(&[2, 0, 2, 2, 0xc3, 0xbc], 1).is_ok());
    let whole = encoded(&["ab", "abc", "b"]);
    for len in 0..whole.len() {
        assert!(decoded(&whole[..len], 3).is_err(), "{len}");
    }
    assert!(decoded(&whole, 2).is_err() && decoded(&whole, 4).is_err());
}

#[test]
fn few_bytes_cannot_take_much_memory() {
    // 1 MiB of text, then 127 texts that repeat all of it.
    let mut lens = Vec::new();
    put_uvarint(&mut lens, 0);
    put_uvarint(&mut lens, 1 << 20);
    for _ in 0..127 {
        put_uvarint(&mut lens, 1 << 20);
        put_uvarint(&mut lens, 0);
    }
    let mut out = Vec::new();
    put_column(&lens, &mut out);
    put_column(&vec![b'x'; 1 << 20], &mut out);
    assert!(decoded(&out, 128).is_err());
    assert!(decoded(&encoded(&["x"]), usize::MAX).is_err());
}
