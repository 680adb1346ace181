//! Row plan: description of a query whose result is rows of typed columns per group of series.
//!
//! Invariants: a plan is language-neutral data. Names are names of the source (measurement, field, tag),
//! times are in the unit of the store, ranges are half-open. A plan means what it contains: whatever a
//! language lets a subquery inherit (windows, order, no fill instead of null) is written out by the lowering;
//! only the tags of the outer grouping and the range that an outer call reads are added by the executor.
//!
//! [`crate::plan::Plan`] is a DAG of operators over series of floats on one grid of steps. A row plan has no
//! grid, several columns per row, five types with nulls, and pools the samples of a group instead of
//! combining finished series: neither its nodes nor its properties would be shared (ADR 0083).
//! Not here: execution (`rows::stream`), parsing, type errors and names of columns, which are the language's.

use std::sync::Arc;

use chronolith_model::query::ColumnType;
use chronolith_model::{GoRegex, TimeRange};
use jiff::tz::TimeZone;

/// Start of a range without a lower bound, in any unit.
pub const OPEN_START: i64 = i64::MIN + 2;
/// End of a range without an upper bound: every time that can be stored is before it.
pub const OPEN_END: i64 = i64::MAX;

/// A query over the points of some sources.
///
/// Without calls it is a raw select: one row per point and series. With calls, each call is computed per
/// group, and rows join the results of all calls by time.
#[derive(Debug, Clone)]
pub struct RowPlan {
    /// Measurements and subqueries whose points are read as one stream. Points of sources with different
    /// result names are in different groups.
    pub sources: Vec<Source>,
    /// Columns of the result without the time.
    pub columns: Vec<Column>,
    /// Calls that the columns contain, each once: [`Expr::Call`] is an index.
    pub calls: Vec<Call>,
    /// Condition that points must meet; no condition on time. Integers are divided as integers in it.
    pub filter: Option<Expr>,
    /// Times of the points that are read; open ends are [`OPEN_START`] and [`OPEN_END`]. A plan with windows
    /// and fill has an end: the lowering sets it to the present. A subquery has a range of its own: the
    /// executor intersects it with the range that a call of the outer plan reads.
    pub range: TimeRange,
    /// Names of the tags that make a group, in any order.
    pub group_tags: Vec<Arc<str>>,
    /// Windows of aggregations.
    pub windows: Option<Windows>,
    /// Values of windows without points.
    pub fill: Fill,
    /// Order of series and rows.
    pub order: Order,
    /// Rows and groups that are returned.
    pub slice: Slice,
}

/// Source of points.
#[derive(Debug, Clone)]
pub enum Source {
    /// The series of a measurement.
    Measurement {
        /// Index of the store in the list of stores of the execution.
        store: usize,
        /// Value of the label `__name__`, also the name of the result.
        name: Arc<str>,
    },
    /// The rows of a query as points: its columns are fields, its groups' tags are tags. The executor adds
    /// the outer grouping tags to its grouping; these group, and conditions see them, columns do not. A tag
    /// that is none of them is the empty text in conditions.
    ///
    /// Shared, so that a plan that is run for several ranges does not copy those below it.
    Subquery(Arc<RowPlan>),
}

/// Column of a result.
#[derive(Debug, Clone)]
pub struct Column {
    /// Name of the column, by which an outer query refers to it.
    pub name: Arc<str>,
    /// Expression of the column. Integers are divided as floats in it.
    pub expr: Expr,
}

/// Value that a point has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Variable {
    /// A field.
    Field {
        /// Value of the label `__field__`, or name of a column of a subquery.
        name: Arc<str>,
        /// Type to which its values are cast. `None`: the first in the order float, integer, unsigned, text,
        /// boolean that occurs among the sources. Numbers are cast to numbers; other values of another type
        /// are left out.
        cast: Option<ColumnType>,
    },
    /// A tag; null if the series has none, and equal to the empty text in conditions on series.
    Tag {
        /// Key of the tag.
        name: Arc<str>,
    },
}

/// Expression over the variables of a point or the calls of a row.
#[derive(Debug, Clone)]
pub enum Expr {
    /// Value of the point, or, next to a single selector, of the point that it selects.
    Variable(Variable),
    /// Result of a call: index into [`RowPlan::calls`].
    Call(usize),
    /// Constant.
    Literal(Literal),
    /// Operation on two values.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// Match of a text; false for values of other types.
    Match {
        /// The text.
        operand: Box<Expr>,
        /// Fully anchored, as [`GoRegex`] is.
        regex: Arc<GoRegex>,
        /// True for "does not match".
        negated: bool,
    },
    /// Mathematical function; null for values that are no numbers. NaN is a value for the plans above, and
    /// null in the result of the outermost one.
    Math(MathFn, Vec<Expr>),
}

/// Constant value.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// [`ColumnType::Float`]
    Float(f64),
    /// [`ColumnType::Integer`]
    Integer(i64),
    /// [`ColumnType::Unsigned`]
    Unsigned(u64),
    /// [`ColumnType::Boolean`]
    Boolean(bool),
    /// [`ColumnType::Text`]
    Text(Arc<[u8]>),
}

