//! `label_replace` and `label_join`.
//! Invariants: results with equal labels are the caller's to merge; memory of a value is reserved before it
//! exists.

use chronolith_exec::column::StepSeries;
use chronolith_exec::error::Error;
use chronolith_exec::execution::{Execution, OperatorMemory};
use chronolith_exec::operator::{BoxOperator, SeriesOperator};
use chronolith_model::{GoRegex, Labels, METRIC_NAME};

/// Copies of a new label value that exist at once: the value, the text of the builder, its encoding, the set.
const VALUE_COPIES: u64 = 4;

/// `label_replace`: sets `target` to the expanded `template` if `regex` matches the label `source`.
pub(crate) fn label_replace<'q>(
    execution: &'q Execution<'q>,
    inner: BoxOperator<'q>,
    regex: GoRegex,
    target: &'q str,
    template: &'q str,
    source: &'q str,
) -> BoxOperator<'q> {
    // A value cannot be longer than with the whole source in place of each reference.
    let reference_count = template.matches('$').count();
    let bytes_max =
        move |value: &str| template.len().saturating_add(value.len().saturating_mul(reference_count));
    let value_of = move |labels: &Labels| regex.captures_expand(labels.get(source).unwrap_or(""), template);
    let bytes_of = move |labels: &Labels| bytes_max(labels.get(source).unwrap_or(""));
    LabelSetter::boxed(execution, inner, target, bytes_of, value_of)
}

/// `label_join`: sets `target` to the values of the labels `sources`.
pub(crate) fn label_join<'q>(
    execution: &'q Execution<'q>,
    inner: BoxOperator<'q>,
    target: &'q str,
    separator: &'q str,
    sources: Vec<&'q str>,
) -> BoxOperator<'q> {
    let names = sources.clone();
    let bytes_of = move |labels: &Labels| {
        let separators = separator.len().saturating_mul(names.len());
        let lens = names.iter().map(|name| labels.get(name).unwrap_or("").len());
        lens.fold(separators, usize::saturating_add)
    };
    let value_of = move |labels: &Labels| {
        let values: Vec<&str> = sources.iter().map(|name| labels.get(name).unwrap_or("")).collect();
        Some(values.join(separator))
    };
    LabelSetter::boxed(execution, inner, target, bytes_of, value_of)
}

/// Sets one label of each series. References to a label may repeat it, and nested calls multiply its length,
/// so memory is reserved before the value exists.
struct LabelSetter<'q, B, V> {
    inner: BoxOperator<'q>,
    target: &'q str,
    /// Bytes that the value has at most.
    bytes_of: B,
    /// `None` keeps the labels.
    value_of: V,
    memory: OperatorMemory<'q>,
}

impl<'q, B, V> LabelSetter<'q, B, V>
where
    B: Fn(&Labels) -> usize + 'q,
    V: Fn(&Labels) -> Option<String> + 'q,
{
    fn boxed(
        execution: &'q Execution<'q>,
        inner: BoxOperator<'q>,
        target: &'q str,
        bytes_of: B,
        value_of: V,
    ) -> BoxOperator<'q> {
        let memory = execution.operator_memory();
        Box::new(LabelSetter { inner, target, bytes_of, value_of, memory })
    }
}

impl<B, V> SeriesOperator for LabelSetter<'_, B, V>
where
    B: Fn(&Labels) -> usize,
    V: Fn(&Labels) -> Option<String>,
{
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        let value_bytes = (self.bytes_of)(&out.labels) as u64;
        let bytes = value_bytes.saturating_add(out.labels.heap_bytes() as u64);
        self.memory.raise_to(0, bytes.saturating_mul(VALUE_COPIES))?;
        if let Some(value) = (self.value_of)(&out.labels) {
            set_label(out, self.target, &value);
        }
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
