//! DELETE, DROP SERIES, DROP MEASUREMENT.
//!
//! Invariants: they change all retention policies of the default database, as in InfluxDB, in one call of the
//! storage; a condition on a field is refused.

use chronolith_model::kind::is_reserved;
use chronolith_model::query::Selector;
use chronolith_model::{Deletion, Labels, METRIC_NAME, Matcher, StoreId, TimeRange};

use super::condition::{TagCondition, TagFilter};
use super::schema::name_matchers;
use super::session::{Session, StatementError};
use crate::ast::{Expr, Source};

const FIELDS_TEXT: &str = "fields not supported in WHERE clause during deletion";
/// Series that a deletion names one by one, per retention policy.
const SERIES_MAX: usize = 100_000;

pub(super) fn delete(
    session: &Session<'_>,
    sources: &[Source],
    condition: Option<&Expr>,
) -> Result<(), StatementError> {
    let (range, rest) = super::metadata::split_time(session, condition)?;
    delete_selected(session, sources, rest.as_ref(), range)
}

pub(super) fn drop_series(
    session: &Session<'_>,
    sources: &[Source],
    condition: Option<&Expr>,
) -> Result<(), StatementError> {
    let (range, rest) = super::metadata::split_time(session, condition)?;
    if range != TimeRange::ALL {
        return Err(StatementError::text("DROP SERIES doesn't support time in WHERE clause"));
    }
    delete_selected(session, sources, rest.as_ref(), TimeRange::ALL)
}

pub(super) fn drop_measurement(session: &Session<'_>, name: &str) -> Result<(), StatementError> {
    let selectors = vec![vec![Matcher::equal(METRIC_NAME, name)]];
    let of_store = |store| Deletion { store, selectors: selectors.clone(), range: TimeRange::ALL };
    delete_all(session, stores(session)?.into_iter().map(of_store).collect())
}

/// Returns the stores of the default database.
fn stores(session: &Session<'_>) -> Result<Vec<StoreId>, StatementError> {
    let catalog = session.storage.catalog();
    let database = session.writable(&catalog, session.database)?;
    Ok(database.policies.iter().map(|policy| policy.store.clone()).collect())
}

fn delete_selected(
    session: &Session<'_>,
    sources: &[Source],
    condition: Option<&Expr>,
    range: TimeRange,
) -> Result<(), StatementError> {
    let filter = TagFilter::of(condition)?;
    let mut matchers = filter.with(name_matchers(sources)?).into_owned();
    if let Some(condition) = condition
        && TagCondition::of(condition)?.has_fields()
    {
        // InfluxDB looks at the condition of each series: without one there is nothing to refuse.
        return match has_series(session, &matchers)? {
            true => Err(StatementError::text(FIELDS_TEXT)),
            false => Ok(()),
        };
    }
    if matchers.is_empty() {
        let any = Matcher::new(METRIC_NAME, chronolith_model::MatchOp::NotEqual, "");
        matchers.extend(any);
    }
    let mut deletions = Vec::new();
    for store in stores(session)? {
        let selectors = match filter.rest.is_empty() {
            true => vec![matchers.clone()],
            false => series_of(session, &store, &filter, &matchers, range)?,
        };
        if !selectors.is_empty() {
            deletions.push(Deletion { store, selectors, range });
        }
    }
    delete_all(session, deletions)
}

fn delete_all(session: &Session<'_>, deletions: Vec<Deletion>) -> Result<(), StatementError> {
    if deletions.is_empty() {
        return Ok(());
    }
    session.storage.delete(&deletions).map_err(StatementError::Text)
}

/// Returns true if a store of the default database has a series that matches.
fn has_series(session: &Session<'_>, matchers: &[Matcher]) -> Result<bool, StatementError> {
    for store in stores(session)? {
        let selector = Selector { matchers, range: TimeRange::ALL };
        let source = session.storage.source_of_all(&store).map_err(StatementError::Text)?;
        let names = source.label_values(METRIC_NAME, &selector, 1, session.ctx)?;
        if !names.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns a selector per series that the filter selects, for conditions that matchers cannot express.
fn series_of(
    session: &Session<'_>,
    store: &StoreId,
    filter: &TagFilter,
    matchers: &[Matcher],
    range: TimeRange,
) -> Result<Vec<Vec<Matcher>>, StatementError> {
    let mut selectors: Vec<Vec<Matcher>> = Vec::new();
    let source = session.storage.source_of_all(store).map_err(StatementError::Text)?;
    let mut batches = source.select(&Selector { matchers, range }, session.ctx)?;
    let mut batch = Vec::new();
    let mut has_more = true;
    let mut previous: Option<Labels> = None;
    while has_more {
        has_more = batches.next_batch(&mut batch)?;
        for series in batch.drain(..).filter(|series| filter.selects(&series.labels)) {
            let tags = series.labels.filtered(|name| !is_reserved(name));
            if previous.as_ref() == Some(&tags) {
                continue;
            }
            if selectors.len() == SERIES_MAX {
                let text = format!("the condition selects more than {SERIES_MAX} series; delete in parts");
                return Err(StatementError::Text(text));
            }
            selectors.push(tags.iter().map(|(name, value)| Matcher::equal(name, value)).collect());
            previous = Some(tags);
        }
    }
    Ok(selectors)
}
