//! Open chunks of words that change their encoding hold exactly the bits that were appended, with a
//! checkpoint and a restart at any sample.

use std::collections::BTreeSet;

use chronolith_base::{Env, Rng};
use chronolith_format::chunk::decimal_delta::{ENCODING_DECIMAL_DELTA, OpenState, reencode};
use chronolith_format::head::slice::{EntryReader, KIND_SERIES, OpenChunk, SeriesEntry, encode_entry};
use chronolith_model::sample::STALE_NAN_BITS;

use super::model::read;
use super::*;

const ID: u32 = 1;
const STEP_MS: i64 = 15_000;
const WINDOW_MS: i64 = 1_000_000_000;

/// Bits of the sample with this number.
type Shape = fn(&Rng, i64) -> u64;

fn two_decimals(rng: &Rng) -> f64 {
    rng.below(1 << 20) as f64 / 100.0
}

/// Bits that no scale fits.
fn special(rng: &Rng) -> u64 {
    let all = [
        f64::INFINITY.to_bits(),
        f64::NEG_INFINITY.to_bits(),
        (-0.0f64).to_bits(),
        STALE_NAN_BITS,
        f64::NAN.to_bits() | rng.below(1 << 50),
        f64::MIN_POSITIVE.to_bits() - 1,
        f64::MAX.to_bits(),
        // Hundredths of it exceed the range of the integers of a chunk.
        (1.0e14f64 + 0.25).to_bits(),
        (1u64 << 53).wrapping_mul(rng.below(999)),
        ((1i64 << 51) as f64).to_bits(),
    ];
    all[rng.below(all.len() as u64) as usize]
}

/// Each as a rule (seldom) and with specials (often); the last ones are all specials, and all random bits.
const SHAPES: [Shape; 8] = [
    |rng, _| two_decimals(rng).to_bits(),
    |rng, _| if rng.below(60) == 0 { special(rng) } else { two_decimals(rng).to_bits() },
    |rng, _| if rng.below(8) == 0 { special(rng) } else { two_decimals(rng).to_bits() },
    |rng, at| {
        if at % 40 > 30 { (rng.below(1 << 30) as f64 / 1e4).to_bits() } else { two_decimals(rng).to_bits() }
    },
    |rng, at| {
        ((at * 4096) as f64 + if rng.below(70) == 0 { 1.0 } else { 4096.0 * rng.below(900) as f64 }).to_bits()
    },
    |rng, _| ((rng.next_u64() >> 12) as f64 - 2.0f64.powi(51)).to_bits(),
    |rng, _| special(rng),
    |rng, _| rng.next_u64(),
];

/// Appends the samples in `range`; returns the encodings that the open chunk had after each.
fn append(
    stripe: &mut Stripe,
    cx: &mut AppendContext<'_>,
    words: &[u64],
    range: std::ops::Range<usize>,
) -> Vec<Option<u8>> {
    let mut encodings = Vec::new();
    for at in range {
        let outcome = stripe.append_in_order(cx, 0, ID, at as i64 * STEP_MS, words[at]);
        assert_eq!(outcome, AppendOutcome::InOrder);
        let series = stripe.series(ID).expect("the series exists");
        assert_eq!((series.newest_time(), series.newest_bits()), (at as i64 * STEP_MS, words[at]));
        encodings.push(series.open_words().map(|open| open.encoding()));
    }
    encodings
}

#[track_caller]
fn check(stripe: &Stripe, cx: &AppendContext<'_>, words: &[u64], what: &str) {
    let columns = read(stripe, cx, ID);
    let times: Vec<i64> = (0..words.len() as i64).map(|at| at * STEP_MS).collect();
    assert_eq!(columns.times, times, "{what}");
    let bits: Vec<u64> = columns.values.iter().map(|value| value.to_bits()).collect();
    assert_eq!(bits, words, "{what}");
}

/// Returns a stripe with the open chunk of `stripe` as a checkpoint stores it.
fn restarted(stripe: &Stripe) -> Stripe {
    let series = stripe.series(ID).expect("the series exists");
    let (mut bytes, mut payload) = (Vec::new(), Vec::new());
    stripe.copy_open(ID, &mut bytes);
    let mut entry = SeriesEntry { id: ID, ..SeriesEntry::default() };
    match series.open_words() {
        Some(open) => entry.open.push(OpenChunk::Words(*series.open_state(), open.min_time(), &bytes)),
        None => entry.last = Some((series.newest_time(), series.newest_bits())),
    }
    encode_entry(&entry, 0, &mut payload);
    let mut found = SeriesEntry::default();
    assert_eq!(EntryReader::new(KIND_SERIES, &payload).next(&mut found), Ok(true));
    let mut restarted = Stripe::new();
    restarted.create(ID, 0);
    restarted.with_open_words(ID, |series, buffers, _| {
        series.set_newest(found.last);
        if let Some(&OpenChunk::Words(state, first, bytes)) = found.open.first() {
            series.restore_open(buffers, state, bytes, first, WINDOW_MS);
        }
    });
    restarted
}

