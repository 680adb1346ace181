//! Infos about functions of counters that are applied to metrics which do not look like counters.

use chronolith_exec::note::{Note, Severity};
use chronolith_exec::window::CounterCheck;
use chronolith_model::Labels;
use chronolith_model::quote::write_quoted;

use crate::engine::query::EngineOptions;

/// The check that the options ask for: by the label `__type__`, or by the name of the metric.
pub(crate) fn of(options: &EngineOptions) -> CounterCheck {
    if options.type_and_unit_labels { by_type } else { by_name }
}

fn by_name(labels: &Labels) -> Option<Note> {
    let name = labels.metric_name().unwrap_or("");
    if ["_total", "_sum", "_count", "_bucket"].iter().any(|suffix| name.ends_with(suffix)) {
        return None;
    }
    let text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: ";
    info(text.to_owned(), name)
}

fn by_type(labels: &Labels) -> Option<Note> {
    let kind = labels.get("__type__").unwrap_or("");
    if kind == "counter" || kind == "histogram" {
        return None;
    }
    let text = format!(
        "metric might not be a counter, __type__ label is not set to \"counter\" or \"histogram\", got {kind:?}: "
    );
    info(text, labels.metric_name().unwrap_or(""))
}

/// A series without a metric name is not checked.
fn info(mut text: String, name: &str) -> Option<Note> {
    if name.is_empty() {
        return None;
    }
    // Writing to a String cannot fail.
    let _ = write_quoted(&mut text, name);
    Some(Note::Language(Severity::Info, text.into()))
}
