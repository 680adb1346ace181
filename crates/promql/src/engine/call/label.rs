//! `label_replace` and `label_join`.
//! Holds: results with equal labels are the caller's to merge.

use chronolith_exec::column::StepSeries;
use chronolith_exec::error::Error;
use chronolith_exec::operator::{BoxOperator, SeriesOperator};
use chronolith_model::{GoRegex, METRIC_NAME};

/// `label_replace`
pub(crate) struct LabelReplace<'q> {
    pub(crate) inner: BoxOperator<'q>,
    pub(crate) target: &'q str,
    pub(crate) template: &'q str,
    pub(crate) source: &'q str,
    pub(crate) regex: GoRegex,
}

impl SeriesOperator for LabelReplace<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        let value = out.labels.get(self.source).unwrap_or("");
        if let Some(replaced) = self.regex.captures_expand(value, self.template) {
            set_label(out, self.target, &replaced);
        }
        Ok(true)
    }
}

/// `label_join`
pub(crate) struct LabelJoin<'q> {
    pub(crate) inner: BoxOperator<'q>,
    pub(crate) target: &'q str,
    pub(crate) separator: &'q str,
    pub(crate) sources: Vec<&'q str>,
}

impl SeriesOperator for LabelJoin<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        let values: Vec<&str> = self.sources.iter().map(|name| out.labels.get(name).unwrap_or("")).collect();
        let joined = values.join(self.separator);
        set_label(out, self.target, &joined);
        Ok(true)
    }
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
