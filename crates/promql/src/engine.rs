//! Evaluation of a checked tree over any [`Queryable`].
//!
//! Shape: operators pull series by series; a series comes with a column of values, one a step, so that rollups
//! are fused with decoding and aggregations fold as they read. A subquery is the same on a grid of its own.
//! Holds: limits of samples, memory and time are checked while running; warnings and infos have upstream's texts.
//! Not here: parsing, HTTP.

mod aggregate;
mod annotation;
mod arith;
mod binary;
mod call;
mod duration;
mod grid;
mod histogram;
mod keys;
mod leaf;
mod plan;
pub mod reach;
mod rollup;
mod run;
mod samples;
mod select;
mod series;
mod share;
mod threads;
pub mod trace;
mod window;

use std::sync::Arc;

use chronolith_model::{FloatHistogram, Labels, METRIC_NAME, QueryError, Queryable, ReadContext};

use crate::ast::{Expr, ExprKind, RangeExtension, ValueType};
use crate::parser::ParserOptions;
pub use annotation::steps::{StepRun, StepSet};
use grid::Grid;
use plan::{Planner, value_type};
use rollup::extended;
use run::Run;
use series::{StepSeries, is_absent, merge_equal_labels};
use threads::SpareThreads;
use trace::Trace;

/// Operators over vectors inside each other: they call each other, so this bounds the stack.
pub const VECTOR_DEPTH_MAX: usize = 1000;

/// When the metric name goes from a series whose values are no longer those of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameRemoval {
    /// In the function or operator that computes the values.
    #[default]
    Immediate,
    /// At the end of the query, so that `label_replace` can still use it.
    Delayed,
}

/// Whether parts of a query that occur more than once are computed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Where it pays, except where samples are counted by step: they count wherever they are used.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Limits and switches of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineOptions {
    /// How far an instant selector looks back for a sample.
    pub lookback_ms: i64,
    /// Step of subqueries that do not name one.
    pub subquery_step_ms: i64,
    /// Samples that one query may hold at a time.
    pub samples_max: u64,
    /// Memory that one query may use. For whoever makes the [`ReadContext`].
    pub query_memory_bytes_max: u64,
    /// Samples, in bytes, that one query may read by estimate before it starts.
    pub read_bytes_max: u64,
    /// How long one query may run. For whoever makes the [`ReadContext`].
    pub timeout_ms: u64,
    /// Steps that a range query may have. For the server, which checks it before the query is parsed.
    pub points_per_series_max: u64,
    /// When metric names go.
    pub name_removal: NameRemoval,
    /// What the parser lets through.
    pub parser: ParserOptions,
    /// Threads that one query may use; as many more help all queries of an engine together.
    pub threads: usize,
    /// Whether `rate` and its like look at when counters started, and `start_timestamp` tells it (upstream's feature
    /// `use-start-timestamps`).
    pub start_times: bool,
    /// Whether the label `__type__` says what a counter is (upstream's feature `type-and-unit-labels`).
    pub type_and_unit_labels: bool,
    /// Whether equal parts of a query are computed once.
    pub sharing: Sharing,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            lookback_ms: 5 * 60 * 1000,
            subquery_step_ms: 60 * 1000,
            samples_max: 50_000_000,
            query_memory_bytes_max: 4 << 30,
            read_bytes_max: u64::MAX,
            timeout_ms: 2 * 60 * 1000,
            points_per_series_max: 11_000,
            name_removal: NameRemoval::Immediate,
            parser: ParserOptions::default(),
            threads: 1,
            start_times: false,
            type_and_unit_labels: false,
            sharing: Sharing::Auto,
        }
    }
}

/// What to compute, and when.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The text that was parsed, for line and column in annotations; may be empty.
    pub text: &'a str,
    /// The expression.
    pub expr: &'a Expr,
    /// First time.
    pub start_ms: i64,
    /// Last time; equal to `start_ms` for an instant query.
    pub end_ms: i64,
    /// Distance of times; 0 for an instant query.
    pub step_ms: i64,
    /// Instead of the engine's.
    pub lookback_ms: Option<i64>,
}

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// Reading failed, or the query was stopped.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The query makes no sense for the data; upstream's text.
    #[error("{0}")]
    Execution(String),
    /// More samples at a time than [`EngineOptions::samples_max`].
    #[error("query processing would load too many samples into memory in query execution")]
    TooManySamples,
}

