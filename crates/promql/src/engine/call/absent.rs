//! Labels of the result of `absent` and `absent_over_time`.

use chronolith_exec::metric_name::METADATA_LABELS;
use chronolith_model::matcher::MatchOp;
use chronolith_model::{Labels, LabelsBuilder, Matcher};

/// Labels that a missing series would surely have: those that exactly one matcher asks for, by equality.
pub(crate) fn labels_of_absent(matchers: &[Matcher]) -> Labels {
    let mut builder = LabelsBuilder::new();
    let mut seen: Vec<&str> = Vec::new();
    for matcher in matchers.iter().filter(|m| !METADATA_LABELS.contains(&&*m.name)) {
        if matcher.op == MatchOp::Equal && !seen.contains(&&*matcher.name) {
            builder.set(&matcher.name, &matcher.value);
            seen.push(&matcher.name);
        } else {
            builder.remove(&matcher.name);
        }
    }
    builder.finish()
}
