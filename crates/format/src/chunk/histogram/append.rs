//! Appending histograms to a chunk: whether one fits, what has to be written again, where a chunk ends.
//!
//! Invariant: decisions and bytes are Prometheus's; a chunk never mixes counters and gauges, schemas,
//! thresholds or bounds, and after a staleness marker holds only more of them.

use chronolith_base::DecodeError;
use chronolith_model::histogram::{
    BUCKET_COUNT_MAX, Buckets, CUSTOM_BOUND_COUNT_MAX, HistogramOf, ResetHint, SPAN_COUNT_MAX, Span,
};

use super::bits::BitWriter;
use super::counts::ChunkCount;
use super::header::{HEADER_BYTES, ResetHeader};
use super::layout::bucket_count;
use super::spread::{SideFit, compare_counts, compare_spans, spread, union};
use super::state::{State, Walk};
use crate::chunk::xor::EncodedChunk;

/// An open chunk.
#[derive(Debug, Clone)]
pub(super) struct Appender<C: ChunkCount> {
    bits: BitWriter,
    count: u16,
    first_time: i64,
    header: ResetHeader,
    state: State<C>,
}

/// Result of an append.
pub(super) enum Appended<C: ChunkCount> {
    /// Into the chunk.
    Stays,
    /// Into the next chunk.
    Cut(Box<Appender<C>>),
}

/// Spans of both signs.
struct Target {
    positive: Vec<Span>,
    negative: Vec<Span>,
}

impl<C: ChunkCount> Appender<C> {
    /// A chunk that starts with `histogram`, after `previous`, which is full.
    pub(super) fn start(
        previous: Option<&Appender<C>>,
        time: i64,
        histogram: &HistogramOf<C>,
    ) -> Appender<C> {
        let header = match (histogram.reset_hint, previous) {
            (ResetHint::Gauge, _) => ResetHeader::Gauge,
            (ResetHint::Reset, _) => ResetHeader::Reset,
            (_, None) => ResetHeader::Unknown,
            (_, Some(previous)) => {
                C::start_header(previous.fit_counter(histogram).err().unwrap_or(ResetHeader::NotReset))
            }
        };
        Appender::begin(header, time, histogram)
    }

    fn begin(header: ResetHeader, time: i64, histogram: &HistogramOf<C>) -> Appender<C> {
        let mut bits = BitWriter::after_bytes(vec![0; HEADER_BYTES]);
        let stale;
        let histogram = if histogram.is_stale() {
            stale = HistogramOf { sum: histogram.sum, ..HistogramOf::default() };
            &stale
        } else {
            check_shape(histogram);
            histogram
        };
        let state = State::put_first(&mut bits, time, histogram);
        let mut open = Appender { bits, count: 1, first_time: time, header, state };
        open.put_header();
        open
    }

    /// The state of an appender that has written `bytes`.
    pub(super) fn resume(bytes: &[u8]) -> Result<Appender<C>, DecodeError> {
        let mut walk = Walk::<C>::new(bytes)?;
        let mut first_time = None;
        while walk.advance()? {
            first_time.get_or_insert(walk.time());
        }
        let Some(((count, header, state, bit_len), first_time)) = walk.finish().zip(first_time) else {
            let (what, expected) = ("histogram chunk", "a sample");
            return Err(DecodeError::Invalid { what, offset: 0, expected, found: 0 });
        };
        Ok(Appender { bits: BitWriter::resume(bytes, bit_len), count, first_time, header, state })
    }

    /// Appends a histogram.
    pub(super) fn append(&mut self, time: i64, histogram: &HistogramOf<C>) -> Appended<C> {
        assert!(time > self.state.time, "times ascend");
        if self.count == u16::MAX {
            return Appended::Cut(Box::new(Appender::start(Some(self), time, histogram)));
        }
        let is_gauge = histogram.reset_hint == ResetHint::Gauge;
        let fit = if is_gauge {
            self.fit_gauge(histogram).ok_or(ResetHeader::Gauge)
        } else {
            self.fit_counter(histogram).map_err(C::cut_header)
        };
        let (positive, negative) = match fit {
            Ok(sides) => sides,
            Err(header) => return Appended::Cut(Box::new(Appender::begin(header, time, histogram))),
        };
        if histogram.is_stale() {
            self.put(time, histogram, &[], &[]);
            return Appended::Stays;
        }
        check_shape(histogram);
        let adds = positive.adds || negative.adds;
        if positive.lacks || negative.lacks || adds {
            let Some(target) = self.target(histogram, is_gauge, positive, negative) else {
                // A layout that readers refuse: the histogram gets a chunk of its own.
                let header = if is_gauge { ResetHeader::Gauge } else { ResetHeader::Unknown };
                return Appended::Cut(Box::new(Appender::begin(header, time, histogram)));
            };
            if adds {
                self.recode(&target);
            }
            let (above, below) = (&histogram.positive, &histogram.negative);
            let positive = spread(&above.counts, &above.spans, &target.positive);
            let negative = spread(&below.counts, &below.spans, &target.negative);
            self.put(time, histogram, &positive, &negative);
        } else {
            self.put(time, histogram, &histogram.positive.counts, &histogram.negative.counts);
        }
        Appended::Stays
    }

