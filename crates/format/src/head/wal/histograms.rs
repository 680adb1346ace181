//! Encoding of one native histogram within a WAL frame.
//!
//! Invariants: the round trip is exact to the bit, reset hints and empty spans included; a decoded histogram
//! has spans that match its counts, a schema that chunks can store, and is within the limits of
//! `model::histogram`.
//! Not here: the other columns of a frame (`samples`), plausibility of counts (`model::histogram`), chunks
//! (`chunk::histogram`).

use std::sync::Arc;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::histogram::{
    BUCKET_COUNT_MAX, Buckets, CUSTOM_BOUND_COUNT_MAX, HistogramOf, ResetHint, SCHEMA_CUSTOM,
    SCHEMA_MAX_RESERVED, SCHEMA_MIN_RESERVED, SPAN_COUNT_MAX, Span,
};
use chronolith_model::{FloatHistogram, Histogram, IntHistogram};

/// Counts are floats.
const IS_FLOAT: u8 = 1;
/// The histogram is a staleness marker: only the sum follows.
const IS_STALE: u8 = 2;
/// Schema, threshold, spans and bounds equal the previous histogram's.
const SAME_LAYOUT: u8 = 4;
/// Two bits: the hint.
const HINT_SHIFT: u8 = 4;
const FLAGS_KNOWN: u8 = IS_FLOAT | IS_STALE | SAME_LAYOUT | 3 << HINT_SHIFT;

/// Everything but the counts, the sum and the reset hint: mostly equal among the histograms of a scrape.
#[derive(Clone, PartialEq)]
struct Layout {
    schema: i32,
    zero_threshold_bits: u64,
    positive: Vec<Span>,
    negative: Vec<Span>,
    custom_values: Arc<[f64]>,
}

impl Layout {
    fn of<C>(histogram: &HistogramOf<C>) -> Layout {
        Layout {
            schema: histogram.schema,
            zero_threshold_bits: histogram.zero_threshold.to_bits(),
            positive: histogram.positive.spans.clone(),
            negative: histogram.negative.spans.clone(),
            custom_values: histogram.custom_values.clone(),
        }
    }

    fn is_of<C>(&self, histogram: &HistogramOf<C>) -> bool {
        self.schema == histogram.schema
            && self.zero_threshold_bits == histogram.zero_threshold.to_bits()
            && self.positive == histogram.positive.spans
            && self.negative == histogram.negative.spans
            && (Arc::ptr_eq(&self.custom_values, &histogram.custom_values)
                || bits(&self.custom_values).eq(bits(&histogram.custom_values)))
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, i64::from(self.schema));
        out.extend_from_slice(&self.zero_threshold_bits.to_le_bytes());
        for spans in [&self.positive, &self.negative] {
            put_uvarint(out, spans.len() as u64);
            for span in spans {
                put_varint(out, i64::from(span.offset));
                put_uvarint(out, u64::from(span.length));
            }
        }
        put_uvarint(out, self.custom_values.len() as u64);
        bits(&self.custom_values).for_each(|bound| out.extend_from_slice(&bound.to_le_bytes()));
    }

    fn get(reader: &mut ByteReader<'_>) -> Result<Layout, DecodeError> {
        let offset = reader.offset();
        let schema = reader.varint("histogram schema")?;
        let is_known = (i64::from(SCHEMA_MIN_RESERVED)..=i64::from(SCHEMA_MAX_RESERVED)).contains(&schema)
            || schema == i64::from(SCHEMA_CUSTOM);
        if !is_known {
            let (what, expected, found) = ("histogram schema", "-9 to 52 or -53", schema.cast_unsigned());
            return Err(DecodeError::Invalid { what, offset, expected, found });
        }
        let zero_threshold_bits = reader.le_u64("histogram threshold")?;
        let (positive, negative) = (get_spans(reader)?, get_spans(reader)?);
        let count = counted(reader, "histogram bounds", CUSTOM_BOUND_COUNT_MAX)?;
        let bounds = reader.bytes("histogram bounds", count.saturating_mul(8))?;
        let custom_values = bounds.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
        Ok(Layout { schema: schema as i32, zero_threshold_bits, positive, negative, custom_values })
    }
}

fn bits(values: &[f64]) -> impl Iterator<Item = u64> + '_ {
    values.iter().map(|value| value.to_bits())
}

fn counted(reader: &mut ByteReader<'_>, what: &'static str, limit: usize) -> Result<usize, DecodeError> {
    let offset = reader.offset();
    let count = reader.length(what)?;
    if count > limit {
        let expected = "at most 65536";
        return Err(DecodeError::Invalid { what, offset, expected, found: count as u64 });
    }
    Ok(count)
}

