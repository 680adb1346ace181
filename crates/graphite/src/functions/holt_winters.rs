//! Holt-Winters: triple exponential smoothing with forecast, confidence bands and aberration.
//!
//! Invariants: the analysis begins one bootstrap interval before the range; an empty value breaks the
//! sequence.
//! Not here: straight lines (`regression`).

use super::draw::area_between;
use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, with_number, with_text};
use crate::absent::ABSENT;
use crate::error::EvalError;
use crate::parameters::{Bound, Parameter, ParameterType};
use crate::scope::Scope;
use crate::series::{Grid, Series};
use crate::time::interval_seconds;
use crate::value::Value;

const FORECAST: &[Parameter] = &[
    SERIES_LIST,
    with_text("bootstrapInterval", ParameterType::Interval, "7d"),
    with_text("seasonality", ParameterType::Interval, "1d"),
];
const BANDS: &[Parameter] = &[
    SERIES_LIST,
    with_number("delta", ParameterType::Integer, 3.0),
    with_text("bootstrapInterval", ParameterType::Interval, "7d"),
    with_text("seasonality", ParameterType::Interval, "1d"),
];

pub(super) const FUNCTIONS: &[Function] = &[
    function("holtWintersForecast", Group::Calculate, FORECAST, forecast, "Forecast of each series."),
    function(
        "holtWintersConfidenceBands",
        Group::Calculate,
        BANDS,
        |scope, args| bands(scope, args).map(|bands| Value::Series(flatten(bands))),
        "Lower and upper band of each series.",
    ),
    function(
        "holtWintersConfidenceArea",
        Group::Calculate,
        BANDS,
        area,
        "Area between the bands of one series.",
    ),
    function(
        "holtWintersAberration",
        Group::Calculate,
        BANDS,
        aberration,
        "Distance of each value from the bands.",
    ),
];

/// Smoothing of intercept and season; slope.
const ALPHA: f64 = 0.1;
const GAMMA: f64 = 0.1;
const BETA: f64 = 0.0035;

/// Smoothed state after each value.
#[derive(Default)]
struct Analysis {
    intercept: Option<f64>,
    slope: f64,
    seasonals: Vec<f64>,
    predictions: Vec<f64>,
    deviations: Vec<f64>,
    next_prediction: Option<f64>,
}

/// Value one season before index `idx`; 0 in the first season.
fn season_before(values: &[f64], idx: usize, season_len: usize) -> Option<f64> {
    idx.checked_sub(season_len).map_or(Some(0.0), |idx| values.get(idx).copied())
}

impl Analysis {
    fn skip(&mut self) {
        // Without a value the arithmetic ends; the next value begins with itself.
        self.intercept = None;
        self.slope = 0.0;
        self.seasonals.push(0.0);
        self.predictions.push(self.next_prediction.take().unwrap_or(ABSENT));
        self.deviations.push(0.0);
    }

    fn push(&mut self, idx: usize, actual: f64, season_len: usize) -> Option<()> {
        debug_assert_eq!(self.seasonals.len(), idx, "values are pushed or skipped in order");
        let prediction = if idx == 0 { Some(actual) } else { self.next_prediction };
        let last_intercept = self.intercept.unwrap_or(actual);
        let last_slope = if idx == 0 { 0.0 } else { self.slope };
        let last_seasonal = season_before(&self.seasonals, idx, season_len)?;
        let next_seasonal = season_before(&self.seasonals, idx + 1, season_len)?;
        let last_deviation = season_before(&self.deviations, idx, season_len)?;
        let intercept = ALPHA * (actual - last_seasonal) + (1.0 - ALPHA) * (last_intercept + last_slope);
        let slope = BETA * (intercept - last_intercept) + (1.0 - BETA) * last_slope;
        let seasonal = GAMMA * (actual - intercept) + (1.0 - GAMMA) * last_seasonal;
        self.next_prediction = Some(intercept + slope + next_seasonal);
        let distance = (actual - prediction.unwrap_or(0.0)).abs();
        (self.intercept, self.slope) = (Some(intercept), slope);
        self.seasonals.push(seasonal);
        self.predictions.push(prediction.unwrap_or(ABSENT));
        self.deviations.push(GAMMA * distance + (1.0 - GAMMA) * last_deviation);
        Some(())
    }
}

/// Analyses a series and marks it with the tags that graphite-web leaves.
fn analyse(scope: &Scope<'_>, series: &mut Series, season: i64) -> Result<Analysis, EvalError> {
    let too_short = || {
        EvalError::Parameter(format!(
            "holtWinters: season of {season} s is too short for step {}",
            series.step
        ))
    };
    let season_len =
        season.checked_div(series.step).and_then(|len| usize::try_from(len).ok()).ok_or_else(too_short)?;
    scope.shared.budget.reserve_points(3 * series.values.len() as u64)?;
    // The state grows by doubling; the visible parts and both bands are copies.
    scope.shared.budget.reserve_bytes(7 * series.value_bytes())?;
    let mut analysis = Analysis::default();
    for (idx, actual) in series.values.iter().enumerate() {
        if actual.is_nan() {
            analysis.skip();
        } else {
            analysis.push(idx, *actual, season_len).ok_or_else(too_short)?;
        }
    }
    let Analysis { seasonals, predictions, deviations, .. } = &analysis;
    let lens = [seasonals.len(), predictions.len(), deviations.len()];
    assert_eq!(lens, [series.values.len(); 3], "each value has its prediction, deviation and season");
    series.tag("holtWintersForecast", 1);
    series.tag("holtWintersDeviation", 1);
    Ok(analysis)
}

