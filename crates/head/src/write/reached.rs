//! Use of limits of labels and times that series and samples exceed, for the answer to their client.
//!
//! Invariant: only batches with rejects of these kinds pay for it, once per kind.
//! Not here: the decisions (`resolve`, `job`), limits of the index (`index::tables`).

use chronolith_model::{LabelsBuilder, ReachedLimit, Reject, TenantLimits, TimeUnit, WriteOutcome};

use super::job::TimeBounds;

/// Rejects of samples by their time.
const TIME_KINDS: [Reject; 3] = [Reject::OutOfBounds, Reject::TooOld, Reject::OutOfOrder];

/// Notes the use of the limit that the labels of a series exceed, if `kind` is a limit of labels.
#[cold]
pub(super) fn note_label_limit(
    outcome: &mut WriteOutcome,
    labels: &LabelsBuilder,
    limits: &TenantLimits,
    kind: Reject,
) {
    let mut pairs = labels.iter().filter(|(_, value)| !value.is_empty());
    let (name, used, limit) = match kind {
        Reject::TooManyLabels => ("", pairs.count(), limits.label_count_max),
        Reject::LabelNameTooLong => {
            let limit = limits.label_name_bytes_max;
            let Some((name, _)) = pairs.find(|(name, _)| name.len() > limit) else { return };
            ("", name.len(), limit)
        }
        Reject::LabelValueTooLong => {
            let limit = limits.label_value_bytes_max;
            let Some((name, value)) = pairs.find(|(_, value)| value.len() > limit) else { return };
            (name, value.len(), limit)
        }
        _ => return,
    };
    outcome.note_reached(ReachedLimit {
        kind,
        name: name.to_owned(),
        used: used as u64,
        limit: limit as u64,
    });
}

/// Notes the use of the limits of time that the first rejected sample of each kind exceeds.
pub(super) fn note_time_limits(
    outcome: &mut WriteOutcome,
    bounds: TimeBounds,
    limits: &TenantLimits,
    unit: TimeUnit,
) {
    for kind in TIME_KINDS {
        if outcome.rejected[kind as usize] == 0 {
            continue;
        }
        let first = outcome.first_rejects().find(|(of_kind, ..)| *of_kind == kind);
        let Some((excess, limit_ms)) = first.and_then(|(_, _, time)| bounds.excess(kind, *time, limits))
        else {
            continue;
        };
        let limit = limit_ms.unsigned_abs();
        let used = limit.saturating_add(unit.to_ms_ceil(excess).unsigned_abs());
        outcome.note_reached(ReachedLimit { kind, name: String::new(), used, limit });
    }
}
