//! Holt-Winters forecast: damped trend and multiplicative seasons, whose parameters are fitted by the
//! Nelder-Mead simplex method from a grid of starting points.
//!
//! Invariants: alpha, beta, gamma and phi are between 0 and 1. Missing values are NaN, and are no error of a
//! fit.

use crate::rows::plan::HoltWinters;

/// Starting points of each of the four factors.
const FACTOR_GUESSES: [f64; 2] = [0.3, 0.7];
/// Weight of the first values of a series without seasons.
const FIRST_WEIGHT: f64 = 0.5;
/// Deviation of the errors in the simplex at which a fit ends.
const PRECISION: f64 = 1.0e-4;
const ITERATIONS_MAX: usize = 1000;
/// Index of the level among the parameters, after alpha, beta, gamma, phi; the trend and the seasons follow.
const LEVEL: usize = 4;
const TREND: usize = 5;
const SEASONS: usize = 6;

/// Forecasts points at distances of `interval` after the last one. `times` ascend.
pub(crate) fn forecast(
    times: &[i64],
    values: &[f64],
    arguments: HoltWinters,
    interval: i64,
) -> (Vec<i64>, Vec<f64>) {
    let HoltWinters { horizon, season, with_fit } = arguments;
    let season = if season < 2 { 0 } else { season };
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Default::default() };
    if times.len() < 2 || times.len() < season || horizon == 0 {
        return Default::default();
    }
    let observed = regular_values(times, values, interval);
    if observed.len() < 2.max(season) {
        return Default::default();
    }
    let model = Model { observed: &observed, season };
    let fitted = model.values(&mut model.fit(), horizon);
    let points: Vec<(i64, f64)> = if with_fit {
        (0..).map(|idx| first + interval * idx).zip(fitted).collect()
    } else {
        let ahead = fitted.into_iter().skip(observed.len());
        (1..).map(|idx| last + interval * idx).zip(ahead).collect()
    };
    points.into_iter().filter(|(_, value)| !value.is_nan()).unzip()
}

/// Values at regular distances, NaN where there is none.
fn regular_values(times: &[i64], values: &[f64], interval: i64) -> Vec<f64> {
    let round = |time: i64| {
        let rest = time % interval;
        let down = time - rest;
        if rest > interval / 2 { down.saturating_add(interval) } else { down }
    };
    let mut at = round(times[0]);
    let mut regular = vec![values[0]];
    for (time, value) in times.iter().zip(values).skip(1) {
        let rounded = round(*time);
        if rounded <= at {
            continue;
        }
        at += interval;
        while at < rounded {
            regular.push(f64::NAN);
            at += interval;
        }
        regular.push(*value);
    }
    regular
}

struct Model<'m> {
    observed: &'m [f64],
    /// Values per season; 0 for none.
    season: usize,
}

impl Model<'_> {
    /// Level, trend and seasons of the first values, after four factors.
    fn start(&self) -> Vec<f64> {
        let y = self.observed;
        let mut start = vec![0.0; SEASONS + self.season];
        let is_known = |value: f64| !value.is_nan();
        if self.season == 0 {
            start[LEVEL] = FIRST_WEIGHT * y[0];
            start[TREND] = if is_known(y[1]) { FIRST_WEIGHT * (y[1] - y[0]) } else { 0.0 };
            return start;
        }
        let count = self.season as f64;
        let first = y.iter().take(self.season);
        start[LEVEL] = first.clone().filter(|value| is_known(**value)).map(|value| 1.0 / count * value).sum();
        let changes = first.zip(&y[self.season.min(y.len())..]).map(|(before, after)| after - before);
        let weight = 1.0 / (count * count);
        start[TREND] = changes.filter(|change| is_known(*change)).map(|change| weight * change).sum();
        for idx in 0..self.season {
            start[SEASONS + idx] = if is_known(y[idx]) { y[idx] / start[LEVEL] } else { 0.0 };
        }
        start
    }

    /// The parameters with the least error, of fits from all starting points.
    fn fit(&self) -> Vec<f64> {
        let mut best: Option<(f64, Vec<f64>)> = None;
        let mut start = self.start();
        for guess in 0..FACTOR_GUESSES.len().pow(LEVEL as u32) {
            for (factor, value) in start.iter_mut().take(LEVEL).enumerate() {
                // The last factor changes fastest.
                *value = FACTOR_GUESSES[guess >> (LEVEL - 1 - factor) & 1];
            }
            let fit = minimize(|parameters| self.error(parameters), &start);
            if best.as_ref().is_none_or(|(least, _)| fit.0 < *least) {
                best = Some(fit);
            }
        }
        best.map(|(_, parameters)| parameters).unwrap_or_default()
    }

    /// Sum of squared differences to the observed values. Moves the parameters as [`Model::values`].
    fn error(&self, parameters: &mut [f64]) -> f64 {
        let mut error = 0.0;
        for (fitted, observed) in self.values(parameters, 0).iter().zip(self.observed) {
            if observed.is_nan() {
                continue;
            }
            if fitted.is_nan() {
                return f64::INFINITY;
            }
            error += (fitted - observed) * (fitted - observed);
        }
        error
    }

    /// Fitted values, and `horizon` after them. The seasons move along: those after the last value stay in
    /// the parameters, and are where the fit continues.
    fn values(&self, parameters: &mut [f64], horizon: usize) -> Vec<f64> {
        clamp_factors(parameters);
        let [alpha, beta, gamma, phi] = [parameters[0], parameters[1], parameters[2], parameters[3]];
        let mut level = parameters[LEVEL];
        let mut trend = parameters[TREND];
        let seasons = &mut parameters[SEASONS..];
        let mut value = self.observed[0];
        let mut damping = phi;
        let mut all = vec![value];
        let mut seasons_start = self.season.saturating_sub(1);
        for step in 1..self.observed.len() + horizon {
            let mut factor = 1.0;
            let mut next_factor = 1.0;
            if self.season > 0 {
                let position = step % self.season;
                factor = seasons[(step + seasons_start - self.season) % self.season];
                next_factor = seasons[(step + position + seasons_start - self.season) % self.season];
            }
            let old_level = level;
            let old_trend = trend;
            let expected = old_level + phi * old_trend;
            level = alpha * (value / factor) + (1.0 - alpha) * expected;
            trend = beta * (level - old_level) + (1.0 - beta) * phi * old_trend;
            let new_factor = gamma * (value / expected) + (1.0 - gamma) * factor;
            value = (level + damping * trend) * next_factor;
            damping += phi.powf(step as f64);
            if self.season > 0 {
                seasons[(step + seasons_start) % self.season] = new_factor;
                seasons_start += 1;
            }
            all.push(value);
        }
        all
    }
}

