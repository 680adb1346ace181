//! Answers of a cluster, and their comparison with the ledger.
//!
//! Invariant: an answer has only samples of records, with their values, each once, none of a deletion that is
//! done, and all that are required.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::Clock;
use chronolith_model::{Columns, QueryError, Queryable, ReadContext, Selector, TenantId, TimeRange};

use super::ledger::{Ledger, Sample, series_of, value_of};

/// Samples of a tenant by series, times in milliseconds.
pub(super) type Answer = BTreeMap<usize, Columns>;

/// Reads everything of a source.
///
/// # Errors
/// As the query.
pub(super) fn read_all(source: &dyn Queryable, clock: Arc<dyn Clock>) -> Result<Answer, QueryError> {
    let ctx = ReadContext::unlimited(clock);
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut batches = source.select(&selector, &ctx)?;
    let mut series = Vec::new();
    let mut answer = Answer::new();
    let mut has_more = true;
    while has_more {
        has_more = batches.next_batch(&mut series)?;
        for one in series.drain(..) {
            let mut columns = Columns::default();
            one.samples.read(TimeRange::ALL, &mut columns)?;
            // A series without a number was never written.
            answer.insert(series_of(&one.labels).unwrap_or(usize::MAX), columns);
        }
    }
    Ok(answer)
}

/// Compares the answer for a tenant with the ledger; `is_required` decides which samples may not be missing,
/// `is_hidden` which deletions have to be done. Returns the number of samples.
///
/// # Errors
/// The difference.
pub(super) fn compare(
    ledger: &Ledger,
    tenant: &TenantId,
    answer: &Answer,
    is_required: impl Fn(&Sample) -> bool,
    is_hidden: impl Fn(u64) -> bool,
) -> Result<u64, String> {
    let mut compared = 0;
    let mut found_series = 0;
    for store in ledger.stores.iter().filter(|store| store.setup.tenant == *tenant) {
        for (idx, samples) in store.series.iter().enumerate() {
            let series = store.first_series + idx;
            let none = Columns::default();
            let found = answer.get(&series);
            found_series += usize::from(found.is_some());
            let found = found.unwrap_or(&none);
            compared += found.times.len() as u64;
            compare_series(series, samples, found, &is_required, &is_hidden)?;
        }
    }
    match found_series == answer.len() {
        true => Ok(compared),
        false => Err(format!("series that were never written: {:?}", answer.keys())),
    }
}

fn compare_series(
    series: usize,
    samples: &BTreeMap<i64, Sample>,
    found: &Columns,
    is_required: impl Fn(&Sample) -> bool,
    is_hidden: impl Fn(u64) -> bool,
) -> Result<(), String> {
    let mut expected = samples.iter();
    for (at, &time) in found.times.iter().enumerate() {
        loop {
            let Some((&next, sample)) = expected.next().filter(|(next, _)| **next <= time) else {
                return Err(format!("series {series} has a sample at {time} that was never written"));
            };
            if next == time {
                match (sample.place, sample.taken_by) {
                    (None, None) => {
                        return Err(format!("series {series} has a sample at {time} that is in no record"));
                    }
                    (None, Some(number)) if is_hidden(number) => {
                        return Err(format!(
                            "series {series} has a sample at {time} that deletion {number} took: {sample:?}"
                        ));
                    }
                    _ => {}
                }
                break;
            }
            check_left_out(series, next, sample, &is_required)?;
        }
        let value = value_of(series, time);
        if found.values[at].to_bits() != value.to_bits() {
            return Err(format!("series {series} at {time}: {}, expected {value}", found.values[at]));
        }
    }
    expected.try_for_each(|(&time, sample)| check_left_out(series, time, sample, &is_required))
}

fn check_left_out(
    series: usize,
    time: i64,
    sample: &Sample,
    is_required: impl Fn(&Sample) -> bool,
) -> Result<(), String> {
    if is_required(sample) {
        return Err(format!("series {series} lacks its sample at {time}: {sample:?}"));
    }
    Ok(())
}
