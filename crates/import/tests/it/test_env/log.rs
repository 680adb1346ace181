//! Encoder of WAL records and segments, for logs that Prometheus would not write.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;

pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// A record of one series.
pub(crate) fn series(series_ref: u64, labels: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![1];
    out.extend_from_slice(&series_ref.to_be_bytes());
    put_uvarint(&mut out, labels.len() as u64);
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        put_uvarint(&mut out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
    out
}

/// A record of samples.
pub(crate) fn samples(samples: &[(u64, i64, f64)]) -> Vec<u8> {
    let mut out = vec![2];
    let Some(&(base_ref, base_time, _)) = samples.first() else { return out };
    out.extend_from_slice(&base_ref.to_be_bytes());
    out.extend_from_slice(&base_time.to_be_bytes());
    for &(series_ref, time, value) in samples {
        put_varint(&mut out, series_ref.wrapping_sub(base_ref).cast_signed());
        put_varint(&mut out, time - base_time);
        out.extend_from_slice(&value.to_bits().to_be_bytes());
    }
    out
}

/// A tombstone record.
pub(crate) fn tombstone(series_ref: u64, first: i64, last: i64) -> Vec<u8> {
    let mut out = vec![3];
    out.extend_from_slice(&series_ref.to_be_bytes());
    put_varint(&mut out, first);
    put_varint(&mut out, last);
    out
}

/// A record of the end of the blocks that were written before a checkpoint.
pub(crate) fn min_valid_time(time: i64) -> Vec<u8> {
    let mut out = vec![14];
    out.extend_from_slice(&time.to_be_bytes());
    out
}

/// Compression of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Snappy,
}

/// Encodes records as a segment; records are split into fragments at page ends.
pub(crate) fn segment(records: &[Vec<u8>], packing: Packing) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let (flag, bytes) = match packing {
            Packing::None => (0, record.clone()),
            Packing::Snappy => (8, snap::raw::Encoder::new().compress_vec(record).unwrap()),
        };
        let mut start = 0;
        while start < bytes.len() {
            let rest = PAGE_BYTES - out.len() % PAGE_BYTES;
            if rest <= 7 {
                out.resize(out.len() + rest, 0);
                continue;
            }
            let end = bytes.len().min(start + rest - 7);
            let kind = match (start == 0, end == bytes.len()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            out.push(kind | flag);
            out.extend_from_slice(&((end - start) as u16).to_be_bytes());
            out.extend_from_slice(&crc32c(&bytes[start..end]).to_be_bytes());
            out.extend_from_slice(&bytes[start..end]);
            start = end;
        }
    }
    out
}

/// Encoder of start timestamps: a marker each, and differences to the first one.
struct Starts {
    first: Option<i64>,
    before: i64,
}

impl Starts {
    fn put(&mut self, start_ms: i64, out: &mut Vec<u8>) {
        match self.first {
            None => {
                put_varint(out, start_ms);
                self.first = Some(start_ms);
            }
            Some(_) if start_ms == 0 => out.push(0),
            Some(_) if start_ms == self.before => out.push(1),
            Some(first) => {
                out.push(2);
                put_varint(out, start_ms - first);
            }
        }
        self.before = start_ms;
    }
}

/// A record of samples or of histograms (the value is the sum) with ref, time, value and start timestamp.
fn with_starts(kind: u8, samples: &[(u64, i64, f64, i64)], put: impl Fn(f64, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![kind];
    let mut starts = Starts { first: None, before: 0 };
    let (mut before, first_time) = (0u64, samples.first().map_or(0, |sample| sample.1));
    for (idx, &(series_ref, time, value, start_ms)) in samples.iter().enumerate() {
        put_varint(&mut out, series_ref.wrapping_sub(before).cast_signed());
        put_varint(&mut out, if idx == 0 { time } else { time - first_time });
        starts.put(start_ms, &mut out);
        put(value, &mut out);
        before = series_ref;
    }
    out
}

/// A record of samples with start timestamps.
pub(crate) fn samples_with_start(samples: &[(u64, i64, f64, i64)]) -> Vec<u8> {
    with_starts(11, samples, |value, out| out.extend_from_slice(&value.to_bits().to_be_bytes()))
}

/// A record of integer histograms without buckets, with start timestamps.
pub(crate) fn histograms_with_start(samples: &[(u64, i64, f64, i64)]) -> Vec<u8> {
    with_starts(12, samples, |sum, out| {
        out.push(0);
        put_varint(out, 1);
        out.extend_from_slice(&0.001f64.to_bits().to_be_bytes());
        put_uvarint(out, 5);
        put_uvarint(out, 5);
        out.extend_from_slice(&sum.to_bits().to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0]);
    })
}
