//! Chunks with start times round-trip; cut and flipped ones are errors or samples; the golden chunk reads as
//! ever.

use super::*;
use crate::chunk::dense::{ChunkTimes, DenseScratch, encode_packed};

fn samples() -> Columns {
    let mut out = Columns::default();
    for i in 0..300i64 {
        out.push(1_700_000_000_000 + i * 15_000 + i % 3, (i % 40) as f64 / 4.0);
        match i {
            0..20 => {}
            20..150 => out.set_start_time(1_699_999_000_000),
            150..160 => {}
            _ => out.set_start_time(1_700_000_000_000 + (i - 1) * 15_000),
        }
    }
    out
}

fn chunk(samples: &Columns) -> Vec<u8> {
    let (mut inner, mut runs, mut out) = (Vec::new(), Vec::new(), Vec::new());
    let packed =
        encode_packed(ChunkTimes::Own(&samples.times), &samples.values, &mut DenseScratch::new(), &mut inner);
    starts::runs_of(&samples.times, &samples.start_times, &mut runs);
    encode_starts(&runs, RawChunk { encoding: packed.encoding, bytes: &inner }, &mut out);
    out
}

fn decoded(bytes: &[u8], range: TimeRange) -> Result<Columns, DecodeError> {
    let mut out = Columns::default();
    decode_starts(bytes, range, |_| panic!("the chunk has its own times"), &mut out)?;
    Ok(out)
}

#[track_caller]
fn check(got: &Columns, want: &Columns, first: usize) {
    let end = first + got.len();
    assert_eq!((&*got.times, &*got.values), (&want.times[first..end], &want.values[first..end]));
    (0..got.len()).for_each(|at| assert_eq!(got.start_time_at(at), want.start_time_at(first + at)));
}

#[test]
fn chunks_round_trip_whole_and_in_part() {
    let samples = samples();
    let bytes = chunk(&samples);
    let whole = decoded(&bytes, TimeRange::ALL).unwrap();
    assert_eq!(whole.len(), 300);
    check(&whole, &samples, 0);
    for (first, end) in [(0, 1), (10, 30), (140, 170), (299, 300)] {
        let end_ms = samples.times[end - 1] + 1;
        let part = decoded(&bytes, TimeRange { start: samples.times[first], end: end_ms }).unwrap();
        assert_eq!(part.len(), end - first);
        check(&part, &samples, first);
    }
}

#[test]
fn cut_and_flipped_chunks_are_errors_or_samples() {
    let bytes = chunk(&samples());
    for cut in 0..bytes.len() {
        assert!(decoded(&bytes[..cut], TimeRange::ALL).is_err(), "cut at {cut}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let mut out = Columns::default();
            let no_chunk = |offset: u32| {
                let (what, found) = ("chunk", u64::from(offset));
                Err(DecodeError::Invalid { what, offset: 0, expected: "no other chunk", found })
            };
            let _ = decode_starts(&bad, TimeRange::ALL, no_chunk, &mut out);
            assert!(out.times.is_sorted_by(|a, b| a < b) && out.len() <= usize::from(u16::MAX));
        }
    }
}

#[test]
fn the_golden_chunk_reads_as_ever() {
    let golden = include_bytes!("../../../../testdata/dense/starts.chunk");
    assert_eq!(chunk(&samples()), golden, "what is written has changed: that needs a new encoding byte");
    check(&decoded(golden, TimeRange::ALL).unwrap(), &samples(), 0);
}
