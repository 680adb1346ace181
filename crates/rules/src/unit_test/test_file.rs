//! A test file as values: input series and expectations, as they are written.
//!
//! Not here: YAML (`decode`), series and histograms in texts (`input`, `compare`).

use std::collections::BTreeMap;

use crate::file::GroupEntry;

/// A test file.
#[derive(Debug, Clone, PartialEq)]
pub struct TestFile {
    /// Paths and globs, as written.
    pub rule_files: Vec<String>,
    /// Distance between rounds, of subqueries without a step and, by default, of input values; in
    /// milliseconds, more than 0.
    pub interval_ms: i64,
    /// `group_eval_order`: index of each group by name.
    pub group_order: BTreeMap<String, usize>,
    /// `fuzzy_compare`: neighbouring floats are equal.
    pub is_fuzzy: bool,
    /// Tests in the order of the file.
    pub tests: Vec<Test>,
}

/// Input series and expectations.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Test {
    /// Empty for a test without a name.
    pub name: String,
    /// Distance of input values in milliseconds, more than 0.
    pub interval_ms: i64,
    /// First round and first input value, in nanoseconds since 1970.
    pub start_ns: i64,
    /// Series to load.
    pub input_series: Vec<InputSeries>,
    /// Expected alerts.
    pub alert_tests: Vec<AlertTest>,
    /// Expected results of expressions.
    pub expr_tests: Vec<ExprTest>,
    /// `$externalLabels` of templates.
    pub external_labels: BTreeMap<String, String>,
    /// `$externalURL` of templates.
    pub external_url: String,
}

/// A series as written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InputSeries {
    /// Metric and labels.
    pub series: String,
    /// Values in the notation of series.
    pub values: String,
}

/// Alerts of one name that are expected to fire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlertTest {
    /// Time after the start in milliseconds.
    pub eval_time_ms: i64,
    /// Name of the alert.
    pub alert_name: String,
    /// All alerts of this name that fire.
    pub alerts: Vec<ExpectedAlert>,
}

/// A firing alert.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ExpectedAlert {
    /// Labels; `alertname` is added.
    pub labels: BTreeMap<String, String>,
    /// Annotations after their templates are expanded.
    pub annotations: BTreeMap<String, String>,
}

/// Expected result of an expression.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExprTest {
    /// Text of the expression.
    pub expr: String,
    /// Time after the start in milliseconds.
    pub eval_time_ms: i64,
    /// All samples of the result.
    pub samples: Vec<ExpectedSample>,
}

/// A sample as written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExpectedSample {
    /// Metric and labels.
    pub labels: String,
    /// Value of a float.
    pub value: f64,
    /// Notation of a native histogram; empty for a float.
    pub histogram: String,
}

/// A group of a rule file.
#[derive(Debug, Clone, PartialEq)]
pub struct TestedGroup {
    /// Path of the file.
    pub file: String,
    /// The group.
    pub entry: GroupEntry,
}
