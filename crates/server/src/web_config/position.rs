//! Errors with the position of a value in the file.

use serde_saphyr::Spanned;

/// Returns the text of an error at the position of a value.
pub(super) fn fault_at<T>(value: &Spanned<T>, why: &str) -> String {
    format!("line {}, column {}: {why}", value.defined.line(), value.defined.column())
}