#[test]
fn chunks_hold_the_appended_bits_at_every_cut_of_the_checkpoint() {
    let mut changes = BTreeSet::new();
    for (shape_idx, shape) in SHAPES.iter().enumerate() {
        for seed in 0..4 {
            let (env, _, _) = Env::fake(0, seed);
            let store = store_of(&env);
            let mut cx = context_of(&env, &store, WINDOW_MS);
            let words: Vec<u64> = (0..300).map(|at| shape(&env.rng, at)).collect();
            let mut stripe = Stripe::new();
            stripe.create(ID, 0);
            for at in 0..words.len() {
                let before = stripe.series(ID).and_then(|series| Some(series.open_words()?.encoding()));
                let after = append(&mut stripe, &mut cx, &words, at..at + 1)[0];
                changes.insert((before, after));
                // Samples of sealed chunks are not in the entry, so the samples of the open one are compared.
                let mut copy = restarted(&stripe);
                let open_count = copy.series(ID).and_then(|series| Some(series.open_words()?.count()));
                let first = at + 1 - usize::from(open_count.unwrap_or(0));
                let end = (at + 40).min(words.len());
                append(&mut copy, &mut cx, &words, at + 1..end);
                let samples = read(&copy, &cx, ID);
                let bits: Vec<u64> = samples.values.iter().map(|value| value.to_bits()).collect();
                assert_eq!(bits, words[first..end], "shape {shape_idx}, seed {seed}, restart after {at}");
            }
            check(&stripe, &cx, &words, &format!("shape {shape_idx}, seed {seed}"));
        }
    }
    let (xor, decimal) = (Some(ENCODING_XOR), Some(ENCODING_DECIMAL_DELTA));
    for change in [(xor, decimal), (decimal, xor), (None, xor), (None, decimal), (xor, None), (decimal, None)]
    {
        assert!(changes.contains(&change), "{change:?} was met");
    }
}

#[test]
fn a_chunk_changes_its_encoding_a_few_times_at_most() {
    for (shape_idx, shape) in SHAPES.iter().enumerate() {
        let (env, _, _) = Env::fake(0, 9);
        let store = store_of(&env);
        let mut cx = context_of(&env, &store, WINDOW_MS);
        let words: Vec<u64> = (0..1200).map(|at| shape(&env.rng, at)).collect();
        let mut stripe = Stripe::new();
        stripe.create(ID, 0);
        let encodings = append(&mut stripe, &mut cx, &words, 0..words.len());
        for chunk in encodings.chunk_by(|a, _| a.is_some()) {
            let change_count =
                chunk.windows(2).filter(|pair| pair[0] != pair[1] && pair[1].is_some()).count();
            assert!(change_count <= 3, "shape {shape_idx}: {chunk:?}");
        }
    }
}

/// Noise of two decimals takes few bytes from its first chunk on, open and sealed.
#[test]
fn noisy_decimals_take_two_bytes_per_sample() {
    let (env, _, _) = Env::fake(0, 5);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, WINDOW_MS);
    let (mut stripe, mut value) = (Stripe::new(), 5000i64);
    stripe.create(ID, 0);
    let mut words = Vec::new();
    for _ in 0..239 {
        value += env.rng.below(401) as i64 - 200;
        words.push((value as f64 / 100.0).to_bits());
    }
    append(&mut stripe, &mut cx, &words, 0..words.len());
    let series = stripe.series(ID).unwrap();
    let open = series.open_words().unwrap();
    let sealed = stripe.sealed_of(series).next().unwrap();
    let found = [
        (open.count(), Some(series.open_state().byte_len()), open.encoding()),
        (sealed.count(), sealed.byte_len(), sealed.encoding()),
    ];
    for (count, len, encoding) in found {
        assert_eq!(encoding, ENCODING_DECIMAL_DELTA);
        assert!(len.unwrap() <= 2 * usize::from(count), "{len:?} bytes for {count} samples");
    }
}

/// Another value for the newest sample replaces it in a chunk of either encoding.
#[test]
fn the_newest_sample_is_replaced_in_both_encodings() {
    for shape in &SHAPES[..2] {
        let (env, _, _) = Env::fake(0, 6);
        let store = store_of(&env);
        let mut cx = context_of(&env, &store, WINDOW_MS);
        cx.duplicates = DuplicatePolicy::LastWins;
        let mut words: Vec<u64> = (0..110).map(|at| shape(&env.rng, at)).collect();
        let mut stripe = Stripe::new();
        stripe.create(ID, 0);
        for at in 0..words.len() {
            append(&mut stripe, &mut cx, &words, at..at + 1);
            if at % 7 == 3 {
                words[at] =
                    if at % 2 == 0 { special(&env.rng) } else { two_decimals(&env.rng).to_bits() ^ 1 << 62 };
                let outcome = stripe.append(&mut cx, ID, at as i64 * STEP_MS, Value::Word(words[at]));
                assert_eq!(outcome, AppendOutcome::Replaced);
            }
            check(&stripe, &cx, &words[..=at], "after a replacement");
        }
    }
}

/// A faulty writer may leave a state that contradicts its bytes: the chunk is sealed as it is, and the sample
/// that needs another encoding starts the next one.
#[test]
fn a_chunk_that_does_not_match_its_state_is_not_encoded_again() {
    let (env, _, _) = Env::fake(0, 7);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, WINDOW_MS);
    let mut bytes = Vec::new();
    let state = reencode(&[10, 20, 30, 40], &[10.25, 93.75, 17.5, 0.25], &mut bytes);
    assert_eq!(state.encoding(), ENCODING_DECIMAL_DELTA);
    let mut stored = state.to_bytes();
    stored[0] = 35;
    let other = OpenState::from_bytes(&stored).unwrap();
    let mut stripe = Stripe::new();
    stripe.create(ID, 0);
    stripe.with_open_words(ID, |series, buffers, _| {
        series.restore_open(buffers, other, &bytes, 10, WINDOW_MS);
    });
    assert_eq!(stripe.append_in_order(&mut cx, 0, ID, 38, f64::NAN.to_bits()), AppendOutcome::InOrder);
    let series = stripe.series(ID).unwrap();
    assert_eq!(series.open_words().map(|open| open.min_time()), Some(38));
    assert_eq!(stripe.sealed_of(series).next().map(|node| node.count()), Some(4));
}
