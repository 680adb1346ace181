//! Evaluation of a checked syntax tree over any [`Queryable`].
//!
//! Invariants: limits of samples, memory and time are checked while running; texts of warnings, infos and
//! errors are Prometheus's.
//! Not here: operators (`chronolith_exec`), parsing, HTTP.

mod admission;
mod annotation;
pub mod batch;
mod call;
mod cost;
mod duration;
mod error;
mod language;
pub mod lookback;
mod plan;
mod query;
mod value;

use std::sync::Arc;

use chronolith_base::SpareThreads;
use chronolith_exec::column::{StepSeries, is_absent};
use chronolith_exec::error::Error;
use chronolith_exec::execution::{Environment, Execution, Settings};
use chronolith_exec::grid::Grid;
pub use chronolith_exec::metric_name::NameRemoval;
use chronolith_exec::metric_name::without_name;
use chronolith_exec::operator::{BoxOperator, collect, merge_equal_labels};
use chronolith_exec::plan::operators::OperatorBuilder;
use chronolith_exec::plan::{OccurrenceId, Plan};
use chronolith_exec::rollup::extended;
use chronolith_exec::samples::RangeSamples;
pub use chronolith_exec::step_set::{StepRun, StepSet};
pub use chronolith_exec::trace;
use chronolith_exec::trace::Trace;
use chronolith_exec::window::{WindowSeries, WindowSource};
use chronolith_model::{Labels, QueryError, Queryable, ReadContext};

use crate::ast::{Expr, ExprKind, RangeExtension, ValueType};
pub use cost::CostEstimate;
pub use error::EvalError;
use language::PromQl;
use plan::{empty_plan, lower, string_of};
pub use query::{EngineOptions, Query, Sharing};
pub use value::{MatrixSeries, QueryResult, Value, VectorSample};

/// Operators over vectors inside each other: they call each other, so this bounds the stack.
pub const VECTOR_DEPTH_MAX: usize = 1000;

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

    /// Returns the same read with the spare threads of this engine, for readers next to it.
    #[must_use]
    pub fn with_threads(&self, ctx: &ReadContext) -> ReadContext {
        ctx.with_spare_threads(self.spare_threads.clone(), self.options.threads)
    }

    /// Returns an engine that uses start timestamps or not, with the same spare threads and other options.
    #[must_use]
    pub fn with_start_times(&self, start_times: bool) -> Engine {
        let options = EngineOptions { start_times, ..self.options.clone() };
        Engine { options, spare_threads: self.spare_threads.clone() }
    }

    /// Options and limits of the engine.
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
        let ctx = &self.with_threads(ctx);
        let options = &self.options;
        let (plan, grid) = self.plan(query)?;
        let environment = Environment { source, ctx, trace, spare_threads: &self.spare_threads };
        let evaluation = |sharing: Sharing| {
            let settings = settings(options, sharing);
            let root = plan.root();
            let execution = Execution::new(environment, settings, Some(grid), plan.evaluation_order(root));
            let language = PromQl { query, options };
            Evaluation { execution, language, plan: &plan, root, grid }
        };
        let shared = evaluation(options.sharing);
        match finish(&shared) {
            // Series that are kept for later readers may take the memory or samples that are missing.
            Err(Error::BufferFull | Error::TooManySamples | Error::Query(QueryError::Memory(_)))
                if shared.execution.settings.shares && plan.has_shared() =>
            {
                drop(shared);
                Ok(finish(&evaluation(Sharing::Off))?)
            }
            result => Ok(result?),
        }
    }

    /// Estimates what a query would read, without running it. Cost: lists the series of each selector, and
    /// reads some samples.
    ///
    /// # Errors
    /// [`EvalError`] of the source, or of a query that cannot be planned.
    pub fn estimate_cost(
        &self,
        source: &dyn Queryable,
        query: &Query<'_>,
        ctx: &ReadContext,
    ) -> Result<CostEstimate, EvalError> {
        ctx.check()?;
        let (plan, _) = self.plan(query)?;
        Ok(cost::estimate(&plan, source, ctx)?)
    }

    /// Plans a query over the grid of its evaluation times.
    fn plan(&self, query: &Query<'_>) -> Result<(Plan, Grid), EvalError> {
        let grid = Grid::between(query.start_ms, query.end_ms, query.step_ms)
            .ok_or_else(|| fail("end timestamp must not be before start timestamp".to_owned()))?;
        let is_range_type = matches!(query.expr.value_type(), ValueType::Vector | ValueType::Scalar);
        if query.step_ms > 0 && !is_range_type {
            return Err(EvalError::Invalid(format!(
                "invalid expression type \"{}\" for range query, must be Scalar or instant Vector",
                query.expr.value_type().describe()
            )));
        }
        let mut plan = empty_plan(&self.options);
        let root = lower(&mut plan, query, &self.options, grid).map_err(|error| match error {
            Error::Language(text) => EvalError::Invalid(text),
            other => other.into(),
        })?;
        if plan.properties(root).depth > VECTOR_DEPTH_MAX {
            let message = format!("query has operators nested deeper than {VECTOR_DEPTH_MAX} levels");
            return Err(EvalError::Execution(message));
        }
        Ok((plan, grid))
    }
}

