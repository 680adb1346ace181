//! Native histograms: one message for both versions, validated as in Prometheus.
//!
//! Invariants: a histogram that is invalid is refused alone, in Prometheus's words; one with more buckets,
//! spans or bounds than storage takes refuses the request. Custom bounds that do not change are shared.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use chronolith_base::bytes::unzigzag;
use chronolith_model::histogram::{
    BUCKET_COUNT_MAX, Buckets, CUSTOM_BOUND_COUNT_MAX, HistogramError, ResetHint, SCHEMA_MAX,
    SCHEMA_MAX_RESERVED, SPAN_COUNT_MAX, Span,
};
use chronolith_model::{FloatHistogram, Histogram, IntHistogram, WriteBatch};

use super::charge::Charge;
use super::wire::{Cursor, FIXED64, LEN, VARINT};
use super::{DecodeError, SAMPLE_COUNT_MAX, WireError};

/// Fields of a message that a histogram does not have itself.
#[derive(Default)]
struct Fields {
    is_float: bool,
    count_int: u64,
    count_float: f64,
    zero_count_int: u64,
    zero_count_float: f64,
    sum: f64,
    schema: i32,
    zero_threshold: f64,
    reset_hint: u64,
    time: i64,
    start: i64,
    positive: Side,
    negative: Side,
    custom_values: Vec<f64>,
}

/// Buckets of one sign, as they are on the wire.
#[derive(Default)]
pub(crate) struct Side {
    spans: Vec<Span>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

/// Reads histograms of one request.
pub(super) struct HistogramReader<'a> {
    /// Pays for the memory of histograms.
    charge: Charge<'a>,
    /// Bounds of the last histogram that had any.
    bounds: Arc<[f64]>,
}

/// Result of the validation of a series's histograms.
#[derive(Debug, Default)]
pub(super) struct HistogramTally {
    /// Number of refused histograms, and the reason for refusing the first one.
    pub(super) invalid_count: u64,
    pub(super) invalid: Option<HistogramError>,
}

impl<'a> HistogramReader<'a> {
    pub(super) fn new(charge: Charge<'a>) -> HistogramReader<'a> {
        HistogramReader { charge, bounds: Arc::from([]) }
    }

    /// Reads one histogram of the series that is pushed next.
    pub(super) fn read(
        &mut self,
        message: Cursor<'_>,
        batch: &mut WriteBatch,
        tally: &mut HistogramTally,
    ) -> Result<(), DecodeError> {
        let fields = Fields::read(message)?;
        let time = fields.time;
        let start = fields.start;
        let histogram = match fields.histogram(&mut self.bounds) {
            Ok(histogram) => histogram,
            Err(error) => {
                tally.invalid_count += 1;
                tally.invalid.get_or_insert(error);
                return Ok(());
            }
        };
        if batch.times.len() >= SAMPLE_COUNT_MAX {
            return Err(DecodeError::TooMany { what: "samples", limit: SAMPLE_COUNT_MAX });
        }
        self.charge.take(histogram.memory_bytes())?;
        batch.push_sample(time, histogram.sum(), start);
        let idx = u32::try_from(batch.times.len() - 1).expect("the samples of a request fit u32");
        batch.histograms.push((idx, Arc::new(histogram)));
        Ok(())
    }
}

impl Fields {
    fn read(mut message: Cursor<'_>) -> Result<Fields, DecodeError> {
        let mut out = Fields::default();
        while !message.is_empty() {
            match message.tag()? {
                (1, VARINT) => (out.is_float, out.count_int) = (false, message.varint()?),
                (2, FIXED64) => (out.is_float, out.count_float) = (true, double(&mut message)?),
                (3, FIXED64) => out.sum = double(&mut message)?,
                (4, VARINT) => out.schema = sint32(&mut message)?,
                (5, FIXED64) => out.zero_threshold = double(&mut message)?,
                // One of both, the last that comes.
                (6, VARINT) => (out.zero_count_int, out.zero_count_float) = (message.varint()?, 0.0),
                (7, FIXED64) => (out.zero_count_int, out.zero_count_float) = (0, double(&mut message)?),
                (8, LEN) => out.negative.push_span(message.message()?)?,
                (9, wire) => out.negative.push_deltas(&mut message, wire)?,
                (10, wire) => out.negative.push_counts(&mut message, wire)?,
                (11, LEN) => out.positive.push_span(message.message()?)?,
                (12, wire) => out.positive.push_deltas(&mut message, wire)?,
                (13, wire) => out.positive.push_counts(&mut message, wire)?,
                (14, VARINT) => out.reset_hint = message.varint()?,
                (15, VARINT) => out.time = message.varint()?.cast_signed(),
                (16, wire) => {
                    let what = "custom bounds";
                    let limit = CUSTOM_BOUND_COUNT_MAX;
                    push_doubles(&mut message, wire, what, limit, &mut out.custom_values)?;
                }
                (17, VARINT) => out.start = message.varint()?.cast_signed(),
                (1..=17, _) => return Err(message.wrong_type().into()),
                (_, other) => message.skip(other)?,
            }
        }
        Ok(out)
    }

