//! Layout that the histograms of a chunk share, written before the first one: zero threshold, schema, spans,
//! bounds.
//!
//! Invariant: reads are bounded by the bits at hand and by the limits of a chunk.

use std::sync::Arc;

use chronolith_base::DecodeError;
use chronolith_model::histogram::{
    BUCKET_COUNT_MAX, CUSTOM_BOUND_COUNT_MAX, HistogramOf, SCHEMA_CUSTOM, SCHEMA_MAX_RESERVED,
    SCHEMA_MIN_RESERVED, SPAN_COUNT_MAX, Span,
};

use super::bits::{BitReader, BitWriter};
use super::counts::ChunkCount;

/// Byte of a zero threshold that is written out.
const THRESHOLD_RAW: u64 = 255;
/// Added to the exponent of a threshold that is a power of two.
const THRESHOLD_BIAS: i64 = 243;
/// The largest bound, in thousandths, that fits a varbit of four bytes.
const BOUND_THOUSANDTHS_MAX: f64 = 33_554_430.0;

/// Layout of the histograms of a chunk.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) schema: i32,
    pub(super) zero_threshold: f64,
    pub(super) positive: Vec<Span>,
    pub(super) negative: Vec<Span>,
    pub(super) custom_values: Arc<[f64]>,
}

impl Layout {
    pub(super) fn of<C: ChunkCount>(histogram: &HistogramOf<C>) -> Layout {
        Layout {
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold,
            positive: histogram.positive.spans.clone(),
            negative: histogram.negative.spans.clone(),
            custom_values: histogram.custom_values.clone(),
        }
    }

    pub(super) fn put(&self, bits: &mut BitWriter) {
        put_zero_threshold(bits, self.zero_threshold);
        bits.put_varbit_int(i64::from(self.schema));
        for spans in [&self.positive, &self.negative] {
            bits.put_varbit_uint(spans.len() as u64);
            for span in spans {
                bits.put_varbit_uint(u64::from(span.length));
                bits.put_varbit_int(i64::from(span.offset));
            }
        }
        if self.schema == SCHEMA_CUSTOM {
            bits.put_varbit_uint(self.custom_values.len() as u64);
            self.custom_values.iter().for_each(|&bound| put_custom_bound(bits, bound));
        }
    }

    pub(super) fn get(reader: &mut BitReader<'_>) -> Result<Layout, DecodeError> {
        let zero_threshold = get_zero_threshold(reader)?;
        let schema = reader.varbit_int()?;
        let known = schema == i64::from(SCHEMA_CUSTOM)
            || (i64::from(SCHEMA_MIN_RESERVED)..=i64::from(SCHEMA_MAX_RESERVED)).contains(&schema);
        if !known {
            let expected = "-9 to 52, or -53";
            return Err(reader.invalid("schema of a histogram chunk", expected, schema.cast_unsigned()));
        }
        let schema = schema as i32;
        let (positive, negative) = (get_spans(reader)?, get_spans(reader)?);
        let custom_values = if schema == SCHEMA_CUSTOM { get_custom_bounds(reader)? } else { Arc::from([]) };
        Ok(Layout { schema, zero_threshold, positive, negative, custom_values })
    }
}

/// Buckets that `spans` cover.
pub(super) fn bucket_count(spans: &[Span]) -> usize {
    spans.iter().fold(0usize, |sum, span| sum.saturating_add(span.length as usize))
}

/// `spans` without the empty ones, whose offsets are added to the next span's. An empty span stays if the sum
/// exceeds 32 bits.
pub(super) fn fold_empty(spans: &[Span]) -> Vec<Span> {
    let mut before = 0i32;
    let mut out = Vec::with_capacity(spans.len());
    for span in spans {
        let offset = span.offset.checked_add(before).unwrap_or_else(|| {
            out.push(Span { offset: before, length: 0 });
            span.offset
        });
        before = if span.length == 0 { offset } else { 0 };
        if span.length > 0 {
            out.push(Span { offset, length: span.length });
        }
    }
    out
}

