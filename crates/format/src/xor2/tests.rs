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
