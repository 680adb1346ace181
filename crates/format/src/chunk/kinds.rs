//! Samples of both kinds as chunks, of which each holds one kind, with or without start timestamps.
//!
//! Invariant: chunks are in order of time; decoding returns the encoded samples, except for details that an
//! encoding drops.
//! Not here: the encodings (`xor`, `histogram`), dense chunks and their choice (`block`).

use chronolith_base::DecodeError;
use chronolith_model::query::SampleKind;
use chronolith_model::{Columns, Histogram, TimeRange};

use std::ops::Range;
use std::sync::Arc;

use crate::chunk::decimal_delta::{self, ENCODING_DECIMAL_DELTA};
use crate::chunk::histogram::{self, HistogramAppender};
use crate::chunk::starts::{self, ChunkWithStarts, StartRun};
use crate::chunk::xor::{self, ENCODING_XOR, EncodedChunk, SAMPLES_PER_CHUNK};
use crate::chunk::xor2::{self, ENCODING_XOR2};

/// Integer and float native histograms, without and with start times: encodings whose chunks hold no floats.
pub const ENCODINGS_HISTOGRAM: [u8; 4] = [2, 3, 5, 6];

/// Bytes at which a chunk of histograms is full.
///
/// As Prometheus cuts them: the bytes that a query decodes for one sample, and that are written again when
/// new buckets appear, stay few.
const HISTOGRAM_BYTES_FULL: usize = 1024;
/// A chunk with fewer histograms is not full, however long they are: the layout is stored once per chunk.
const HISTOGRAMS_MIN: u16 = 10;

/// Encoding byte of a sealed chunk of the head with start timestamps: their runs, then a chunk of words or
/// histograms.
pub const ENCODING_WITH_STARTS: u8 = 0x45;

/// Encodings from this one on are Chronolith's own.
const ENCODING_OWN_MIN: u8 = 0x40;

/// Returns true if Prometheus has this encoding.
#[must_use]
pub fn is_of_prometheus(encoding: u8) -> bool {
    encoding < ENCODING_OWN_MIN
}

/// Returns true if a chunk of this encoding has histograms.
#[must_use]
pub fn is_histogram(encoding: u8) -> bool {
    ENCODINGS_HISTOGRAM.contains(&encoding)
}

/// Returns true if the next histogram starts a new chunk.
#[must_use]
pub fn is_full(open: &HistogramAppender) -> bool {
    let count = open.count();
    usize::from(count) >= SAMPLES_PER_CHUNK
        || (count >= HISTOGRAMS_MIN && open.bytes().len() >= HISTOGRAM_BYTES_FULL)
}

/// Appends chunks of histograms of ascending times to `out`.
///
/// # Panics
/// If times do not ascend strictly, and as [`HistogramAppender::start`].
pub fn encode_histograms<'a>(
    samples: impl Iterator<Item = (i64, &'a Arc<Histogram>)>,
    out: &mut Vec<EncodedChunk>,
) {
    let mut open: Option<HistogramAppender> = None;
    for (time, histogram) in samples {
        let next = match &mut open {
            Some(current) if !is_full(current) => current.append(time, histogram),
            previous => Some(HistogramAppender::start(previous.as_ref(), time, histogram)),
        };
        if let Some(next) = next
            && let Some(full) = open.replace(next)
        {
            out.push(full.encoded());
        }
    }
    out.extend(open.map(|open| open.encoded()));
}

/// Returns the start times of the samples in `range` of a column that may be shorter than the columns of
/// samples; `None` if all are unknown.
fn known(start_times: &[i64], range: Range<usize>) -> Option<&[i64]> {
    let part = start_times.get(range.start..range.end.min(start_times.len()))?;
    part.iter().any(|&start_ms| start_ms != 0).then_some(part)
}

/// Appends chunks of floats of ascending times to `out`: XOR2 chunks where start times are known, XOR chunks
/// elsewhere. A start time of 0, or a missing one, is unknown.
///
/// # Panics
/// If times do not ascend strictly, or there is not one value per time.
pub fn encode_floats(times: &[i64], values: &[f64], start_times: &[i64], out: &mut Vec<EncodedChunk>) {
    let chunk_count = out.len();
    out.extend(xor::encode(times, values));
    let mut range = 0..0;
    for chunk in out.iter_mut().skip(chunk_count) {
        range = range.end..range.end + usize::from(chunk.count);
        if let Some(start_times) = known(start_times, range.clone()) {
            chunk.encoding = ENCODING_XOR2;
            chunk.bytes.clear();
            let (times, values) = (times.get(range.clone()), values.get(range.clone()));
            xor2::encode(times.unwrap_or(&[]), values.unwrap_or(&[]), start_times, &mut chunk.bytes);
        }
    }
}

