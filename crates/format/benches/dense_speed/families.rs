//! Six families of series and two habits of scraping, for examples that measure bytes. Not here:
//! measurements.

use chronolith_base::Rng;

pub(crate) const SAMPLES: usize = 8192;
const SCRAPE_MS: i64 = 15_000;
/// Aligned to a day.
pub(crate) const START_MS: i64 = 1_699_920_000_000;

/// Makes the values of one series.
pub(crate) type Generator = fn(&Rng) -> Vec<f64>;

/// Makes the times of one series.
pub(crate) type Habit = fn(&Rng) -> Vec<i64>;

pub(crate) const FAMILIES: [(&str, f64, Generator); 6] = [
    ("counter", 0.30, counter),
    ("gauge 2dec", 0.10, gauge),
    ("const-ish", 0.40, mostly_constant),
    ("float sum", 0.05, float_sum),
    ("bytes 4k", 0.08, memory),
    ("small int", 0.07, small_integers),
];

fn uniform(rng: &Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn normal(rng: &Rng) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

fn log_uniform(rng: &Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(uniform(rng))
}

fn poisson(rng: &Rng, rate: f64) -> f64 {
    if rate > 60.0 {
        return (rate + rate.sqrt() * normal(rng)).round().max(0.0);
    }
    let (limit, mut product, mut count) = ((-rate).exp(), uniform(rng), 0.0);
    while product > limit {
        product *= uniform(rng);
        count += 1.0;
    }
    count
}

fn counter(rng: &Rng) -> Vec<f64> {
    let rate = log_uniform(rng, 0.1, 500.0);
    let mut total = (rate * uniform(rng) * 10_000.0).round();
    let step = |_| {
        total = if rng.below(4000) == 0 { 0.0 } else { total + poisson(rng, rate) };
        total
    };
    (0..SAMPLES).map(step).collect()
}

fn gauge(rng: &Rng) -> Vec<f64> {
    let mut level = 0.0;
    let mean = log_uniform(rng, 20.0, 80.0);
    let step = |_| {
        level = level * 0.95 + 0.35 * normal(rng);
        ((mean + level) * 100.0).round() / 100.0
    };
    (0..SAMPLES).map(step).collect()
}

fn mostly_constant(rng: &Rng) -> Vec<f64> {
    let changes = uniform(rng) > 0.7;
    let mut value = [0.0, 1.0, 0.0, 1.0, 3.0, 16.0, 0.5, 1_690_000_123.45][rng.below(8) as usize];
    let step = |_| {
        if changes && rng.below(200) == 0 {
            value = rng.below(30) as f64;
        }
        value
    };
    (0..SAMPLES).map(step).collect()
}

fn float_sum(rng: &Rng) -> Vec<f64> {
    let rate = log_uniform(rng, 0.1, 50.0);
    let mut total = 0.0;
    let step = |_| {
        for _ in 0..poisson(rng, rate) as usize {
            total -= 0.05 * (1.0 - uniform(rng)).ln();
        }
        total
    };
    (0..SAMPLES).map(step).collect()
}

fn memory(rng: &Rng) -> Vec<f64> {
    let mut pages = log_uniform(rng, 1e4, 1e6).round();
    let step = |_| {
        if rng.below(5) < 3 {
            pages = (pages + 60.0 * normal(rng)).round().max(100.0);
        }
        pages * 4096.0
    };
    (0..SAMPLES).map(step).collect()
}

fn small_integers(rng: &Rng) -> Vec<f64> {
    let mean = log_uniform(rng, 3.0, 12.0);
    (0..SAMPLES).map(|_| (mean + 1.5 * normal(rng)).round().max(0.0)).collect()
}

pub(crate) fn regular_times(rng: &Rng) -> Vec<i64> {
    let mut step = 0;
    let next = |_| {
        step += if rng.below(2000) == 0 { 2 } else { 1 };
        START_MS + step * SCRAPE_MS
    };
    (0..SAMPLES).map(next).collect()
}

pub(crate) fn jittered_times(rng: &Rng) -> Vec<i64> {
    let jitter = |time: i64| {
        let late = if rng.below(100) == 0 { rng.below(200) as f64 } else { 3.0 * normal(rng) };
        time + late.round() as i64
    };
    regular_times(rng).into_iter().map(jitter).collect()
}
