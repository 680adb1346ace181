//! Table of PromQL functions: names, argument types, return types.
//!
//! Invariants: the table ascends by name, so that a look-up is a binary search; names, argument types and
//! variadic rules equal Prometheus 3.16's.
//! Not here: evaluation of the functions (engine).

use crate::value_type::ValueType;

/// Signature of a function.
#[derive(Debug, PartialEq)]
pub struct Function {
    /// Name as written.
    pub name: &'static str,
    /// Types of the arguments that must or may be given.
    pub args: &'static [ValueType],
    /// 0: exactly `args`; n > 0: up to n of the last may be left out or added as Prometheus counts; -1: the
    /// last repeats.
    pub variadic: i32,
    /// Type of the result.
    pub returns: ValueType,
    /// Enabled by `promql-experimental-functions`.
    pub experimental: bool,
}

impl Function {
    /// Type of the argument at `idx`; the last declared type repeats for variadic functions.
    #[must_use]
    pub fn arg_type(&self, idx: usize) -> Option<ValueType> {
        self.args.get(idx.min(self.args.len().saturating_sub(1))).copied()
    }

    /// Fewest arguments of a call.
    #[must_use]
    pub fn args_min(&self) -> usize {
        if self.variadic == 0 { self.args.len() } else { self.args.len().saturating_sub(1) }
    }

    /// Most arguments of a call, `None` for no bound of its own.
    #[must_use]
    pub fn args_max(&self) -> Option<usize> {
        match usize::try_from(self.variadic) {
            Ok(0) => Some(self.args.len()),
            Ok(more) => Some(self.args_min() + more),
            Err(_) => None,
        }
    }
}

/// The function of this name (case matters), experimental ones included.
#[must_use]
pub fn lookup(name: &str) -> Option<&'static Function> {
    let idx = FUNCTIONS.binary_search_by(|function| function.name.cmp(name)).ok()?;
    FUNCTIONS.get(idx)
}

/// All functions, ascending by name.
#[must_use]
pub fn all() -> &'static [Function] {
    FUNCTIONS
}

const NONE: &[ValueType] = &[];
const MATRIX: &[ValueType] = &[ValueType::Matrix];
const SCALAR: &[ValueType] = &[ValueType::Scalar];
const VECTOR: &[ValueType] = &[ValueType::Vector];
const MATRIX_SCALAR: &[ValueType] = &[ValueType::Matrix, ValueType::Scalar];
const SCALAR_MATRIX: &[ValueType] = &[ValueType::Scalar, ValueType::Matrix];
const SCALAR_SCALAR: &[ValueType] = &[ValueType::Scalar, ValueType::Scalar];
const SCALAR_VECTOR: &[ValueType] = &[ValueType::Scalar, ValueType::Vector];
const VECTOR_SCALAR: &[ValueType] = &[ValueType::Vector, ValueType::Scalar];
const VECTOR_STRING: &[ValueType] = &[ValueType::Vector, ValueType::String];
const VECTOR_VECTOR: &[ValueType] = &[ValueType::Vector, ValueType::Vector];
const MATRIX_SCALAR_SCALAR: &[ValueType] = &[ValueType::Matrix, ValueType::Scalar, ValueType::Scalar];
const SCALAR_SCALAR_VECTOR: &[ValueType] = &[ValueType::Scalar, ValueType::Scalar, ValueType::Vector];
const VECTOR_SCALAR_SCALAR: &[ValueType] = &[ValueType::Vector, ValueType::Scalar, ValueType::Scalar];
const VECTOR_STRING_SCALAR_SCALAR: &[ValueType] =
    &[ValueType::Vector, ValueType::String, ValueType::Scalar, ValueType::Scalar];
const VECTOR_STRING_STRING_STRING: &[ValueType] =
    &[ValueType::Vector, ValueType::String, ValueType::String, ValueType::String];
const VECTOR_STRING_STRING_STRING_STRING: &[ValueType] =
    &[ValueType::Vector, ValueType::String, ValueType::String, ValueType::String, ValueType::String];

