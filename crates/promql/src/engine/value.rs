//! Results of queries: scalar, string, vector, matrix, with annotations.

use std::sync::Arc;

use chronolith_exec::step_set::StepSet;
use chronolith_model::{FloatHistogram, Labels};

/// One element of an instant vector.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSample {
    /// Labels of the sample.
    pub labels: Labels,
    /// The evaluation time.
    pub time_ms: i64,
    /// Value of the sample; NaN for a histogram.
    pub value: f64,
    /// Value of the sample if it is a native histogram.
    pub histogram: Option<Arc<FloatHistogram>>,
}

/// One series of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixSeries {
    /// Labels of the series.
    pub labels: Labels,
    /// Ascending.
    pub times: Vec<i64>,
    /// One per time.
    pub values: Vec<f64>,
    /// Native histograms with their times, ascending; none of these times is among `times`.
    pub histograms: Vec<(i64, Arc<FloatHistogram>)>,
}

/// Value of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A scalar.
    Scalar {
        /// The evaluation time.
        time_ms: i64,
        /// Value of the scalar.
        value: f64,
    },
    /// A string.
    String {
        /// The evaluation time.
        time_ms: i64,
        /// Text of the string.
        value: String,
    },
    /// Elements in the order of evaluation (`sort` and `topk` give them one).
    Vector(Vec<VectorSample>),
    /// Series sorted by labels.
    Matrix(Vec<MatrixSeries>),
}

/// A value and its annotations.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResult {
    /// The value.
    pub value: Value,
    /// Likely mistakes, with Prometheus's texts ("PromQL warning: ...").
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