    /// The spans that hold the buckets of the chunk and of the histogram, unless that is beyond the limits.
    /// Which of equal spans are taken shows in the bytes.
    fn target(
        &self,
        histogram: &HistogramOf<C>,
        is_gauge: bool,
        positive: SideFit,
        negative: SideFit,
    ) -> Option<Target> {
        let layout = &self.state.layout;
        let lacks = positive.lacks || negative.lacks;
        let adds = positive.adds || negative.adds;
        if lacks && !adds && !is_gauge {
            return Some(Target { positive: layout.positive.clone(), negative: layout.negative.clone() });
        }
        let side = |fit: SideFit, old: &[Span], new: &[Span]| {
            let joined = fit.lacks || is_gauge && lacks;
            let spans = if joined { union(old, new)? } else { new.to_vec() };
            (bucket_count(&spans) <= BUCKET_COUNT_MAX).then_some(spans)
        };
        Some(Target {
            positive: side(positive, &layout.positive, &histogram.positive.spans)?,
            negative: side(negative, &layout.negative, &histogram.negative.spans)?,
        })
    }

    /// Compares the buckets of a counter with the chunk's on both sides; the reset reason if it does not fit.
    fn fit_counter(&self, histogram: &HistogramOf<C>) -> Result<(SideFit, SideFit), ResetHeader> {
        let state = &self.state;
        if self.header == ResetHeader::Gauge {
            return Err(ResetHeader::NotReset);
        }
        if histogram.reset_hint == ResetHint::Reset {
            return Err(ResetHeader::Reset);
        }
        if histogram.is_stale() {
            return Ok((SideFit::default(), SideFit::default()));
        }
        if state.is_stale() {
            return Err(ResetHeader::Unknown);
        }
        if histogram.count < state.count() {
            return Err(ResetHeader::Reset);
        }
        if !self.has_buckets_of(histogram) {
            return Err(ResetHeader::Unknown);
        }
        if !self.has_bounds_of(histogram) || histogram.zero_count < state.zero_count() {
            return Err(ResetHeader::Reset);
        }
        let (above, below) = (&histogram.positive, &histogram.negative);
        let layout = &state.layout;
        let positive = compare_counts(&layout.positive, state.positive_counts(), &above.spans, &above.counts);
        let negative = compare_counts(&layout.negative, state.negative_counts(), &below.spans, &below.counts);
        positive.zip(negative).ok_or(ResetHeader::Reset)
    }

    /// As [`Appender::fit_counter`] for a gauge.
    fn fit_gauge(&self, histogram: &HistogramOf<C>) -> Option<(SideFit, SideFit)> {
        if self.header != ResetHeader::Gauge {
            return None;
        }
        if histogram.is_stale() {
            return Some((SideFit::default(), SideFit::default()));
        }
        let fits = !self.state.is_stale() && self.has_buckets_of(histogram) && self.has_bounds_of(histogram);
        let layout = &self.state.layout;
        fits.then(|| {
            (
                compare_spans(&layout.positive, &histogram.positive.spans),
                compare_spans(&layout.negative, &histogram.negative.spans),
            )
        })
    }

    fn has_buckets_of(&self, histogram: &HistogramOf<C>) -> bool {
        let layout = &self.state.layout;
        layout.schema == histogram.schema && layout.zero_threshold == histogram.zero_threshold
    }

    fn has_bounds_of(&self, histogram: &HistogramOf<C>) -> bool {
        !histogram.is_custom() || self.state.layout.custom_values == histogram.custom_values
    }

    /// Writes all samples again with the buckets of `target`.
    fn recode(&mut self, target: &Target) {
        let mut walk = Walk::<C>::new(&self.bits.bytes).expect("the chunk has a header");
        let mut recoded: Option<(BitWriter, State<C>)> = None;
        while walk.advance().expect("an open chunk is readable") {
            let mut histogram = walk.raw().expect("an open chunk has no negative counts");
            let layout = &self.state.layout;
            let above = spread(&histogram.positive.counts, &layout.positive, &target.positive);
            let below = spread(&histogram.negative.counts, &layout.negative, &target.negative);
            match &mut recoded {
                Some((bits, state)) => state.put_next(bits, walk.time(), &histogram, &above, &below),
                None => {
                    histogram.positive = Buckets { spans: target.positive.clone(), counts: above };
                    histogram.negative = Buckets { spans: target.negative.clone(), counts: below };
                    let mut bits = BitWriter::after_bytes(vec![0; HEADER_BYTES]);
                    let state = State::put_first(&mut bits, walk.time(), &histogram);
                    recoded = Some((bits, state));
                }
            }
        }
        (self.bits, self.state) = recoded.expect("an open chunk has a sample");
    }

    fn put(&mut self, time: i64, histogram: &HistogramOf<C>, positive: &[C], negative: &[C]) {
        self.state.put_next(&mut self.bits, time, histogram, positive, negative);
        self.count += 1;
        self.put_header();
    }

    fn put_header(&mut self) {
        let [high, low] = self.count.to_be_bytes();
        self.bits.bytes[..HEADER_BYTES].copy_from_slice(&[high, low, self.header as u8]);
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn times(&self) -> (i64, i64) {
        (self.first_time, self.state.time)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bits.bytes.capacity() + self.state.heap_bytes()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bits.bytes
    }

    pub(super) fn encoded(&self) -> EncodedChunk {
        EncodedChunk {
            encoding: C::ENCODING,
            min_time: self.first_time,
            max_time: self.state.time,
            count: self.count,
            bytes: self.bits.bytes.clone(),
        }
    }
}

/// Asserts that the counts fit the spans and the limits. A histogram whose counts were more or fewer than its
/// buckets would be stored as another one, and one beyond the limits could not be read again.
fn check_shape<C: ChunkCount>(histogram: &HistogramOf<C>) {
    for side in [&histogram.positive, &histogram.negative] {
        assert_eq!(bucket_count(&side.spans), side.counts.len(), "spans and counts fit each other");
        assert!(
            side.counts.len() <= BUCKET_COUNT_MAX && side.spans.len() <= SPAN_COUNT_MAX,
            "within the limits"
        );
    }
    assert!(histogram.custom_values.len() <= CUSTOM_BOUND_COUNT_MAX, "within the limits");
}
