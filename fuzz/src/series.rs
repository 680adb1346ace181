//! Random series (native histograms: `series::histograms`): counters, gauges, classic histograms, with
//! everything that goes wrong with them.

// By path, so that tests can take this file, too.
#[path = "series/histograms.rs"]
mod histograms;

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Rng;
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Labels, LabelsBuilder};

use crate::testing::{MemQueryable, MemSample};

/// Upper bound of samples per series.
const SAMPLES_MAX: u64 = 60;

/// One series.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// With the metric name.
    pub(crate) labels: Labels,
    /// Ascending.
    pub(crate) samples: Vec<MemSample>,
}

/// Series of a run of questions.
#[derive(Debug, Clone)]
pub(crate) struct Dataset {
    /// Differs from dataset to dataset.
    pub(crate) id: u64,
    /// About when samples begin.
    pub(crate) start_ms: i64,
    /// The series.
    pub(crate) series: Vec<Series>,
}

impl Dataset {
    /// With an id of its own.
    pub(crate) fn new(start_ms: i64, series: Vec<Series>) -> Dataset {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Dataset { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), start_ms, series }
    }

    /// Samples of all series.
    pub(crate) fn sample_count(&self) -> usize {
        self.series.iter().map(|one| one.samples.len()).sum()
    }

    /// For our engine.
    pub(crate) fn source(&self) -> MemQueryable {
        let mut source = MemQueryable::new();
        for series in &self.series {
            source.add_samples(&series.labels, series.samples.iter().cloned());
        }
        source
    }
}

/// Process that generates values.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Counter,
    Gauge,
    Small,
    Wild,
    Constant,
}

/// A dataset with all metrics that the generator of queries knows.
pub(crate) fn random(rng: &Rng) -> Dataset {
    let start_ms = [0, 0, 60_000, -600_000, 1_700_000_000_000, 1_583_020_800_123][rng.below(6) as usize];
    let mut series = Vec::new();
    let jobs = ["api", "db"];
    for job in jobs {
        for instance in ["0", "1", "10", "2"] {
            let base = [("job", job), ("instance", instance)];
            for path in ["/", "/x"] {
                let labels = [base[0], base[1], ("path", path)];
                push(rng, start_ms, &mut series, "requests_total", &labels, Shape::Counter);
            }
            push(rng, start_ms, &mut series, "errors_total", &base, Shape::Counter);
            push(rng, start_ms, &mut series, "temp", &base, Shape::Gauge);
            push(rng, start_ms, &mut series, "up", &base, Shape::Small);
            push(rng, start_ms, &mut series, "wild", &base, Shape::Wild);
            let version = if rng.below(2) == 0 { "v1.9" } else { "v1.10" };
            push(
                rng,
                start_ms,
                &mut series,
                "build",
                &[base[0], base[1], ("version", version)],
                Shape::Constant,
            );
        }
        push(rng, start_ms, &mut series, "limit", &[("job", job)], Shape::Gauge);
        for le in ["0.1", "0.5", "1", "2.5", "+Inf"] {
            let labels = [("job", job), ("le", le)];
            push(rng, start_ms, &mut series, "lat_bucket", &labels, Shape::Counter);
        }
        push(rng, start_ms, &mut series, "lat_count", &[("job", job)], Shape::Counter);
        histograms::push(rng, start_ms, &mut series, job);
        for instance in ["0", "1", "2"] {
            let version = ["v1", "v2"][rng.below(2) as usize];
            let labels = [("job", job), ("instance", instance), ("version", version), ("zone", "a")];
            push(rng, start_ms, &mut series, "target_info", &labels, Shape::Constant);
            let zone = ["a", "b"][rng.below(2) as usize];
            let labels = [("job", job), ("instance", instance), ("zone", zone), ("kind", "k")];
            push(rng, start_ms, &mut series, "other_info", &labels, Shape::Constant);
            let labels = [("job", job), ("instance", instance), ("la bel", "x")];
            push(rng, start_ms, &mut series, "m.é", &labels, Shape::Gauge);
        }
    }
    for (le, at) in [("-1", 1), ("0", 2), ("1", 4), ("1.0", 5), ("10", 7), ("+Inf", 8), ("x", 1)] {
        let mut builder = LabelsBuilder::new();
        builder.set("__name__", "even_bucket");
        builder.set("le", le);
        let labels = builder.finish();
        let sample = |i| MemSample::float(start_ms + i * 30_000, (at * i) as f64);
        let samples = (0..SAMPLES_MAX as i64).map(sample).collect();
        series.push(Series { labels, samples });
    }
    if rng.below(4) == 0 {
        add_types(rng, &mut series);
    }
    Dataset::new(start_ms, series)
}