fn get_spans(reader: &mut ByteReader<'_>) -> Result<Vec<Span>, DecodeError> {
    let what = "histogram spans";
    let count = counted(reader, what, SPAN_COUNT_MAX)?;
    let mut spans = Vec::with_capacity(count);
    let mut bucket_count = 0u64;
    for _ in 0..count {
        let offset = reader.offset();
        let (start, length) = (reader.varint(what)?, reader.uvarint(what)?);
        bucket_count = bucket_count.saturating_add(length);
        let (Ok(start), Ok(length), true) =
            (i32::try_from(start), u32::try_from(length), bucket_count <= BUCKET_COUNT_MAX as u64)
        else {
            let expected = "at most 65536 buckets at 32 bits";
            return Err(DecodeError::Invalid { what, offset, expected, found: length });
        };
        spans.push(Span { offset: start, length });
    }
    Ok(spans)
}

/// Upper bound of the encoded length of `histogram`: ten bytes per varint.
pub(crate) fn encoded_len_max(histogram: &Histogram) -> usize {
    fn of<C>(one: &HistogramOf<C>) -> usize {
        let sides = [&one.positive, &one.negative];
        let numbers: usize = sides.iter().map(|side| 2 * side.spans.len() + side.counts.len()).sum();
        8 * one.custom_values.len() + 10 * (numbers + 10)
    }
    match histogram {
        Histogram::Int(one) => of(one),
        Histogram::Float(one) => of(one),
    }
}

/// Appends one histogram to `out`, without its custom bounds if `omits_bounds`.
pub fn put_histogram(histogram: &Histogram, omits_bounds: bool, out: &mut Vec<u8>) {
    HistogramEncoder { out, layout: None, omits_bounds }.put(histogram);
}

/// Reads a histogram that [`put_histogram`] has encoded.
///
/// # Errors
/// [`DecodeError`].
pub fn read_histogram(reader: &mut ByteReader<'_>) -> Result<Histogram, DecodeError> {
    get(reader, &mut None)
}

/// Encodes the histograms of a frame in order; a layout equal to the one before is not repeated.
pub(crate) struct HistogramEncoder<'a> {
    out: &'a mut Vec<u8>,
    layout: Option<Layout>,
    omits_bounds: bool,
}

impl<'a> HistogramEncoder<'a> {
    /// Starts after the bytes that `out` has.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> HistogramEncoder<'a> {
        HistogramEncoder { out, layout: None, omits_bounds: false }
    }

    /// Returns the buffer, for other columns of the frame.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    pub(crate) fn put(&mut self, histogram: &Histogram) {
        match histogram {
            Histogram::Int(histogram) => self.put_int(histogram),
            Histogram::Float(histogram) => self.put_float(histogram),
        }
    }

    /// Encodes flags, sum and layout; returns false for a staleness marker, which has nothing else.
    fn put_front<C>(&mut self, histogram: &HistogramOf<C>, kind: u8, is_stale: bool) -> bool {
        let hint = (histogram.reset_hint as u8) << HINT_SHIFT;
        let has_layout = self.layout.as_ref().is_some_and(|layout| layout.is_of(histogram));
        let same = if has_layout && !is_stale { SAME_LAYOUT } else { 0 };
        let stale = if is_stale { IS_STALE } else { 0 };
        self.out.push(kind | hint | same | stale);
        self.out.extend_from_slice(&histogram.sum.to_bits().to_le_bytes());
        if is_stale {
            return false;
        }
        if !has_layout {
            let mut layout = Layout::of(histogram);
            if self.omits_bounds {
                layout.custom_values = Arc::from([]);
            }
            layout.put(self.out);
            self.layout = Some(layout);
        }
        true
    }

    fn put_int(&mut self, histogram: &IntHistogram) {
        if !self.put_front(histogram, 0, histogram.is_stale()) {
            return;
        }
        put_uvarint(self.out, histogram.count);
        put_uvarint(self.out, histogram.zero_count);
        for side in [&histogram.positive, &histogram.negative] {
            side.deltas().for_each(|delta| put_varint(self.out, delta));
        }
    }

    fn put_float(&mut self, histogram: &FloatHistogram) {
        if !self.put_front(histogram, IS_FLOAT, histogram.is_stale()) {
            return;
        }
        let counts = histogram.positive.counts.iter().chain(&histogram.negative.counts);
        for count in [&histogram.count, &histogram.zero_count].into_iter().chain(counts) {
            self.out.extend_from_slice(&count.to_bits().to_le_bytes());
        }
    }
}

/// Decodes the histograms of a frame in order.
#[derive(Default)]
pub(crate) struct HistogramDecoder {
    layout: Option<Layout>,
}

impl HistogramDecoder {
    /// Reads the next histogram.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub(crate) fn next(&mut self, reader: &mut ByteReader<'_>) -> Result<Arc<Histogram>, DecodeError> {
        get(reader, &mut self.layout).map(Arc::new)
    }
}

/// Memory of the histograms that a [`BoundedHistogramDecoder`] has read, after which one more is refused.
const BOUNDED_BYTES_MAX: usize = 64 << 20;

