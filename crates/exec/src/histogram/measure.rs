//! Statistics of one histogram: quantile, fraction between two values, variance.
//! Invariants: results are Prometheus's, order of additions included. Observations are taken to be spread
//! evenly within a bucket, by the logarithm in exponential buckets.

use chronolith_model::FloatHistogram;
use chronolith_model::go_math::{exp2, log2};
use chronolith_model::histogram::{Bucket, kahan_add};

/// Effect of observations that are NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NanEffect {
    /// The result is NaN.
    IsNan,
    /// The result is higher than it would be.
    Skews,
}

/// The value below which this fraction of observations is. `buckets` is memory to be used again.
pub fn quantile(
    quantile: f64,
    histogram: &FloatHistogram,
    buckets: &mut Vec<Bucket>,
) -> (f64, Option<NanEffect>) {
    if quantile < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if quantile > 1.0 {
        return (f64::INFINITY, None);
    }
    if histogram.count == 0.0 || quantile.is_nan() {
        return (f64::NAN, None);
    }
    histogram.all_buckets(buckets);
    // NaN observations are in no bucket and count as the greatest, so ranks are counted from below then.
    let from_below = histogram.sum.is_nan() || quantile < 0.5;
    let rank = if from_below { quantile * histogram.count } else { (1.0 - quantile) * histogram.count };
    if !from_below {
        buckets.reverse();
    }
    let mut count = 0.0;
    let mut bucket = NO_BUCKET;
    let mut next = 0;
    while next < buckets.len() {
        bucket = buckets[next];
        next += 1;
        count += bucket.count;
        if bucket.count != 0.0 && count >= rank {
            break;
        }
    }
    if let Err(value) = settle_ends(&mut bucket, histogram) {
        return (value, None);
    }
    count = if count > histogram.count { histogram.count } else { count };
    if count < rank {
        // Only NaN observations, or rounding, lie beyond.
        let nan = histogram.sum.is_nan();
        return if nan { (f64::NAN, Some(NanEffect::IsNan)) } else { (bucket.upper, None) };
    }
    let inside = if from_below { rank - (count - bucket.count) } else { count - rank };
    let mut effect = None;
    if histogram.sum.is_nan() {
        for rest in &buckets[next..] {
            count += rest.count;
        }
        effect = (count < histogram.count).then_some(NanEffect::Skews);
    }
    (interpolate(&bucket, inside / bucket.count, histogram.is_custom()), effect)
}

const NO_BUCKET: Bucket =
    Bucket { lower: 0.0, upper: 0.0, lower_inclusive: false, upper_inclusive: false, count: 0.0 };

/// Narrows a bucket around zero to where observations can be; of buckets without an end the value is known.
fn settle_ends(bucket: &mut Bucket, histogram: &FloatHistogram) -> Result<(), f64> {
    if !histogram.is_custom() {
        if bucket.lower < 0.0 && bucket.upper > 0.0 {
            narrow_zero(bucket, histogram);
        }
        return Ok(());
    }
    if bucket.lower == f64::NEG_INFINITY {
        if bucket.upper <= 0.0 {
            return Err(bucket.upper);
        }
        bucket.lower = 0.0;
    } else if bucket.upper == f64::INFINITY {
        return Err(bucket.lower);
    }
    Ok(())
}

/// Cuts the zero bucket at zero on a side without buckets: nothing in it lies there either.
fn narrow_zero(bucket: &mut Bucket, histogram: &FloatHistogram) {
    match (histogram.negative.counts.is_empty(), histogram.positive.counts.is_empty()) {
        (true, false) => bucket.lower = 0.0,
        (false, true) => bucket.upper = 0.0,
        _ => {}
    }
}

fn interpolate(bucket: &Bucket, fraction: f64, custom: bool) -> f64 {
    if custom || (bucket.lower <= 0.0 && bucket.upper >= 0.0) {
        return bucket.lower + (bucket.upper - bucket.lower) * fraction;
    }
    let lower = log2(bucket.lower.abs());
    let upper = log2(bucket.upper.abs());
    if bucket.lower > 0.0 {
        exp2(lower + (upper - lower) * fraction)
    } else {
        -exp2(upper + (lower - upper) * (1.0 - fraction))
    }
}

/// The fraction of observations between two values; true if it lacks NaN observations.
pub fn fraction(
    lower: f64,
    upper: f64,
    histogram: &FloatHistogram,
    buckets: &mut Vec<Bucket>,
) -> (f64, bool) {
    if histogram.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return (f64::NAN, false);
    }
    if lower >= upper {
        return (0.0, false);
    }
    histogram.all_buckets(buckets);
    let custom = histogram.is_custom();
    let mut count = 0.0;
    let mut rank = 0.0;
    let mut lower_rank = None;
    let mut upper_rank = None;
    for bucket in buckets.iter() {
        // As in Prometheus, once both ranks are known the other buckets only count if there are NaN
        // observations.
        if lower_rank.is_some() && upper_rank.is_some() && !histogram.sum.is_nan() {
            break;
        }
        count += bucket.count;
        if lower_rank.is_some() && upper_rank.is_some() {
            continue;
        }
        let mut bucket = *bucket;
        let zero = !custom && bucket.lower <= 0.0 && bucket.upper >= 0.0;
        if zero {
            narrow_zero(&mut bucket, histogram);
        } else if custom && bucket.lower == f64::NEG_INFINITY && bucket.upper > 0.0 {
            // As in classic histograms, observations of a first bucket with a positive bound are taken to be
            // positive.
            bucket.lower = 0.0;
        }
        for (value, found) in [(lower, &mut lower_rank), (upper, &mut upper_rank)] {
            if found.is_none() {
                *found = rank_in(&bucket, value, rank, custom || zero);
            }
        }
        rank += bucket.count;
    }
    let nan_missing = histogram.sum.is_nan() && count < histogram.count;
    let count = if histogram.sum.is_nan() { count } else { histogram.count };
    let capped = |rank: Option<f64>| match rank {
        Some(rank) if rank > count => count,
        Some(rank) => rank,
        None => count,
    };
    ((capped(upper_rank) - capped(lower_rank)) / histogram.count, nan_missing)
}

/// The rank of `value` if it lies below the bucket or in it; `before` observations lie below.
fn rank_in(bucket: &Bucket, value: f64, before: f64, linear: bool) -> Option<f64> {
    if bucket.lower >= value {
        return Some(before);
    }
    if bucket.lower < value && bucket.upper > value {
        // Nothing is known of where observations lie in a bucket without a lower end.
        if linear && bucket.lower == f64::NEG_INFINITY {
            return Some(bucket.count);
        }
        return Some(before + bucket.count * bucket.fraction_below(value, linear));
    }
    None
}

/// Population variance, every observation taken to lie in the middle of its bucket.
pub fn variance(histogram: &FloatHistogram, buckets: &mut Vec<Bucket>) -> f64 {
    let mean = histogram.sum / histogram.count;
    histogram.all_buckets(buckets);
    let mut sum = 0.0;
    let mut rest = 0.0;
    for bucket in buckets.iter().filter(|bucket| bucket.count != 0.0) {
        let middle = if histogram.is_custom() {
            (bucket.upper + bucket.lower) / 2.0
        } else if bucket.lower <= 0.0 && bucket.upper >= 0.0 {
            0.0
        } else {
            let middle = (bucket.upper * bucket.lower).sqrt();
            if bucket.upper < 0.0 { -middle } else { middle }
        };
        let distance = middle - mean;
        (sum, rest) = kahan_add(bucket.count * distance * distance, sum, rest);
    }
    (sum + rest) / histogram.count
}
