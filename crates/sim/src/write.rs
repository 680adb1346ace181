//! Writing a batch, and what its outcome says about each sample.
//!
//! Holds: the numbers of refused samples that the store gives are those that its rules allow; which samples they are
//! follows from the rules. Not here: what is written (`series`).

use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{DuplicatePolicy, Reject, TenantLimits, WriteBatch, WriteOutcome};
use chronolith_tsdb::{Tsdb, WriteError};

use crate::ledger::{Fate, TenantLedger};
use crate::series::Part;
use crate::value::Value;

/// Whether the ledger knows of all samples of its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// Yes.
    Whole,
    /// Others write series of their own.
    Part,
}

/// Rules of one batch.
struct Rules<'a> {
    limits: &'a TenantLimits,
    now_ms: i64,
}

impl Rules<'_> {
    /// Why a sample of this time is refused, whatever else there is.
    fn refuse(&self, time: i64) -> Option<Reject> {
        let TenantLimits { retention_ms, future_ms_max, .. } = *self.limits;
        if !(TIME_MIN_MS..=TIME_MAX_MS).contains(&time)
            || (future_ms_max > 0 && time > self.now_ms + future_ms_max)
        {
            return Some(Reject::OutOfBounds);
        }
        (retention_ms > 0 && time < self.now_ms - retention_ms).then_some(Reject::TooOld)
    }
}

/// Writes `parts`; gives how many samples there are, and tells the ledger what became of them.
///
/// # Errors
/// Outside: what the store did that it must not. Inside: why it refused the batch.
pub(crate) fn write(
    tsdb: &Tsdb,
    ledger: &mut TenantLedger,
    parts: &[Part],
    now_ms: i64,
    knowledge: Knowledge,
) -> Result<Result<(), WriteError>, String> {
    let mut batch = WriteBatch::from_labels();
    parts.iter().for_each(|(number, samples)| push_part(&mut batch, ledger, *number, samples));
    let outcome = match tsdb.append(&ledger.id, &batch) {
        Ok(outcome) => outcome,
        Err(error) => {
            take_in_flight(ledger, parts, now_ms);
            return Ok(Err(error));
        }
    };
    take_outcome(ledger, parts, now_ms, &outcome, knowledge)?;
    Ok(Ok(()))
}

fn push_part(batch: &mut WriteBatch, ledger: &TenantLedger, number: u32, samples: &[(i64, Value)]) {
    let start = batch.times.len();
    let brings_histograms = samples.iter().any(|(_, value)| matches!(value, Value::Histogram(_)));
    let written = |&(time, value): &(i64, Value)| {
        // Senders mark the end of a series of histograms in either way.
        let (float, histogram) = value.written(brings_histograms && time.rem_euclid(2) == 0);
        ((time, float), histogram)
    };
    let (floats, histograms): (Vec<_>, Vec<_>) = samples.iter().map(written).unzip();
    batch.push_labels(&ledger.labels(number), &floats);
    let placed = histograms.into_iter().enumerate();
    batch.histograms.extend(placed.filter_map(|(at, one)| Some(((start + at) as u32, one?))));
}

/// A failed write may be stored or not.
fn take_in_flight(ledger: &mut TenantLedger, parts: &[Part], now_ms: i64) {
    let limits = ledger.limits.clone();
    let rules = Rules { limits: &limits, now_ms };
    for (number, samples) in parts {
        for &(time, value) in samples.iter().filter(|sample| rules.refuse(sample.0).is_none()) {
            ledger.put(*number, Fate::InFlight, time, value);
        }
    }
}

fn take_outcome(
    ledger: &mut TenantLedger,
    parts: &[Part],
    now_ms: i64,
    outcome: &WriteOutcome,
    knowledge: Knowledge,
) -> Result<(), String> {
    let limits = ledger.limits.clone();
    let rules = Rules { limits: &limits, now_ms };
    let mut wanted = [0u64; Reject::COUNT];
    let mut times = Vec::new();
    for &(time, _) in parts.iter().flat_map(|(_, samples)| samples) {
        match rules.refuse(time) {
            Some(reject) => wanted[reject as usize] += 1,
            None => times.push(time),
        }
    }
    let unordered = outcome.rejected[Reject::OutOfOrder as usize];
    let taken_from = first_taken(&mut times, unordered as usize)
        .ok_or_else(|| format!("{unordered} samples out of order, which splits equal times: {outcome:?}"))?;
    let newest_ms = ledger.newest_ms;
    let may_be_unordered =
        times.iter().filter(|&&time| time < newest_ms.saturating_sub(limits.out_of_order_ms)).count() as u64;
    if unordered > 0 && limits.out_of_order_ms == 0
        || unordered > may_be_unordered && knowledge == Knowledge::Whole
    {
        return Err(format!("{unordered} samples out of order, at most {may_be_unordered} are: {outcome:?}"));
    }
    let conflicts = outcome.rejected[Reject::DuplicateTimestamp as usize];
    let fate = if conflicts == 0 { Fate::Acked } else { Fate::AckedOrConflict };
    let (mut conflicts_max, mut taken) = (0u64, 0u64);
    for (number, samples) in parts {
        for &(time, value) in samples {
            if rules.refuse(time).is_some() || time < taken_from {
                continue;
            }
            let may_conflict = |series: &crate::ledger::SeriesLedger| series.may_conflict(time, value);
            conflicts_max += u64::from(ledger.series.get(number).is_some_and(may_conflict));
            taken += 1;
            ledger.put(*number, fate, time, value);
        }
    }
    let may_refuse = limits.duplicates == DuplicatePolicy::KeepFirst;
    if conflicts > 0 && (!may_refuse || conflicts > conflicts_max) {
        return Err(format!(
            "{conflicts} samples refused as duplicates, {conflicts_max} may be: {outcome:?}"
        ));
    }
    wanted[Reject::OutOfOrder as usize] = unordered;
    wanted[Reject::DuplicateTimestamp as usize] = conflicts;
    if outcome.rejected != wanted || outcome.accepted_count != taken - conflicts {
        return Err(format!("{} samples taken, refused {wanted:?} wanted: {outcome:?}", taken - conflicts));
    }
    Ok(())
}

/// The first time that was taken when the `unordered` earliest of `times` were not; `None` if equal times had
/// different fates.
fn first_taken(times: &mut [i64], unordered: usize) -> Option<i64> {
    times.sort_unstable();
    let first = times.get(unordered).copied().unwrap_or(i64::MAX);
    let last_refused = unordered.checked_sub(1).and_then(|at| times.get(at)).copied();
    (last_refused.is_none_or(|last| last < first) && unordered <= times.len()).then_some(first)
}
