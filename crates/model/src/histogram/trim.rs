//! The trim operators `</` and `>/`: remove the observations above or below a value.
//! Invariants: observations are interpolated within a bucket (linearly, or exponentially for exponential
//! buckets); the sum is estimated from the middle of each bucket, but only if observations were removed.

use super::buckets::Buckets;
use super::sparse::FloatHistogram;
use super::walk::Bucket;

/// Side that is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimSide {
    /// Observations above (`</`).
    Above,
    /// Observations below (`>/`).
    Below,
}

/// Remaining part of a bucket.
struct Kept {
    count: f64,
    middle: f64,
}

/// Remaining part of a histogram.
#[derive(Default)]
struct Total {
    count: f64,
    sum: f64,
    changed: bool,
}

/// Removes the observations on one side of `at`.
pub(super) fn trim(histogram: &mut FloatHistogram, at: f64, side: TrimSide) {
    let linear = histogram.is_custom();
    if linear {
        // As in `scale`: custom bounds have no zero bucket.
        histogram.zero_count = 0.0;
    }
    let mut total = Total::default();
    let positive: Vec<Bucket> = histogram.positive_buckets().collect();
    let negative: Vec<Bucket> = histogram.negative_buckets().collect();
    let middle = |sign: f64| move |lower: f64, upper: f64| middle(lower, upper, sign, linear);
    trim_buckets(&mut histogram.positive, &positive, at, side, linear, middle(1.0), &mut total);
    trim_buckets(&mut histogram.negative, &negative, at, side, linear, middle(-1.0), &mut total);
    if histogram.zero_count > 0.0 {
        let populated = |buckets: &[Bucket]| buckets.iter().any(|bucket| bucket.count != 0.0);
        let mut bucket = histogram.zero_bucket();
        match (populated(&negative), populated(&positive)) {
            (true, false) => bucket.upper = 0.0,
            (false, true) => bucket.lower = 0.0,
            _ => {}
        }
        let kept = zero_kept(&bucket, at, side);
        total.changed |= kept.count != histogram.zero_count;
        total.count += kept.count;
        total.sum += kept.middle * kept.count;
        histogram.zero_count = kept.count;
    }
    if total.changed {
        (histogram.count, histogram.sum) = (total.count, total.sum);
        histogram.compact(0);
    }
}

fn trim_buckets(
    counts: &mut Buckets<f64>,
    buckets: &[Bucket],
    at: f64,
    side: TrimSide,
    linear: bool,
    middle: impl Fn(f64, f64) -> f64,
    total: &mut Total,
) {
    for (count, bucket) in counts.counts.iter_mut().zip(buckets).filter(|(_, bucket)| bucket.count != 0.0) {
        let (whole, part) = match side {
            TrimSide::Above => (bucket.upper <= at, bucket.lower < at),
            TrimSide::Below => (bucket.lower >= at, bucket.upper > at),
        };
        let kept = if whole {
            Kept { count: bucket.count, middle: middle(bucket.lower, bucket.upper) }
        } else if part {
            bucket_kept(bucket, at, side, linear, &middle)
        } else {
            total.changed = true;
            *count = 0.0;
            continue;
        };
        total.count += kept.count;
        total.sum += kept.middle * kept.count;
        total.changed |= *count != kept.count;
        *count = kept.count;
    }
}

/// Remaining part of a bucket that contains `at`.
fn bucket_kept(
    bucket: &Bucket,
    at: f64,
    side: TrimSide,
    linear: bool,
    middle: impl Fn(f64, f64) -> f64,
) -> Kept {
    if bucket.lower == f64::NEG_INFINITY {
        return open_below_kept(bucket, at, side);
    }
    if bucket.upper == f64::INFINITY {
        return open_above_kept(bucket, at, side);
    }
    let below = if at <= bucket.lower {
        0.0
    } else if at >= bucket.upper {
        bucket.count
    } else {
        bucket.count * bucket.fraction_below(at, linear)
    };
    match side {
        TrimSide::Above => Kept { count: below, middle: middle(bucket.lower, at) },
        TrimSide::Below => Kept { count: bucket.count - below, middle: middle(at, bucket.upper) },
    }
}

/// Remaining part of a bucket from minus infinity. With a positive upper bound it is assumed to start at 0;
/// otherwise the distribution of its observations is unknown.
fn open_below_kept(bucket: &Bucket, at: f64, side: TrimSide) -> Kept {
    let Bucket { upper, count, .. } = *bucket;
    let gone = Kept { count: 0.0, middle: if upper.is_infinite() { 0.0 } else { upper } };
    match side {
        TrimSide::Above if at >= upper => Kept { count, middle: 0.0 },
        TrimSide::Above if at > 0.0 && upper > 0.0 && upper != f64::INFINITY => {
            Kept { count: count * at / upper, middle: at / 2.0 }
        }
        TrimSide::Above if upper <= 0.0 => Kept { count, middle: at },
        TrimSide::Above => gone,
        TrimSide::Below if at == f64::NEG_INFINITY => Kept { count, middle: 0.0 },
        TrimSide::Below if at >= 0.0 && upper > at && upper != f64::INFINITY => {
            Kept { count: count * (1.0 - at / upper), middle: (at + upper) / 2.0 }
        }
        TrimSide::Below => gone,
    }
}

/// Remaining part of a bucket to infinity, whose distribution is unknown.
fn open_above_kept(bucket: &Bucket, at: f64, side: TrimSide) -> Kept {
    if side == TrimSide::Below && at >= bucket.lower {
        return Kept { count: bucket.count, middle: at };
    }
    Kept { count: 0.0, middle: if bucket.lower.is_infinite() { 0.0 } else { bucket.lower } }
}

fn zero_kept(bucket: &Bucket, at: f64, side: TrimSide) -> Kept {
    let Bucket { lower, upper, count, .. } = *bucket;
    let all = Kept { count, middle: (lower + upper) / 2.0 };
    let none = Kept { count: 0.0, middle: 0.0 };
    match side {
        TrimSide::Above if at <= lower => none,
        TrimSide::Above if at >= upper => all,
        TrimSide::Above => {
            Kept { count: count * ((at - lower) / (upper - lower)), middle: (lower + at) / 2.0 }
        }
        TrimSide::Below if at <= lower => all,
        TrimSide::Below if at >= upper => none,
        TrimSide::Below => {
            Kept { count: count * ((upper - at) / (upper - lower)), middle: (at + upper) / 2.0 }
        }
    }
}

/// Estimated average of the observations between two bounds.
fn middle(lower: f64, upper: f64, sign: f64, linear: bool) -> f64 {
    if lower.is_infinite() {
        return match upper {
            _ if upper.is_infinite() => 0.0,
            _ if upper > 0.0 => upper / 2.0,
            _ => upper,
        };
    }
    if upper.is_infinite() {
        return lower;
    }
    if linear { (lower + upper) / 2.0 } else { sign * (lower * upper).abs().sqrt() }
}