const fn stable(
    name: &'static str,
    args: &'static [ValueType],
    variadic: i32,
    returns: ValueType,
) -> Function {
    Function { name, args, variadic, returns, experimental: false }
}

const fn experimental(
    name: &'static str,
    args: &'static [ValueType],
    variadic: i32,
    returns: ValueType,
) -> Function {
    Function { name, args, variadic, returns, experimental: true }
}

static FUNCTIONS: &[Function] = &[
    stable("abs", VECTOR, 0, ValueType::Vector),
    stable("absent", VECTOR, 0, ValueType::Vector),
    stable("absent_over_time", MATRIX, 0, ValueType::Vector),
    stable("acos", VECTOR, 0, ValueType::Vector),
    stable("acosh", VECTOR, 0, ValueType::Vector),
    stable("asin", VECTOR, 0, ValueType::Vector),
    stable("asinh", VECTOR, 0, ValueType::Vector),
    stable("atan", VECTOR, 0, ValueType::Vector),
    stable("atanh", VECTOR, 0, ValueType::Vector),
    stable("avg_over_time", MATRIX, 0, ValueType::Vector),
    stable("ceil", VECTOR, 0, ValueType::Vector),
    stable("changes", MATRIX, 0, ValueType::Vector),
    stable("clamp", VECTOR_SCALAR_SCALAR, 0, ValueType::Vector),
    stable("clamp_max", VECTOR_SCALAR, 0, ValueType::Vector),
    stable("clamp_min", VECTOR_SCALAR, 0, ValueType::Vector),
    stable("cos", VECTOR, 0, ValueType::Vector),
    stable("cosh", VECTOR, 0, ValueType::Vector),
    stable("count_over_time", MATRIX, 0, ValueType::Vector),
    stable("day_of_month", VECTOR, 1, ValueType::Vector),
    stable("day_of_week", VECTOR, 1, ValueType::Vector),
    stable("day_of_year", VECTOR, 1, ValueType::Vector),
    stable("days_in_month", VECTOR, 1, ValueType::Vector),
    stable("deg", VECTOR, 0, ValueType::Vector),
    stable("delta", MATRIX, 0, ValueType::Vector),
    stable("deriv", MATRIX, 0, ValueType::Vector),
    experimental("double_exponential_smoothing", MATRIX_SCALAR_SCALAR, 0, ValueType::Vector),
    experimental("end", NONE, 0, ValueType::Scalar),
    stable("exp", VECTOR, 0, ValueType::Vector),
    stable("first_over_time", MATRIX, 0, ValueType::Vector),
    stable("floor", VECTOR, 0, ValueType::Vector),
    stable("histogram_avg", VECTOR, 0, ValueType::Vector),
    stable("histogram_count", VECTOR, 0, ValueType::Vector),
    stable("histogram_fraction", SCALAR_SCALAR_VECTOR, 0, ValueType::Vector),
    stable("histogram_quantile", SCALAR_VECTOR, 0, ValueType::Vector),
    experimental("histogram_quantiles", VECTOR_STRING_SCALAR_SCALAR, 9, ValueType::Vector),
    stable("histogram_stddev", VECTOR, 0, ValueType::Vector),
    stable("histogram_stdvar", VECTOR, 0, ValueType::Vector),
    stable("histogram_sum", VECTOR, 0, ValueType::Vector),
    stable("hour", VECTOR, 1, ValueType::Vector),
    stable("idelta", MATRIX, 0, ValueType::Vector),
    stable("increase", MATRIX, 0, ValueType::Vector),
    experimental("info", VECTOR_VECTOR, 1, ValueType::Vector),
    experimental("integral", MATRIX_SCALAR, 1, ValueType::Vector),
    stable("irate", MATRIX, 0, ValueType::Vector),
    stable("label_join", VECTOR_STRING_STRING_STRING, -1, ValueType::Vector),
    stable("label_replace", VECTOR_STRING_STRING_STRING_STRING, 0, ValueType::Vector),
    stable("last_over_time", MATRIX, 0, ValueType::Vector),
    stable("ln", VECTOR, 0, ValueType::Vector),
    stable("log10", VECTOR, 0, ValueType::Vector),
    stable("log2", VECTOR, 0, ValueType::Vector),
    experimental("mad_over_time", MATRIX, 0, ValueType::Vector),
    experimental("max_of", SCALAR_SCALAR, 0, ValueType::Scalar),
    stable("max_over_time", MATRIX, 0, ValueType::Vector),
    experimental("min_of", SCALAR_SCALAR, 0, ValueType::Scalar),
    stable("min_over_time", MATRIX, 0, ValueType::Vector),
    stable("minute", VECTOR, 1, ValueType::Vector),
    stable("month", VECTOR, 1, ValueType::Vector),
    stable("pi", NONE, 0, ValueType::Scalar),
    stable("predict_linear", MATRIX_SCALAR, 0, ValueType::Vector),
    stable("present_over_time", MATRIX, 0, ValueType::Vector),
    stable("quantile_over_time", SCALAR_MATRIX, 0, ValueType::Vector),
    stable("rad", VECTOR, 0, ValueType::Vector),
    experimental("range", NONE, 0, ValueType::Scalar),
    stable("rate", MATRIX, 0, ValueType::Vector),
    stable("resets", MATRIX, 0, ValueType::Vector),
    stable("round", VECTOR_SCALAR, 1, ValueType::Vector),
    stable("scalar", VECTOR, 0, ValueType::Scalar),
    stable("sgn", VECTOR, 0, ValueType::Vector),
    stable("sin", VECTOR, 0, ValueType::Vector),
    stable("sinh", VECTOR, 0, ValueType::Vector),
    stable("sort", VECTOR, 0, ValueType::Vector),
    experimental("sort_by_label", VECTOR_STRING, -1, ValueType::Vector),
    experimental("sort_by_label_desc", VECTOR_STRING, -1, ValueType::Vector),
    stable("sort_desc", VECTOR, 0, ValueType::Vector),
    stable("sqrt", VECTOR, 0, ValueType::Vector),
    experimental("start", NONE, 0, ValueType::Scalar),
    experimental("start_timestamp", VECTOR, 0, ValueType::Vector),
    stable("stddev_over_time", MATRIX, 0, ValueType::Vector),
    stable("stdvar_over_time", MATRIX, 0, ValueType::Vector),
    experimental("step", NONE, 0, ValueType::Scalar),
    stable("sum_over_time", MATRIX, 0, ValueType::Vector),
    stable("tan", VECTOR, 0, ValueType::Vector),
    stable("tanh", VECTOR, 0, ValueType::Vector),
    stable("time", NONE, 0, ValueType::Scalar),
    stable("timestamp", VECTOR, 0, ValueType::Vector),
    experimental("ts_of_first_over_time", MATRIX, 0, ValueType::Vector),
    experimental("ts_of_last_over_time", MATRIX, 0, ValueType::Vector),
    experimental("ts_of_max_over_time", MATRIX, 0, ValueType::Vector),
    experimental("ts_of_min_over_time", MATRIX, 0, ValueType::Vector),
    stable("vector", SCALAR, 0, ValueType::Vector),
    stable("year", VECTOR, 1, ValueType::Vector),
];

#[cfg(test)]
mod tests {
    use super::{all, lookup};

    #[test]
    fn table_ascends_and_is_complete() {
        assert!(all().is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(all().iter().filter(|f| f.experimental).count(), 18);
        assert_eq!(all().iter().filter(|f| !f.experimental).count(), 73);
    }

    #[test]
    fn argument_bounds() {
        let bounds = |name: &str| lookup(name).map(|f| (f.args_min(), f.args_max()));
        assert_eq!(bounds("rate"), Some((1, Some(1))));
        assert_eq!(bounds("round"), Some((1, Some(2))));
        assert_eq!(bounds("label_join"), Some((3, None)));
        assert_eq!(bounds("histogram_quantiles"), Some((3, Some(12))));
        assert_eq!(bounds("Rate"), None);
    }
}
