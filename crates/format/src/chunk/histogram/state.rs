//! State of a histogram chunk between samples, written by the appender and read by the walk.
//!
//! Invariant: both change it in the same way, so that a walk to the end returns the state to append with.

use chronolith_base::DecodeError;
use chronolith_model::histogram::{Buckets, HistogramOf, ResetHint, SCHEMA_MAX, Span};
use chronolith_model::sample::is_stale;

use super::bits::{BitReader, BitWriter, XorTrack};
use super::counts::ChunkCount;
use super::header::{HEADER_BYTES, ResetHeader};
use super::layout::{Layout, bucket_count, fold_empty};

/// State of a histogram chunk between two samples.
#[derive(Debug, Clone)]
pub(super) struct State<C: ChunkCount> {
    pub(super) layout: Layout,
    pub(super) time: i64,
    time_delta: i64,
    count: C::Track,
    zero_count: C::Track,
    sum: XorTrack,
    positive: Vec<C::Track>,
    negative: Vec<C::Track>,
}

/// Counts of one side, absolute.
fn absolute<'a, C: ChunkCount + 'a>(tracks: &'a [C::Track]) -> impl Iterator<Item = Option<C>> + 'a {
    let mut before = Some(C::default());
    tracks.iter().map(move |track| {
        before = C::bucket(track, before?);
        before
    })
}

fn put_first_side<C: ChunkCount>(bits: &mut BitWriter, counts: &[C]) -> Vec<C::Track> {
    let mut before = C::default();
    let put = |&count: &C| C::put_first_bucket(bits, count, std::mem::replace(&mut before, count));
    counts.iter().map(put).collect()
}

fn put_next_side<C: ChunkCount>(bits: &mut BitWriter, tracks: &mut [C::Track], counts: &[C]) {
    assert_eq!(tracks.len(), counts.len(), "a histogram has the buckets of the chunk");
    let mut before = C::default();
    for (track, &count) in tracks.iter_mut().zip(counts) {
        C::put_next_bucket(bits, track, count, before);
        before = count;
    }
}

fn get_first_side<C: ChunkCount>(
    reader: &mut BitReader<'_>,
    spans: &[Span],
) -> Result<Vec<C::Track>, DecodeError> {
    let buckets = bucket_count(spans);
    if buckets > reader.bits_left() / C::FIRST_BUCKET_BITS {
        let expected = "as many as there are bits for";
        return Err(reader.invalid("buckets of a histogram chunk", expected, buckets as u64));
    }
    (0..buckets).map(|_| C::get_first_bucket(reader)).collect()
}

impl<C: ChunkCount> State<C> {
    /// Writes the layout and the first sample.
    pub(super) fn put_first(bits: &mut BitWriter, time: i64, histogram: &HistogramOf<C>) -> State<C> {
        let layout = Layout::of(histogram);
        layout.put(bits);
        bits.put_varbit_int(time);
        let count = C::put_first(bits, histogram.count);
        let zero_count = C::put_first(bits, histogram.zero_count);
        bits.put(histogram.sum.to_bits(), 64);
        let sum = XorTrack::new(histogram.sum.to_bits());
        let positive = put_first_side(bits, &histogram.positive.counts);
        let negative = put_first_side(bits, &histogram.negative.counts);
        State { layout, time, time_delta: 0, count, zero_count, sum, positive, negative }
    }

    /// Writes a sample that has the buckets of the layout, or is the staleness marker.
    pub(super) fn put_next(
        &mut self,
        bits: &mut BitWriter,
        time: i64,
        histogram: &HistogramOf<C>,
        positive: &[C],
        negative: &[C],
    ) {
        let delta = time.wrapping_sub(self.time);
        bits.put_varbit_int(delta.wrapping_sub(self.time_delta));
        (self.time, self.time_delta) = (time, delta);
        if histogram.is_stale() {
            C::put_stale(bits, &mut self.count);
            C::put_stale(bits, &mut self.zero_count);
            bits.put_xor(&mut self.sum, histogram.sum.to_bits());
            return;
        }
        C::put_next(bits, &mut self.count, histogram.count);
        C::put_next(bits, &mut self.zero_count, histogram.zero_count);
        bits.put_xor(&mut self.sum, histogram.sum.to_bits());
        put_next_side(bits, &mut self.positive, positive);
        put_next_side(bits, &mut self.negative, negative);
    }

    pub(super) fn get_first(reader: &mut BitReader<'_>) -> Result<State<C>, DecodeError> {
        let layout = Layout::get(reader)?;
        let time = reader.varbit_int()?;
        let (count, zero_count) = (C::get_first(reader)?, C::get_first(reader)?);
        let sum = XorTrack::new(reader.bits(64)?);
        let positive = get_first_side::<C>(reader, &layout.positive)?;
        let negative = get_first_side::<C>(reader, &layout.negative)?;
        Ok(State { layout, time, time_delta: 0, count, zero_count, sum, positive, negative })
    }

    pub(super) fn get_next(&mut self, reader: &mut BitReader<'_>) -> Result<(), DecodeError> {
        self.time_delta = self.time_delta.wrapping_add(reader.varbit_int()?);
        let time = self.time.wrapping_add(self.time_delta);
        if time <= self.time {
            let expected = "a time after the one before";
            return Err(reader.invalid("time of a histogram chunk", expected, time.cast_unsigned()));
        }
        self.time = time;
        C::get_next(reader, &mut self.count)?;
        C::get_next(reader, &mut self.zero_count)?;
        reader.xor(&mut self.sum)?;
        if self.is_stale() {
            return Ok(());
        }
        let buckets = self.positive.iter_mut().chain(&mut self.negative);
        buckets.into_iter().try_for_each(|track| C::get_next(reader, track))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let tracks = self.positive.capacity() + self.negative.capacity();
        let spans = self.layout.positive.capacity() + self.layout.negative.capacity();
        tracks * size_of::<C::Track>() + spans * size_of::<Span>()
    }

    /// Returns true if the last sample is the staleness marker.
    pub(super) fn is_stale(&self) -> bool {
        is_stale(f64::from_bits(self.sum.bits))
    }

    pub(super) fn count(&self) -> C {
        C::value(&self.count)
    }

    pub(super) fn zero_count(&self) -> C {
        C::value(&self.zero_count)
    }

    /// Counts of the buckets above zero; the appender has written none that is negative.
    pub(super) fn positive_counts(&self) -> impl Iterator<Item = C> + '_ {
        absolute::<C>(&self.positive).flatten()
    }

    /// Counts of the buckets below zero.
    pub(super) fn negative_counts(&self) -> impl Iterator<Item = C> + '_ {
        absolute::<C>(&self.negative).flatten()
    }

    /// The last sample, without a hint; its buckets have the spans of the layout.
    pub(super) fn histogram(&self) -> Option<HistogramOf<C>> {
        let sum = f64::from_bits(self.sum.bits);
        if self.is_stale() {
            return Some(HistogramOf { sum, ..HistogramOf::default() });
        }
        let counts = |tracks: &[C::Track]| absolute::<C>(tracks).collect::<Option<Vec<C>>>();
        let layout = &self.layout;
        Some(HistogramOf {
            reset_hint: ResetHint::Unknown,
            schema: layout.schema,
            zero_threshold: layout.zero_threshold,
            zero_count: self.zero_count(),
            count: self.count(),
            sum,
            positive: Buckets { spans: Vec::new(), counts: counts(&self.positive)? },
            negative: Buckets { spans: Vec::new(), counts: counts(&self.negative)? },
            custom_values: layout.custom_values.clone(),
        })
    }
}

