//! Repair of recording rules after out-of-order samples: which rounds see a change, and what a round that is
//! evaluated again corrects (ADR 0129).
//!
//! Invariants: a round that was not evaluated at its time is not evaluated by a repair; rounds are known by
//! the time of their samples, in milliseconds.
//! Not here: order of the rules (`group::repair_order`), queries, and writes (the caller).

use chronolith_promql::engine::lookback::Lookback;
use xxhash_rust::xxh64::xxh64;

use crate::group::Group;
use crate::round::RuleSample;
use crate::rule::Rule;

mod evaluated;
mod recorded;

pub use evaluated::EvaluatedRounds;
pub(crate) use recorded::is_equal;
pub use recorded::{Correction, Recorded, RemovedSample, stored_value};

/// First and last time of rounds that see a change from `first_ms` to `last_ms`. All later rounds see it if
/// the lookback is not known: the selectors have a fixed time, or depend on the times of the query.
#[must_use]
pub fn rounds_that_see(lookback: Option<Lookback>, first_ms: i64, last_ms: i64) -> (i64, i64) {
    lookback.map_or((first_ms, i64::MAX), |lookback| {
        (first_ms.saturating_sub(lookback.future_ms), last_ms.saturating_add(lookback.past_ms))
    })
}

/// Hash of all that decides the results of a rule: a rule with an equal one is the same over a restart.
#[must_use]
pub fn rule_hash(group: &Group, rule: &Rule) -> u64 {
    let Group { interval_ms, query_offset_ms, limit, .. } = group;
    let Rule { name, query, labels, .. } = rule;
    xxh64(format!("{interval_ms} {query_offset_ms} {limit:?} {name:?} {query:?} {labels:?}").as_bytes(), 0)
}

/// Results of several rules that may write the same series, as one: the first one wins.
#[must_use]
pub fn joined(mut results: Vec<Vec<RuleSample>>) -> Vec<RuleSample> {
    if results.len() == 1 {
        return results.swap_remove(0);
    }
    let mut all: Vec<RuleSample> = results.into_iter().flatten().collect();
    // The sort is stable.
    all.sort_by(|a, b| a.labels.cmp(&b.labels));
    all.dedup_by(|later, first| later.labels == first.labels);
    all
}

#[cfg(test)]
mod tests;
