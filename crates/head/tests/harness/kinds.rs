//! Samples of both kinds for storage tests: random ones, and a text that identifies each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_model::histogram::{Buckets, Count, HistogramOf, ResetHint, SCHEMA_CUSTOM, Span};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Columns, FloatHistogram, Histogram, IntHistogram, Labels, WriteBatch};

/// A sample to write.
#[derive(Debug, Clone)]
pub enum Sample {
    Float(f64),
    Histogram(Arc<Histogram>),
}

/// Returns the content of a sample, bit for bit, without empty buckets, which chunks fill in.
pub fn text(sample: &Sample) -> String {
    match sample {
        Sample::Float(value) => format!("{:016x}", value.to_bits()),
        Sample::Histogram(histogram) => match &**histogram {
            Histogram::Int(one) => text_of('i', one),
            Histogram::Float(one) => text_of('f', one),
        },
    }
}

fn text_of<C: Count + std::fmt::Debug>(kind: char, one: &HistogramOf<C>) -> String {
    if one.is_stale() {
        return "stale".to_owned();
    }
    let mut out = format!(
        "{kind} {} {:x} {:?} {:?} {:016x} {:?}",
        one.schema,
        one.zero_threshold.to_bits(),
        one.zero_count,
        one.count,
        one.sum.to_bits(),
        one.custom_values
    );
    for (sign, side) in [('+', &one.positive), ('-', &one.negative)] {
        for (idx, count) in side.walk().filter(|(_, count)| *count != C::default()) {
            write!(out, " {sign}{idx}:{count:?}").expect("memory takes text");
        }
    }
    out
}

/// Identifies a sample in eight bytes: the bits of a float, or the hash of a histogram.
pub fn mark(sample: &Sample) -> u64 {
    match sample {
        Sample::Float(value) => value.to_bits(),
        Sample::Histogram(_) => {
            let mut hasher = DefaultHasher::new();
            text(sample).hash(&mut hasher);
            hasher.finish()
        }
    }
}

/// Returns the marks of columns by timestamp.
pub fn marks(columns: &Columns) -> BTreeMap<i64, u64> {
    (0..columns.len()).map(|at| (columns.times[at], mark(&sample_at(columns, at)))).collect()
}

fn sample_at(columns: &Columns, at: usize) -> Sample {
    match columns.histogram_at(at) {
        Some(histogram) => Sample::Histogram(histogram.clone()),
        None => Sample::Float(columns.values[at]),
    }
}

/// Returns the texts of columns by timestamp.
pub fn texts(columns: &Columns) -> Vec<(i64, String)> {
    (0..columns.len()).map(|at| (columns.times[at], text(&sample_at(columns, at)))).collect()
}

/// Returns a float, or a histogram that mostly continues those around `level`.
pub fn random_sample(rng: &Rng, level: u64) -> Sample {
    if rng.below(3) == 0 {
        return Sample::Float(rng.below(4) as f64);
    }
    Sample::Histogram(Arc::new(match rng.below(8) {
        0 => Histogram::Int(IntHistogram { sum: STALE_NAN, ..IntHistogram::default() }),
        1 | 2 => Histogram::Float(random_floats(rng, level)),
        _ => Histogram::Int(random_ints(rng, level)),
    }))
}

fn random_counts(rng: &Rng, level: u64) -> (Vec<Span>, Vec<u64>) {
    let spans = vec![
        Span { offset: rng.below(3) as i32 - 1, length: 1 + rng.below(3) as u32 },
        Span { offset: 1 + rng.below(4) as i32, length: rng.below(4) as u32 },
    ];
    let total = spans.iter().map(|span| u64::from(span.length)).sum();
    (spans, (0..total).map(|at| level * (at % 4) + rng.below(2)).collect())
}

fn random_ints(rng: &Rng, level: u64) -> IntHistogram {
    let (spans, counts) = random_counts(rng, level);
    IntHistogram {
        reset_hint: [ResetHint::Unknown, ResetHint::Unknown, ResetHint::Reset, ResetHint::Gauge]
            [rng.below(4) as usize],
        schema: if rng.below(20) == 0 { 3 } else { 0 },
        zero_threshold: 0.001,
        zero_count: level,
        count: counts.iter().sum::<u64>() + level,
        sum: level as f64 + 0.5,
        positive: Buckets { spans, counts },
        ..IntHistogram::default()
    }
}

fn random_floats(rng: &Rng, level: u64) -> FloatHistogram {
    let counts: Vec<f64> = (0..3).map(|at| (level * at) as f64 + 0.25).collect();
    let is_custom = rng.below(2) == 0;
    FloatHistogram {
        schema: if is_custom { SCHEMA_CUSTOM } else { 1 },
        count: counts.iter().sum(),
        sum: -(level as f64),
        positive: Buckets { spans: vec![Span { offset: 0, length: 3 }], counts },
        custom_values: if is_custom { Arc::from([0.1, 1.0, 10.0]) } else { Arc::from([]) },
        ..FloatHistogram::default()
    }
}

/// Adds the samples of one series, in the order given, to a batch.
pub fn push(batch: &mut WriteBatch, labels: &Labels, samples: &[(i64, Sample)]) {
    let start = batch.times.len();
    let values: Vec<(i64, f64)> = samples
        .iter()
        .map(|(time, sample)| match sample {
            Sample::Float(value) => (*time, *value),
            Sample::Histogram(histogram) => (*time, histogram.sum()),
        })
        .collect();
    batch.push_labels(labels, &values);
    for (at, (_, sample)) in samples.iter().enumerate() {
        if let Sample::Histogram(histogram) = sample {
            batch.histograms.push(((start + at) as u32, histogram.clone()));
        }
    }
}