fn settings(options: &EngineOptions, sharing: Sharing) -> Settings {
    Settings {
        samples_max: options.samples_max,
        threads: options.threads,
        name_removal: options.name_removal,
        shares: sharing == Sharing::Auto,
    }
}

/// One evaluation of a query.
struct Evaluation<'q> {
    /// State of its operators.
    execution: Execution<'q>,
    language: PromQl<'q>,
    plan: &'q Plan,
    /// The query in its plan.
    root: OccurrenceId,
    grid: Grid,
}

fn fail(message: String) -> Error {
    Error::Language(message)
}

fn finish<'q>(evaluation: &'q Evaluation<'q>) -> Result<QueryResult, Error> {
    let is_range = evaluation.language.query.step_ms > 0;
    let value = if is_range { range_value(evaluation)? } else { instant_value(evaluation)? };
    Ok(result_of(evaluation, value))
}

/// The result with this value; annotations are taken.
fn result_of(evaluation: &Evaluation<'_>, value: Value) -> QueryResult {
    let Evaluation { execution, language: PromQl { query, .. }, .. } = evaluation;
    let annotation::Texts { mut warnings, infos, info_steps } =
        annotation::render(execution.annotations.finish(), query.text);
    warnings.extend_from_slice(execution.ctx.warnings().texts());
    let samples_read = execution.trace.samples_read();
    let samples_peak = execution.samples_peak();
    QueryResult { value, warnings, infos, info_steps, samples_read, samples_peak }
}

impl<'q> Evaluation<'q> {
    /// Admits the query and returns the builder of its operators.
    fn builder(&'q self) -> Result<OperatorBuilder<'q>, Error> {
        self.execution.trace.begin(self.grid);
        let builder = OperatorBuilder::new(self.plan, &self.execution, &self.language);
        self.admit(builder.shares())?;
        Ok(builder)
    }

    fn admit(&self, shares: bool) -> Result<(), Error> {
        admission::admit(self.plan, self.root, &self.execution, &self.language, shares)
    }
}

fn range_value<'q>(evaluation: &'q Evaluation<'q>) -> Result<Value, Error> {
    let Evaluation { plan, grid, .. } = evaluation;
    let mut memory = evaluation.execution.operator_memory();
    memory.grow(grid.count as u64, plan.columns_bytes(evaluation.root, *grid))?;
    let builder = evaluation.builder()?;
    let series = match evaluation.language.query.expr.value_type() {
        ValueType::Vector => collect_result(evaluation, &builder)?,
        ValueType::Scalar => {
            let scalar = builder.scalar(evaluation.root)?;
            let values = (0..grid.count).map(|step| scalar.at(step)).collect();
            vec![StepSeries::floats(Labels::empty(), values)]
        }
        // Refused before the plan.
        other => return Err(fail(format!("range query of type {}", other.describe()))),
    };
    Ok(matrix_of_steps(series, *grid))
}

