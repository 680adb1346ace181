//! Decision whether an exemplar of a series is accepted, by time, value and labels.
//!
//! Invariant: the decisions are Prometheus's for the same out-of-order window. A tenant without a window
//! takes exemplars of any age, as it takes samples.

use std::cmp::Ordering;

use chronolith_model::{Exemplar, Labels, TenantLimits};
use xxhash_rust::xxh64::xxh64;

/// Times of exemplars that a tenant accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExemplarWindow {
    /// Latest time; later ones would block the series until then.
    latest_ms: i64,
    /// Distance to the newest exemplar of the series; 0 for any.
    out_of_order_ms: i64,
}

impl ExemplarWindow {
    /// The limits that hold for samples.
    pub(crate) fn of(limits: &TenantLimits, now_ms: i64) -> ExemplarWindow {
        let latest_ms =
            if limits.future_ms_max > 0 { now_ms.saturating_add(limits.future_ms_max) } else { i64::MAX };
        ExemplarWindow { latest_ms, out_of_order_ms: limits.out_of_order_ms }
    }

    pub(super) fn is_future(self, time_ms: i64) -> bool {
        time_ms > self.latest_ms
    }
}

/// Returns true if both are one exemplar. NaN equals nothing, as in Prometheus.
pub(super) fn is_equal(a: &Exemplar, b: &Exemplar) -> bool {
    a.time_ms == b.time_ms && a.value == b.value && a.labels == b.labels
}

/// Returns true if `exemplar` is accepted after `newest`, which differs from it.
pub(super) fn is_accepted(newest: &Exemplar, exemplar: &Exemplar, window: ExemplarWindow) -> bool {
    match exemplar.time_ms.cmp(&newest.time_ms) {
        Ordering::Greater => true,
        Ordering::Less => {
            window.out_of_order_ms <= 0
                || exemplar.time_ms > newest.time_ms.saturating_sub(window.out_of_order_ms)
        }
        // At one time values ascend, and hashes of labels for equal values: a repeat is found without a
        // comparison with each exemplar of the time.
        Ordering::Equal => {
            if exemplar.value == newest.value {
                return label_hash(&exemplar.labels) >= label_hash(&newest.labels);
            }
            // NaN is not smaller.
            let is_smaller = exemplar.value < newest.value;
            !is_smaller
        }
    }
}

/// Order of insertion: time, value, labels.
pub(super) fn compare(a: &Exemplar, b: &Exemplar) -> Ordering {
    let by_value = a.value.partial_cmp(&b.value).unwrap_or(Ordering::Equal);
    a.time_ms.cmp(&b.time_ms).then(by_value).then_with(|| a.labels.cmp(&b.labels))
}

/// Prometheus's hash of a label set: names and values, each after its length. Lengths from 255 take three
/// more bytes, the lowest first.
fn label_hash(labels: &Labels) -> u64 {
    let mut bytes = Vec::with_capacity(64);
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        match u8::try_from(text.len()) {
            Ok(len) if len < u8::MAX => bytes.push(len),
            _ => {
                bytes.push(u8::MAX);
                bytes.extend(text.len().to_le_bytes().into_iter().take(3));
            }
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    xxh64(&bytes, 0)
}
