//! Native histogram records of Prometheus's WAL and WBL: series, time and encoded histogram of each sample.
//!
//! Invariants: [`HistogramRecord::histogram`] returns only valid histograms.

use chronolith_base::DecodeError;

use chronolith_model::histogram::{
    BUCKET_COUNT_MAX, Buckets, CUSTOM_BOUND_COUNT_MAX, HistogramOf, ResetHint, SCHEMA_MAX, SPAN_COUNT_MAX,
    Span,
};
use chronolith_model::sample::is_stale;
use chronolith_model::{FloatHistogram, Histogram, IntHistogram};

use super::record::{StartTimestamps, take8, uvarint, varint};

/// Schema of histograms with custom bounds, which follow the buckets.
const SCHEMA_CUSTOM: i64 = -53;

/// Type of the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// Varints, bucket counts as deltas.
    Integer,
    /// Floats.
    Float,
}

/// One histogram sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramRecord<'a> {
    /// Series.
    pub series_ref: u64,
    /// Milliseconds.
    pub time: i64,
    /// Start timestamp; 0 if unknown.
    pub start_ms: i64,
    /// Type of the counts.
    pub counts: Counts,
    /// Reset hint, schema, zero bucket, count, sum, spans, buckets, custom boundaries.
    pub bytes: &'a [u8],
}

impl HistogramRecord<'_> {
    /// Decodes the histogram; `None` if it is invalid. Finer ones than schema 8 are reduced to it, as
    /// Prometheus does.
    #[must_use]
    pub fn histogram(&self) -> Option<Histogram> {
        let mut rest = self.bytes;
        let mut histogram = match self.counts {
            Counts::Integer => Histogram::Int(int_histogram(&mut rest)?),
            Counts::Float => Histogram::Float(float_histogram(&mut rest)?),
        };
        let sum = histogram.sum();
        if is_stale(sum) {
            return Some(match self.counts {
                Counts::Integer => Histogram::Int(IntHistogram { sum, ..IntHistogram::default() }),
                Counts::Float => Histogram::Float(FloatHistogram { sum, ..FloatHistogram::default() }),
            });
        }
        if !is_within_limits(&histogram) {
            return None;
        }
        if histogram.schema() > SCHEMA_MAX {
            histogram.reduce_resolution(SCHEMA_MAX).ok()?;
        }
        histogram.validate().is_ok().then_some(histogram)
    }
}

fn is_within_limits(histogram: &Histogram) -> bool {
    fn fits<C>(one: &HistogramOf<C>) -> bool {
        one.custom_values.len() <= CUSTOM_BOUND_COUNT_MAX
            && [&one.positive, &one.negative]
                .iter()
                .all(|side| side.counts.len() <= BUCKET_COUNT_MAX && side.spans.len() <= SPAN_COUNT_MAX)
    }
    match histogram {
        Histogram::Int(one) => fits(one),
        Histogram::Float(one) => fits(one),
    }
}

/// Decodes a histogram with the given decoders of counts and buckets.
fn frame_of<C: chronolith_model::histogram::Count>(
    rest: &mut &[u8],
    count: impl Fn(&mut &[u8]) -> Option<C>,
    buckets: impl Fn(&mut &[u8], Vec<Span>) -> Option<Buckets<C>>,
) -> Option<HistogramOf<C>> {
    let (&hint, tail) = rest.split_first()?;
    *rest = tail;
    let schema = i32::try_from(varint(rest)?).ok()?;
    let zero_threshold = float(rest)?;
    let (zero_count, all_count) = (count(rest)?, count(rest)?);
    let sum = float(rest)?;
    let (above, below) = (spans(rest)?, spans(rest)?);
    let (positive, negative) = (buckets(rest, above)?, buckets(rest, below)?);
    let mut custom_values = Vec::new();
    if i64::from(schema) == SCHEMA_CUSTOM {
        for _ in 0..uvarint(rest)? {
            custom_values.push(float(rest)?);
        }
    }
    Some(HistogramOf {
        reset_hint: ResetHint::from_number(u64::from(hint)).unwrap_or_default(),
        schema,
        zero_threshold,
        zero_count,
        count: all_count,
        sum,
        positive,
        negative,
        custom_values: custom_values.into(),
    })
}

fn int_histogram(rest: &mut &[u8]) -> Option<IntHistogram> {
    frame_of(rest, uvarint, |rest, spans| {
        let mut deltas = Vec::new();
        for _ in 0..uvarint(rest)? {
            deltas.push(varint(rest)?);
        }
        Buckets::from_deltas(spans, deltas).ok()
    })
}

fn float_histogram(rest: &mut &[u8]) -> Option<FloatHistogram> {
    frame_of(rest, float, |rest, spans| {
        let mut counts = Vec::new();
        for _ in 0..uvarint(rest)? {
            counts.push(float(rest)?);
        }
        Some(Buckets { spans, counts })
    })
}