impl EvalError {
    pub(crate) fn same_labels() -> EvalError {
        EvalError::Execution("vector cannot contain metrics with the same labelset".to_owned())
    }
}

/// One element of an instant vector.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSample {
    /// Its labels.
    pub labels: Labels,
    /// The evaluation time.
    pub time_ms: i64,
    /// Its value; NaN for a histogram.
    pub value: f64,
    /// Its value if that is a native histogram.
    pub histogram: Option<Arc<FloatHistogram>>,
}

/// One series of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixSeries {
    /// Its labels.
    pub labels: Labels,
    /// Ascending.
    pub times: Vec<i64>,
    /// One a time.
    pub values: Vec<f64>,
    /// Native histograms with their times, ascending; none of these times is among `times`.
    pub histograms: Vec<(i64, Arc<FloatHistogram>)>,
}

/// What a query gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Scalar {
        /// The evaluation time.
        time_ms: i64,
        /// The number.
        value: f64,
    },
    /// A text.
    String {
        /// The evaluation time.
        time_ms: i64,
        /// The text.
        value: String,
    },
    /// Elements in the order of evaluation (`sort` and `topk` give them one).
    Vector(Vec<VectorSample>),
    /// Series sorted by labels.
    Matrix(Vec<MatrixSeries>),
}

/// A value and what is to be said about it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResult {
    /// The value.
    pub value: Value,
    /// Likely mistakes, with upstream's texts ("PromQL warning: ...").
    pub warnings: Vec<String>,
    /// Possible mistakes ("PromQL info: ...").
    pub infos: Vec<String>,
    /// The steps that each of `infos` is about; `None` if that is not known of all warnings and infos.
    pub info_steps: Option<Vec<StepSet>>,
    /// Samples that were read.
    pub samples_read: u64,
    /// Most samples held at once.
    pub samples_peak: u64,
}

/// Evaluates queries. Cheap to share; holds no data.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    options: EngineOptions,
    spare_threads: Arc<SpareThreads>,
}

impl Engine {
    /// An engine with these limits.
    #[must_use]
    pub fn new(options: EngineOptions) -> Engine {
        let spare_threads = Arc::new(SpareThreads::new(options.threads));
        Engine { options, spare_threads }
    }

    /// Its limits.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Computes `expr` at one time.
    ///
    /// # Errors
    /// [`EvalError`].
    pub fn instant(
        &self,
        source: &dyn Queryable,
        expr: &Expr,
        time_ms: i64,
        lookback_ms: Option<i64>,
        ctx: &ReadContext,
    ) -> Result<QueryResult, EvalError> {
        let query = Query { text: "", expr, start_ms: time_ms, end_ms: time_ms, step_ms: 0, lookback_ms };
        self.run(source, &query, ctx)
    }

    /// Computes `expr` at `start_ms`, `start_ms + step_ms`, ... up to `end_ms`.
    ///
    /// # Errors
    /// [`EvalError`]; also if the step is not positive or the end is before the start.
    #[expect(
        clippy::too_many_arguments,
        reason = "a range query has this many parts; `run` takes them as one"
    )]
    pub fn range(
        &self,
        source: &dyn Queryable,
        expr: &Expr,
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
        lookback_ms: Option<i64>,
        ctx: &ReadContext,
    ) -> Result<QueryResult, EvalError> {
        let query = Query { text: "", expr, start_ms, end_ms, step_ms: step_ms.max(1), lookback_ms };
        self.run(source, &query, ctx)
    }

    /// Computes a query: a range query if `step_ms` is positive, else an instant query at `start_ms`.
    ///
    /// # Errors
    /// [`EvalError`].
    pub fn run(
        &self,
        source: &dyn Queryable,
        query: &Query<'_>,
        ctx: &ReadContext,
    ) -> Result<QueryResult, EvalError> {
        self.run_traced(source, query, ctx, &Trace::new())
    }

    /// As [`Engine::run`], counting what it does in `trace`, which may be read meanwhile.
    ///
    /// # Errors
    /// [`EvalError`].
    pub fn run_traced(
        &self,
        source: &dyn Queryable,
        query: &Query<'_>,
        ctx: &ReadContext,
        trace: &Trace,
    ) -> Result<QueryResult, EvalError> {
        ctx.check()?;
        if plan::vector_depth(query.expr) > VECTOR_DEPTH_MAX {
            let message = format!("query has operators nested deeper than {VECTOR_DEPTH_MAX} levels");
            return Err(EvalError::Execution(message));
        }
        duration::check(query)?;
        let run = || Run::new(source, ctx, &self.options, query, trace, &self.spare_threads);
        let shared = run();
        match finish(&shared) {
            // What is kept so that it need not be computed again may be what is missing.
            Err(EvalError::TooManySamples | EvalError::Query(QueryError::Memory(_)))
                if shared.has_shared() =>
            {
                drop(shared);
                finish(&run().without_sharing())
            }
            result => result,
        }
    }
}

