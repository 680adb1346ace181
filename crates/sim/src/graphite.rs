//! Graphite store of a tenant: carbon points to write, rules of roll-ups, windows compared with the ledger.
//!
//! Invariants: points depend on their seed, the clock and the ledger only, and none is NaN, as carbon's
//! reader lets none pass; each window that the store returns, from roll-ups or from samples, has the bits of
//! the one computed from the samples of the ledger.
//! Not here: the comparison of the samples (`compare`), protocols (`ingest::carbon`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::{Clock, Rng};
use chronolith_model::databases::CatalogChange;
use chronolith_model::rollup::{
    RolledWindows, RollupArchive, RollupMethod, RollupMethods, RollupRead, RollupRules,
};
use chronolith_model::{
    Columns, Labels, QueryError, ReadContext, SampleSource, Selector, TenantId, TimeRange,
};
use chronolith_tsdb::Tsdb;

use crate::batch::{SeriesSamples, match_all};
use crate::expected::Expected;
use crate::ledger::{SeriesLedger, TenantLedger};
use crate::setup::{DAY_MS, HOUR_MS, MINUTE_MS, graphite_tenant, pick};
use crate::value::Value;

/// Interval of the points, by the schema of all paths.
const SLOT_MS: i64 = 10_000;
/// Spans of the archives. Two divide the windows of blocks, one does not.
const SPANS_MS: [i64; 3] = [MINUTE_MS, HOUR_MS, 7 * MINUTE_MS];
/// Series of the store.
const SERIES_COUNT: u64 = 12;
/// Numbers of series of floats are multiples of this one.
const FLOAT_SERIES_STEP: u32 = 13;
/// Points of one series in a batch.
const RUN_COUNT_MAX: u64 = 300;

/// Owner of the store, which has no samples in its default store.
pub(crate) fn owner() -> TenantId {
    TenantId::new("carbon").expect("a valid tenant id")
}

/// All series have all methods, for each span.
struct Rules;

impl RollupRules for Rules {
    fn archives_of(&self, _: &Labels, out: &mut Vec<RollupArchive>) {
        out.extend(SPANS_MS.map(archive));
    }
}

fn archive(span_ms: i64) -> RollupArchive {
    RollupArchive::new(span_ms, SLOT_MS, RollupMethods::of(&RollupMethod::ALL))
        .expect("a multiple of the slot")
}

/// Makes the store if it is missing, and puts the rules into effect.
pub(crate) fn open(tsdb: &Tsdb) -> Result<(), String> {
    tsdb.settings().set_rollup_rules(Some(Arc::new(Rules)));
    let created = tsdb.databases().change(&owner(), &CatalogChange::CreateGraphiteStore);
    created.map_err(|error| format!("the Graphite store cannot be made: {error}"))?;
    let catalog = tsdb.databases().catalog();
    let policy = catalog.of(&owner()).and_then(|own| own.graphite.as_ref());
    match policy {
        Some(policy) if policy.store == graphite_tenant().id => Ok(()),
        policy => Err(format!("the Graphite store is {:?}", policy.map(|policy| &policy.store))),
    }
}

/// Draws the points of a few connections: current points, runs, points of any age, updates.
pub(crate) fn draw_points(rng: &Rng, ledger: &TenantLedger, now_ms: i64) -> Vec<SeriesSamples> {
    let generator = Points { rng, ledger, now_ms };
    (0..=rng.below(6)).map(|_| generator.series()).collect()
}

struct Points<'a> {
    rng: &'a Rng,
    ledger: &'a TenantLedger,
    now_ms: i64,
}

impl Points<'_> {
    fn series(&self) -> SeriesSamples {
        let number = self.rng.below(SERIES_COUNT) as u32 * FLOAT_SERIES_STEP;
        let times = match self.rng.below(8) {
            0..3 => self.run(self.now_ms, 1 + self.rng.below(6)),
            3 => self.run(self.now_ms - self.below(HOUR_MS), self.rng.below(RUN_COUNT_MAX)),
            4 => self.run(self.now_ms - self.below(DAY_MS), self.rng.below(RUN_COUNT_MAX)),
            5 => self.spread(pick(self.rng, &[HOUR_MS, 20 * HOUR_MS, 10 * DAY_MS])),
            _ => self.stored(number),
        };
        (number, times.into_iter().map(|time| (time, self.value())).collect())
    }

    fn below(&self, bound_ms: i64) -> i64 {
        self.rng.below(bound_ms.unsigned_abs()).cast_signed()
    }

    /// Ascending times up to `end_ms`, in whole slots mostly, as a schema rounds them.
    fn run(&self, end_ms: i64, count: u64) -> Vec<i64> {
        let end_ms = if self.rng.below(10) == 0 { end_ms } else { end_ms - end_ms.rem_euclid(SLOT_MS) };
        (0..count.cast_signed()).rev().map(|at| end_ms - at * SLOT_MS).collect()
    }

    /// Times of any order and age up to `age_ms`, some of them twice.
    fn spread(&self, age_ms: i64) -> Vec<i64> {
        let time = |_| {
            let time = self.now_ms - self.below(age_ms);
            if self.rng.below(10) == 0 { time } else { time - time.rem_euclid(SLOT_MS) }
        };
        let mut times: Vec<i64> = (0..=self.rng.below(60)).map(time).collect();
        times.extend(times.first().copied());
        times
    }

    /// Times that have a value.
    fn stored(&self, number: u32) -> Vec<i64> {
        let Some(series) = self.ledger.series.get(&number) else { return Vec::new() };
        let first = self.now_ms - self.below(pick(self.rng, &[10 * MINUTE_MS, DAY_MS, 10 * DAY_MS]));
        let stored = series.samples.range(first..).map(|(time, _)| *time);
        stored.take(1 + self.rng.below(30) as usize).collect()
    }

    fn value(&self) -> Value {
        Value::float(match self.rng.below(50) {
            0 => pick(self.rng, &[f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE, f64::MAX]),
            1..10 => 7.0,
            _ => self.rng.below(100_000) as f64 / 100.0 - 300.0,
        })
    }
}

