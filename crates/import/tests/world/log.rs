//! A small writer of Prometheus's log format, for logs that no Prometheus would write.

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

/// A record of deleted intervals.
pub(crate) fn tombstone(series_ref: u64, first: i64, last: i64) -> Vec<u8> {
    let mut out = vec![3];
    out.extend_from_slice(&series_ref.to_be_bytes());
    put_varint(&mut out, first);
    put_varint(&mut out, last);
    out
}

/// How records are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Snappy,
}

/// A segment of the records, each split at the ends of pages.
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