fn clamp_factors(parameters: &mut [f64]) {
    parameters.iter_mut().take(LEVEL).for_each(|factor| *factor = factor.clamp(0.0, 1.0));
}

/// Vertex of a simplex with its error.
#[derive(Clone)]
struct Vertex {
    error: f64,
    at: Vec<f64>,
}

/// Minimises a function by the Nelder-Mead method; returns the least error and its parameters.
fn minimize(mut error_of: impl FnMut(&mut [f64]) -> f64, start: &[f64]) -> (f64, Vec<f64>) {
    let mut evaluate = |mut at: Vec<f64>| {
        let error = error_of(&mut at);
        Vertex { error, at }
    };
    let mut simplex: Vec<Vertex> = first_simplex(start).into_iter().map(&mut evaluate).collect();
    let dimensions = start.len() as f64;
    for _ in 0..ITERATIONS_MAX {
        let (worst, best, second) = ranks(&simplex);
        let center: Vec<f64> = (0..start.len())
            .map(|axis| {
                let others = simplex.iter().enumerate().filter(|(idx, _)| *idx != worst);
                others.map(|(_, vertex)| vertex.at[axis]).sum::<f64>() / dimensions
            })
            .collect();
        let from_center = |to: &[f64], factor: f64| -> Vec<f64> {
            center.iter().zip(to).map(|(center, to)| center + factor * (to - center)).collect()
        };
        let away: Vec<f64> =
            center.iter().zip(&simplex[worst].at).map(|(center, at)| center + (center - at)).collect();
        let reflected = evaluate(away);
        if reflected.error < simplex[second].error && reflected.error >= simplex[best].error {
            simplex[worst] = reflected.clone();
        }
        if reflected.error < simplex[best].error {
            let expanded = evaluate(from_center(&reflected.at, 2.0));
            simplex[worst] = if expanded.error < reflected.error { expanded } else { reflected.clone() };
        }
        if reflected.error >= simplex[second].error {
            let outside = reflected.error < simplex[worst].error;
            let to = if outside { &reflected.at } else { &simplex[worst].at };
            let contracted = evaluate(from_center(to, 0.5));
            if contracted.error < simplex[worst].error {
                simplex[worst] = contracted;
            } else {
                let origin = simplex[best].at.clone();
                for (idx, vertex) in simplex.iter_mut().enumerate() {
                    if idx != best {
                        let halved = origin.iter().zip(&vertex.at).map(|(best, at)| best + (at - best) / 2.0);
                        vertex.at = halved.collect();
                    }
                }
                // Only the worst two are evaluated again, the others keep their errors.
                for idx in [worst, second] {
                    simplex[idx] = evaluate(simplex[idx].at.clone());
                }
            }
        }
        if deviation(&simplex, dimensions) < PRECISION {
            break;
        }
    }
    let (_, best, _) = ranks(&simplex);
    let best = evaluate(simplex[best].at.clone());
    (best.error, best.at)
}

fn first_simplex(start: &[f64]) -> Vec<Vec<f64>> {
    let count = start.len() as f64;
    let near = ((count + 1.0).sqrt() - 1.0) / (count * std::f64::consts::SQRT_2);
    let far = ((count + 1.0).sqrt() - 1.0 + count) / (count * std::f64::consts::SQRT_2);
    let vertex = |axis: usize| {
        let moved = start.iter().enumerate();
        moved.map(|(idx, at)| at + if idx == axis { far } else { near }).collect()
    };
    std::iter::once(start.to_vec()).chain((0..start.len()).map(vertex)).collect()
}

/// Indexes of the worst, the best and the second worst vertex.
fn ranks(simplex: &[Vertex]) -> (usize, usize, usize) {
    let mut worst = 0;
    let mut best = 0;
    for (idx, vertex) in simplex.iter().enumerate() {
        if vertex.error > simplex[worst].error {
            worst = idx;
        }
        if vertex.error < simplex[best].error {
            best = idx;
        }
    }
    let mut second = best;
    for (idx, vertex) in simplex.iter().enumerate() {
        if vertex.error > simplex[second].error && vertex.error < simplex[worst].error {
            second = idx;
        }
    }
    (worst, best, second)
}

fn deviation(simplex: &[Vertex], dimensions: f64) -> f64 {
    let mean = simplex.iter().map(|vertex| vertex.error).sum::<f64>() / (dimensions + 1.0);
    let squares = simplex.iter().map(|vertex| (vertex.error - mean).powi(2) / dimensions);
    squares.sum::<f64>().sqrt()
}
