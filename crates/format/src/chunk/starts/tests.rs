//! Runs round-trip with the start timestamp of each sample, and damage is an error.

use chronolith_base::{ByteReader, Rng};
use chronolith_model::Columns;

use super::{StartRun, decode, encode, fill, runs_of, start_at};

fn decoded(bytes: &[u8]) -> Result<Vec<StartRun>, chronolith_base::DecodeError> {
    let mut out = Vec::new();
    let mut reader = ByteReader::new(bytes);
    decode(&mut reader, &mut out)?;
    assert!(reader.is_empty());
    Ok(out)
}

#[track_caller]
fn check(runs: &[(i64, i64)], byte_len: usize) {
    let runs: Vec<StartRun> = runs.iter().map(|&(time, start_ms)| StartRun { time, start_ms }).collect();
    let mut bytes = Vec::new();
    encode(&runs, &mut bytes);
    assert_eq!(decoded(&bytes).unwrap(), runs);
    assert_eq!(bytes.len(), byte_len);
    for cut in 0..bytes.len() {
        assert!(decoded(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn runs_round_trip_in_few_bytes() {
    check(&[], 1);
    check(&[(1_700_000_000_000, 1_699_999_000_000)], 1 + 6 + 3);
    check(&[(i64::MIN, i64::MAX), (-1, 0), (i64::MAX, i64::MIN)], 16);
    let t0 = 1_700_000_000_000;
    // Each sample counts from the one before: two bytes a run but for the first two.
    let deltas: Vec<(i64, i64)> = (0..100).map(|i| (t0 + i * 15_000, t0 + (i - 1) * 15_000)).collect();
    check(&deltas, 1 + 9 + 7 + 6 + 97 * 2 - 4);
}

#[test]
fn times_that_do_not_ascend_are_an_error() {
    let mut bytes = Vec::new();
    chronolith_base::bytes::put_uvarint(&mut bytes, 2);
    [5, 0, -5, 0].into_iter().for_each(|number| chronolith_base::bytes::put_varint(&mut bytes, number));
    let error = decoded(&bytes).unwrap_err().to_string();
    assert!(error.contains("start run time"), "{error}");
}

#[test]
fn every_sample_gets_what_was_said_of_it() {
    let rng = Rng::from_seed(5);
    for _ in 0..200 {
        let mut want = Columns::default();
        let mut time = 0;
        for _ in 0..rng.below(40) {
            time += 1 + rng.below(5) as i64;
            want.push(time, 1.0);
            let start_ms = [0, 0, 7, 8, time][rng.below(5) as usize];
            if start_ms != 0 {
                want.set_start_time(start_ms);
            }
        }
        let mut runs = Vec::new();
        runs_of(&want.times, &want.start_times, &mut runs);
        assert_eq!(runs.is_empty(), want.start_times.is_empty());
        let mut got =
            Columns { times: want.times.clone(), values: want.values.clone(), ..Columns::default() };
        let first = rng.below(got.len() as u64 + 1) as usize;
        fill(&runs, first, &mut got);
        for idx in 0..got.len() {
            assert_eq!(start_at(&runs, got.times[idx]), want.start_time_at(idx));
            assert_eq!(got.start_time_at(idx), if idx < first { 0 } else { want.start_time_at(idx) });
        }
    }
}