fn finish<'q>(run: &'q Run<'q>) -> Result<QueryResult, EvalError> {
    let value = if run.query.step_ms > 0 { range_value(run)? } else { instant_value(run)? };
    let annotation::Texts { warnings, infos, info_steps } = run.annotations.take();
    let (samples_read, samples_peak) = (run.samples_read(), run.samples_peak());
    Ok(QueryResult { value, warnings, infos, info_steps, samples_read, samples_peak })
}

fn range_value<'q>(run: &'q Run<'q>) -> Result<Value, EvalError> {
    let query = run.query;
    let fail = |message: String| EvalError::Execution(message);
    let grid = Grid::between(query.start_ms, query.end_ms, query.step_ms)
        .ok_or_else(|| fail("end timestamp must not be before start timestamp".to_owned()))?;
    let mut hold = run.hold();
    hold.grow(grid.count as u64, plan::columns_bytes(query.expr, grid))?;
    run.trace.begin(grid);
    let planner = Planner::sharing(run, query.expr, grid);
    planner.admit(query.expr, grid)?;
    let series = match value_type(query.expr) {
        ValueType::Vector => collect_result(run, &planner, grid)?,
        ValueType::Scalar => {
            let scalar = planner.scalar(query.expr, grid)?;
            let values = (0..grid.count).map(|step| scalar.at(step)).collect();
            vec![StepSeries::floats(Labels::empty(), values)]
        }
        other => {
            return Err(fail(format!(
                "invalid expression type \"{}\" for range query, must be Scalar or instant Vector",
                other.describe()
            )));
        }
    };
    let mut matrix: Vec<MatrixSeries> = series.into_iter().map(|series| points(series, grid)).collect();
    matrix.sort_by(|a, b| a.labels.cmp(&b.labels));
    Ok(Value::Matrix(matrix))
}

fn instant_value<'q>(run: &'q Run<'q>) -> Result<Value, EvalError> {
    let time_ms = run.query.start_ms;
    let grid = Grid::instant(time_ms);
    run.trace.begin(grid);
    let planner = Planner::sharing(run, run.query.expr, grid);
    planner.admit(run.query.expr, grid)?;
    match value_type(run.query.expr) {
        ValueType::Scalar => {
            Ok(Value::Scalar { time_ms, value: planner.scalar(run.query.expr, grid)?.at(0) })
        }
        ValueType::String => {
            Ok(Value::String { time_ms, value: plan::string_of(run.query.expr)?.to_owned() })
        }
        ValueType::Matrix => matrix_value(run, &planner, grid),
        ValueType::Vector | ValueType::None => {
            let series = collect_result(run, &planner, grid)?;
            let element = |series: StepSeries| {
                let value = series.values.first().copied().filter(|&v| !is_absent(v))?;
                let histogram = series.histogram(0).cloned();
                Some(VectorSample { labels: series.labels, time_ms, value, histogram })
            };
            Ok(Value::Vector(series.into_iter().filter_map(element).collect()))
        }
    }
}