/// Appends chunks of all samples to `out`: chunks of floats, chunks of histograms, with start times where
/// they are known.
///
/// # Panics
/// If times do not ascend strictly, and as [`HistogramAppender::start`].
pub fn encode(samples: &Columns, out: &mut Vec<EncodedChunk>) {
    for (run, kind) in samples.runs() {
        let times = samples.times.get(run.clone()).unwrap_or(&[]);
        let start_times = samples.start_times.get(run.start..).unwrap_or(&[]);
        match kind {
            SampleKind::Float => {
                let values = samples.values.get(run).unwrap_or(&[]);
                encode_floats(times, values, start_times, out);
            }
            SampleKind::Histogram => {
                let chunk_count = out.len();
                encode_histograms(times.iter().copied().zip(samples.histograms_at(run)), out);
                let mut range = 0..0;
                for chunk in out.iter_mut().skip(chunk_count) {
                    range = range.end..range.end + usize::from(chunk.count);
                    if let Some(start_times) = known(start_times, range.clone()) {
                        *chunk = histogram::with_starts(chunk, start_times);
                    }
                }
            }
        }
    }
}

/// Returns a chunk of the head with the start timestamps `runs`; the chunk itself if there are none.
#[must_use]
pub fn with_starts(chunk: EncodedChunk, runs: &[StartRun]) -> EncodedChunk {
    if runs.is_empty() {
        return chunk;
    }
    let mut bytes = Vec::new();
    starts::put_chunk(runs, chunk.encoding, &chunk.bytes, &mut bytes);
    EncodedChunk { encoding: ENCODING_WITH_STARTS, bytes, ..chunk }
}

/// Appends the samples in `range` of a chunk of [`with_starts`] to `out`.
fn decode_with_starts(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    const WHAT: &str = "chunk with start timestamps";
    let ChunkWithStarts { runs, encoding, chunk } = starts::split_chunk(bytes, WHAT)?;
    if encoding == ENCODING_WITH_STARTS {
        let (expected, found) = ("a chunk of samples", u64::from(encoding));
        return Err(DecodeError::Invalid { what: WHAT, offset: 2, expected, found });
    }
    let first = out.len();
    let decoded = decode(encoding, chunk, range, out);
    starts::fill(&runs, first, out);
    decoded
}