/// Operator on two values. Comparisons with null or between types that do not compare are false; other
/// operations on them are null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Sum, of numbers.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient; 0 if the divisor is 0.
    Div,
    /// Remainder with the sign of the dividend; 0 for integers if the divisor is 0.
    Mod,
    /// Bits of both; of booleans, both.
    BitAnd,
    /// Bits of either; of booleans, either.
    BitOr,
    /// Bits of one; of booleans, one.
    BitXor,
    /// Both are true.
    And,
    /// One is true.
    Or,
    /// `=`
    Eq,
    /// `!=`
    Ne,
    /// `<`, of numbers
    Lt,
    /// `<=`, of numbers
    Le,
    /// `>`, of numbers
    Gt,
    /// `>=`, of numbers
    Ge,
}

/// Mathematical function of a row. `Abs`, `Ceil`, `Floor` and `Round` keep the type, others give floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MathFn {
    /// |x|
    Abs,
    /// Arc cosine; NaN outside of -1 to 1.
    Acos,
    /// Arc sine; NaN outside of -1 to 1.
    Asin,
    /// Arc tangent.
    Atan,
    /// Arc tangent of y / x: two arguments.
    Atan2,
    /// Upwards to an integer.
    Ceil,
    /// Cosine.
    Cos,
    /// e^x
    Exp,
    /// Downwards to an integer.
    Floor,
    /// Natural logarithm.
    Ln,
    /// Logarithm of the first argument to the base of the second.
    Log,
    /// Logarithm to base 2.
    Log2,
    /// Logarithm to base 10.
    Log10,
    /// First argument to the power of the second.
    Pow,
    /// To the next integer, halves away from 0.
    Round,
    /// Sine.
    Sin,
    /// Square root.
    Sqrt,
    /// Tangent.
    Tan,
}

/// Function over the points of a group.
#[derive(Debug, Clone)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// Points that the call reads.
    pub input: Input,
}

/// Points of a call.
#[derive(Debug, Clone)]
pub enum Input {
    /// Points that have the value, of all series of the group.
    Points(Variable),
    /// Results of a call: below a transformation, or `Distinct` below `Count`.
    Call(Box<Call>),
}

/// Function of a call.
#[derive(Debug, Clone)]
pub enum Function {
    /// One value per window, or some.
    Aggregate(Aggregate),
    /// Point-wise function with memory, in the order of the plan.
    Transform(Transform),
}

/// Function of the pooled points of a group and window. Selectors are marked (S): they return values that
/// occur and, if they are the only call of the plan, the time of that point when there are no windows, and
/// other variables of it.
#[derive(Debug, Clone)]
pub enum Aggregate {
    /// Number of values, of any type.
    Count,
    /// Different values, in order of their first time.
    Distinct,
    /// Area under the curve, per unit of time.
    Integral {
        /// Ticks of the unit.
        unit: i64,
    },
    /// Mean, a float.
    Mean,
    /// Middle value, a float.
    Median,
    /// Most frequent value.
    Mode,
    /// Difference between greatest and least.
    Spread,
    /// Sample standard deviation, a float; NaN for a single value.
    Stddev,
    /// Sum; integers wrap.
    Sum,
    /// Earliest (S); of equal times the greater value, of booleans the lesser one.
    First,
    /// Latest (S); of equal times the greater value.
    Last,
    /// Greatest (S), the earliest of equal ones.
    Max,
    /// Least (S), the earliest of equal ones.
    Min,
    /// Nearest rank (S); no value if there is none.
    Percentile(f64),
    /// Random sample of some points (S), at their times.
    Sample(usize),
    /// Greatest points (S), at their times; the earlier one of equal values.
    Top(Extremes),
    /// Least points (S), at their times; the earlier one of equal values.
    Bottom(Extremes),
}

/// Arguments of [`Aggregate::Top`] and [`Aggregate::Bottom`].
#[derive(Debug, Clone)]
pub struct Extremes {
    /// Number of points.
    pub count: usize,
    /// Tags of which at most one point per combination of values is returned; empty: no such rule.
    pub distinct_tags: Vec<Arc<str>>,
}

/// Transformation of points. Nulls are skipped.
#[derive(Debug, Clone)]
pub enum Transform {
    /// Difference to the point before, per `unit` ticks of time.
    Derivative {
        /// Ticks.
        unit: i64,
        /// Negative results are left out.
        non_negative: bool,
    },
    /// Difference to the point before.
    Difference {
        /// Negative results are left out.
        non_negative: bool,
    },
    /// Mean of the latest `count` points.
    MovingAverage {
        /// At least 1.
        count: usize,
    },
    /// Sum up to the point.
    CumulativeSum,
    /// Time since the point before.
    Elapsed {
        /// Ticks of a unit.
        unit: i64,
    },
    /// Forecast by triple exponential smoothing.
    HoltWinters(HoltWinters),
    /// An indicator of technical analysis.
    Indicator(Indicator),
}