/// Says of some series what they are, and not always rightly.
fn add_types(rng: &Rng, all: &mut [Series]) {
    for series in all {
        let kind = ["counter", "gauge", "histogram", "", ""][rng.below(5) as usize];
        let mut builder = series.labels.to_builder();
        builder.set("__type__", kind);
        if rng.below(8) == 0 {
            builder.set("__unit__", "seconds");
        }
        series.labels = builder.finish();
    }
}

fn push(rng: &Rng, start_ms: i64, all: &mut Vec<Series>, name: &str, labels: &[(&str, &str)], shape: Shape) {
    if rng.below(12) == 0 {
        return;
    }
    let mut builder = LabelsBuilder::new();
    builder.set("__name__", name);
    labels.iter().for_each(|(name, value)| builder.set(name, value));
    all.push(Series { labels: builder.finish(), samples: with_starts(rng, samples(rng, start_ms, shape)) });
}

/// Now and then, says when counters started: where they did, just before each sample, or anywhere.
fn with_starts(rng: &Rng, samples: Vec<(i64, f64)>) -> Vec<MemSample> {
    let style = rng.below(20);
    let mut start_ms = samples.first().map_or(0, |first| first.0 - 10_000);
    let mut before = f64::NEG_INFINITY;
    let starting = |(time_ms, value): (i64, f64)| {
        if value < before {
            start_ms = time_ms - 5_000;
        }
        before = value;
        let start_ms = match style {
            0 => start_ms,
            1 => time_ms - 15_000,
            2 => time_ms - rng.below(60_000) as i64 + 5_000,
            _ => 0,
        };
        MemSample { start_ms, ..MemSample::float(time_ms, value) }
    };
    samples.into_iter().map(starting).collect()
}

fn samples(rng: &Rng, start_ms: i64, shape: Shape) -> Vec<(i64, f64)> {
    let step_ms = [15_000, 30_000, 30_000, 60_000][rng.below(4) as usize];
    let jitter_ms = [0, 0, 0, 500, step_ms as u64 - 1][rng.below(5) as usize];
    let (mut time_ms, mut value) = (start_ms + rng.below(5) as i64 * 10_000, first_value(rng, shape));
    let mut samples = Vec::new();
    let steady = rng.below(3) == 0;
    for _ in 0..5 + rng.below(SAMPLES_MAX - 5) {
        samples.push((time_ms + rng.below(jitter_ms + 1) as i64, value));
        time_ms += step_ms;
        if !steady && rng.below(15) == 0 {
            time_ms += step_ms * rng.below(20) as i64;
        }
        value = next_value(rng, shape, value, steady);
        if !steady && rng.below(20) == 0 {
            samples.push((time_ms, STALE_NAN));
            time_ms += step_ms;
        }
    }
    // Jitter may have swapped a sample with a staleness marker.
    samples.sort_by_key(|sample| sample.0);
    samples.dedup_by_key(|sample| sample.0);
    samples
}

fn first_value(rng: &Rng, shape: Shape) -> f64 {
    match shape {
        Shape::Counter => rng.below(1000) as f64,
        Shape::Gauge => rng.below(200) as f64 / 4.0 - 20.0,
        Shape::Small | Shape::Constant => 1.0,
        Shape::Wild => wild(rng),
    }
}

fn next_value(rng: &Rng, shape: Shape, before: f64, steady: bool) -> f64 {
    match shape {
        Shape::Counter if !steady && rng.below(12) == 0 => rng.below(3) as f64,
        Shape::Counter => before + [0.0, 1.0, 7.0, 100.0, 0.1][rng.below(5) as usize],
        Shape::Gauge => before + (rng.below(2000) as f64 - 1000.0) / 100.0,
        Shape::Small => rng.below(3) as f64,
        Shape::Wild => wild(rng),
        Shape::Constant => before,
    }
}

fn wild(rng: &Rng) -> f64 {
    let pool = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        1e300,
        -1e300,
        1.7e308,
        1e-300,
        3e9,
        951_782_400.0,
        1e10,
        -86_401.5,
        f64::NAN,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        123_456_789.125,
        1e21,
        1e-7,
        12.0,
        12.0,
    ];
    pool[rng.below(pool.len() as u64) as usize]
}