    /// The histogram, checked; `bounds` are the previous histogram's, and shared if they are equal.
    fn histogram(self, bounds: &mut Arc<[f64]>) -> Result<Histogram, HistogramError> {
        let custom_values: Arc<[f64]> =
            if self.custom_values == **bounds { bounds.clone() } else { Arc::from(self.custom_values) };
        let positive = self.positive;
        let negative = self.negative;
        // Undefined values count as an unknown reset hint.
        let reset_hint = ResetHint::from_number(self.reset_hint).unwrap_or_default();
        let mut histogram = if self.is_float {
            Histogram::Float(FloatHistogram {
                reset_hint,
                schema: self.schema,
                zero_threshold: self.zero_threshold,
                zero_count: self.zero_count_float,
                count: self.count_float,
                sum: self.sum,
                positive: positive.into_float(),
                negative: negative.into_float(),
                custom_values: custom_values.clone(),
            })
        } else {
            Histogram::Int(IntHistogram {
                reset_hint,
                schema: self.schema,
                zero_threshold: self.zero_threshold,
                zero_count: self.zero_count_int,
                count: self.count_int,
                sum: self.sum,
                positive: positive.into_int("positive side")?,
                negative: negative.into_int("negative side")?,
                custom_values: custom_values.clone(),
            })
        };
        if (SCHEMA_MAX + 1..=SCHEMA_MAX_RESERVED).contains(&histogram.schema()) {
            histogram.reduce_resolution(SCHEMA_MAX)?;
        }
        histogram.validate()?;
        if !custom_values.is_empty() {
            *bounds = custom_values;
        }
        Ok(histogram)
    }
}

impl Side {
    /// Returns true if there is a span, an empty one too.
    pub(crate) fn has_spans(&self) -> bool {
        !self.spans.is_empty()
    }

    /// Returns true if there are counts that are floats.
    pub(crate) fn has_float_counts(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Returns buckets with the counts that are floats.
    pub(crate) fn into_float(self) -> Buckets<f64> {
        Buckets { spans: self.spans, counts: self.counts }
    }

    /// Returns buckets with the counts that were sent as deltas.
    pub(crate) fn into_int(self, name: &str) -> Result<Buckets<u64>, HistogramError> {
        Buckets::from_deltas(self.spans, self.deltas).map_err(|error| error.within(name))
    }

    /// Reads counts that are floats: packed or one of them.
    pub(crate) fn push_counts(&mut self, message: &mut Cursor<'_>, wire: u64) -> Result<(), DecodeError> {
        push_doubles(message, wire, "buckets", BUCKET_COUNT_MAX, &mut self.counts)
    }

    /// Reads a span.
    pub(crate) fn push_span(&mut self, mut message: Cursor<'_>) -> Result<(), DecodeError> {
        if self.spans.len() >= SPAN_COUNT_MAX {
            return Err(too_many("spans", SPAN_COUNT_MAX));
        }
        let mut span = Span::default();
        while !message.is_empty() {
            match message.tag()? {
                (1, VARINT) => span.offset = sint32(&mut message)?,
                (2, VARINT) => span.length = message.varint_u32()?,
                (1 | 2, _) => return Err(message.wrong_type().into()),
                (_, other) => message.skip(other)?,
            }
        }
        self.spans.push(span);
        Ok(())
    }

    /// Reads deltas: packed or one of them.
    pub(crate) fn push_deltas(&mut self, message: &mut Cursor<'_>, wire: u64) -> Result<(), DecodeError> {
        let deltas = &mut self.deltas;
        let mut push = |delta: u64| {
            if deltas.len() >= BUCKET_COUNT_MAX {
                return Err(too_many("buckets", BUCKET_COUNT_MAX));
            }
            deltas.push(unzigzag(delta));
            Ok(())
        };
        match wire {
            VARINT => push(message.varint()?),
            LEN => {
                let mut packed = message.message()?;
                while !packed.is_empty() {
                    push(packed.varint()?)?;
                }
                Ok(())
            }
            _ => Err(message.wrong_type().into()),
        }
    }
}

#[cold]
fn too_many(what: &'static str, limit: usize) -> DecodeError {
    DecodeError::TooManyInHistogram { what, limit }
}

/// Reads a double.
pub(crate) fn double(message: &mut Cursor<'_>) -> Result<f64, WireError> {
    message.fixed64().map(f64::from_bits)
}

/// Reads a zigzag number of 32 bits.
pub(crate) fn sint32(message: &mut Cursor<'_>) -> Result<i32, WireError> {
    // The field has 32 bits, so the number fits.
    Ok(unzigzag(u64::from(message.varint_u32()?)) as i32)
}

/// Numbers of a repeated field: packed or one by one.
fn push_doubles(
    message: &mut Cursor<'_>,
    wire: u64,
    what: &'static str,
    limit: usize,
    out: &mut Vec<f64>,
) -> Result<(), DecodeError> {
    match wire {
        FIXED64 if out.len() < limit => out.push(double(message)?),
        LEN => {
            let packed = message.message()?;
            let (numbers, rest) = packed.rest().as_chunks::<8>();
            if !rest.is_empty() {
                return Err(packed.error("packed numbers are cut off").into());
            }
            if out.len() + numbers.len() > limit {
                return Err(too_many(what, limit));
            }
            out.extend(numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)));
        }
        FIXED64 => return Err(too_many(what, limit)),
        _ => return Err(message.wrong_type().into()),
    }
    Ok(())
}