/// Arguments of a Holt-Winters forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoltWinters {
    /// Points to forecast.
    pub horizon: usize,
    /// Points of a season; below 2: none.
    pub season: usize,
    /// True if the fitted points are returned in front of the forecast.
    pub with_fit: bool,
}

/// Indicator of technical analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indicator {
    /// Formula of the indicator.
    pub kind: IndicatorKind,
    /// Points of a period.
    pub period: usize,
    /// Number of points at the start that are left out; `None`: as many as the warm-up takes.
    pub hold: Option<usize>,
    /// Computation of the first values. Used by averages, the strength index and, if given, the momentum
    /// oscillator.
    pub warmup: Option<Warmup>,
}

/// Formula of an [`Indicator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndicatorKind {
    /// Chande momentum oscillator; without a warm-up over plain sums.
    ChandeMomentumOscillator,
    /// Exponential moving average.
    ExponentialMovingAverage,
    /// Double exponential moving average.
    DoubleExponentialMovingAverage,
    /// Triple exponential moving average.
    TripleExponentialMovingAverage,
    /// Rate of change of the triple exponential moving average, in percent.
    TripleExponentialDerivative,
    /// Relative strength index.
    RelativeStrengthIndex,
    /// Kaufman's efficiency ratio.
    KaufmansEfficiencyRatio,
    /// Kaufman's adaptive moving average.
    KaufmansAdaptiveMovingAverage,
}

impl IndicatorKind {
    /// Name of the function, for errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            IndicatorKind::ChandeMomentumOscillator => "chande_momentum_oscillator",
            IndicatorKind::ExponentialMovingAverage => "exponential_moving_average",
            IndicatorKind::DoubleExponentialMovingAverage => "double_exponential_moving_average",
            IndicatorKind::TripleExponentialMovingAverage => "triple_exponential_moving_average",
            IndicatorKind::TripleExponentialDerivative => "triple_exponential_derivative",
            IndicatorKind::RelativeStrengthIndex => "relative_strength_index",
            IndicatorKind::KaufmansEfficiencyRatio => "kaufmans_efficiency_ratio",
            IndicatorKind::KaufmansAdaptiveMovingAverage => "kaufmans_adaptive_moving_average",
        }
    }
}

/// Computation of the first values of an exponential moving average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Warmup {
    /// As all others.
    #[default]
    Exponential,
    /// Plain mean.
    Simple,
}

/// Windows of time: `[n * width + offset, (n + 1) * width + offset)`, of local time if there is a zone.
#[derive(Debug, Clone)]
pub struct Windows {
    /// Ticks, positive.
    pub width: i64,
    /// Ticks.
    pub offset: i64,
    /// Zone in which windows are aligned; times are then ns. A window that contains a change of the offset is
    /// longer or shorter by it, unless windows are not longer than the change.
    pub zone: Option<TimeZone>,
}

/// Values of windows without points, per call, for aggregations of one value per window. Previous values and
/// numbers also stand in rows for calls that have no point at their time, and for variables without a value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Fill {
    /// A null; 0 for `Count`.
    #[default]
    Null,
    /// No row.
    None,
    /// The value of the window before, if there is one.
    Previous,
    /// Between the values before and after, for numbers; null at the ends.
    Linear,
    /// A number, cast to the type of the column.
    Number(Literal),
}

/// Order of rows and series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Times, names and tags ascend.
    #[default]
    Ascending,
    /// Times, names and tags descend.
    Descending,
}

/// Rows and groups that are returned. A limit of 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slice {
    /// Rows per result series; with calls, points per call and series, before they are joined.
    pub limit: usize,
    /// Rows before the first one.
    pub offset: usize,
    /// Groups per measurement, in ascending order, whether they have points of the fields or not; of
    /// subqueries, groups that have rows.
    pub series_limit: usize,
    /// Groups before the first one.
    pub series_offset: usize,
}

impl RowPlan {
    /// A plan over `sources` that returns all points, without columns.
    #[must_use]
    pub fn new(sources: Vec<Source>) -> RowPlan {
        RowPlan {
            sources,
            columns: Vec::new(),
            calls: Vec::new(),
            filter: None,
            range: TimeRange { start: OPEN_START, end: OPEN_END },
            group_tags: Vec::new(),
            windows: None,
            fill: Fill::default(),
            order: Order::default(),
            slice: Slice::default(),
        }
    }
}

impl Aggregate {
    /// Returns true for selectors.
    #[must_use]
    pub fn is_selector(&self) -> bool {
        matches!(
            self,
            Aggregate::First
                | Aggregate::Last
                | Aggregate::Max
                | Aggregate::Min
                | Aggregate::Percentile(_)
                | Aggregate::Sample(_)
                | Aggregate::Top(_)
                | Aggregate::Bottom(_)
        )
    }
}
