//! Headers: each field that is wrong is named with its offset.

use super::*;
use crate::whisper::FileBuilder;

const ARCHIVES: [Archive; 2] =
    [Archive { step_s: 10, point_count: 6 }, Archive { step_s: 60, point_count: 5 }];

fn file() -> Vec<u8> {
    FileBuilder::new(AggregationMethod::Sum, 0.25, &ARCHIVES).unwrap().into_bytes()
}

/// Replaces the big-endian word at an offset.
fn with_word(at: usize, word: u32) -> Vec<u8> {
    let mut bytes = file();
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
    bytes
}

#[track_caller]
fn check(bytes: &[u8], want: &str) {
    let found = match Header::decode(bytes) {
        Ok(header) => {
            let archives: Vec<String> = header
                .archives
                .iter()
                .map(|stored| format!("{}@{}", stored.archive, stored.offset))
                .collect();
            format!("{} {} {}", header.method, header.x_files_factor, archives.join(" "))
        }
        Err(damage) => damage.to_string(),
    };
    assert_eq!(found, want);
}

#[test]
fn a_header_has_method_factor_and_archives() {
    check(&file(), "sum 0.25 10s:1m (6 points)@40 1m:5m (5 points)@112");
    for (number, name) in (1..).zip(["average", "sum", "last", "max", "min", "avg_zero", "absmax", "absmin"])
    {
        check(&with_word(0, number), &format!("{name} 0.25 10s:1m (6 points)@40 1m:5m (5 points)@112"));
    }
    // The maximum retention is not used.
    check(&with_word(4, 0), "sum 0.25 10s:1m (6 points)@40 1m:5m (5 points)@112");
    // Archives may be in any order in the file.
    let mut swapped = with_word(16, 40 + 60);
    swapped[28..32].copy_from_slice(&40u32.to_be_bytes());
    check(&swapped, "sum 0.25 10s:1m (6 points)@100 1m:5m (5 points)@40");
}

#[test]
fn wrong_fields_are_named_with_their_offset() {
    for number in [0, 9, u32::MAX] {
        let want =
            format!("offset 0: unknown aggregation method {number}: expected 1 to 8, the file is refused");
        check(&with_word(0, number), &want);
    }
    check(
        b"whisper_compressed",
        "offset 0: a compressed file of go-carbon is refused: convert it to whisper",
    );
    check(&with_word(8, f32::NAN.to_bits()), "offset 8: xFilesFactor: expected 0 to 1, found NaN");
    check(&with_word(8, 1.5f32.to_bits()), "offset 8: xFilesFactor: expected 0 to 1, found 1.5");
    for count in [0, 65, u32::MAX] {
        let want = format!("offset 12: number of archives: expected 1 to 64, found {count}");
        check(&with_word(12, count), &want);
    }
    check(&with_word(16, 39), "offset 16: an archive begins at 39, within the header of 40 bytes");
    check(&with_word(16, u32::MAX), "offset 16: an archive ends at 4294967367, the file has 172 bytes");
    check(&with_word(28, 113), "offset 28: an archive ends at 173, the file has 172 bytes");
    check(&with_word(28, 111), "offset 28: an archive begins at 111, another one ends at 112");
    check(&with_word(20, 0), "offset 16: an archive of 6 points every 0 s");
    check(&with_word(24, 0), "offset 16: an archive of 0 points every 10 s");
    check(
        &with_word(24, u32::MAX),
        "offset 16: an archive of 4294967295 points every 10 s covers more than 2^32 s",
    );
    check(&with_word(24, u32::MAX / 10), "offset 16: an archive ends at 5153960788, the file has 172 bytes");
    check(&with_word(32, 10), "offset 28: 10 s per point is not a multiple of 10 s before it");
    check(&with_word(32, 65), "offset 28: 65 s per point is not a multiple of 10 s before it");
    check(
        &with_word(36, 1),
        "offset 28: 1m:1m (1 points) does not cover a longer time than 10s:1m (6 points)",
    );
}

#[test]
fn a_file_that_is_cut_anywhere_is_damaged() {
    let bytes = file();
    for len in 0..bytes.len() {
        let damage = Header::decode(&bytes[..len]).expect_err("a part of a file");
        assert!(damage.offset <= len, "{damage} of {len}");
    }
}
