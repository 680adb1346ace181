//! Validation of histograms, as Prometheus does it when a sample is appended.
//!
//! Invariants: a valid histogram has as many counts as its spans say, no negative count, bounds for every
//! bucket, and bucket indexes of 32 bits, the lower bound of the first bucket included.
//! Not here: the texts of errors (`fault`).

use super::buckets::{Buckets, Count, Span};
use super::fault::{
    HistogramError, HistogramFault, bad_schema, error, negative_bucket, negative_offset, span_out_of_range,
    spans_mismatch,
};
use super::go_float::go_float;
use super::schema::{SCHEMA_MAX, SCHEMA_MIN};
use super::sparse::{FloatHistogram, HistogramOf, IntHistogram};

fn total_length(spans: &[Span]) -> usize {
    spans.iter().fold(0usize, |sum, span| sum.saturating_add(span.length as usize))
}

/// Checks that spans do not overlap, have indexes of 32 bits, and have as many buckets as there are counts.
pub(super) fn check_spans(spans: &[Span], bucket_count: usize) -> Result<(), HistogramError> {
    let mut end = 0i64;
    for (at, span) in spans.iter().enumerate() {
        if at > 0 && span.offset < 0 {
            return Err(negative_offset(at, span.offset));
        }
        if at == 0 && span.offset == i32::MIN {
            return Err(span_out_of_range(at, "starts", i64::from(span.offset)));
        }
        // An error ends the loop, so the sum stays below 2^31 + 2^31 + 2^32.
        end += i64::from(span.offset) + i64::from(span.length);
        if end - 1 > i64::from(i32::MAX) {
            return Err(span_out_of_range(at, "ends", end - 1));
        }
    }
    let needed = total_length(spans);
    if needed == bucket_count { Ok(()) } else { Err(spans_mismatch(needed, bucket_count)) }
}

fn check_custom(bounds: &[f64], spans: &[Span], bucket_count: usize) -> Result<(), HistogramError> {
    let mut before = f64::NEG_INFINITY;
    for (at, &bound) in bounds.iter().enumerate() {
        if bound.is_nan() {
            let message = "histogram custom bounds must not be NaN".to_owned();
            return Err(error(HistogramFault::CustomBoundsNan, message));
        }
        if at > 0 && bound <= before {
            let text = "histogram custom bounds must be in strictly increasing order";
            let message =
                format!("previous bound is {} and current is {}: {text}", fixed(before), fixed(bound));
            return Err(error(HistogramFault::CustomBoundsOrder, message));
        }
        before = bound;
    }
    if before == f64::INFINITY {
        let text = "histogram custom bounds must be finite";
        let message = format!("last +Inf bound must not be explicitly defined: {text}");
        return Err(error(HistogramFault::CustomBoundsInfinite, message));
    }
    let mut reach = 0usize;
    for (at, span) in spans.iter().enumerate() {
        let offset = usize::try_from(span.offset).map_err(|_| negative_offset(at, span.offset))?;
        reach = reach.saturating_add(offset).saturating_add(span.length as usize);
    }
    let needed = total_length(spans);
    if needed != bucket_count {
        return Err(spans_mismatch(needed, bucket_count));
    }
    if bounds.len() + 1 < reach {
        let message = format!(
            "only {} custom bounds defined which is insufficient to cover total span length of {reach}: histogram \
             custom bounds are too few",
            bounds.len()
        );
        return Err(error(HistogramFault::CustomBoundsTooFew, message));
    }
    Ok(())
}

/// Formats as Go's `%f`.
fn fixed(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { go_float(value) }
}

/// Checks that do not depend on the type of counts.
fn check_layout<C: Count>(histogram: &HistogramOf<C>) -> Result<(), HistogramError> {
    if histogram.is_custom() {
        check_custom(&histogram.custom_values, &histogram.positive.spans, histogram.positive.counts.len())
            .map_err(|e| e.within("custom buckets"))?;
        let extra = if histogram.zero_count != C::default() {
            "must have zero count of 0"
        } else if histogram.zero_threshold != 0.0 {
            "must have zero threshold of 0"
        } else if !histogram.negative.spans.is_empty() {
            "must not have negative spans"
        } else if !histogram.negative.counts.is_empty() {
            "must not have negative buckets"
        } else {
            return Ok(());
        };
        return Err(error(HistogramFault::CustomBoundsExtra, format!("custom buckets: {extra}")));
    }
    if !(SCHEMA_MIN..=SCHEMA_MAX).contains(&histogram.schema) {
        return Err(bad_schema(histogram.schema));
    }
    let side = |buckets: &Buckets<C>| check_spans(&buckets.spans, buckets.counts.len());
    side(&histogram.positive).map_err(|e| e.within("positive side"))?;
    side(&histogram.negative).map_err(|e| e.within("negative side"))
}

fn check_bounds_absent<C: Count>(histogram: &HistogramOf<C>) -> Result<(), HistogramError> {
    if histogram.is_custom() || histogram.custom_values.is_empty() {
        return Ok(());
    }
    let message = "histogram with exponential schema must not have custom bounds".to_owned();
    Err(error(HistogramFault::ExponentialWithBounds, message))
}

/// Checks spans, bounds, and that the count is the sum of the buckets (at least, if the sum is NaN).
pub(super) fn check_integers(histogram: &IntHistogram) -> Result<(), HistogramError> {
    check_layout(histogram)?;
    check_bounds_absent(histogram)?;
    let buckets = histogram.negative.counts.iter().chain(&histogram.positive.counts);
    let found = buckets.fold(histogram.zero_count, |sum, &count| sum.saturating_add(count));
    let (wrong, fault, text) = if histogram.sum.is_nan() {
        let text = "histogram's observation count should be at least the number of observations found in the \
                    buckets";
        (found > histogram.count, HistogramFault::CountNotBigEnough, text)
    } else {
        let text = "histogram's observation count should equal the number of observations found in the buckets \
                    (in absence of NaN)";
        (found != histogram.count, HistogramFault::CountMismatch, text)
    };
    if wrong {
        let message = format!(
            "{found} observations found in buckets, but the Count field is {}: {text}",
            histogram.count
        );
        return Err(error(fault, message));
    }
    Ok(())
}

/// Checks spans, bounds, and that no count is negative.
pub(super) fn check_floats(histogram: &FloatHistogram) -> Result<(), HistogramError> {
    check_layout(histogram)?;
    let counts = |buckets: &Buckets<f64>, side: &str| match buckets
        .counts
        .iter()
        .enumerate()
        .find(|(_, count)| **count < 0.0)
    {
        Some((at, &count)) => Err(negative_bucket(at + 1, &go_float(count)).within(side)),
        None => Ok(()),
    };
    counts(&histogram.negative, "negative side")?;
    if histogram.zero_count < 0.0 {
        let text = "histogram has a bucket whose observation count is negative";
        let message =
            format!("zero bucket has observation count of {}: {text}", go_float(histogram.zero_count));
        return Err(error(HistogramFault::NegativeBucketCount, message));
    }
    check_bounds_absent(histogram)?;
    if histogram.count < 0.0 {
        // Two spaces, as in Prometheus.
        let text = "histogram's observation count is negative";
        let message = format!("observation count is  {}: {text}", go_float(histogram.count));
        return Err(error(HistogramFault::NegativeCount, message));
    }
    counts(&histogram.positive, "positive side")
}
