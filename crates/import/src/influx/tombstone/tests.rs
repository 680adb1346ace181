//! Files of all versions, and damage.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn entry(key: &str, first: i64, last: i64) -> Vec<u8> {
    let len = (key.len() as u32).to_be_bytes();
    [&len[..], key.as_bytes(), &first.to_be_bytes(), &last.to_be_bytes()].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn interval(first: i64, last: i64) -> Interval {
    Interval { first, last }
}

#[track_caller]
fn read(bytes: &[u8]) -> KeyTombstones {
    let (tombstones, error) = KeyTombstones::read(bytes);
    assert!(error.is_none(), "{error:?}");
    tombstones
}

#[test]
fn four_versions_are_read() {
    let all = [interval(i64::MIN, i64::MAX)];
    let v1 = read(b"a#!~#v\n\nb#!~#v\n");
    assert_eq!((v1.of(b"a#!~#v"), v1.of(b"b#!~#v"), v1.of(b"c")), (&all[..], &all[..], &[][..]));
    let entries = [entry("a", 1, 5), entry("b", -9, 9), entry("a", 7, 8), entry("a", 1, 5)].concat();
    let v4 = [&VERSION_4[..], &gzip(&entry("a", 1, 5)), &gzip(&entries)].concat();
    for bytes in [[&VERSION_2[..], &entries].concat(), [&VERSION_3[..], &gzip(&entries)].concat(), v4] {
        let found = read(&bytes);
        assert_eq!(found.of(b"a"), [interval(1, 5), interval(7, 8)]);
        assert_eq!(found.of(b"b"), [interval(-9, 9)]);
    }
    // Old versions of InfluxDB wrote empty files.
    for empty in [&b""[..], &VERSION_2, &VERSION_4] {
        assert_eq!(read(empty).count, 0);
    }
}

/// The tombstones before damage are kept, and nothing else appears.
#[test]
fn a_cut_file_keeps_what_is_before_the_cut() {
    let members = [gzip(&entry("a", 1, 5)), gzip(&entry("b", 2, 6))];
    let bytes = [&VERSION_4[..], &members[0], &members[1]].concat();
    for end in 4..bytes.len() {
        let (found, error) = KeyTombstones::read(&bytes[..end]);
        let first_end = 4 + members[0].len();
        assert_eq!(error.is_none(), end == 4 || end == first_end, "{end}");
        assert!(found.count <= 2 && (end < first_end || found.of(b"a") == [interval(1, 5)]), "{end}");
    }
    let mut long = VERSION_2.to_vec();
    long.extend_from_slice(&u32::MAX.to_be_bytes());
    assert!(KeyTombstones::read(&long).1.is_some(), "a key of 4 GiB");
}

#[test]
fn flipped_bits_do_no_harm() {
    let bytes = [&VERSION_4[..], &gzip(&[entry("a", 1, 5), entry("b", 2, 6)].concat())].concat();
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        let (found, error) = KeyTombstones::read(&damaged);
        // The header of gzip has fields that do not matter.
        let is_whole = found.of(b"a") == [interval(1, 5)] && found.of(b"b") == [interval(2, 6)];
        assert!(if error.is_some() { found.count == 0 } else { is_whole }, "{at}: {found:?} {error:?}");
    }
}