fn float(rest: &mut &[u8]) -> Option<f64> {
    take8(rest).map(f64::from_bits)
}

fn spans(rest: &mut &[u8]) -> Option<Vec<Span>> {
    let mut spans = Vec::new();
    for _ in 0..uvarint(rest)? {
        let offset = i32::try_from(varint(rest)?).ok()?;
        spans.push(Span { offset, length: u32::try_from(uvarint(rest)?).ok()? });
    }
    Some(spans)
}

/// Calls `visit` with every histogram of an unpacked record of [`super::record::Kind::Histograms`].
///
/// # Errors
/// [`DecodeError`] for a damaged histogram; those before it have been visited.
pub fn for_each_histogram<'a>(
    record: &'a [u8],
    visit: &mut dyn FnMut(HistogramRecord<'a>),
) -> Result<(), DecodeError> {
    let Some((&kind, mut rest)) = record.split_first() else { return Ok(()) };
    let counts = if matches!(kind, 7 | 9 | 12) { Counts::Integer } else { Counts::Float };
    let has_start = matches!(kind, 12 | 13);
    let mut base = DeltaBase::default();
    if !has_start && !rest.is_empty() {
        let first = (|| Some((take8(&mut rest)?, take8(&mut rest)?)))();
        let Some((base_ref, base_time)) = first else { return Err(short(record, rest)) };
        base = DeltaBase {
            series_ref: base_ref,
            first_time: base_time.cast_signed(),
            is_first: false,
            starts: StartTimestamps::default(),
        };
    }
    while !rest.is_empty() {
        let found = if has_start { base.next_with_start(&mut rest) } else { base.next(&mut rest) };
        let Some((series_ref, time, start_ms)) = found else { return Err(short(record, rest)) };
        let front = rest;
        if skip_histogram(&mut rest, counts).is_none() {
            return Err(short(record, rest));
        }
        let bytes = front.get(..front.len() - rest.len()).unwrap_or_default();
        visit(HistogramRecord { series_ref, time, start_ms, counts, bytes });
    }
    Ok(())
}

/// Decoder state: bases of the delta-encoded refs, times and start timestamps.
struct DeltaBase {
    series_ref: u64,
    first_time: i64,
    is_first: bool,
    starts: StartTimestamps,
}

impl Default for DeltaBase {
    fn default() -> Self {
        DeltaBase { series_ref: 0, first_time: 0, is_first: true, starts: StartTimestamps::default() }
    }
}

impl DeltaBase {
    fn next(&mut self, rest: &mut &[u8]) -> Option<(u64, i64, i64)> {
        let series_ref = self.series_ref.wrapping_add_signed(varint(rest)?);
        Some((series_ref, self.first_time.wrapping_add(varint(rest)?), 0))
    }

    fn next_with_start(&mut self, rest: &mut &[u8]) -> Option<(u64, i64, i64)> {
        self.series_ref = self.series_ref.wrapping_add_signed(varint(rest)?);
        let time = self.first_time.wrapping_add(varint(rest)?);
        let start_ms = self.starts.next(rest)?;
        if self.is_first {
            (self.first_time, self.is_first) = (time, false);
        }
        Some((self.series_ref, time, start_ms))
    }
}

fn skip_histogram(rest: &mut &[u8], counts: Counts) -> Option<()> {
    skip(rest, 1)?;
    let schema = varint(rest)?;
    skip(rest, 8)?;
    match counts {
        Counts::Integer => {
            uvarint(rest)?;
            uvarint(rest)?;
        }
        Counts::Float => skip(rest, 16)?,
    }
    skip(rest, 8)?;
    for _sign in 0..2 {
        for _ in 0..uvarint(rest)? {
            varint(rest)?;
            uvarint(rest)?;
        }
    }
    for _sign in 0..2 {
        let count = uvarint(rest)?;
        match counts {
            Counts::Integer => {
                for _ in 0..count {
                    varint(rest)?;
                }
            }
            Counts::Float => skip(rest, count.checked_mul(8)?)?,
        }
    }
    if schema == SCHEMA_CUSTOM {
        let bytes = uvarint(rest)?.checked_mul(8)?;
        skip(rest, bytes)?;
    }
    Some(())
}

fn skip(rest: &mut &[u8], count: u64) -> Option<()> {
    *rest = rest.get(usize::try_from(count).ok()?..)?;
    Some(())
}

#[cold]
fn short(record: &[u8], rest: &[u8]) -> DecodeError {
    let (offset, left) = (record.len() - rest.len(), rest.len());
    DecodeError::Short { what: "histogram", offset, needed: left + 1, left }
}
