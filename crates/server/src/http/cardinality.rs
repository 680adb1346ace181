//! Cardinality of selected series in head and blocks, for `status/tsdb` with `match[]`, `start` or `end`.
//!
//! Invariants: a series of several selectors counts once; at most [`CARDINALITY_SERIES_MAX`] series are read,
//! and the memory of their names and values is reserved.
//! Not here: cardinality of the whole head (`tsdb`).

use chronolith_base::Reservation;
use chronolith_base::hash::HashMap;
use chronolith_model::query::SelectRequest;
use chronolith_model::{Labels, Matcher, QueryError, Queryable, ReadContext, Selector, TimeRange};
use chronolith_tsdb::Cardinality;

use super::error::{ApiError, ErrorKind};
use crate::limits::CARDINALITY_SERIES_MAX;

/// Memory of a name or a value in the tables, its text excepted.
const ENTRY_BYTES: u64 = 64;

/// Counts of one label name: series by value.
type Values = HashMap<Box<str>, u64>;

struct Counts {
    series_count: usize,
    by_name: HashMap<Box<str>, Values>,
    held: Reservation,
}

/// Counts the series of `selectors` with samples in `range`; lists have `limit` entries.
///
/// # Errors
/// 422 if there are more than [`CARDINALITY_SERIES_MAX`]; as the source.
pub(super) fn of_selected(
    source: &dyn Queryable,
    selectors: &[Vec<Matcher>],
    range: TimeRange,
    limit: usize,
    ctx: &ReadContext,
) -> Result<Cardinality, ApiError> {
    let held = ctx.budget.reserve(0).map_err(QueryError::from)?;
    let mut counts = Counts { series_count: 0, by_name: HashMap::default(), held };
    for (idx, matchers) in selectors.iter().enumerate() {
        let before = &selectors[..idx];
        let is_counted = |labels: &Labels| {
            before.iter().any(|matchers| matchers.iter().all(|matcher| matcher.matches_labels(labels)))
        };
        let selector = Selector { matchers, range };
        // The same series, but less of their samples is copied, of which none is read.
        let mut batches = source.open_series(SelectRequest::newest(&selector), ctx)?;
        let mut batch = Vec::new();
        let mut has_more = true;
        while has_more {
            has_more = batches.next_batch(&mut batch)?;
            ctx.check()?;
            for one in batch.drain(..).filter(|one| !is_counted(&one.labels)) {
                counts.add(&one.labels)?;
            }
        }
    }
    Ok(counts.largest(limit))
}

impl Counts {
    fn add(&mut self, labels: &Labels) -> Result<(), ApiError> {
        if self.series_count == CARDINALITY_SERIES_MAX {
            let why = format!(
                "more than {CARDINALITY_SERIES_MAX} series match, which is the limit of this endpoint; \
                 narrow match[], start or end"
            );
            return Err(ApiError::new(ErrorKind::Execution, why));
        }
        self.series_count += 1;
        for (name, value) in labels.iter() {
            if !self.by_name.contains_key(name) {
                self.held.grow(name.len() as u64 + ENTRY_BYTES).map_err(QueryError::from)?;
                self.by_name.insert(name.into(), Values::default());
            }
            let Some(values) = self.by_name.get_mut(name) else { continue };
            if let Some(count) = values.get_mut(value) {
                *count += 1;
            } else {
                self.held.grow(value.len() as u64 + ENTRY_BYTES).map_err(QueryError::from)?;
                values.insert(value.into(), 1);
            }
        }
        Ok(())
    }

    /// Returns the largest entries of each list.
    fn largest(&self, limit: usize) -> Cardinality {
        let mut out = Cardinality { series_count: self.series_count as u64, ..Cardinality::default() };
        for (name, values) in &self.by_name {
            out.label_pair_count += values.len() as u64;
            out.values_by_label.push((name.to_string(), values.len() as u64));
            let bytes: usize = values.keys().map(|value| value.len()).sum();
            out.bytes_by_label.push((name.to_string(), bytes as u64));
            let mut largest: Vec<(&str, u64)> = values.iter().map(|(value, n)| (&**value, *n)).collect();
            largest.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
            largest.truncate(limit);
            for (value, count) in largest {
                out.series_by_pair.push((format!("{name}={value}"), count));
                if **name == *chronolith_model::METRIC_NAME {
                    out.series_by_metric.push((value.to_owned(), count));
                }
            }
        }
        for list in [
            &mut out.values_by_label,
            &mut out.bytes_by_label,
            &mut out.series_by_pair,
            &mut out.series_by_metric,
        ] {
            list.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            list.truncate(limit);
        }
        out
    }
}
