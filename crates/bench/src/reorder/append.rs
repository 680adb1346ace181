//! The 24 cases through `Head::append`: series with a reorder rule, one point of each per batch, with the
//! WAL.
//!
//! Invariants: batches are made before the clock starts, except for their times and values; every point that
//! was sent is read back after each case, so that points older than the window count as well. Only appends
//! are timed; the WAL writes on its own thread meanwhile and is synced in the end.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use chronolith_base::Env;
use chronolith_head::{Head, HeadOptions, ReplayProgress, SyncMode};
use chronolith_model::{
    Columns, DuplicatePolicy, Labels, ReadContext, Selector, StoreId, TenantLimits, TimeRange, WriteBatch,
};
use stats_alloc::Region;

use super::case::{self, Case};
use crate::allocations::ALLOCATOR;
use crate::driver::Run;
use crate::report::Table;

/// Series of one batch.
const SERIES_COUNT: usize = 1000;
/// Points of each series.
const STEP_COUNT: usize = 1001;
/// Distance of the points of a series.
const INTERVAL_MS: u64 = 10_000;
/// Start of a window of the head.
const START_MS: i64 = 1_699_999_200_000;
/// The most that a point may take, from the design's table of targets.
const TARGET_NS: f64 = 120.0;

/// Figures of one case.
struct Appended {
    ns_per_point: f64,
    allocations_per_point: f64,
    missing_count: usize,
}

impl Appended {
    fn meets_target(&self) -> bool {
        // Chunks that are sealed and pages of the log are allocated once in thousands of points.
        self.ns_per_point <= TARGET_NS && self.allocations_per_point < 0.01 && self.missing_count == 0
    }
}

/// Measures all cases: the fastest of `rounds` of each.
pub(super) fn measure(cases: impl Iterator<Item = Case>, rounds: usize, run: &mut Run) -> Result<()> {
    let columns = ["ns/point", "allocations/point", "points lost", "target, ns", "met (1)"];
    let mut table = Table::new("through the head, with the WAL", columns);
    for case in cases {
        let measured = (0..rounds).map(|_| run.with_directory(None, |_, dir| measure_once(case, dir)));
        let measured = measured.collect::<Result<Vec<Appended>>>()?;
        let fastest = measured.iter().min_by(|a, b| a.ns_per_point.total_cmp(&b.ns_per_point));
        let one = fastest.context("at least one round")?;
        let cells = [
            (0, one.ns_per_point),
            (4, one.allocations_per_point),
            (0, one.missing_count as f64),
            (0, TARGET_NS),
            (0, f64::from(u8::from(one.meets_target()))),
        ];
        table.mixed_row(format!("APPEND{}", case.name()), cells);
    }
    run.table(table);
    Ok(())
}

fn measure_once(case: Case, dir: &Path) -> Result<Appended> {
    let env = Env::real();
    let options = HeadOptions { sync: SyncMode::Os, ..HeadOptions::new(dir.to_owned()) };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default())?;
    let tenant = StoreId::anonymous();
    let limits =
        TenantLimits { duplicates: DuplicatePolicy::LastWins, future_ms_max: 0, ..TenantLimits::default() };
    let mut batch = batch_of(case)?;
    let samples = case::samples(STEP_COUNT, case.group_len, INTERVAL_MS);
    let mut elapsed_ns = 0.0;
    let mut allocation_count = 0;
    for (idx, sample) in samples.iter().enumerate() {
        batch.times.fill(START_MS + sample.time_ms);
        batch.values.fill(sample.value);
        let allocations = Region::new(ALLOCATOR);
        let start = Instant::now();
        let (outcome, _) = head.append(&tenant, &limits, START_MS, &batch)?;
        // The first batch creates the series and their buffers.
        if idx > 0 {
            elapsed_ns += start.elapsed().as_secs_f64() * 1e9;
            let counted = allocations.change();
            allocation_count += counted.allocations + counted.reallocations;
        }
        ensure!(outcome.accepted_count == SERIES_COUNT as u64, "{}: points were refused", case.name());
    }
    let point_count = (SERIES_COUNT * (STEP_COUNT - 1)) as f64;
    let missing_count = SERIES_COUNT * STEP_COUNT - stored_count(&env, &head, &tenant)?;
    Ok(Appended {
        ns_per_point: elapsed_ns / point_count,
        allocations_per_point: allocation_count as f64 / point_count,
        missing_count,
    })
}

fn batch_of(case: Case) -> Result<WriteBatch> {
    let mut batch = WriteBatch::from_labels();
    for idx in 0..SERIES_COUNT {
        let name = format!("load.dc1.host{:05}.metric{:02}", idx / 10, idx % 10);
        batch.push_labels(&Labels::from_pairs([("__name__", name.as_str())]), &[(0, 0.0)]);
    }
    batch.reorder_rules = vec![case.rule(INTERVAL_MS)?];
    batch.reordered = vec![1; SERIES_COUNT];
    Ok(batch)
}

fn stored_count(env: &Env, head: &Head, tenant: &StoreId) -> Result<usize> {
    let ctx = ReadContext::unlimited(env.clock.clone());
    let all = Selector { matchers: &[], range: TimeRange::ALL };
    let mut columns = Columns::default();
    for series in head.reader().select(tenant, &all, &ctx)? {
        series.samples.read(TimeRange::ALL, &mut columns)?;
    }
    Ok(columns.times.len())
}
