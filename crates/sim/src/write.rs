//! Writes a batch and records its outcome in the ledger.
//!
//! Invariants: the counts of refused samples that the store returns follow its rules; the rules determine the
//! refused samples. Not here: the content of batches (`batch`).

use chronolith_model::{DuplicatePolicy, Reject, TenantLimits, TimeUnit, WordKind, WriteBatch, WriteOutcome};
use chronolith_tsdb::{Tsdb, WriteError};

use crate::batch::SeriesSamples;
use crate::labels::{kind_of, typed};
use crate::ledger::{AckState, TenantLedger};
use crate::value::{Value, text_of};

/// Samples of a tenant that its ledger knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerScope {
    /// The ledger knows all series of the tenant.
    AllSeries,
    /// The ledger knows the series of one writer; others write other series.
    OwnSeries,
}

/// Rules for the samples of one batch.
struct Rules<'a> {
    limits: &'a TenantLimits,
    unit: TimeUnit,
    now_ms: i64,
}

impl Rules<'_> {
    /// Returns the reason if a sample of this time is refused regardless of stored samples.
    fn refuse(&self, time: i64) -> Option<Reject> {
        let TenantLimits { retention_ms, future_ms_max, .. } = *self.limits;
        let unit = self.unit;
        if !unit.sample_times().contains(&time)
            || (future_ms_max > 0 && time > unit.from_ms(self.now_ms + future_ms_max))
        {
            return Some(Reject::OutOfBounds);
        }
        (retention_ms > 0 && time < unit.from_ms(self.now_ms - retention_ms)).then_some(Reject::TooOld)
    }
}

/// Writes `parts` and records the outcome in `ledger`.
///
/// # Errors
/// Outer: a violation of the store's rules. Inner: the error that the store returned.
pub(crate) fn write(
    tsdb: &Tsdb,
    ledger: &mut TenantLedger,
    parts: &[SeriesSamples],
    now_ms: i64,
    scope: LedgerScope,
) -> Result<Result<(), WriteError>, String> {
    let mut batch = WriteBatch::from_labels();
    parts.iter().for_each(|(number, samples)| push_series(&mut batch, ledger, *number, samples));
    let outcome = match tsdb.append(&ledger.id, &batch) {
        Ok(outcome) => outcome,
        Err(error) => {
            record_failed_write(ledger, parts, now_ms);
            return Ok(Err(error));
        }
    };
    record_outcome(ledger, parts, now_ms, &outcome, scope)?;
    Ok(Ok(()))
}

fn push_series(batch: &mut WriteBatch, ledger: &TenantLedger, number: u32, samples: &[(i64, Value)]) {
    if kind_of(number) == WordKind::Text {
        let texts: Vec<(i64, Vec<u8>)> =
            samples.iter().map(|(time, value)| (*time, text_of(value.bits()))).collect();
        let texts: Vec<(i64, &[u8])> = texts.iter().map(|(time, text)| (*time, text.as_slice())).collect();
        return batch.push_texts(&ledger.labels(number), &texts);
    }
    let start = batch.times.len();
    let has_histograms = samples.iter().any(|(_, value)| matches!(value, Value::Histogram(_)));
    let written = |&(time, value): &(i64, Value)| {
        // Senders end a series of histograms with either kind of staleness marker.
        let (float, histogram) = value.written(has_histograms && time.rem_euclid(2) == 0);
        ((time, float), histogram)
    };
    let (floats, histograms): (Vec<_>, Vec<_>) = samples.iter().map(written).unzip();
    batch.push_labels(&typed(&ledger.labels(number), number), &floats);
    let placed = histograms.into_iter().enumerate();
    batch.histograms.extend(placed.filter_map(|(at, one)| Some(((start + at) as u32, one?))));
}

/// Records that the samples may be stored or not.
fn record_failed_write(ledger: &mut TenantLedger, parts: &[SeriesSamples], now_ms: i64) {
    let limits = ledger.limits.clone();
    let rules = Rules { limits: &limits, unit: ledger.unit(), now_ms };
    for (number, samples) in parts {
        for &(time, value) in samples.iter().filter(|sample| rules.refuse(sample.0).is_none()) {
            ledger.put(*number, AckState::InFlight, time, value);
        }
    }
}

fn record_outcome(
    ledger: &mut TenantLedger,
    parts: &[SeriesSamples],
    now_ms: i64,
    outcome: &WriteOutcome,
    scope: LedgerScope,
) -> Result<(), String> {
    let limits = ledger.limits.clone();
    let rules = Rules { limits: &limits, unit: ledger.unit(), now_ms };
    let mut refused = [0u64; Reject::COUNT];
    let mut times = Vec::new();
    for &(time, _) in parts.iter().flat_map(|(_, samples)| samples) {
        match rules.refuse(time) {
            Some(reject) => refused[reject as usize] += 1,
            None => times.push(time),
        }
    }
    let out_of_order = outcome.rejected[Reject::OutOfOrder as usize];
    let accepted_from = first_accepted(&mut times, out_of_order as usize).ok_or_else(|| {
        format!("{out_of_order} samples out of order, which differ for equal timestamps: {outcome:?}")
    })?;
    let in_order_from = ledger.newest.saturating_sub(ledger.unit().from_ms(limits.out_of_order_ms));
    let out_of_order_max = times.iter().filter(|&&time| time < in_order_from).count() as u64;
    if out_of_order > 0 && limits.out_of_order_ms == 0
        || out_of_order > out_of_order_max && scope == LedgerScope::AllSeries
    {
        return Err(format!(
            "{out_of_order} samples out of order, expected at most {out_of_order_max}: {outcome:?}"
        ));
    }
    let conflicts = outcome.rejected[Reject::DuplicateTimestamp as usize];
    let ack = if conflicts == 0 { AckState::Acked } else { AckState::AckedOrConflict };
    let (mut conflicts_max, mut accepted) = (0u64, 0u64);
    for (number, samples) in parts {
        for &(time, value) in samples {
            if rules.refuse(time).is_some() || time < accepted_from {
                continue;
            }
            let may_conflict = |series: &crate::ledger::SeriesLedger| series.may_conflict(time, value);
            conflicts_max += u64::from(ledger.series.get(number).is_some_and(may_conflict));
            accepted += 1;
            ledger.put(*number, ack, time, value);
        }
    }
    let may_refuse = limits.duplicates == DuplicatePolicy::KeepFirst;
    if conflicts > 0 && (!may_refuse || conflicts > conflicts_max) {
        return Err(format!(
            "{conflicts} samples refused as duplicates, expected at most {conflicts_max}: {outcome:?}"
        ));
    }
    refused[Reject::OutOfOrder as usize] = out_of_order;
    refused[Reject::DuplicateTimestamp as usize] = conflicts;
    if outcome.rejected != refused || outcome.accepted_count != accepted - conflicts {
        return Err(format!(
            "expected {} accepted and {refused:?} refused samples: {outcome:?}",
            accepted - conflicts
        ));
    }
    Ok(())
}

/// Returns the first accepted time if the `out_of_order` earliest of `times` were refused; `None` if only
/// some samples of one timestamp were.
fn first_accepted(times: &mut [i64], out_of_order: usize) -> Option<i64> {
    times.sort_unstable();
    let first = times.get(out_of_order).copied().unwrap_or(i64::MAX);
    let last_refused = out_of_order.checked_sub(1).and_then(|at| times.get(at)).copied();
    (last_refused.is_none_or(|last| last < first) && out_of_order <= times.len()).then_some(first)
}
