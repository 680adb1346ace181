//! `label_replace` and `label_join`.
//! Invariants: results with equal labels are the caller's to merge.

use chronolith_exec::column::StepSeries;
use chronolith_exec::error::Error;
use chronolith_exec::operator::{BoxOperator, filter_map};
use chronolith_model::{GoRegex, METRIC_NAME};

/// `label_replace`: sets `target` to the expanded `template` if `regex` matches the label `source`.
pub(crate) fn label_replace<'q>(
    inner: BoxOperator<'q>,
    regex: GoRegex,
    target: &'q str,
    template: &'q str,
    source: &'q str,
) -> BoxOperator<'q> {
    filter_map(inner, move |series| {
        let value = series.labels.get(source).unwrap_or("");
        if let Some(replaced) = regex.captures_expand(value, template) {
            set_label(series, target, &replaced);
        }
        true
    })
}

/// `label_join`: sets `target` to the values of the labels `sources`.
pub(crate) fn label_join<'q>(
    inner: BoxOperator<'q>,
    target: &'q str,
    separator: &'q str,
    sources: Vec<&'q str>,
) -> BoxOperator<'q> {
    filter_map(inner, move |series| {
        let values: Vec<&str> = sources.iter().map(|name| series.labels.get(name).unwrap_or("")).collect();
        let joined = values.join(separator);
        set_label(series, target, &joined);
        true
    })
}

/// Sets a label; a metric name that is set on purpose stays.
fn set_label(series: &mut StepSeries, name: &str, value: &str) {
    let mut builder = series.labels.to_builder();
    builder.set(name, value);
    series.labels = builder.finish();
    if name == METRIC_NAME {
        series.drop_name = false;
    }
}

/// Compiles the pattern of `label_replace`: it has to fit the whole value.
///
/// # Errors
/// The pattern is no regular expression.
pub(crate) fn compile(pattern: &str) -> Result<GoRegex, Error> {
    GoRegex::new(pattern)
        .map_err(|_| Error::Language(format!("invalid regular expression in label_replace(): {pattern}")))
}