/// All series of the whole query; names that were to go are gone.
fn collect_result<'q>(
    run: &'q Run<'q>,
    planner: &Planner<'q>,
    grid: Grid,
) -> Result<Vec<StepSeries>, EvalError> {
    let mut hold = run.hold();
    let mut operator = planner.vector(run.query.expr, grid)?;
    planner.seal();
    let mut all = series::collect(&mut *operator, &mut hold)?;
    for series in all.iter_mut().filter(|series| series.drop_name) {
        series.labels = without_name(&series.labels);
    }
    merge_equal_labels(all)
}

/// The samples of a range selector, or of a subquery, as they are.
fn matrix_value<'q>(run: &'q Run<'q>, planner: &Planner<'q>, grid: Grid) -> Result<Value, EvalError> {
    let (mut source, windows) = planner.windows(run.query.expr, grid)?;
    planner.seal();
    let (start_ms, end_ms) = (windows.start(0), windows.end(0));
    let extension = match &unwrap_parens(run.query.expr).kind {
        ExprKind::Matrix(matrix) => matrix.selector.extension,
        _ => None,
    };
    let mut series = window::WindowSeries::default();
    let (mut hold, mut matrix) = (run.hold(), Vec::new());
    while source.next(&mut series)? {
        let samples = std::mem::take(&mut series.samples);
        hold.grow(samples.sample_count(), samples.heap_bytes() + series.labels.heap_bytes() as u64)?;
        let inside = |time: &i64| *time > start_ms && *time <= end_ms;
        let (times, values) = match extension {
            Some(extension) => {
                refuse_histograms(extension, &samples)?;
                extended::extend(extension, &samples.floats.times, &samples.floats.values, start_ms, end_ms)
            }
            None => {
                let floats = samples.floats.times.into_iter().zip(samples.floats.values);
                floats.filter(|(time, _)| inside(time)).unzip()
            }
        };
        let histograms = samples.histograms.times.into_iter().zip(samples.histograms.histograms);
        let histograms: Vec<_> = histograms.filter(|(time, _)| inside(time)).collect();
        if times.is_empty() && histograms.is_empty() {
            continue;
        }
        let labels = if series.drop_name { without_name(&series.labels) } else { series.labels.clone() };
        run.trace.tally_windows(&windows, &times);
        matrix.push(MatrixSeries { labels, times, values, histograms });
    }
    matrix.sort_by(|a, b| a.labels.cmp(&b.labels));
    Ok(Value::Matrix(matrix))
}

fn refuse_histograms(extension: RangeExtension, samples: &samples::RangeSamples) -> Result<(), EvalError> {
    if samples.histograms.is_empty() {
        return Ok(());
    }
    let word = if extension == RangeExtension::Anchored { "anchored" } else { "smoothed" };
    Err(EvalError::Execution(format!("{word} modifier is not supported with histograms")))
}

fn points(mut series: StepSeries, grid: Grid) -> MatrixSeries {
    let mut histograms = Vec::new();
    if series.has_histograms() {
        let found = |(step, time)| Some((time, series.histogram(step)?.clone()));
        histograms = grid.times().enumerate().filter_map(found).collect();
        series.drop_histograms();
    }
    let (times, values) = grid.times().zip(series.values).filter(|(_, value)| !is_absent(*value)).unzip();
    MatrixSeries { labels: series.labels, times, values, histograms }
}

/// Labels that say what a value is: they go with the metric name.
const METADATA_LABELS: [&str; 3] = [METRIC_NAME, "__type__", "__unit__"];

fn without_name(labels: &Labels) -> Labels {
    labels.without(&METADATA_LABELS)
}

impl Run<'_> {
    /// Drops the metric name, or notes that it is to be dropped at the end.
    pub(crate) fn drop_name(&self, series: &mut StepSeries) {
        if self.delays_names() {
            series.drop_name = true;
        } else {
            series.labels = without_name(&series.labels);
        }
    }
}

/// The expression within any parentheses around it.
fn unwrap_parens(mut expr: &Expr) -> &Expr {
    while let ExprKind::Paren(inner) = &expr.kind {
        expr = inner;
    }
    expr
}

#[cfg(test)]
mod tests;