/// Bootstrap and season of a call.
struct Intervals {
    bootstrap: i64,
    season: i64,
}

impl Intervals {
    fn read(args: &Bound, first: usize) -> Result<Self, EvalError> {
        let bootstrap = interval_seconds(args.text_or(first, "7d")?)?;
        let season = interval_seconds(args.text_or(first + 1, "1d")?)?;
        Ok(Intervals { bootstrap, season })
    }

    fn preview(&self, scope: &Scope<'_>) -> Result<Vec<Series>, EvalError> {
        scope.reevaluate(scope.start.plus(-self.bootstrap), scope.end)
    }

    /// The part of `values` that lies in the range.
    fn visible(&self, values: &[f64], step: i64) -> Vec<f64> {
        let count =
            self.bootstrap.checked_div(step).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        values.get(count..).unwrap_or(&[]).to_vec()
    }

    fn grid(&self, series: &Series) -> Grid {
        Grid { start: series.start + self.bootstrap, end: series.end, step: series.step }
    }
}

/// A series with the tags of its source.
fn tagged(name: String, grid: Grid, values: Vec<f64>, source: &Series) -> Series {
    let mut series = Series::new(name, grid, values, source.x_files_factor);
    series.tags = source.tags.clone();
    series
}

fn forecast(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let intervals = Intervals::read(args, 1)?;
    let mut results = Vec::new();
    for mut series in intervals.preview(scope)? {
        let analysis = analyse(scope, &mut series, intervals.season)?;
        let values = intervals.visible(&analysis.predictions, series.step);
        results.push(tagged(
            format!("holtWintersForecast({})", series.name),
            intervals.grid(&series),
            values,
            &series,
        ));
    }
    Ok(Value::Series(results))
}

/// Bands of one series.
struct Bands {
    lower: Series,
    upper: Series,
}

fn flatten(bands: Vec<Bands>) -> Vec<Series> {
    bands.into_iter().flat_map(|bands| [bands.lower, bands.upper]).collect()
}

fn bands(scope: &Scope<'_>, args: &Bound) -> Result<Vec<Bands>, EvalError> {
    let delta = args.value(1).map_or(Some(3.0), Value::number);
    let delta =
        delta.ok_or_else(|| EvalError::Parameter("holtWinters: delta must be a number".to_owned()))?;
    let intervals = Intervals::read(args, 2)?;
    let mut results = Vec::new();
    for mut series in intervals.preview(scope)? {
        let analysis = analyse(scope, &mut series, intervals.season)?;
        series.tag("holtWintersConfidenceUpper", 1);
        series.tag("holtWintersConfidenceLower", 1);
        let forecast = intervals.visible(&analysis.predictions, series.step);
        let deviation = intervals.visible(&analysis.deviations, series.step);
        assert_eq!(forecast.len(), deviation.len(), "bands lie around each value of the forecast");
        let band = |kind: &str, sign: f64| {
            let values = forecast
                .iter()
                .zip(&deviation)
                .map(|(forecast, deviation)| forecast + sign * (delta * deviation));
            let name = format!("holtWintersConfidence{kind}({})", series.name);
            let mut band = tagged(name, intervals.grid(&series), values.collect(), &series);
            band.path_expression.clone_from(&series.path_expression);
            band
        };
        results.push(Bands { lower: band("Lower", -1.0), upper: band("Upper", 1.0) });
    }
    Ok(results)
}

fn area(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = area_between(flatten(bands(scope, args)?))?;
    for series in &mut list {
        series.tags.remove("areaBetween");
        series.tag("holtWintersConfidenceArea", 1);
        series.rename(series.name.replace("areaBetween", "holtWintersConfidenceArea"));
    }
    Ok(Value::Series(list))
}

fn aberration(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let bands = bands(scope, args)?;
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        let missing =
            || EvalError::of_function("holtWintersAberration", &format!("no bands for {}", series.name));
        let lower_name = format!("holtWintersConfidenceLower({})", series.name);
        // If two series have one name, the last one counts.
        let found = bands.iter().rev().find(|bands| bands.lower.name == lower_name).ok_or_else(missing)?;
        assert_eq!(found.lower.values.len(), found.upper.values.len(), "both bands have the same points");
        let mut values = Vec::with_capacity(series.values.len());
        for (idx, value) in series.values.iter().enumerate() {
            let lower = found.lower.values.get(idx);
            let upper = found.upper.values.get(idx);
            if value.is_nan() {
                values.push(0.0);
                continue;
            }
            let lower = *lower.ok_or_else(missing)?;
            let upper = *upper.ok_or_else(missing)?;
            values.push(if *value > upper {
                value - upper
            } else if *value < lower {
                value - lower
            } else {
                0.0
            });
        }
        series.tag("holtWintersAberration", 1);
        let grid = Grid { start: series.start, end: series.end, step: series.step };
        results.push(tagged(format!("holtWintersAberration({})", series.name), grid, values, &series));
    }
    Ok(Value::Series(results))
}
