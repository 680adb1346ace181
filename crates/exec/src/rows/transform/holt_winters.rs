//! Holt-Winters forecast: damped trend and multiplicative seasons, whose parameters are fitted by the
//! Nelder-Mead simplex method from a grid of starting points.
//!
//! Invariants: alpha, beta, gamma and phi are between 0 and 1. Missing values are NaN, and are no error of a
//! fit. Horizon, season and distance are the client's: memory is reserved before it is allocated, and the
//! deadline is checked at each evaluation of the fit.

use crate::rows::error::RowError;
use crate::rows::execution::RowExecution;
use crate::rows::finish::Finish;
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

/// Values between two checks of the deadline.
const VALUES_PER_CHECK: usize = 64 * 1024;

/// Forecasts points at distances of `interval` after the last one; none for times that descend, as InfluxDB.
pub(crate) fn forecast(
    times: &[i64],
    values: &[f64],
    arguments: HoltWinters,
    interval: i64,
    to: &mut Finish<'_>,
) -> Result<(Vec<i64>, Vec<f64>), RowError> {
    let HoltWinters { horizon, season, with_fit } = arguments;
    let season = if season < 2 { 0 } else { season };
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(Default::default()) };
    if times.len() < 2 || times.len() < season || horizon == 0 || last < first {
        return Ok(Default::default());
    }
    let observed_max = regular_count(*first, *last, interval);
    let _observed = to.execution.reserve(observed_max.saturating_mul(size_of::<f64>()))?;
    let observed = regular_values(times, values, interval, observed_max, to.execution)?;
    if observed.len() < 2.max(season) {
        return Ok(Default::default());
    }
    let fitted_count = observed.len().saturating_add(horizon);
    let returned = if with_fit { fitted_count } else { horizon };
    // Simplex, its next state and some vertices.
    let axes = SEASONS + season;
    let simplex = axes.saturating_add(1).saturating_mul(2 * axes + 8).saturating_mul(size_of::<f64>());
    let _simplex = to.execution.reserve(simplex)?;
    let _fitted = to.execution.reserve(fitted_count.saturating_mul(size_of::<f64>()))?;
    to.memory.take(returned.saturating_mul(size_of::<i64>() + size_of::<f64>()))?;
    let model = Model { observed: &observed, season, execution: to.execution };
    let fitted = model.values(&mut model.fit()?, horizon)?;
    let start = if with_fit { *first } else { *last };
    let skipped = if with_fit { 0 } else { observed.len() };
    let mut out = (Vec::with_capacity(returned), Vec::with_capacity(returned));
    // The first point of a forecast is one interval after the last one.
    for (idx, value) in (i64::from(!with_fit)..).zip(fitted.into_iter().skip(skipped)) {
        if !value.is_nan() {
            out.0.push(start.wrapping_add(interval.wrapping_mul(idx)));
            out.1.push(value);
        }
    }
    Ok(out)
}

/// The multiple of `interval` next to a time.
fn rounded(time: i64, interval: i64) -> i64 {
    let rest = time % interval;
    let down = time - rest;
    if rest > interval / 2 { down.saturating_add(interval) } else { down }
}

/// Number of regular values at most.
fn regular_count(first: i64, last: i64, interval: i64) -> usize {
    let span = i128::from(rounded(last, interval)) - i128::from(rounded(first, interval));
    usize::try_from(span / i128::from(interval) + 2).unwrap_or(usize::MAX)
}

/// Values at regular distances, NaN where there is none.
fn regular_values(
    times: &[i64],
    values: &[f64],
    interval: i64,
    count_max: usize,
    execution: &RowExecution,
) -> Result<Vec<f64>, RowError> {
    let (Some(first_time), Some(first_value)) = (times.first(), values.first()) else {
        return Ok(Vec::new());
    };
    let mut at = rounded(*first_time, interval);
    let mut regular = Vec::with_capacity(count_max);
    regular.push(*first_value);
    for (time, value) in times.iter().zip(values).skip(1) {
        let rounded = rounded(*time, interval);
        if rounded <= at {
            continue;
        }
        at = at.saturating_add(interval);
        while at < rounded {
            if regular.len().is_multiple_of(VALUES_PER_CHECK) {
                execution.check()?;
            }
            regular.push(f64::NAN);
            at = at.saturating_add(interval);
        }
        regular.push(*value);
    }
    Ok(regular)
}

