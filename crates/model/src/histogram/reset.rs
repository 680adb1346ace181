//! Detection of counter resets between two histograms.

use super::arith::common_bounds;
use super::bounds::{bound, exponential_bound};
use super::buckets::{BucketWalk, Buckets};
use super::resolution::coarser_idx;
use super::sparse::{FloatHistogram, ResetHint};

/// Returns true if there was a counter reset between `previous` and `now`.
pub(super) fn is_reset_between(previous: &FloatHistogram, now: &FloatHistogram) -> bool {
    match now.reset_hint {
        ResetHint::Reset => return true,
        ResetHint::NotReset => return false,
        // Not meaningful for gauges; they are treated as counters.
        ResetHint::Unknown | ResetHint::Gauge => {}
    }
    if now.count < previous.count {
        return true;
    }
    if now.is_custom() {
        if !previous.is_custom() {
            return true;
        }
        if now.custom_values != previous.custom_values {
            return custom_count_fell(now, previous);
        }
        return count_fell(now.positive.walk(), previous.positive.walk());
    }
    if now.schema > previous.schema || now.zero_threshold < previous.zero_threshold {
        return true;
    }
    let zero = previous.widened_zero(now.zero_threshold, None);
    // The threshold is within a populated bucket of the previous histogram.
    if zero.threshold != now.zero_threshold || now.zero_count < zero.count {
        return true;
    }
    let fell = |side: &Buckets<f64>, before: &Buckets<f64>| {
        let visible = |buckets: &Buckets<f64>, schema: i32| {
            visible_buckets(buckets, schema, now.schema, now.zero_threshold)
        };
        count_fell(visible(side, now.schema).into_iter(), visible(before, previous.schema).into_iter())
    };
    fell(&now.positive, &previous.positive) || fell(&now.negative, &previous.negative)
}

/// Returns the buckets in schema `to`, without those at the start that end within the zero bucket.
fn visible_buckets(buckets: &Buckets<f64>, from: i32, to: i32, zero_threshold: f64) -> Vec<(i32, f64)> {
    let steps = u32::try_from(from - to).unwrap_or(0);
    let mut out: Vec<(i32, f64)> = Vec::with_capacity(buckets.counts.len());
    for (idx, count) in buckets.walk() {
        let idx = if steps == 0 { idx } else { coarser_idx(idx, steps) };
        match out.last_mut() {
            Some(last) if last.0 == idx => last.1 += count,
            _ => out.push((idx, count)),
        }
    }
    if zero_threshold > 0.0 {
        let hidden = out.iter().take_while(|(idx, _)| exponential_bound(*idx, to) <= zero_threshold).count();
        out.drain(..hidden);
    }
    out
}

/// Returns true if a bucket has fewer observations than before.
fn count_fell(mut now: impl Iterator<Item = (i32, f64)>, before: impl Iterator<Item = (i32, f64)>) -> bool {
    let mut current = now.next();
    for (idx, count) in before {
        while current.is_some_and(|(at, _)| at < idx) {
            current = now.next();
        }
        let fell = match current {
            Some((at, now)) if at == idx => now < count,
            _ => count != 0.0,
        };
        if fell {
            return true;
        }
    }
    false
}

/// As [`count_fell`] for different custom bounds: compares the counts between common bounds.
fn custom_count_fell(now: &FloatHistogram, before: &FloatHistogram) -> bool {
    let mut now_counts = Rollup::new(now);
    let mut before_counts = Rollup::new(before);
    common_bounds(&now.custom_values, &before.custom_values)
        .chain([f64::INFINITY])
        .any(|bound| now_counts.up_to(bound) < before_counts.up_to(bound))
}

/// Counts between bounds.
struct Rollup<'a> {
    histogram: &'a FloatHistogram,
    walk: std::iter::Peekable<BucketWalk<'a, f64>>,
}

impl<'a> Rollup<'a> {
    fn new(histogram: &'a FloatHistogram) -> Rollup<'a> {
        Rollup { histogram, walk: histogram.positive.walk().peekable() }
    }

    /// Returns the observations from the previous limit up to `limit`.
    fn up_to(&mut self, limit: f64) -> f64 {
        let mut sum = 0.0;
        let FloatHistogram { schema, custom_values, .. } = self.histogram;
        while let Some((_, count)) =
            self.walk.next_if(|&(idx, _)| bound(idx, *schema, custom_values) <= limit)
        {
            sum += count;
        }
        sum
    }
}
