//! `count_values`: how many series have each value, the value becoming a label.

use chronolith_base::hash::HashMap;
use chronolith_exec::column::{ABSENT, Element, StepSeries, is_absent};
use chronolith_exec::error::Error;
use chronolith_exec::execution::OperatorMemory;
use chronolith_exec::grouping::Grouping;
use chronolith_exec::operator::SeriesOperator;
use chronolith_model::Labels;
use chronolith_model::decimal::decimal;

/// Elements after which the deadline is looked at: labels may be long.
const LOOKUPS_PER_CHECK: u64 = 64;

/// Counts equal values per group and step; `label` is the name of the label that takes the value.
pub(crate) fn count_values(
    inner: &mut dyn SeriesOperator,
    grouping: &Grouping<'_>,
    label: &str,
    memory: &mut OperatorMemory<'_>,
) -> Result<Vec<StepSeries>, Error> {
    let mut index: HashMap<Labels, usize> = HashMap::default();
    let mut counts: Vec<StepSeries> = Vec::new();
    let mut series = StepSeries::default();
    let mut lookup_count = 0_u64;
    while inner.next(&mut series)? {
        let group = grouping.of(&series.labels).to_builder();
        let mut last: Option<(u64, usize)> = None;
        for step in 0..series.values.len() {
            let Some(element) = series.element(step) else { continue };
            let bits = if let Element::Float(value) = element { Some(value.to_bits()) } else { None };
            let at = match last {
                Some((before, at)) if bits == Some(before) => at,
                _ => {
                    lookup_count += 1;
                    if lookup_count.is_multiple_of(LOOKUPS_PER_CHECK) {
                        memory.check()?;
                    }
                    // A builder keeps all values that were set, so each element has one of its own.
                    let mut builder = group.clone();
                    if !grouping.excludes(label) {
                        let text = match element {
                            Element::Float(value) => print_value(value),
                            // Something may have made NaN of the zero bucket that it does not have.
                            Element::Histogram(h) if h.is_custom() && h.zero_count != 0.0 => {
                                let message = "histograms with custom buckets have no zero bucket";
                                return Err(Error::Language(message.to_owned()));
                            }
                            Element::Histogram(histogram) => histogram.to_string(),
                        };
                        builder.set(label, &text);
                    }
                    let labels = builder.finish();
                    let at = *index.entry(labels.clone()).or_insert(counts.len());
                    if at == counts.len() {
                        let step_count = series.values.len();
                        // The index has the labels a second time.
                        let bytes = step_count * size_of::<f64>() + 2 * labels.heap_bytes();
                        memory.grow(step_count as u64, bytes as u64)?;
                        counts.push(StepSeries::floats(labels, vec![ABSENT; step_count]));
                    }
                    at
                }
            };
            last = bits.map(|bits| (bits, at));
            let count = &mut counts[at].values[step];
            *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
        }
    }
    Ok(counts)
}

/// Shortest decimal that reads back as the value, without exponent.
fn print_value(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    decimal(value)
}