/// Decoder of bytes from another process. A histogram that repeats a layout takes some bytes there and the
/// memory of its spans here, so their sum has a bound: 64 MiB, and one histogram more.
#[derive(Default)]
pub(crate) struct BoundedHistogramDecoder {
    decoder: HistogramDecoder,
    bytes: usize,
}

impl BoundedHistogramDecoder {
    /// Reads the next histogram.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub(crate) fn next(&mut self, reader: &mut ByteReader<'_>) -> Result<Arc<Histogram>, DecodeError> {
        if self.bytes > BOUNDED_BYTES_MAX {
            return Err(DecodeError::Invalid {
                what: "memory of histograms",
                offset: reader.offset(),
                expected: "histograms of at most 64 MiB",
                found: self.bytes as u64,
            });
        }
        let histogram = self.decoder.next(reader)?;
        self.bytes = self.bytes.saturating_add(histogram.memory_bytes());
        Ok(histogram)
    }
}

fn get(reader: &mut ByteReader<'_>, layout: &mut Option<Layout>) -> Result<Histogram, DecodeError> {
    let offset = reader.offset();
    let flags = reader.u8("histogram flags")?;
    if flags & !FLAGS_KNOWN != 0 {
        let (what, found) = ("histogram flags", u64::from(flags));
        return Err(DecodeError::Invalid { what, offset, expected: "flags of version 1", found });
    }
    let reset_hint = ResetHint::from_number(u64::from(flags >> HINT_SHIFT)).unwrap_or_default();
    let sum = f64::from_bits(reader.le_u64("histogram sum")?);
    let is_float = flags & IS_FLOAT != 0;
    if flags & IS_STALE != 0 {
        return Ok(match is_float {
            true => Histogram::Float(HistogramOf { reset_hint, sum, ..HistogramOf::default() }),
            false => Histogram::Int(HistogramOf { reset_hint, sum, ..HistogramOf::default() }),
        });
    }
    if flags & SAME_LAYOUT == 0 {
        *layout = Some(Layout::get(reader)?);
    }
    let Some(layout) = layout.as_ref() else {
        let (what, expected, found) = ("histogram layout", "a histogram before", u64::from(flags));
        return Err(DecodeError::Invalid { what, offset, expected, found });
    };
    Ok(if is_float {
        Histogram::Float(get_of(reader, layout, reset_hint, sum, get_float, get_float_side)?)
    } else {
        Histogram::Int(get_of(reader, layout, reset_hint, sum, get_int, get_int_side)?)
    })
}

type GetCount<C> = fn(&mut ByteReader<'_>) -> Result<C, DecodeError>;
type GetSide<C> = fn(&mut ByteReader<'_>, &[Span]) -> Result<Buckets<C>, DecodeError>;

fn get_of<C>(
    reader: &mut ByteReader<'_>,
    layout: &Layout,
    reset_hint: ResetHint,
    sum: f64,
    get_count: GetCount<C>,
    get_side: GetSide<C>,
) -> Result<HistogramOf<C>, DecodeError> {
    Ok(HistogramOf {
        reset_hint,
        schema: layout.schema,
        zero_threshold: f64::from_bits(layout.zero_threshold_bits),
        count: get_count(reader)?,
        zero_count: get_count(reader)?,
        sum,
        positive: get_side(reader, &layout.positive)?,
        negative: get_side(reader, &layout.negative)?,
        custom_values: layout.custom_values.clone(),
    })
}

fn get_int(reader: &mut ByteReader<'_>) -> Result<u64, DecodeError> {
    reader.uvarint("histogram count")
}

fn get_float(reader: &mut ByteReader<'_>) -> Result<f64, DecodeError> {
    Ok(f64::from_bits(reader.le_u64("histogram count")?))
}

/// Buckets of `spans`, whose sum [`get_spans`] has bounded.
fn bucket_count(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.length as usize).sum()
}

fn get_int_side(reader: &mut ByteReader<'_>, spans: &[Span]) -> Result<Buckets<u64>, DecodeError> {
    let what = "histogram buckets";
    let (count, left) = (bucket_count(spans), reader.remaining());
    if count > left {
        return Err(DecodeError::Short { what, offset: reader.offset(), needed: count, left });
    }
    let mut counts = Vec::with_capacity(count);
    let mut bucket = 0u64;
    for _ in 0..count {
        bucket = bucket.wrapping_add(reader.varint(what)?.cast_unsigned());
        counts.push(bucket);
    }
    Ok(Buckets { spans: spans.to_vec(), counts })
}

fn get_float_side(reader: &mut ByteReader<'_>, spans: &[Span]) -> Result<Buckets<f64>, DecodeError> {
    let bytes = reader.bytes("histogram buckets", bucket_count(spans).saturating_mul(8))?;
    let counts = bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
    Ok(Buckets { spans: spans.to_vec(), counts })
}

#[cfg(test)]
mod tests;
