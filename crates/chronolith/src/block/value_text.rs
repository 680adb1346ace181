//! Samples as text: floats as Go's `%g` prints them, native histograms as Prometheus prints them.
//!
//! Invariant: a float that is not NaN reads back with the same bits.

use std::fmt::Write as _;

use chronolith_model::Histogram;
use chronolith_model::histogram::{Bucket, FloatHistogram, go_float};
use chronolith_model::query::TypedValues;
use chronolith_model::quote::write_quoted;

/// Largest count up to which every integer is a float.
const EXACT_COUNT_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns the text of a float.
pub(super) fn float_text(value: f64) -> String {
    go_float(value)
}

/// Returns the text of a histogram: `{count:3, sum:4, (1,2]:3}`. Integer counts are printed in full, float
/// counts as floats.
pub(super) fn histogram_text(histogram: &Histogram) -> String {
    match histogram {
        Histogram::Float(histogram) => histogram.to_string(),
        Histogram::Int(integers) => integers_text(integers.count, &histogram.to_float()),
    }
}

fn integers_text(count: u64, histogram: &FloatHistogram) -> String {
    let mut text = format!("{{count:{count}, sum:{}", go_float(histogram.sum));
    let mut negative: Vec<Bucket> = histogram.negative_buckets().collect();
    negative.reverse();
    let buckets = negative.into_iter().chain([histogram.zero_bucket()]).chain(histogram.positive_buckets());
    for bucket in buckets.filter(|bucket| bucket.count != 0.0) {
        let open = if bucket.lower_inclusive { '[' } else { '(' };
        let close = if bucket.upper_inclusive { ']' } else { ')' };
        let lower = go_float(bucket.lower);
        let upper = go_float(bucket.upper);
        let _ = write!(text, ", {open}{lower},{upper}{close}:{}", count_text(bucket.count));
    }
    text.push('}');
    text
}

fn count_text(count: f64) -> String {
    if count.abs() <= EXACT_COUNT_MAX { format!("{count:.0}") } else { go_float(count) }
}

/// Returns the text of value `idx`: integers in full, texts quoted.
pub(super) fn typed_text(values: &TypedValues, idx: usize) -> String {
    let text = match values {
        TypedValues::Floats(values) => values.get(idx).map(|value| float_text(*value)),
        TypedValues::Integers(values) => values.get(idx).map(ToString::to_string),
        TypedValues::Unsigned(values) => values.get(idx).map(ToString::to_string),
        TypedValues::Booleans(values) => values.get(idx).map(ToString::to_string),
        TypedValues::Texts(values) => values.get(idx).map(|value| {
            let mut quoted = String::new();
            // A string takes everything.
            let _ = write_quoted(&mut quoted, &String::from_utf8_lossy(value));
            quoted
        }),
        TypedValues::Histograms(values) => values.get(idx).map(|value| histogram_text(value)),
    };
    text.unwrap_or_default()
}