/// Reads a chunk from its first sample to its last.
pub(super) struct Walk<'a, C: ChunkCount> {
    reader: BitReader<'a>,
    header: ResetHeader,
    total: u16,
    read: u16,
    state: Option<State<C>>,
    /// Spans of the layout without empty ones: what samples get.
    spans: [Vec<Span>; 2],
}

impl<'a, C: ChunkCount> Walk<'a, C> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Walk<'a, C>, DecodeError> {
        let Some(&[high, low, flags]) = bytes.first_chunk::<HEADER_BYTES>() else {
            let (what, left) = ("histogram chunk", bytes.len());
            return Err(DecodeError::Short { what, offset: 0, needed: HEADER_BYTES, left });
        };
        Ok(Walk {
            reader: BitReader::new(bytes, HEADER_BYTES),
            header: ResetHeader::from_byte(flags),
            total: u16::from_be_bytes([high, low]),
            read: 0,
            state: None,
            spans: [Vec::new(), Vec::new()],
        })
    }

    /// Goes to the next sample; returns false after the last one.
    pub(super) fn advance(&mut self) -> Result<bool, DecodeError> {
        if self.read == self.total {
            return Ok(false);
        }
        match &mut self.state {
            Some(state) => state.get_next(&mut self.reader)?,
            none => {
                let state = State::get_first(&mut self.reader)?;
                self.spans = [fold_empty(&state.layout.positive), fold_empty(&state.layout.negative)];
                *none = Some(state);
            }
        }
        self.read += 1;
        Ok(true)
    }

    /// Time of the sample.
    pub(super) fn time(&self) -> i64 {
        self.state.as_ref().map_or(i64::MIN, |state| state.time)
    }

    /// The sample, as queries see it.
    pub(super) fn histogram(&self) -> Result<HistogramOf<C>, DecodeError> {
        let negative = || {
            let expected = "no negative number of observations";
            self.reader.invalid("bucket of a histogram chunk", expected, u64::from(self.read))
        };
        let mut histogram = self.state.as_ref().and_then(State::histogram).ok_or_else(negative)?;
        if histogram.is_stale() {
            return Ok(histogram);
        }
        histogram.positive.spans.clone_from(&self.spans[0]);
        histogram.negative.spans.clone_from(&self.spans[1]);
        histogram.reset_hint = match self.header {
            ResetHeader::Gauge => ResetHint::Gauge,
            _ if self.read > 1 => ResetHint::NotReset,
            // The previous chunk may have changed since this one was written.
            _ => ResetHint::Unknown,
        };
        if !histogram.is_custom() && histogram.schema > SCHEMA_MAX {
            let unfit = |_| self.reader.invalid("histogram of a chunk", "spans that fit its buckets", 0);
            histogram.reduce_resolution(SCHEMA_MAX).map_err(unfit)?;
        }
        Ok(histogram)
    }

    /// The sample as it is in the chunk, to be written again.
    pub(super) fn raw(&self) -> Option<HistogramOf<C>> {
        self.state.as_ref().and_then(State::histogram)
    }

    /// Samples read, header, state and the bit after the last sample.
    pub(super) fn finish(self) -> Option<(u16, ResetHeader, State<C>, usize)> {
        Some((self.read, self.header, self.state?, self.reader.bit_offset()))
    }
}
