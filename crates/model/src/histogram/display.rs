//! Histograms as text: in Prometheus's format of results, and in the format of its test scripts.

use std::fmt;

use super::buckets::Buckets;
use super::go_float::go_float;
use super::sparse::{FloatHistogram, ResetHint};
use super::walk::Bucket;

impl fmt::Display for Bucket {
    /// `(1,2]:3`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.lower_inclusive { '[' } else { '(' };
        let close = if self.upper_inclusive { ']' } else { ')' };
        let (lower, upper, count) = (go_float(self.lower), go_float(self.upper), go_float(self.count));
        write!(f, "{open}{lower},{upper}{close}:{count}")
    }
}

impl fmt::Display for FloatHistogram {
    /// `{count:3, sum:4, (1,2]:3}`; empty buckets are omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{count:{}, sum:{}", go_float(self.count), go_float(self.sum))?;
        let mut negative: Vec<Bucket> = self.negative_buckets().filter(|b| b.count != 0.0).collect();
        negative.reverse();
        let zero = (self.zero_count != 0.0).then(|| self.zero_bucket());
        let positive = self.positive_buckets().filter(|b| b.count != 0.0);
        for bucket in negative.into_iter().chain(zero).chain(positive) {
            write!(f, ", {bucket}")?;
        }
        f.write_str("}")
    }
}

/// Formats as in Prometheus's test scripts: `{{schema:1 count:3 sum:4 offset:1 buckets:[3]}}`.
pub(super) fn test_expression(histogram: &FloatHistogram) -> String {
    let mut compact = histogram.clone();
    compact.compact(usize::MAX);
    let mut parts: Vec<String> = Vec::new();
    let mut add = |name: &str, value: f64| {
        if value != 0.0 {
            parts.push(format!("{name}:{}", go_float(value)));
        }
    };
    add("schema", f64::from(compact.schema));
    add("count", compact.count);
    add("sum", compact.sum);
    add("z_bucket", compact.zero_count);
    add("z_bucket_w", compact.zero_threshold);
    let list = |values: &[f64]| values.iter().map(|&v| go_float(v)).collect::<Vec<_>>().join(" ");
    if compact.is_custom() {
        parts.push(format!("custom_values:[{}]", list(&compact.custom_values)));
    }
    match compact.reset_hint {
        ResetHint::Unknown => {}
        ResetHint::Reset => parts.push("counter_reset_hint:reset".to_owned()),
        ResetHint::NotReset => parts.push("counter_reset_hint:not_reset".to_owned()),
        ResetHint::Gauge => parts.push("counter_reset_hint:gauge".to_owned()),
    }
    let mut side = |offset: &str, counts: &str, buckets: &Buckets<f64>| {
        if let Some(span) = buckets.spans.first().filter(|span| span.offset != 0) {
            parts.push(format!("{offset}:{}", span.offset));
        }
        if !buckets.counts.is_empty() {
            parts.push(format!("{counts}:[{}]", list(&buckets.counts)));
        }
    };
    side("offset", "buckets", &compact.positive);
    side("n_offset", "n_buckets", &compact.negative);
    format!("{{{{{}}}}}", parts.join(" "))
}
