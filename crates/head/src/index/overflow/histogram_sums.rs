//! Sums of the native histograms of one slot: of the increases of counters, of the active ones of gauges.
//!
//! Invariants: a total never falls, never becomes finer and keeps its zero bucket or widens it, so readers
//! detect no reset in it; it has a bounded number of buckets.
//! Not here: last histograms of series (`last_histograms`), count and sum of gauges (`active`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::histogram::{HistogramOf, IntHistogram, ResetHint, SCHEMA_MIN};
use chronolith_model::{FloatHistogram, Histogram};

use super::active::{WINDOW_MS, windows_at};
use super::last_histograms::bounds_of;

/// Buckets of a sum; beyond, its resolution is halved.
const SUM_BUCKET_COUNT_MAX: usize = 2048;

/// Sums of one slot.
#[derive(Debug, Default)]
pub(super) struct HistogramSums {
    /// Sum of increases; `None` before the first histogram, and of gauges.
    total: Option<FloatHistogram>,
    /// Sums of gauges by the window of time in which their last samples lie; their own sums are 0.
    windows: BTreeMap<i64, FloatHistogram>,
    /// Bounds of the first histogram with custom bounds.
    bounds: Arc<[f64]>,
    window_bytes: usize,
}

impl HistogramSums {
    /// Bounds that most series of the slot have.
    pub(super) fn bounds(&self) -> &Arc<[f64]> {
        &self.bounds
    }

    /// Sets the bounds, once.
    pub(super) fn set_bounds_of(&mut self, histogram: &Histogram) {
        if self.bounds.is_empty() {
            self.bounds = bounds_of(histogram).clone();
        }
    }

    /// Sum of increases.
    pub(super) fn total(&self) -> Option<&FloatHistogram> {
        self.total.as_ref()
    }

    /// Sets the sum of increases.
    pub(super) fn set_total(&mut self, total: Option<FloatHistogram>) {
        self.total = total;
    }

    /// Adds the increase from `last` to `new`; the first histogram of a series adds nothing.
    pub(super) fn add_increase(&mut self, last: Option<&Histogram>, new: &Histogram) {
        let Some(total) = &mut self.total else {
            let layout = new.to_float();
            let mut total = FloatHistogram {
                schema: layout.schema,
                zero_threshold: layout.zero_threshold,
                custom_values: layout.custom_values.clone(),
                ..FloatHistogram::default()
            };
            if let Some(last) = last {
                add(&mut total, &increase(last, new));
            }
            self.total = Some(total);
            return;
        };
        if let Some(last) = last {
            let count = total.count;
            add(total, &increase(last, new));
            debug_assert!(total.count >= count, "a total never falls");
        }
    }

    /// Adds the last histogram of a gauge.
    pub(super) fn add_gauge(&mut self, time: i64, histogram: &Histogram) {
        let added =
            FloatHistogram { sum: 0.0, reset_hint: ResetHint::Gauge, ..histogram.to_float().into_owned() };
        match self.windows.entry(time.div_euclid(WINDOW_MS)) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                self.window_bytes += bytes_of(&added);
                entry.insert(added);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                self.window_bytes -= bytes_of(entry.get());
                add(entry.get_mut(), &added);
                self.window_bytes += bytes_of(entry.get());
            }
        }
    }

    /// Removes the last histogram of a gauge that was added; `is_last` if its window has no other.
    pub(super) fn remove_gauge(&mut self, time: i64, histogram: &Histogram, is_last: bool) {
        let key = time.div_euclid(WINDOW_MS);
        let Some(window) = self.windows.get_mut(&key) else { return };
        self.window_bytes -= bytes_of(window);
        if is_last {
            // Rounding errors end with the window.
            self.windows.remove(&key);
            return;
        }
        let removed = FloatHistogram { sum: 0.0, ..histogram.to_float().into_owned() };
        let subtracted = window.subtract(&removed);
        debug_assert!(subtracted.is_ok(), "a slot has histograms of one kind of buckets");
        window.compact(0);
        self.window_bytes += bytes_of(window);
    }

    /// Returns the sum of the gauges that are active at `time`; its sum of observations is 0.
    pub(super) fn gauges_at(&self, time: i64) -> Option<FloatHistogram> {
        let mut windows = self.windows.range(windows_at(time)).map(|(_, window)| window);
        let mut sum = windows.next()?.clone();
        windows.for_each(|window| add(&mut sum, window));
        Some(sum)
    }

    /// Bytes of heap memory.
    pub(super) fn heap_bytes(&self) -> usize {
        self.window_bytes + self.total.as_ref().map_or(0, bytes_of) + size_of_val::<[f64]>(&self.bounds)
    }
}