/// The series of a range query as a value.
fn matrix_of_steps(series: Vec<StepSeries>, grid: Grid) -> Value {
    let mut matrix: Vec<MatrixSeries> = series.into_iter().map(|series| points(series, grid)).collect();
    matrix.sort_by(|a, b| a.labels.cmp(&b.labels));
    Value::Matrix(matrix)
}

fn instant_value<'q>(evaluation: &'q Evaluation<'q>) -> Result<Value, Error> {
    let expr = evaluation.language.query.expr;
    let time_ms = evaluation.grid.start_ms;
    let builder = evaluation.builder()?;
    match expr.value_type() {
        ValueType::Scalar => Ok(Value::Scalar { time_ms, value: builder.scalar(evaluation.root)?.at(0) }),
        ValueType::String => Ok(Value::String { time_ms, value: string_of(expr)?.to_owned() }),
        ValueType::Matrix => matrix_value(evaluation, &builder),
        ValueType::Vector | ValueType::None => {
            Ok(vector_value(collect_result(evaluation, &builder)?, time_ms))
        }
    }
}

/// The series of an instant query as a value.
fn vector_value(series: Vec<StepSeries>, time_ms: i64) -> Value {
    let element = |series: StepSeries| {
        let value = series.values.first().copied().filter(|&v| !is_absent(v))?;
        let histogram = series.histogram(0).cloned();
        Some(VectorSample { labels: series.labels, time_ms, value, histogram })
    };
    Value::Vector(series.into_iter().filter_map(element).collect())
}

/// All series of the whole query; names that were to go are gone.
fn collect_result<'q>(
    evaluation: &'q Evaluation<'q>,
    builder: &OperatorBuilder<'q>,
) -> Result<Vec<StepSeries>, Error> {
    let operator = builder.vector(evaluation.root)?;
    builder.seal();
    pull_all(evaluation, operator)
}

fn pull_all<'q>(
    evaluation: &'q Evaluation<'q>,
    mut operator: BoxOperator<'q>,
) -> Result<Vec<StepSeries>, Error> {
    let mut memory = evaluation.execution.operator_memory();
    let mut all = collect(&mut *operator, &mut memory)?;
    for series in all.iter_mut().filter(|series| series.drop_name) {
        series.labels = without_name(&series.labels);
    }
    merge_equal_labels(all)
}

/// The samples of a range selector, or of a subquery, as they are.
fn matrix_value<'q>(evaluation: &'q Evaluation<'q>, builder: &OperatorBuilder<'q>) -> Result<Value, Error> {
    let (mut source, windows) = builder.range(evaluation.root, evaluation.grid)?;
    builder.seal();
    let start_ms = windows.start(0);
    let end_ms = windows.end(0);
    let extension = match &evaluation.language.query.expr.unwrap_parens().kind {
        ExprKind::Matrix(matrix) => matrix.selector.extension,
        _ => None,
    };
    let mut series = WindowSeries::default();
    let mut memory = evaluation.execution.operator_memory();
    let mut matrix = Vec::new();
    while source.next(&mut series)? {
        let samples = std::mem::take(&mut series.samples);
        memory.grow(samples.sample_count(), samples.heap_bytes() + series.labels.heap_bytes() as u64)?;
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
        if matches!(source, WindowSource::Selector(_)) {
            evaluation.execution.trace.tally_windows(&windows, &times);
        }
        matrix.push(MatrixSeries { labels, times, values, histograms });
    }
    matrix.sort_by(|a, b| a.labels.cmp(&b.labels));
    Ok(Value::Matrix(matrix))
}

fn refuse_histograms(extension: RangeExtension, samples: &RangeSamples) -> Result<(), Error> {
    if samples.histograms.is_empty() {
        return Ok(());
    }
    let word = if extension == RangeExtension::Anchored { "anchored" } else { "smoothed" };
    Err(Error::Language(format!("{word} modifier is not supported with histograms")))
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

#[cfg(test)]
mod tests;