fn get_spans(reader: &mut BitReader<'_>) -> Result<Vec<Span>, DecodeError> {
    let span_count = reader.varbit_uint()?;
    // A span takes two bits at least.
    if span_count > SPAN_COUNT_MAX as u64 || span_count as usize > reader.bits_left() / 2 {
        return Err(reader.invalid(
            "spans of a histogram chunk",
            "as many as there are bits for",
            span_count,
        ));
    }
    let mut spans = Vec::with_capacity(span_count as usize);
    let mut total = 0usize;
    for _ in 0..span_count {
        let (length, offset) = (reader.varbit_uint()?, reader.varbit_int()?);
        let span = u32::try_from(length).ok().zip(i32::try_from(offset).ok());
        let Some((length, offset)) = span else {
            return Err(reader.invalid("span of a histogram chunk", "32-bit numbers", length));
        };
        total = total.saturating_add(length as usize);
        if total > BUCKET_COUNT_MAX {
            let expected = "at most 65536 a sign";
            return Err(reader.invalid("buckets of a histogram chunk", expected, total as u64));
        }
        spans.push(Span { offset, length });
    }
    Ok(spans)
}

/// Writes a threshold: a power of two from 2^-243 to 2^10, or zero, takes one byte, others take nine.
fn put_zero_threshold(bits: &mut BitWriter, threshold: f64) {
    if threshold == 0.0 {
        bits.put(0, 8);
        return;
    }
    let raw = threshold.to_bits();
    // The exponent of 0.5 times a power of two; zero and subnormal numbers are far below the range.
    let exponent = (raw >> 52 & 0x7ff).cast_signed() - 1022;
    let is_power = raw >> 63 == 0 && raw.trailing_zeros() >= 52;
    if is_power && (-242..=11).contains(&exponent) {
        bits.put((exponent + THRESHOLD_BIAS).cast_unsigned(), 8);
    } else {
        bits.put(THRESHOLD_RAW, 8);
        bits.put(raw, 64);
    }
}

fn get_zero_threshold(reader: &mut BitReader<'_>) -> Result<f64, DecodeError> {
    Ok(match reader.bits(8)? {
        0 => 0.0,
        THRESHOLD_RAW => f64::from_bits(reader.bits(64)?),
        byte => {
            let exponent = byte.cast_signed() - THRESHOLD_BIAS;
            f64::from_bits((exponent + 1022).cast_unsigned() << 52)
        }
    })
}

/// Thousandths up to 33554.430 are numbers above 0; all else is a 0 bit and the float.
fn put_custom_bound(bits: &mut BitWriter, bound: f64) {
    let thousandths = (bound * 1000.0).round();
    let is_whole = (0.0..=BOUND_THOUSANDTHS_MAX).contains(&(bound * 1000.0)) && bound == thousandths / 1000.0;
    if is_whole {
        bits.put_varbit_uint(thousandths as u64 + 1);
    } else {
        bits.put(0, 1);
        bits.put(bound.to_bits(), 64);
    }
}

fn get_custom_bounds(reader: &mut BitReader<'_>) -> Result<Arc<[f64]>, DecodeError> {
    let bound_count = reader.varbit_uint()?;
    // A bound takes five bits at least.
    if bound_count > CUSTOM_BOUND_COUNT_MAX as u64 || bound_count as usize > reader.bits_left() / 5 {
        let what = "custom bounds of a histogram chunk";
        return Err(reader.invalid(what, "as many as there are bits for", bound_count));
    }
    let bounds = (0..bound_count).map(|_| {
        Ok(match reader.varbit_uint()? {
            0 => f64::from_bits(reader.bits(64)?),
            number => (number - 1) as f64 / 1000.0,
        })
    });
    bounds.collect()
}
