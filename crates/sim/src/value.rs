//! Written values: floats, and native histograms that are derived from a number.
//!
//! Invariants: a histogram is a pure function of its number, and its sum encodes the number, so that the
//! ledger keeps eight bytes per histogram and identifies a found one by its sum; staleness markers of both
//! kinds are one value.
//! Not here: choosing values (`batch`).

use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_model::histogram::{Buckets, Count, HistogramOf, ResetHint, SCHEMA_CUSTOM, Span};
use chronolith_model::sample::{STALE_NAN, is_stale};
use chronolith_model::{Columns, FloatHistogram, Histogram, IntHistogram};

use crate::setup::{DAY_MS, START_MS};

/// Exponent of the sums: all are in [1, 2), and the number is the mantissa.
const SUM_EXPONENT: u64 = 0x3ff << 52;
const NUMBER_MASK: u64 = (1 << 52) - 1;
const AGE_BITS: u32 = 32;
const FAMILY_BITS: u32 = 8;
/// Only [`Shape::Boundary`](crate::Shape::Boundary) has earlier times; counters start at 0 there.
const AGE_START_MS: i64 = START_MS - 40 * DAY_MS;
/// Variations of a histogram, 0 for none.
const VARIATION_COUNT: u64 = 1 << 12;

/// Value of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// Bits of a float; [`STALE_NAN`] is the staleness marker of either kind.
    Float(u64),
    /// Number of a histogram.
    Histogram(u64),
    /// Bits of the sum of a histogram that was never written.
    Unknown(u64),
}

impl Value {
    pub(crate) fn float(value: f64) -> Value {
        Value::Float(value.to_bits())
    }

    pub(crate) fn is_stale(self) -> bool {
        matches!(self, Value::Float(bits) if is_stale(f64::from_bits(bits)))
    }

    /// Bits of a word, number of a histogram.
    pub(crate) fn bits(self) -> u64 {
        let (Value::Float(bits) | Value::Histogram(bits) | Value::Unknown(bits)) = self;
        bits
    }

    /// Draws a histogram of a series, mostly one that continues the previous ones.
    pub(crate) fn draw_histogram(rng: &Rng, series: u32, time: i64) -> Value {
        let age_s = time.saturating_sub(AGE_START_MS).max(0) / 1000;
        let age_s = age_s.cast_unsigned() & ((1 << AGE_BITS) - 1);
        let family = if rng.below(60) == 0 { rng.below(1 << FAMILY_BITS) } else { family_of(series) };
        let variation = if rng.below(12) == 0 { 1 + rng.below(VARIATION_COUNT - 1) } else { 0 };
        Value::Histogram(age_s | family << AGE_BITS | variation << (AGE_BITS + FAMILY_BITS))
    }

    /// Returns sample `at` of `columns`.
    pub(crate) fn found(columns: &Columns, at: usize) -> Value {
        let value = columns.values[at];
        let Some(found) = columns.histogram_at(at).filter(|_| !is_stale(value)) else {
            return Value::float(value);
        };
        let number = value.to_bits() & NUMBER_MASK;
        let expected = histogram_of(number);
        let is_gauge = |histogram: &Histogram| histogram.reset_hint() == ResetHint::Gauge;
        if found.is_equivalent(&expected) && is_gauge(found) == is_gauge(&expected) {
            Value::Histogram(number)
        } else {
            Value::Unknown(value.to_bits())
        }
    }

    /// Returns the value in columns (a float or the sum) and the histogram to write. `as_histogram` makes a
    /// staleness marker one of a histogram.
    pub(crate) fn written(self, as_histogram: bool) -> (f64, Option<Arc<Histogram>>) {
        match self {
            Value::Float(_) if self.is_stale() && as_histogram => {
                (STALE_NAN, Some(Arc::new(Histogram::stale())))
            }
            Value::Float(bits) | Value::Unknown(bits) => (f64::from_bits(bits), None),
            Value::Histogram(number) => {
                let histogram = histogram_of(number);
                (histogram.sum(), Some(Arc::new(histogram)))
            }
        }
    }
}

/// Returns the text of a number, of any bytes; all are distinct.
pub(crate) fn text_of(number: u64) -> Vec<u8> {
    if number == 0 {
        return Vec::new();
    }
    let mut text = number.to_le_bytes().to_vec();
    let len = if number % 1009 == 7 { 40_000 } else { number % 9 * 11 };
    text.extend((0..len).map(|at| (number >> (at % 50)) as u8));
    text
}

/// Returns the number of a text; `None` for one that [`text_of`] never returns.
pub(crate) fn number_of_text(text: &[u8]) -> Option<u64> {
    let number = if text.is_empty() { 0 } else { u64::from_le_bytes(*text.first_chunk()?) };
    (text_of(number) == text).then_some(number)
}

/// Family of most histograms of a series.
fn family_of(series: u32) -> u64 {
    u64::from(series.wrapping_mul(0x9e37_79b9) >> (32 - FAMILY_BITS))
}

/// Fields of a number.
#[derive(Clone, Copy)]
struct Number {
    level: u64,
    age_s: u64,
    family: u64,
    variation: u64,
}