/// Returns true if no count is infinite or NaN.
pub(super) fn has_finite_counts(histogram: &Histogram) -> bool {
    match histogram {
        Histogram::Int(_) => true,
        Histogram::Float(one) => {
            let counts = one.positive.counts.iter().chain(&one.negative.counts);
            counts.chain([&one.count, &one.zero_count]).all(|count| count.is_finite())
        }
    }
}

fn bytes_of(histogram: &FloatHistogram) -> usize {
    size_of::<FloatHistogram>() + histogram.heap_bytes() + size_of_val::<[f64]>(&histogram.custom_values)
}

/// Adds `other` as the addition of PromQL does, and bounds the number of buckets.
fn add(sum: &mut FloatHistogram, other: &FloatHistogram) {
    let added = sum.add(other);
    debug_assert!(added.is_ok(), "a slot has histograms of one kind of buckets");
    let bucket_count = |sum: &FloatHistogram| sum.positive.counts.len() + sum.negative.counts.len();
    while !sum.is_custom() && bucket_count(sum) > SUM_BUCKET_COUNT_MAX && sum.schema > SCHEMA_MIN {
        if sum.reduce_resolution(sum.schema - 1).is_err() {
            return;
        }
    }
}

/// Returns the increase from `last` to `new`, as `rate` sees it: after a reset all of `new`. A sum of
/// observations that is not finite does not count.
fn increase(last: &Histogram, new: &Histogram) -> FloatHistogram {
    let equal_layouts = match (last, new) {
        (Histogram::Int(last), Histogram::Int(new)) => increase_of_equal_layouts(last, new),
        _ => None,
    };
    let mut increase = equal_layouts.unwrap_or_else(|| increase_of_any(&last.to_float(), new.to_float()));
    increase.reset_hint = ResetHint::Unknown;
    if !increase.sum.is_finite() {
        increase.sum = 0.0;
    }
    increase
}

fn increase_of_any(last: &FloatHistogram, new: Cow<'_, FloatHistogram>) -> FloatHistogram {
    if new.is_reset_after(last) {
        return new.into_owned();
    }
    let mut increase = new.as_ref().clone();
    let has_negative = |one: &FloatHistogram| {
        let counts = one.positive.counts.iter().chain(&one.negative.counts);
        counts.chain([&one.count, &one.zero_count]).any(|&count| count < 0.0)
    };
    // The hint of the sender says that there was no reset since its sample before, which may not be `last`.
    if increase.subtract(last).is_err() || has_negative(&increase) { new.into_owned() } else { increase }
}

/// Returns the increase of histograms with equal buckets; `None` if they are different or a count fell.
// PERF: nearly all histograms of a series have the buckets of the one before; the general case copies each
// side several times.
fn increase_of_equal_layouts(last: &IntHistogram, new: &IntHistogram) -> Option<FloatHistogram> {
    if new.reset_hint == ResetHint::Reset || !has_equal_layout(last, new) {
        return None;
    }
    let side = |last: &[u64], new: &[u64]| {
        new.iter()
            .zip(last)
            .map(|(new, last)| Some(new.checked_sub(*last)? as f64))
            .collect::<Option<Vec<f64>>>()
    };
    Some(FloatHistogram {
        reset_hint: ResetHint::Unknown,
        schema: new.schema,
        zero_threshold: new.zero_threshold,
        zero_count: new.zero_count.checked_sub(last.zero_count)? as f64,
        count: new.count.checked_sub(last.count)? as f64,
        sum: new.sum - last.sum,
        positive: chronolith_model::histogram::Buckets {
            counts: side(&last.positive.counts, &new.positive.counts)?,
            spans: new.positive.spans.clone(),
        },
        negative: chronolith_model::histogram::Buckets {
            counts: side(&last.negative.counts, &new.negative.counts)?,
            spans: new.negative.spans.clone(),
        },
        custom_values: new.custom_values.clone(),
    })
}

fn has_equal_layout<C>(a: &HistogramOf<C>, b: &HistogramOf<C>) -> bool {
    a.schema == b.schema
        && a.zero_threshold == b.zero_threshold
        && a.positive.spans == b.positive.spans
        && a.negative.spans == b.negative.spans
        && a.positive.counts.len() == b.positive.counts.len()
        && a.negative.counts.len() == b.negative.counts.len()
        && (Arc::ptr_eq(&a.custom_values, &b.custom_values) || a.custom_values == b.custom_values)
}
