//! Backfill of recording rules: history of rules over a range of past time (ADR 0131).
//!
//! Invariants: rounds of a backfill are at the times of rounds of the server, so that their samples continue
//! what it records. A stage comes after the stages whose results it reads.
//! Not here: queries and writes (the caller), alerting rules, which have no history.

mod change;
mod results;
mod rounds;
mod stages;

pub use change::{Compared, SampleCounts, SeriesChange, compare};
pub use results::{ResultLimits, RoundResults, results_of, series_limit_exceeded};
pub use rounds::RoundTimes;
pub use stages::{BackfillPlan, Stage};

#[cfg(test)]
mod tests;
