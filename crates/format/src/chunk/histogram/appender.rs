//! Open chunk of histograms of either kind of counts.

use std::sync::Arc;

use chronolith_base::DecodeError;
use chronolith_model::Histogram;

use super::append::{Appended, Appender};
use super::header::{ENCODING_FLOAT_HISTOGRAM, ENCODING_HISTOGRAM, unknown_encoding};
use crate::chunk::xor::EncodedChunk;

/// An open chunk of histograms of one kind.
#[derive(Debug, Clone)]
pub struct HistogramAppender(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Int(Appender<u64>),
    Float(Appender<f64>),
}

impl HistogramAppender {
    /// A chunk that starts with `histogram`, after `previous` if the series has one.
    ///
    /// # Panics
    /// If spans and counts of the histogram do not fit each other, or it is beyond the limits of
    /// `model::histogram`.
    #[must_use]
    pub fn start(
        previous: Option<&HistogramAppender>,
        time: i64,
        histogram: &Histogram,
    ) -> HistogramAppender {
        // A chunk of the other kind tells nothing about resets.
        HistogramAppender(match (histogram, previous.map(|previous| &previous.0)) {
            (Histogram::Int(histogram), Some(Kind::Int(previous))) => {
                Kind::Int(Appender::start(Some(previous), time, histogram))
            }
            (Histogram::Int(histogram), _) => Kind::Int(Appender::start(None, time, histogram)),
            (Histogram::Float(histogram), Some(Kind::Float(previous))) => {
                Kind::Float(Appender::start(Some(previous), time, histogram))
            }
            (Histogram::Float(histogram), _) => Kind::Float(Appender::start(None, time, histogram)),
        })
    }

    /// The state of an appender that has written `bytes`.
    ///
    /// # Errors
    /// As [`decode`], and for a chunk without samples.
    pub fn resume(encoding: u8, bytes: &[u8]) -> Result<HistogramAppender, DecodeError> {
        Ok(HistogramAppender(match encoding {
            ENCODING_HISTOGRAM => Kind::Int(Appender::resume(bytes)?),
            ENCODING_FLOAT_HISTOGRAM => Kind::Float(Appender::resume(bytes)?),
            other => return Err(unknown_encoding(other)),
        }))
    }

    /// Appends a histogram; returns the next chunk if it does not fit this one, which is finished then. Where
    /// new buckets appear, all samples are written again, into a layout that has them.
    ///
    /// Cost: some bits written per bucket; with new buckets for all samples again.
    ///
    /// # Panics
    /// If `time` is not after the last one, and as [`HistogramAppender::start`].
    pub fn append(&mut self, time: i64, histogram: &Histogram) -> Option<HistogramAppender> {
        let next = match (&mut self.0, histogram) {
            (Kind::Int(open), Histogram::Int(histogram)) => match open.append(time, histogram) {
                Appended::Stays => return None,
                Appended::Cut(next) => Kind::Int(*next),
            },
            (Kind::Float(open), Histogram::Float(histogram)) => match open.append(time, histogram) {
                Appended::Stays => return None,
                Appended::Cut(next) => Kind::Float(*next),
            },
            _ => return Some(HistogramAppender::start(None, time, histogram)),
        };
        Some(HistogramAppender(next))
    }

    /// Times of the first and the last sample.
    #[must_use]
    pub fn times(&self) -> (i64, i64) {
        match &self.0 {
            Kind::Int(open) => open.times(),
            Kind::Float(open) => open.times(),
        }
    }

    /// Encoding byte of the chunk.
    #[must_use]
    pub fn encoding(&self) -> u8 {
        match &self.0 {
            Kind::Int(_) => ENCODING_HISTOGRAM,
            Kind::Float(_) => ENCODING_FLOAT_HISTOGRAM,
        }
    }

    /// Bytes on the heap: the chunk and the state of each bucket. Shared bounds are not counted.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Kind::Int(open) => open.heap_bytes(),
            Kind::Float(open) => open.heap_bytes(),
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn count(&self) -> u16 {
        match &self.0 {
            Kind::Int(open) => open.count(),
            Kind::Float(open) => open.count(),
        }
    }

    /// Bytes of the chunk so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Kind::Int(open) => open.bytes(),
            Kind::Float(open) => open.bytes(),
        }
    }

    /// The chunk as it is.
    #[must_use]
    pub fn encoded(&self) -> EncodedChunk {
        match &self.0 {
            Kind::Int(open) => open.encoded(),
            Kind::Float(open) => open.encoded(),
        }
    }
}

/// Encodes histograms of ascending times into chunks of at most `count_max` samples.
///
/// # Panics
/// If times do not ascend strictly, the lengths differ or `count_max` is 0, and as
/// [`HistogramAppender::start`].
#[must_use]
pub fn encode(times: &[i64], histograms: &[Arc<Histogram>], count_max: u16) -> Vec<EncodedChunk> {
    assert_eq!(times.len(), histograms.len(), "one histogram per time");
    assert!(count_max > 0, "a chunk has room for a sample");
    let mut out = Vec::new();
    let mut open: Option<HistogramAppender> = None;
    for (&time, histogram) in times.iter().zip(histograms) {
        let next = match &mut open {
            Some(current) if current.count() < count_max => current.append(time, histogram),
            previous => Some(HistogramAppender::start(previous.as_ref(), time, histogram)),
        };
        if let Some(next) = next
            && let Some(full) = open.replace(next)
        {
            out.push(full.encoded());
        }
    }
    out.extend(open.map(|open| open.encoded()));
    out
}
