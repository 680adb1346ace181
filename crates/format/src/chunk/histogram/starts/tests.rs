//! Chunks of Prometheus's library with start times are made of, and give, its chunks without; damage is an
//! error.

use chronolith_base::Rng;
use chronolith_model::{Columns, TimeRange};

use super::*;

struct Golden {
    name: String,
    chunk: Vec<u8>,
    plain: Vec<u8>,
    starts: Vec<i64>,
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn goldens() -> Vec<Golden> {
    let text = include_str!("../../../../testdata/histogram-starts/chunks.txt");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6 * 5 * 4, "golden chunks");
    lines
        .chunks(4)
        .map(|case| Golden {
            name: case[0].to_owned(),
            chunk: bytes_of(case[1].strip_prefix("chunk ").unwrap()),
            plain: bytes_of(case[2].strip_prefix("plain ").unwrap()),
            starts: case[3].split(' ').skip(1).map(|start| start.parse().unwrap()).collect(),
        })
        .collect()
}

impl Golden {
    fn encodings(&self) -> (u8, u8) {
        match self.name.starts_with("ints") {
            true => (ENCODING_HISTOGRAM, ENCODING_HISTOGRAM_STARTS),
            false => (ENCODING_FLOAT_HISTOGRAM, ENCODING_FLOAT_HISTOGRAM_STARTS),
        }
    }

    fn decoded(&self, range: TimeRange) -> Columns {
        let mut out = Columns::default();
        super::super::decode(self.encodings().1, &self.chunk, range, &mut out).unwrap();
        out
    }
}

#[test]
fn golden_chunks_are_what_is_written() {
    for golden in goldens() {
        let (encoding, with) = golden.encodings();
        let count = golden.starts.len() as u16;
        let bytes = golden.plain.clone();
        let plain = EncodedChunk { encoding, min_time: 1, max_time: 2, count, bytes };
        let written = with_starts(&plain, &golden.starts);
        assert_eq!((written.encoding, written.count), (with, count));
        assert_eq!(written.bytes, golden.chunk, "{}", golden.name);
    }
}

#[test]
fn golden_chunks_give_samples_and_start_times() {
    for golden in goldens() {
        let got = golden.decoded(TimeRange::ALL);
        let mut want = Columns::default();
        super::super::decode(golden.encodings().0, &golden.plain, TimeRange::ALL, &mut want).unwrap();
        let starts: Vec<i64> = (0..got.len()).map(|at| got.start_time_at(at)).collect();
        assert_eq!((&got.times, starts), (&want.times, golden.starts.clone()), "{}", golden.name);
        for (got, want) in got.histograms.iter().zip(&want.histograms) {
            assert!(got.0 == want.0 && got.1.is_identical(&want.1), "{}", golden.name);
        }
        let (first, end) = (got.len() / 3, got.len() / 2);
        let part = golden.decoded(TimeRange { start: got.times[first], end: got.times[end] });
        assert_eq!(part.times, got.times[first..end]);
        (0..part.len()).for_each(|at| assert_eq!(part.start_time_at(at), got.start_time_at(first + at)));
    }
}

#[test]
fn damaged_chunks_end_in_samples_or_an_error() {
    let rng = Rng::from_seed(23);
    for golden in goldens() {
        let decode = |bytes: &[u8]| {
            let mut out = Columns::default();
            let done = super::super::decode(golden.encodings().1, bytes, TimeRange::ALL, &mut out);
            assert!(out.times.is_sorted_by(|a, b| a < b) && out.start_times.len() <= out.len());
            done
        };
        for cut in 0..golden.chunk.len() {
            assert!(decode(&golden.chunk[..cut]).is_err(), "{} cut at {cut}", golden.name);
        }
        for _ in 0..200 {
            let mut forged = golden.chunk.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(forged.len() as u64) as usize;
                forged[at] ^= 1 << rng.below(8);
            }
            let _ = decode(&forged);
        }
    }
}
