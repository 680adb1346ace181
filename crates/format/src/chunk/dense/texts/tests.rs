//! Text chunks: any texts survive in any range; damage is an error or other texts.

use std::path::Path;

use chronolith_base::Rng;

use super::super::tests::{EVERYTHING, random_times, steady};
use super::*;

type Found = (Vec<i64>, Vec<Arc<[u8]>>);

fn encoded(times: ChunkTimes<'_>, texts: &[Arc<[u8]>]) -> Vec<u8> {
    let mut out = vec![9];
    let chunk = encode_texts(times, texts, &mut DenseScratch::new(), &mut out);
    assert_eq!(chunk.encoding, ENCODING_TEXTS);
    out.split_off(1)
}

fn decoded(bytes: &[u8], range: TimeRange, owner: RawChunk<'_>) -> Result<Found, DecodeError> {
    let mut out = Columns { times: vec![7], values: vec![7.0], ..Columns::default() };
    let mut dictionary = vec![Arc::from(&b"old"[..])];
    let result = decode_texts(bytes, range, |_| Ok(owner), &mut dictionary, &mut out);
    assert_eq!((out.times.remove(0), out.values.remove(0)), (7, 7.0), "earlier samples stay");
    assert_eq!(out.times.len(), out.values.len());
    assert!(result.is_ok() || out.is_empty(), "a failed chunk leaves nothing");
    let texts = out.values.iter().map(|value| dictionary[value.to_bits() as usize].clone()).collect();
    result.map(|()| (out.times, texts))
}

fn text(bytes: &[u8]) -> Arc<[u8]> {
    Arc::from(bytes)
}

fn random_texts(rng: &Rng, count: usize) -> Vec<Arc<[u8]>> {
    let habit = rng.below(4);
    let one = |i: usize| match habit {
        0 => text(["up", "down", "", "\0\n\u{e9}", "slow"][rng.below(5) as usize].as_bytes()),
        1 => text(format!("request {i} of host-{} took {} ms", i % 7, rng.below(1000)).as_bytes()),
        2 => text(&(0..rng.below(40)).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>()),
        _ => text(b"the same"),
    };
    (0..count).map(one).collect()
}

#[test]
fn any_texts_survive_in_any_range() {
    let rng = Rng::from_seed(47);
    let mut compressed_count = 0;
    for _ in 0..200 {
        let times = random_times(&rng, 1 + rng.below(900) as usize);
        let texts = random_texts(&rng, times.len());
        let own = encoded(ChunkTimes::Own(&times), &texts);
        let shared = encoded(ChunkTimes::Shared { offset: 300 }, &texts);
        assert_eq!(shared_times_offset_of_texts(&own), Ok(None));
        assert_eq!(shared_times_offset_of_texts(&shared), Ok(Some(300)));
        compressed_count += u32::from(own[2] & TYPE_FLAG != 0);
        let owner = RawChunk { encoding: ENCODING_TEXTS, bytes: &own };
        let (a, b) = (rng.below(times.len() as u64) as usize, rng.below(times.len() as u64) as usize);
        for range in [EVERYTHING, TimeRange::new(times[a.min(b)], times[a.max(b)])] {
            let kept = (0..times.len()).filter(|&idx| range.contains(times[idx]));
            let want: Found = kept.map(|idx| (times[idx], texts[idx].clone())).unzip();
            assert_eq!(decoded(&own, range, owner), Ok(want.clone()));
            assert_eq!(decoded(&shared, range, owner), Ok(want));
        }
    }
    assert!(compressed_count > 20, "{compressed_count} compressed dictionaries");
}

#[test]
fn one_long_text_round_trips() {
    let owner = RawChunk { encoding: ENCODING_TEXTS, bytes: &[] };
    for long in [vec![b'x'; 1 << 20], (0..1 << 20).map(|i: u32| (i.wrapping_mul(i) >> 7) as u8).collect()] {
        let texts = vec![text(&long), text(b""), text(&long)];
        let bytes = encoded(ChunkTimes::Own(&steady(3)), &texts);
        assert_eq!(decoded(&bytes, EVERYTHING, owner), Ok((steady(3), texts)));
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_an_error_or_other_texts() {
    let rng = Rng::from_seed(9);
    for count in [1, 5, 60, 300] {
        let times = random_times(&rng, count);
        let texts = random_texts(&rng, times.len());
        let own = encoded(ChunkTimes::Own(&times), &texts);
        let owner = RawChunk { encoding: ENCODING_TEXTS, bytes: &own };
        for len in 0..own.len() {
            assert!(decoded(&own[..len], EVERYTHING, owner).is_err(), "cut at {len} of {}", own.len());
        }
        for bit in 0..own.len() * 8 {
            let mut damaged = own.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = decoded(&damaged, EVERYTHING, owner);
        }
        assert!(decoded(&[&own[..], &[0]].concat(), EVERYTHING, owner).is_err(), "grown");
    }
}

/// A file for a new name is written by `GOLDEN_ADD=1 cargo test -p chronolith-format golden_texts`; none is
/// ever edited.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read from the source tree, and added to it on demand"
)]
fn golden_texts_decode() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/dense");
    let states: Vec<Arc<[u8]>> = (0..300).map(|i| text([&b"up"[..], b"", b"a\0\n\xff"][i / 7 % 3])).collect();
    let messages: Vec<Arc<[u8]>> =
        (0..200).map(|i| text(format!("message number {i} of a log").as_bytes())).collect();
    for (name, texts) in [("states", states), ("messages", messages)] {
        let path = dir.join(format!("steady-text-{name}.chunk"));
        let times = steady(texts.len());
        if std::env::var_os("GOLDEN_ADD").is_some() && !path.exists() {
            std::fs::write(&path, encoded(ChunkTimes::Own(&times), &texts)).expect("written");
        }
        let bytes = std::fs::read(&path).expect("golden file");
        let owner = RawChunk { encoding: ENCODING_TEXTS, bytes: &[] };
        assert_eq!(decoded(&bytes, EVERYTHING, owner), Ok((times, texts)), "{name}");
    }
}