impl Number {
    fn of(number: u64) -> Number {
        let age_s = number & ((1 << AGE_BITS) - 1);
        let family = number >> AGE_BITS & ((1 << FAMILY_BITS) - 1);
        let variation = number >> (AGE_BITS + FAMILY_BITS);
        // Counters reset at other times than their layout changes.
        let period_s = [u64::MAX, 7200, 1000][(family % 3) as usize];
        Number { level: age_s % period_s / (1 + family / 6 % 7), age_s, family, variation }
    }

    fn is_float(self) -> bool {
        matches!(self.family % 6, 2 | 4)
    }

    fn is_custom(self) -> bool {
        matches!(self.family % 6, 5) || (self.is_float() && self.family.is_multiple_of(5))
    }

    fn is_gauge(self) -> bool {
        matches!(self.family % 6, 3 | 4)
    }

    fn spans(self) -> Vec<Span> {
        let grown = (self.age_s / 900 % 4) as u32;
        let wide = if self.variation % 97 == 1 { 300 } else { 0 };
        let gap = if self.variation % 5 == 1 { 3 } else { 1 };
        let length = 1 + (self.family % 11) as u32;
        if self.is_custom() {
            return vec![Span { offset: 0, length: 3 }];
        }
        vec![
            Span { offset: (self.family % 9) as i32 - 4, length },
            Span { offset: gap, length: grown + wide },
        ]
    }
}

/// Returns the histogram of a number.
fn histogram_of(number: u64) -> Histogram {
    let parts = Number::of(number);
    let sum = f64::from_bits(SUM_EXPONENT | number & NUMBER_MASK);
    if parts.is_float() {
        Histogram::Float(FloatHistogram { sum, ..build(parts, |count| count as f64 * 0.5) })
    } else {
        Histogram::Int(IntHistogram { sum, ..build(parts, |count| count) })
    }
}

fn build<C: Count + std::iter::Sum>(parts: Number, count_of: impl Fn(u64) -> C) -> HistogramOf<C> {
    let Number { level, family, variation, .. } = parts;
    let positive = parts.spans();
    let bucket_count: u32 = positive.iter().map(|span| span.length).sum();
    let at = |idx: u64| count_of(level * (idx % 5) / 2 + (variation >> (idx % 12) & 1));
    let counts: Vec<C> = (0..u64::from(bucket_count)).map(at).collect();
    let (mut negative, mut zero_count) = (Buckets::default(), C::default());
    if !parts.is_custom() {
        zero_count = count_of(level / 3);
        if family & 16 != 0 {
            negative = Buckets {
                spans: vec![Span { offset: 1, length: 2 }],
                counts: vec![count_of(level), count_of(level / 2)],
            };
        }
    }
    let mut count = zero_count;
    counts.iter().chain(&negative.counts).for_each(|&one| count += one);
    HistogramOf {
        reset_hint: match (parts.is_gauge(), variation % 64) {
            (true, _) => ResetHint::Gauge,
            (false, 7) => ResetHint::Reset,
            (false, _) => ResetHint::Unknown,
        },
        schema: match (parts.is_custom(), variation % 50) {
            (true, _) => SCHEMA_CUSTOM,
            (false, 3) => 1,
            (false, _) => (family % 5) as i32 - 1,
        },
        zero_threshold: if parts.is_custom() { 0.0 } else { 0.001 },
        zero_count,
        count,
        sum: 0.0,
        positive: Buckets { spans: positive, counts },
        negative,
        custom_values: custom_values(parts),
    }
}

fn custom_values(parts: Number) -> Arc<[f64]> {
    match (parts.is_custom(), parts.variation % 40) {
        (false, _) => Arc::from([]),
        (true, 2) => Arc::from([0.1, 1.0, 20.0]),
        (true, _) => Arc::from([0.25, 1.0 / 3.0, 10.0]),
    }
}

/// Returns the first wrong reset hint: a histogram that denies a counter reset since the previous sample,
/// although there was one, or the previous sample is not a histogram.
pub(crate) fn wrong_reset_hint(columns: &Columns) -> Option<String> {
    (0..columns.len()).find_map(|at| {
        let found = columns.histogram_at(at).filter(|one| one.reset_hint() == ResetHint::NotReset)?;
        let before = at.checked_sub(1)?;
        let time = columns.times[at];
        let Some(previous) = columns.histogram_at(before).filter(|one| !is_stale(one.sum())) else {
            return Some(format!(
                "the histogram @{time} denies a reset since a sample that is not a histogram"
            ));
        };
        let mut bare = found.to_float().into_owned();
        bare.reset_hint = ResetHint::Unknown;
        bare.is_reset_after(&previous.to_float()).then(|| {
            format!("{found:?} @{time} denies a reset since {previous:?} @{}", columns.times[before])
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_valid_and_identified_by_their_sum() {
        let rng = Rng::from_seed(5);
        for _ in 0..20_000 {
            let series = rng.below(300) as u32;
            let time = START_MS + rng.below(10 * DAY_MS.unsigned_abs()) as i64;
            let value = Value::draw_histogram(&rng, series, time);
            let (sum, histogram) = value.written(false);
            let histogram = histogram.expect("a histogram");
            histogram.validate().expect("a valid histogram");
            let mut columns = Columns::default();
            columns.push_histogram(time, histogram);
            assert_eq!((Value::found(&columns, 0), columns.values[0]), (value, sum));
        }
    }
}