struct Model<'m> {
    observed: &'m [f64],
    /// Values per season; 0 for none.
    season: usize,
    execution: &'m RowExecution,
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
    fn fit(&self) -> Result<Vec<f64>, RowError> {
        let mut best: Option<(f64, Vec<f64>)> = None;
        let mut start = self.start();
        for guess in 0..FACTOR_GUESSES.len().pow(LEVEL as u32) {
            for (factor, value) in start.iter_mut().take(LEVEL).enumerate() {
                // The last factor changes fastest.
                *value = FACTOR_GUESSES[guess >> (LEVEL - 1 - factor) & 1];
            }
            let fit = minimize(|parameters| self.error(parameters), &start)?;
            if best.as_ref().is_none_or(|(least, _)| fit.0 < *least) {
                best = Some(fit);
            }
        }
        Ok(best.map(|(_, parameters)| parameters).unwrap_or_default())
    }

    /// Sum of squared differences to the observed values. Moves the parameters as [`Model::values`].
    fn error(&self, parameters: &mut [f64]) -> Result<f64, RowError> {
        self.execution.check()?;
        let mut error = 0.0;
        for (fitted, observed) in self.values(parameters, 0)?.iter().zip(self.observed) {
            if observed.is_nan() {
                continue;
            }
            if fitted.is_nan() {
                return Ok(f64::INFINITY);
            }
            error += (fitted - observed) * (fitted - observed);
        }
        Ok(error)
    }

    /// Fitted values, and `horizon` after them. The seasons move along: those after the last value stay in
    /// the parameters, and are where the fit continues.
    fn values(&self, parameters: &mut [f64], horizon: usize) -> Result<Vec<f64>, RowError> {
        clamp_factors(parameters);
        let [alpha, beta, gamma, phi] = [parameters[0], parameters[1], parameters[2], parameters[3]];
        let mut level = parameters[LEVEL];
        let mut trend = parameters[TREND];
        let seasons = &mut parameters[SEASONS..];
        let mut value = self.observed[0];
        let mut damping = phi;
        let count = self.observed.len().saturating_add(horizon);
        let mut all = Vec::with_capacity(count);
        all.push(value);
        let mut seasons_start = self.season.saturating_sub(1);
        for step in 1..count {
            if step.is_multiple_of(VALUES_PER_CHECK) {
                self.execution.check()?;
            }
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
        Ok(all)
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
///
/// # Errors
/// The error of the function.
fn minimize(
    mut error_of: impl FnMut(&mut [f64]) -> Result<f64, RowError>,
    start: &[f64],
) -> Result<(f64, Vec<f64>), RowError> {
    let mut evaluate = |mut at: Vec<f64>| -> Result<Vertex, RowError> {
        let error = error_of(&mut at)?;
        Ok(Vertex { error, at })
    };
    let mut simplex = Vec::with_capacity(start.len() + 1);
    for vertex in first_simplex(start) {
        simplex.push(evaluate(vertex)?);
    }
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
        let reflected = evaluate(away)?;
        if reflected.error < simplex[second].error && reflected.error >= simplex[best].error {
            simplex[worst] = reflected.clone();
        }
        if reflected.error < simplex[best].error {
            let expanded = evaluate(from_center(&reflected.at, 2.0))?;
            simplex[worst] = if expanded.error < reflected.error { expanded } else { reflected.clone() };
        }
        if reflected.error >= simplex[second].error {
            let outside = reflected.error < simplex[worst].error;
            let to = if outside { &reflected.at } else { &simplex[worst].at };
            let contracted = evaluate(from_center(to, 0.5))?;
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
                    simplex[idx] = evaluate(simplex[idx].at.clone())?;
                }
            }
        }
        if deviation(&simplex, dimensions) < PRECISION {
            break;
        }
    }
    let (_, best, _) = ranks(&simplex);
    let best = evaluate(simplex[best].at.clone())?;
    Ok((best.error, best.at))
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
