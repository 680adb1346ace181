//! Vectors computed by hand from the description of the format, and damage.

use chronolith_model::kind::{integer_of_word, unsigned_of_word};

use super::*;
use crate::influx::fault::BLOCK_POINTS_MAX;

/// Writes bit fields, most significant bit first.
#[derive(Default)]
struct Bits(String);

impl Bits {
    fn push(mut self, value: u64, width: usize) -> Bits {
        let all = format!("{value:064b}");
        self.0.push_str(&all[64 - width..]);
        self
    }

    fn bytes(mut self) -> Vec<u8> {
        while !self.0.len().is_multiple_of(8) {
            self.0.push('0');
        }
        let parts = self.0.as_bytes().chunks(8).map(|part| std::str::from_utf8(part).unwrap());
        parts.map(|part| u8::from_str_radix(part, 2).unwrap()).collect()
    }
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn times_of(bytes: &[u8]) -> Result<Vec<i64>, DecodeError> {
    let mut out = Vec::new();
    times::decode(bytes, &mut out).map(|()| out)
}

#[test]
fn times_are_raw_steps_packed_steps_or_a_run() {
    let steps = [10u64, 5, 3u64.wrapping_neg()].map(u64::to_be_bytes).concat();
    assert_eq!(times_of(&join(&[&[0x00], &steps])).unwrap(), [10, 15, 12]);
    // Scale 10^3; two words: one step of 60 bits, then two of 30 bits.
    let words = [15u64 << 60 | 5, 14 << 60 | 7 << 30 | 2].map(u64::to_be_bytes).concat();
    let packed = join(&[&[0x13], &1000u64.to_be_bytes(), &words]);
    assert_eq!(times_of(&packed).unwrap(), [1000, 6000, 8000, 15_000]);
    // Scale 10^9, step 10, three times.
    let run = join(&[&[0x29], &1_600_000_000_000_000_000u64.to_be_bytes(), &[10, 3]]);
    let start = 1_600_000_000_000_000_000i64;
    assert_eq!(times_of(&run).unwrap(), [start, start + 10_000_000_000, start + 20_000_000_000]);
    let before_1970 = join(&[&[0x20], &(-5i64).to_be_bytes(), &[5, 2]]);
    assert_eq!(times_of(&before_1970).unwrap(), [-5, 0]);
}

#[test]
fn damaged_times_are_errors() {
    let endless = join(&[&[0x20], &[0; 8], &[1, 0xff, 0xff, 0xff, 0xff, 0x0f]]);
    for bytes in [&[][..], &[0x30], &[0x00, 1, 2], &[0x10, 1], &[0x20, 1, 2, 3], &endless] {
        assert!(times_of(bytes).is_err(), "{bytes:?}");
    }
    let part_of_a_word = join(&[&[0x10], &[0; 8], &[0xf0, 0, 0]]);
    assert!(times_of(&part_of_a_word).is_err());
}

#[test]
fn a_word_of_simple8b_has_a_selector_and_values_from_the_low_bits_on() {
    let decode = |word: u64| {
        let mut out = Vec::new();
        simple8b::decode(&word.to_be_bytes(), 0, |value| out.push(value)).unwrap();
        out
    };
    assert_eq!(decode(0), vec![1; 240]);
    assert_eq!(decode(1 << 60), vec![1; 120]);
    let bits = decode(2 << 60 | 0b101);
    assert_eq!((bits.len(), &bits[..4]), (60, &[1, 0, 1, 0][..]));
    let layouts = [(2, 30), (3, 20), (4, 15), (5, 12), (6, 10), (7, 8), (8, 7), (10, 6), (12, 5), (15, 4)];
    for (selector, (width, count)) in (3u64..13).zip(layouts) {
        let values: Vec<u64> = (0..count).map(|at| (at * 7 + 1) % (1 << width)).collect();
        let word = values.iter().enumerate().fold(selector << 60, |word, (at, v)| word | v << (at * width));
        assert_eq!(decode(word), values, "selector {selector}");
    }
    assert_eq!(decode(13 << 60 | 3 << 40 | 2 << 20 | 1), [1, 2, 3]);
    assert_eq!(decode(14 << 60 | 9 << 30 | 8), [8, 9]);
    assert_eq!(decode(u64::MAX), [(1 << 60) - 1]);
}

fn integers_of(bytes: &[u8], count: usize) -> Result<Vec<i64>, DecodeError> {
    let mut out = Vec::new();
    integers::decode_signed(bytes, count, &mut out)
        .map(|()| out.iter().map(|word| integer_of_word(word.to_bits())).collect())
}

#[test]
fn integers_are_zigzag_steps() {
    let raw = join(&[&[0x00], &[1u64, 6].map(u64::to_be_bytes).concat()]);
    assert_eq!(integers_of(&raw, 2).unwrap(), [-1, 2]);
    let packed = join(&[&[0x10], &10u64.to_be_bytes(), &(14u64 << 60 | 8 << 30 | 3).to_be_bytes()]);
    assert_eq!(integers_of(&packed, 3).unwrap(), [5, 3, 7]);
    let run = join(&[&[0x20], &200u64.to_be_bytes(), &[13, 2]]);
    assert_eq!(integers_of(&run, 3).unwrap(), [100, 93, 86]);
    assert!(integers_of(&run, 4).is_err(), "a count that differs from that of the times");
    for bytes in [&[][..], &[0x30], &[0x00, 1], &[0x10], &[0x20, 0]] {
        assert!(integers_of(bytes, 1).is_err(), "{bytes:?}");
    }
}

#[test]
fn unsigned_integers_are_signed_ones_of_the_same_bits() {
    let mut words = Vec::new();
    let raw = join(&[&[0x00], &u64::MAX.to_be_bytes()]);
    integers::decode_unsigned(&raw, 1, &mut words).unwrap();
    assert_eq!(unsigned_of_word(words[0].to_bits()), 1 << 63);
}

fn floats_of(bytes: &[u8], count: usize) -> Result<Vec<u64>, DecodeError> {
    let mut out = Vec::new();
    floats::decode(bytes, count, &mut out).map(|()| out.iter().map(|value| value.to_bits()).collect())
}

#[test]
fn floats_are_xors_up_to_a_nan() {
    let coded = Bits::default()
        .push(1.5f64.to_bits(), 64)
        // Equal.
        .push(0b0, 1)
        // 2.5: the XOR has one leading zero and 13 meaningful bits, all ones.
        .push(0b11, 2)
        .push(1, 5)
        .push(13, 6)
        .push(0x1fff, 13)
        // 2.0 in the same window: the last of the 13 bits.
        .push(0b10, 2)
        .push(1, 13)
        // The NaN at the end, in a window of 64 bits.
        .push(0b11, 2)
        .push(0, 5)
        .push(0, 6)
        .push(2.0f64.to_bits() ^ 0x7ff8_0000_0000_0001, 64)
        .bytes();
    let bytes = join(&[&[0x10], &coded]);
    let want = [1.5, 1.5, 2.5, 2.0].map(f64::to_bits);
    assert_eq!(floats_of(&bytes, 4).unwrap(), want);
    assert!(floats_of(&bytes, 3).is_err(), "more floats than times");
    for end in 0..bytes.len() {
        assert!(floats_of(&bytes[..end], 4).is_err(), "{end}");
    }
    let outside = Bits::default().push(0, 64).push(0b11, 2).push(31, 5).push(40, 6).push(0, 40).bytes();
    assert!(floats_of(&join(&[&[0x10], &outside]), 4).is_err(), "71 bits of a float");
    assert!(floats_of(&[0x00], 0).is_err());
}

#[test]
fn booleans_are_bits() {
    let decode = |bytes: &[u8], count| {
        let mut out = Vec::new();
        booleans::decode(bytes, count, &mut out).map(|()| out)
    };
    let want = [1., 0., 1., 0., 1., 0., 1., 0., 1., 1.];
    assert_eq!(decode(&[0x10, 10, 0b1010_1010, 0b1100_0000], 10).unwrap(), want);
    for bytes in [&[][..], &[0x20, 1, 0], &[0x10, 9, 0, 0], &[0x10, 10, 0]] {
        assert!(decode(bytes, 10).is_err(), "{bytes:?}");
    }
}

fn packed_texts(texts: &[&[u8]]) -> Vec<u8> {
    let plain: Vec<u8> = texts.iter().flat_map(|text| [&[text.len() as u8][..], text].concat()).collect();
    join(&[&[0x10], &snap::raw::Encoder::new().compress_vec(&plain).unwrap()])
}

#[test]
fn texts_are_lengths_and_bytes_in_snappy() {
    let decode = |bytes: &[u8], count| {
        let mut out = Vec::new();
        texts::decode(bytes, count, &mut out).map(|()| out)
    };
    let all: [&[u8]; 4] = [b"a", b"", b"a\xff\n", b"a\xff\n"];
    let found = decode(&packed_texts(&all), 4).unwrap();
    assert_eq!(found.iter().map(|text| &**text).collect::<Vec<_>>(), all);
    assert!(Arc::ptr_eq(&found[2], &found[3]));
    assert!(decode(&packed_texts(&all), 3).is_err());
    // A snappy block that claims 4 GiB.
    let claim = [0x10, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, b'x'];
    for bytes in [&[][..], &[0x20], &[0x10, 5], &claim] {
        assert!(decode(bytes, 4).is_err(), "{bytes:?}");
    }
    let short = join(&[&[0x10], &snap::raw::Encoder::new().compress_vec(&[9, b'x']).unwrap()]);
    assert!(decode(&short, 1).is_err(), "a text longer than the block");
}

#[test]
fn a_block_has_as_many_values_as_times() {
    let times = join(&[&[0x20], &7u64.to_be_bytes(), &[1, 2]]);
    let block = |block_type, values: &[u8]| join(&[&[block_type, times.len() as u8], &times, values]);
    let mut points = BlockPoints::default();
    points.decode(&block(2, &[0x10, 2, 0b0100_0000]), WordKind::Boolean).unwrap();
    assert_eq!((points.times.as_slice(), points.words.as_slice()), (&[7, 8][..], &[0., 1.][..]));
    points.decode(&block(3, &packed_texts(&[b"x", b"y"])), WordKind::Text).unwrap();
    assert_eq!((points.words.len(), points.texts.len()), (0, 2));
    assert!(points.decode(&block(3, &packed_texts(&[b"x"])), WordKind::Text).is_err());
    assert!(points.decode(&block(2, &[0x10, 2, 0]), WordKind::Float).is_err(), "another type");
    assert!(points.decode(&[2, 200], WordKind::Boolean).is_err());
    assert!(points.decode(&[], WordKind::Float).is_err());
}

/// No bytes make a decoder panic, or allocate more than the bytes back.
#[test]
fn random_bytes_are_points_or_errors() {
    let rng = chronolith_base::Rng::from_seed(9);
    let mut points = BlockPoints::default();
    for _ in 0..20_000 {
        let len = rng.next_u64() as usize % 60;
        let mut block: Vec<u8> = (0..len + 2).map(|_| rng.next_u64() as u8).collect();
        let kind =
            [WordKind::Float, WordKind::Integer, WordKind::Boolean, WordKind::Text, WordKind::Unsigned];
        block[0] %= 5;
        block[1] %= 30;
        let _ = points.decode(&block, kind[usize::from(block[0])]);
        assert!(points.times.len() <= BLOCK_POINTS_MAX);
    }
}
