//! Chunks of Prometheus's library decode to what their texts say; any bytes end in samples or an error.

use std::path::Path;

use chronolith_base::Rng;

use super::*;

/// Name, bytes, samples as times and bits.
type Golden = (String, Vec<u8>, Vec<(i64, u64)>);

#[expect(clippy::disallowed_methods, reason = "reads golden files of the repository")]
fn goldens() -> Vec<Golden> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/xor2");
    let mut out = Vec::new();
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "chunk") {
            continue;
        }
        let text = std::fs::read_to_string(path.with_extension("txt")).unwrap();
        let sample = |line: &str| {
            let (time, bits) = line.split_once(' ').unwrap();
            (time.parse().unwrap(), u64::from_str_radix(bits, 16).unwrap())
        };
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        out.push((name, std::fs::read(&path).unwrap(), text.lines().map(sample).collect()));
    }
    assert_eq!(out.len(), 20, "golden chunks");
    out
}

fn decoded(bytes: &[u8], range: TimeRange) -> Result<Vec<(i64, u64)>, DecodeError> {
    let mut out = Columns::default();
    decode(bytes, range, &mut out)?;
    Ok(out.times.into_iter().zip(out.values.into_iter().map(f64::to_bits)).collect())
}

#[test]
fn golden_chunks_decode_to_their_texts() {
    for (name, bytes, samples) in goldens() {
        assert_eq!(decoded(&bytes, TimeRange::ALL).unwrap(), samples, "{name}");
        let range = TimeRange::new(samples[samples.len() / 3].0, samples[samples.len() / 2].0);
        let want: Vec<_> = samples.iter().copied().filter(|s| range.contains(s.0)).collect();
        assert_eq!(decoded(&bytes, range).unwrap(), want, "{name}");
    }
}

#[test]
fn cut_chunks_are_errors() {
    for (name, bytes, samples) in goldens() {
        for cut in 0..bytes.len() {
            let result = decoded(&bytes[..cut], TimeRange::ALL);
            assert!(result.is_err(), "{name} of {} samples cut at {cut}", samples.len());
        }
    }
}

#[test]
fn any_bytes_end_in_ascending_samples_or_an_error() {
    let rng = Rng::from_seed(3);
    for (_, bytes, _) in goldens() {
        for _ in 0..2000 {
            let mut forged = bytes.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(forged.len() as u64) as usize;
                forged[at] ^= 1 << rng.below(8);
            }
            let mut out = Columns::default();
            let _ = decode(&forged, TimeRange { start: i64::MIN, end: i64::MAX }, &mut out);
            assert!(out.times.is_sorted_by(|a, b| a < b) && out.len() <= usize::from(u16::MAX));
        }
    }
}

/// Start times of the golden chunks, by name.
fn golden_starts(name: &str) -> Vec<i64> {
    let text = include_str!("../../../testdata/xor2/starts.txt");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    line.split(' ').map(|start| start.parse().unwrap()).collect()
}

/// The start times are Prometheus's, and of the samples the same bytes are written again.
#[test]
fn golden_chunks_have_start_times_and_are_what_is_written() {
    for (name, bytes, _) in goldens() {
        let mut out = Columns::default();
        decode(&bytes, TimeRange::ALL, &mut out).unwrap();
        let starts: Vec<i64> = (0..out.len()).map(|at| out.start_time_at(at)).collect();
        assert_eq!(starts, golden_starts(&name), "{name}");
        let mut written = Vec::new();
        encode(&out.times, &out.values, &out.start_times, &mut written);
        assert_eq!(written, bytes, "{name}");
        let (first, end) = (out.len() / 3, out.len() / 2);
        let mut part = Columns::default();
        decode(&bytes, TimeRange { start: out.times[first], end: out.times[end] }, &mut part).unwrap();
        (0..part.len()).for_each(|at| assert_eq!(part.start_time_at(at), starts[first + at], "{name}"));
    }
}

#[test]
fn any_samples_and_start_times_round_trip() {
    let rng = Rng::from_seed(9);
    for round in 0..300u64 {
        let mut samples = Columns::default();
        let mut time = rng.next_u64() as i64 >> 8;
        for _ in 0..1 + rng.below(200) {
            time += 1 + (rng.next_u64() >> (20 + rng.below(44))) as i64;
            samples
                .push(time, f64::from_bits(if rng.below(9) == 0 { STALE_NAN_BITS } else { rng.below(99) }));
            let start_ms = match round % 4 {
                0 => 0,
                1 => 5,
                2 => time - 1000,
                _ => rng.next_u64() as i64 >> rng.below(64),
            };
            if start_ms != 0 {
                samples.set_start_time(start_ms);
            }
        }
        let (mut bytes, mut out) = (Vec::new(), Columns::default());
        encode(&samples.times, &samples.values, &samples.start_times, &mut bytes);
        decode(&bytes, TimeRange { start: i64::MIN, end: i64::MAX }, &mut out).unwrap();
        let bits = |columns: &Columns| columns.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!((&out.times, bits(&out)), (&samples.times, bits(&samples)));
        (0..out.len()).for_each(|at| assert_eq!(out.start_time_at(at), samples.start_time_at(at)));
    }
}