/// Appends the samples in `range` of a chunk of floats or histograms that is not one of blocks alone to
/// `out`.
///
/// # Errors
/// [`DecodeError`]; samples before the damage have been appended.
pub fn decode(encoding: u8, bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    match encoding {
        ENCODING_XOR => xor::decode(bytes, range, out),
        ENCODING_XOR2 => xor2::decode(bytes, range, out),
        ENCODING_DECIMAL_DELTA => decimal_delta::decode(bytes, range, out),
        ENCODING_WITH_STARTS => decode_with_starts(bytes, range, out),
        other => histogram::decode(other, bytes, range, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_model::IntHistogram;
    use chronolith_model::histogram::{Buckets, Span};

    fn wide(count: u64, bucket_count: u32) -> Arc<Histogram> {
        let spans = vec![Span { offset: 0, length: bucket_count }];
        let counts = (0..u64::from(bucket_count)).map(|at| count * (at % 7 + 1)).collect::<Vec<_>>();
        Arc::new(Histogram::Int(IntHistogram {
            count: counts.iter().sum(),
            sum: count as f64,
            positive: Buckets { spans, counts },
            ..IntHistogram::default()
        }))
    }

    #[track_caller]
    fn check(samples: &Columns, want: &[(u8, u16)]) {
        let mut chunks = Vec::new();
        encode(samples, &mut chunks);
        assert_eq!(chunks.iter().map(|chunk| (chunk.encoding, chunk.count)).collect::<Vec<_>>(), want);
        let mut out = Columns::default();
        for chunk in &chunks {
            let first = out.len();
            decode(chunk.encoding, &chunk.bytes, TimeRange::ALL, &mut out).unwrap();
            assert_eq!((out.times[first], out.times[out.len() - 1]), (chunk.min_time, chunk.max_time));
        }
        assert_eq!((&out.times, out.values.len()), (&samples.times, samples.values.len()));
        for at in 0..out.len() {
            let both = (out.histogram_at(at), samples.histogram_at(at));
            assert_eq!(out.values[at].to_bits(), samples.values[at].to_bits());
            assert_eq!(out.start_time_at(at), samples.start_time_at(at));
            match both {
                (Some(got), Some(want)) => assert!(got.is_identical(want)),
                (None, None) => {}
                _ => panic!("kinds differ at {at}"),
            }
        }
    }

    #[test]
    fn chunks_hold_one_kind() {
        let mut samples = Columns::default();
        samples.push(1, 1.0);
        samples.push(2, 2.0);
        samples.push_histogram(3, wide(1, 3));
        samples.push_histogram(4, wide(2, 3));
        samples.push(5, 3.0);
        check(&samples, &[(1, 2), (2, 2), (1, 1)]);
        check(&Columns::default(), &[]);
    }

    #[test]
    fn chunks_with_start_times_are_of_other_encodings() {
        let mut samples = Columns::default();
        (1..=250).for_each(|i| samples.push(i, 1.5));
        samples.start_times = vec![0; 130];
        samples.start_times.push(77);
        check(&samples, &[(1, 120), (4, 120), (1, 10)]);
        for i in 251..=500 {
            samples.push_histogram(i, wide(i as u64, 1));
            if i > 400 {
                samples.set_start_time(i - 9);
            }
        }
        check(&samples, &[(1, 120), (4, 120), (1, 10), (2, 120), (5, 120), (5, 10)]);
    }

    /// Each kind of chunk of the head after runs; damage is an error, and no chunk holds another such one.
    #[test]
    fn a_chunk_of_the_head_has_its_start_times() {
        let (mut floats, mut histograms) = (Columns::default(), Columns::default());
        for i in 1..=50 {
            floats.push(i, i as f64 / 4.0);
            histograms.push_histogram(i, wide(i as u64, 3));
        }
        for samples in [&mut floats, &mut histograms] {
            samples.start_times = (1..=50).map(|i| if i < 10 { 0 } else { i / 7 }).collect();
        }
        let (mut runs, mut chunks) = (Vec::new(), Vec::new());
        starts::runs_of(&floats.times, &floats.start_times, &mut runs);
        encode(&Columns { start_times: Vec::new(), ..floats.clone() }, &mut chunks);
        encode(&Columns { start_times: Vec::new(), ..histograms.clone() }, &mut chunks);
        for (chunk, want) in chunks.into_iter().zip([&floats, &histograms]) {
            assert_eq!(with_starts(chunk.clone(), &[]), chunk);
            let chunk = with_starts(chunk, &runs);
            assert_eq!((chunk.encoding, chunk.count, chunk.max_time), (ENCODING_WITH_STARTS, 50, 50));
            let mut got = Columns::default();
            got.push(0, 0.5);
            decode(chunk.encoding, &chunk.bytes, TimeRange::new(5, 40), &mut got).unwrap();
            assert_eq!((got.len(), got.start_time_at(0)), (36, 0));
            for at in 1..got.len() {
                let time = got.times[at];
                let of_want = want.times.binary_search(&time).unwrap();
                assert_eq!(got.start_time_at(at), want.start_time_at(of_want), "{time}");
            }
            for cut in 0..chunk.bytes.len().min(40) {
                let damaged = &chunk.bytes[..cut];
                assert!(decode(chunk.encoding, damaged, TimeRange::ALL, &mut Columns::default()).is_err());
            }
            let nested = with_starts(chunk, &runs);
            assert!(decode(nested.encoding, &nested.bytes, TimeRange::ALL, &mut got).is_err());
        }
    }

    #[test]
    fn chunks_of_histograms_end_by_bytes_or_count() {
        let mut narrow = Columns::default();
        (1..=130).for_each(|i| narrow.push_histogram(i, wide(i as u64, 1)));
        check(&narrow, &[(2, 120), (2, 10)]);
        let mut broad = Columns::default();
        (1..=25).for_each(|i| broad.push_histogram(i, wide(i as u64 * 1000, 500)));
        check(&broad, &[(2, 10), (2, 10), (2, 5)]);
    }
}
