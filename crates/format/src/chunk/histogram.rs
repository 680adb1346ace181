//! Prometheus's chunks of native histograms, bit for bit: integer counts (encoding 2) and float counts (3), and the same
//! with start times (5 and 6, `starts`).
//!
//! Holds: a sequence of histograms becomes the chunks that upstream makes of it, re-coded where new buckets appear,
//! cut with the right header where a counter starts again; any valid histogram and any ascending times round-trip;
//! decoders take untrusted bytes, allocate in proportion to them, and read exactly as many samples as the header
//! counts.
//! Not here: how many samples a chunk gets (`head`), chunk files.

mod append;
pub(crate) mod bits;
mod counts;
mod layout;
mod spread;
mod starts;
mod state;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use chronolith_base::DecodeError;
use chronolith_model::{Columns, Histogram, TimeRange};

use crate::chunk::xor::EncodedChunk;
use append::{Appended, Appender};
use counts::ChunkCount;
pub use starts::{ENCODING_FLOAT_HISTOGRAM_STARTS, ENCODING_HISTOGRAM_STARTS, with_starts};
use state::Walk;

/// Encoding byte of a chunk of histograms with integer counts.
pub const ENCODING_HISTOGRAM: u8 = 2;
/// Encoding byte of a chunk of histograms with float counts.
pub const ENCODING_FLOAT_HISTOGRAM: u8 = 3;
/// Bytes of the header: big-endian u16 count, then the byte of [`ResetHeader`].
pub const HEADER_BYTES: usize = 3;
/// What the header of a chunk says about a counter reset before its first sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum ResetHeader {
    /// Nothing.
    #[default]
    Unknown = 0x00,
    /// There was none.
    NotReset = 0x40,
    /// There was one.
    Reset = 0x80,
    /// The chunk holds gauges.
    Gauge = 0xc0,
}

impl ResetHeader {
    /// From the third byte of a chunk; its lower bits are reserved.
    #[must_use]
    pub fn from_byte(byte: u8) -> ResetHeader {
        match byte & 0xc0 {
            0x00 => ResetHeader::Unknown,
            0x40 => ResetHeader::NotReset,
            0x80 => ResetHeader::Reset,
            _ => ResetHeader::Gauge,
        }
    }
}

/// An open chunk of histograms of one kind.
#[derive(Debug, Clone)]
pub struct HistogramAppender(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Int(Appender<u64>),
    Float(Appender<f64>),
}

impl HistogramAppender {
    /// A chunk that starts with `histogram`, behind `previous` if the series has one.
    ///
    /// # Panics
    /// If spans and counts of the histogram do not fit each other, or it is beyond the limits of `model::histogram`.
    #[must_use]
    pub fn start(
        previous: Option<&HistogramAppender>,
        time: i64,
        histogram: &Histogram,
    ) -> HistogramAppender {
        // A chunk of the other kind says nothing about resets.
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

    /// Appends a histogram; gives the next chunk if it does not fit this one, which is finished then. Where new
    /// buckets appear, all samples are written again, into a layout that has them.
    ///
    /// Cost: a write of some bits a bucket; with new buckets that of all samples.
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

    /// Bytes on the heap: the chunk, and what is followed of each bucket. Shared bounds are not counted.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Kind::Int(open) => open.heap_bytes(),
            Kind::Float(open) => open.heap_bytes(),
        }
    }

    /// How many samples.
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

fn unknown_encoding(found: u8) -> DecodeError {
    let (what, expected) = ("encoding of a histogram chunk", "2, 3, 5 or 6");
    DecodeError::Invalid { what, offset: 0, expected, found: u64::from(found) }
}

/// Encodes histograms of ascending times into chunks of at most `count_max` samples.
///
/// # Panics
/// If times do not ascend strictly, the lengths differ or `count_max` is 0, and as [`HistogramAppender::start`].
#[must_use]
pub fn encode(times: &[i64], histograms: &[Arc<Histogram>], count_max: u16) -> Vec<EncodedChunk> {
    assert_eq!(times.len(), histograms.len(), "one histogram a time");
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

/// What the header of a chunk says about a counter reset; `None` if it has no header.
#[must_use]
pub fn reset_header(bytes: &[u8]) -> Option<ResetHeader> {
    bytes.get(2).map(|&byte| ResetHeader::from_byte(byte))
}

/// Appends the samples of `bytes` that lie in `range` to `out`. Custom bounds are shared by the histograms of the
/// chunk; empty spans are folded into the next. Histograms finer than schema 8 are made coarser.
///
/// # Errors
/// [`DecodeError`] for another encoding, if the stream ends early, if times do not ascend, or if a layout cannot be;
/// samples before have been appended.
pub fn decode(encoding: u8, bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let mut visit = |time: i64, histogram: &mut dyn FnMut() -> Result<Histogram, DecodeError>| {
        if time >= range.end {
            return Ok(ControlFlow::Break(()));
        }
        if time >= range.start {
            out.push_histogram(time, Arc::new(histogram()?));
        }
        Ok(ControlFlow::Continue(()))
    };
    match encoding {
        ENCODING_HISTOGRAM => {
            walk_all::<u64>(bytes, |walk| visit(walk.time(), &mut || walk.histogram().map(Histogram::Int)))
        }
        ENCODING_FLOAT_HISTOGRAM => {
            walk_all::<f64>(bytes, |walk| visit(walk.time(), &mut || walk.histogram().map(Histogram::Float)))
        }
        other => starts::decode(other, bytes, range, out),
    }
}

fn walk_all<C: ChunkCount>(
    bytes: &[u8],
    mut visit: impl FnMut(&Walk<'_, C>) -> Result<ControlFlow<()>, DecodeError>,
) -> Result<(), DecodeError> {
    let mut walk = Walk::<C>::new(bytes)?;
    while walk.advance()? {
        if visit(&walk)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Time of the first sample.
///
/// # Errors
/// [`DecodeError`], also for a chunk without samples.
pub fn first_time(encoding: u8, bytes: &[u8]) -> Result<i64, DecodeError> {
    let time = match encoding {
        ENCODING_HISTOGRAM => first_of::<u64>(bytes)?,
        ENCODING_FLOAT_HISTOGRAM => first_of::<f64>(bytes)?,
        other => return Err(unknown_encoding(other)),
    };
    let (what, expected) = ("histogram chunk", "a sample");
    time.ok_or(DecodeError::Invalid { what, offset: 0, expected, found: 0 })
}

fn first_of<C: ChunkCount>(bytes: &[u8]) -> Result<Option<i64>, DecodeError> {
    let mut walk = Walk::<C>::new(bytes)?;
    Ok(walk.advance()?.then(|| walk.time()))
}
