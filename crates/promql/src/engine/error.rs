//! Errors of a query with the texts of Prometheus.

use std::fmt::Write;

use chronolith_exec::cardinality::Cardinality;
use chronolith_exec::error::{ArgumentError, DuplicateMatch, Error};
use chronolith_model::histogram::go_float;
use chronolith_model::labels::is_legacy_label_name;
use chronolith_model::quote::write_quoted;
use chronolith_model::{Labels, QueryError};

/// Reason why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// Reading failed, or the query was stopped.
    #[error(transparent)]
    Query(QueryError),
    /// The query cannot be planned for its times: a duration that is not positive, a type without steps.
    /// Prometheus's text.
    #[error("{0}")]
    Invalid(String),
    /// The query is invalid for the data; Prometheus's text.
    #[error("{0}")]
    Execution(String),
    /// More samples are held at a time than [`crate::EngineOptions::samples_max`].
    #[error("query processing would load too many samples into memory in query execution")]
    TooManySamples,
}

impl From<QueryError> for EvalError {
    fn from(error: QueryError) -> EvalError {
        EvalError::Query(error)
    }
}

impl From<Error> for EvalError {
    fn from(error: Error) -> EvalError {
        EvalError::Execution(match error {
            Error::Query(error) => return EvalError::Query(error),
            Error::TooManySamples => return EvalError::TooManySamples,
            Error::SameLabels => "vector cannot contain metrics with the same labelset".to_owned(),
            Error::DuplicateMatch(series) => duplicate_match(&series),
            Error::AmbiguousMatch(Cardinality::OneToOne) => {
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                    .to_owned()
            }
            Error::AmbiguousMatch(_) => {
                "multiple matches for labels: grouping labels must ensure unique matches".to_owned()
            }
            Error::Argument(argument, value) => invalid_argument(argument, value),
            error @ Error::BufferFull => error.to_string(),
            Error::Language(text) => text,
        })
    }
}

fn duplicate_match(DuplicateMatch { is_left, group, series }: &DuplicateMatch) -> String {
    let side = if *is_left { "left" } else { "right" };
    let mut pair = [braced(&series[0]), braced(&series[1])];
    pair.sort_unstable();
    let [first, second] = pair;
    format!(
        "found duplicate series for the match group {} on the {side} hand-side of the operation: [{first}, {second}];\
         many-to-many matching not allowed: matching labels must be unique on one side",
        braced(group)
    )
}

fn invalid_argument(argument: ArgumentError, value: f64) -> String {
    match argument {
        ArgumentError::NanRatio => "Ratio value is NaN".to_owned(),
        ArgumentError::NanCount => "Parameter value is NaN".to_owned(),
        ArgumentError::CountUnderflow => format!("Scalar value {} underflows int64", go_float(value)),
        ArgumentError::CountOverflow => format!("Scalar value {} overflows int64", go_float(value)),
        ArgumentError::SmoothingFactor => invalid_factor("smoothing factor. Expected: 0 < sf < 1", value),
        ArgumentError::TrendFactor => invalid_factor("trend factor. Expected: 0 < tf < 1", value),
    }
}

fn invalid_factor(what: &str, factor: f64) -> String {
    let factor = if factor.is_infinite() { go_float(factor) } else { format!("{factor:.6}") };
    format!("invalid {what}, got: {factor}")
}

/// All labels in braces, the metric name among them, as Prometheus prints them in messages.
pub(crate) fn braced(labels: &Labels) -> String {
    let mut text = String::from("{");
    for (at, (name, value)) in labels.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        // Writing to a String cannot fail.
        let _ = if is_legacy_label_name(name) { text.write_str(name) } else { write_quoted(&mut text, name) };
        text.push('=');
        let _ = write_quoted(&mut text, value);
    }
    text.push('}');
    text
}
