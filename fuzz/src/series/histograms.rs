//! Random series of native histograms: counters and gauges, exponential and with bounds of their own, with
//! resets, changes of layout, floats in between and staleness markers.

use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_model::histogram::{Buckets, SCHEMA_CUSTOM};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{FloatHistogram, LabelsBuilder, ResetHint, Span};

use super::Series;

use crate::testing::MemSample;

/// Upper bound of samples per series.
const SAMPLES_MAX: u64 = 40;

/// Origin of a bucket layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Exponential,
    Custom,
    /// One of the two, changing now and then, with floats in between.
    Mixed,
}

/// Adds the histograms of a job.
pub(super) fn push(rng: &Rng, start_ms: i64, all: &mut Vec<Series>, job: &str) {
    for (name, layout, gauge) in [
        ("h_exp", Layout::Exponential, false),
        ("h_gauge", Layout::Exponential, true),
        ("h_custom", Layout::Custom, false),
        ("h_mixed", Layout::Mixed, false),
    ] {
        for instance in ["0", "1", "2"] {
            if rng.below(10) == 0 {
                continue;
            }
            let mut builder = LabelsBuilder::new();
            for (label, value) in [("__name__", name), ("job", job), ("instance", instance)] {
                builder.set(label, value);
            }
            all.push(Series { labels: builder.finish(), samples: samples(rng, start_ms, layout, gauge) });
        }
    }
}

fn samples(rng: &Rng, start_ms: i64, layout: Layout, gauge: bool) -> Vec<MemSample> {
    let step_ms = [15_000, 30_000, 60_000][rng.below(3) as usize];
    let mut time_ms = start_ms + rng.below(5) as i64 * 10_000;
    let mut current = fresh(rng, layout, gauge);
    let mut samples = Vec::new();
    let steady = rng.below(3) == 0;
    for _ in 0..3 + rng.below(SAMPLES_MAX - 3) {
        samples.push(MemSample::histogram(time_ms, current.clone()));
        time_ms += step_ms;
        match rng.below(if steady { 200 } else { 16 }) {
            0 => time_ms += step_ms * rng.below(12) as i64,
            1 => current = fresh(rng, layout, gauge),
            2 if layout == Layout::Mixed => {
                samples.push(MemSample::float(time_ms, rng.below(50) as f64));
                time_ms += step_ms;
            }
            3 => {
                samples.push(MemSample::float(time_ms, STALE_NAN));
                time_ms += step_ms;
            }
            _ => grow(rng, &mut current, gauge),
        }
    }
    samples
}

/// A new layout with few observations.
fn fresh(rng: &Rng, layout: Layout, gauge: bool) -> FloatHistogram {
    let custom = match layout {
        Layout::Exponential => false,
        Layout::Custom => true,
        Layout::Mixed => rng.below(3) == 0,
    };
    let mut histogram = FloatHistogram::default();
    if custom {
        histogram.schema = SCHEMA_CUSTOM;
        let bounds: &[f64] =
            [&[1.0, 2.0, 5.0][..], &[1.0, 5.0], &[-1.0, 0.0, 2.0, 10.0], &[2.0]][rng.below(4) as usize];
        histogram.custom_values = Arc::from(bounds);
        histogram.positive = side(rng, 0, bounds.len() as u64 + 1);
    } else {
        histogram.schema = [0, 0, 1, 3, -1][rng.below(5) as usize];
        histogram.zero_threshold = [0.0, 0.001, 0.001, 0.3, 2.0][rng.below(5) as usize];
        histogram.zero_count = rng.below(3) as f64;
        histogram.positive = side(rng, rng.below(8) as i32 - 4, 1 + rng.below(6));
        if rng.below(3) == 0 {
            histogram.negative = side(rng, rng.below(6) as i32 - 3, 1 + rng.below(4));
        }
    }
    if gauge && rng.below(10) > 0 {
        histogram.reset_hint = ResetHint::Gauge;
    }
    settle(rng, &mut histogram);
    histogram
}

fn side(rng: &Rng, offset: i32, count: u64) -> Buckets<f64> {
    let counts: Vec<f64> = (0..count).map(|_| rng.below(4) as f64).collect();
    if count < 3 || rng.below(2) == 0 {
        return Buckets { spans: vec![Span { offset, length: count as u32 }], counts };
    }
    // With exponential buckets there may be a gap.
    let gap = if offset == 0 { 0 } else { rng.below(3) as i32 };
    let spans = vec![Span { offset, length: 1 }, Span { offset: gap, length: count as u32 - 1 }];
    Buckets { spans, counts }
}

fn grow(rng: &Rng, histogram: &mut FloatHistogram, gauge: bool) {
    let sides = histogram.positive.counts.iter_mut().chain(&mut histogram.negative.counts);
    for count in sides {
        *count += rng.below(3) as f64;
        if gauge && rng.below(4) == 0 {
            *count = rng.below(5) as f64;
        }
    }
    settle(rng, histogram);
}

/// Sets count and sum from the buckets; NaN observations now and then.
fn settle(rng: &Rng, histogram: &mut FloatHistogram) {
    let sides = histogram.positive.counts.iter().chain(&histogram.negative.counts);
    histogram.count = histogram.zero_count + sides.sum::<f64>();
    histogram.sum = histogram.count * (rng.below(9) as f64 - 2.0) / 2.0;
    if rng.below(60) == 0 {
        histogram.count += rng.below(3) as f64;
        histogram.sum = f64::NAN;
    }
}