/// Compares the windows of all series; returns the number of those that came from roll-ups.
pub(crate) fn compare_windows(
    tsdb: &Tsdb,
    ledger: &TenantLedger,
    clock: &Arc<dyn Clock>,
) -> Result<u64, String> {
    let failed = |error: QueryError| format!("a query of windows failed: {error}");
    let ctx = ReadContext::unlimited(clock.clone());
    let matchers = match_all(None);
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let queryable = tsdb.reader().queryable(&owner());
    let mut batches = queryable.select(&selector, &ctx).map_err(failed)?;
    let mut found = Vec::new();
    while batches.next_batch(&mut found).map_err(failed)? {}
    let mut rolled_up_count = 0;
    for one in &found {
        let series = ledger.number_of(&one.labels).and_then(|number| ledger.series.get(&number));
        let series = series.ok_or_else(|| format!("{} was never written", one.labels))?;
        rolled_up_count += compare_series(&*one.samples, series)
            .map_err(|what| format!("windows of {}: {what}", one.labels))?;
    }
    Ok(rolled_up_count)
}

fn compare_series(samples: &dyn SampleSource, series: &SeriesLedger) -> Result<u64, String> {
    let failed = |error: QueryError| format!("a read failed: {error}");
    let mut found = Columns::default();
    samples.read(TimeRange::ALL, &mut found).map_err(failed)?;
    let expected = expected_columns(series, &found);
    let (Some(&first), Some(&last)) = (expected.times.first(), expected.times.last()) else { return Ok(0) };
    let mut rolled_up_count = 0;
    for archive in SPANS_MS.map(archive) {
        let mut want = RolledWindows::new(archive.methods);
        archive.roll_up(&expected, &mut want);
        let range = archive.widened(TimeRange::inclusive(first - DAY_MS, last + DAY_MS));
        let mut read = RollupRead::new(archive.methods);
        samples.read_rollup(&archive, range, &mut read).map_err(failed)?;
        let read = RollupRead::merged(&archive, vec![read]);
        rolled_up_count += read.windows.len() as u64;
        let got = completed(&archive, samples, read).map_err(failed)?;
        compare_bits(&want, &got).map_err(|what| format!("span {} ms: {what}", archive.span_ms()))?;
    }
    Ok(rolled_up_count)
}

/// The samples that the ledger expects; where it allows several values, the stored one.
fn expected_columns(series: &SeriesLedger, found: &Columns) -> Columns {
    let found: BTreeMap<i64, f64> = found.times.iter().copied().zip(found.values.iter().copied()).collect();
    let mut columns = Columns::default();
    for (time, expected) in &series.samples {
        match (expected, found.get(time)) {
            (Expected::Exactly(value), _) => columns.push(*time, f64::from_bits(value.bits())),
            (Expected::AnyOf(_), Some(value)) => columns.push(*time, *value),
            (Expected::AnyOf(_), None) => {}
        }
    }
    columns
}

/// Adds the windows of the ranges whose samples have to be read.
fn completed(
    archive: &RollupArchive,
    samples: &dyn SampleSource,
    read: RollupRead,
) -> Result<RolledWindows, QueryError> {
    let mut parts = vec![read.windows];
    for raw in &read.raw {
        let mut columns = Columns::default();
        let mut windows = RolledWindows::new(archive.methods);
        samples.read(*raw, &mut columns)?;
        archive.roll_up(&columns, &mut windows);
        parts.push(windows);
    }
    let mut order: Vec<(i64, usize, usize)> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        order.extend(part.starts().iter().enumerate().map(|(idx, start)| (*start, at, idx)));
    }
    order.sort_unstable();
    let mut all = RolledWindows::new(archive.methods);
    order.into_iter().for_each(|(_, at, idx)| all.extend_from(&parts[at], idx..idx + 1));
    Ok(all)
}

fn compare_bits(want: &RolledWindows, got: &RolledWindows) -> Result<(), String> {
    if want.starts() != got.starts() {
        let differs = want.starts().iter().zip(got.starts()).find(|(want, got)| want != got);
        return Err(format!(
            "{} windows, expected {}; the first that differs is {differs:?}",
            got.len(),
            want.len()
        ));
    }
    for method in RollupMethod::ALL {
        let (Some(want_values), Some(got_values)) = (want.column(method), got.column(method)) else {
            return Err(format!("no column of {method:?}"));
        };
        let differs = want_values.iter().zip(got_values).position(|(a, b)| a.to_bits() != b.to_bits());
        if let Some(at) = differs {
            let start = want.starts()[at];
            let values = (got_values[at], want_values[at]);
            return Err(format!("{method:?} @{start} is {}, expected {}", values.0, values.1));
        }
    }
    Ok(())
}
