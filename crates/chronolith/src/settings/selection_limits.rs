//! Limits of what one query selects, wherever it is stored. Not here: their application (`model::tenant`).

use super::declaration::{Form, Setting};
use super::value;

pub(super) const SERIES: Setting = Setting::tenant(
    "query.max-selected-series",
    &[],
    "0",
    Form::Count,
    "Series that one query selects, 422 beyond it; 0 = no limit",
    |l, v| {
        l.queries.selection.series_max = value::count_or_none(v).map(|n| n as u64)?;
        Ok(())
    },
);

pub(super) const SAMPLES: Setting = Setting::tenant(
    "query.max-selected-samples",
    &[],
    "0",
    Form::Count,
    "Samples that one query reads, 422 beyond it; 0 = no limit",
    |l, v| {
        l.queries.selection.samples_max = value::count_or_none(v).map(|n| n as u64)?;
        Ok(())
    },
);

pub(super) const RANGE: Setting = Setting::tenant(
    "query.max-range",
    &[],
    "0",
    Form::Duration,
    "Time range that one selector reads, lookback or range included, 422 beyond it; 0 = no limit",
    |l, v| {
        l.queries.selection.range_ms = value::duration(v)?;
        Ok(())
    },
);
