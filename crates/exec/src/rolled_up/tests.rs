//! Functions of random ranges over random series with roll-ups of some of their windows, against the same
//! functions of all samples.

use std::sync::Arc;

use chronolith_base::{Rng, SpareThreads, SystemClock};
use chronolith_model::query::NoSeries;
use chronolith_model::rollup::{RolledWindows, RollupFacts, RollupMethod, RollupMethods};
use chronolith_model::{Columns, Labels, QueryError, ReadContext, SampleSource, TimeRange};

use super::*;
use crate::execution::{Environment, Execution, Settings};
use crate::grid::{Grid, TimeShift};
use crate::metric_name::NameRemoval;
use crate::position::Origin;
use crate::samples::{RangeSamples, SampleParts};
use crate::trace::Trace;

const SLOT_MS: i64 = 10;

/// Samples, and the archives of which windows are kept.
struct Series {
    samples: Columns,
    archives: Vec<RollupArchive>,
    /// Windows that start in it are not kept.
    unknown: TimeRange,
    facts: RollupFacts,
}

impl SampleSource for Series {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let first = self.samples.times.partition_point(|time| *time < range.start);
        let end = self.samples.times.partition_point(|time| *time < range.end);
        out.extend_from(&self.samples, first..end.max(first));
        Ok(())
    }

    fn rollup_archives(&self, out: &mut Vec<RollupArchive>) {
        out.extend_from_slice(&self.archives);
    }

    fn read_rollup(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        out: &mut RollupRead,
    ) -> Result<(), QueryError> {
        let mut all = RolledWindows::new(archive.methods);
        archive.roll_up(&self.samples, &mut all);
        let raw = archive.widened(self.unknown);
        for idx in 0..all.len() {
            let start = all.starts()[idx];
            if range.contains(start) && !raw.contains(start) {
                out.windows.extend_from(&all, idx..idx + 1);
            }
        }
        out.add_raw(archive, raw, range);
        out.facts = self.facts;
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.samples.len()
    }
}

/// Gauges of whole numbers or of fractions, and counters with resets; with gaps.
fn random_series(rng: &Rng) -> Series {
    let mut samples = Columns::default();
    let kind = rng.below(4);
    let mut value = rng.below(50) as f64;
    let mut time_ms = -(rng.below(4000) as i64) * SLOT_MS;
    for _ in 0..1500 + rng.below(3000) {
        time_ms += SLOT_MS * if rng.below(300) == 0 { rng.below(900) as i64 } else { 1 };
        value = match kind {
            0 => rng.below(2000) as f64 - 1000.0,
            1 => rng.below(2000) as f64 / 7.0 - 100.0,
            _ if rng.below(700) == 0 => 0.0,
            _ => value + rng.below(20) as f64 / if kind == 2 { 1.0 } else { 3.0 },
        };
        // A time of its own within the slot.
        let time_ms = time_ms + if rng.below(50) == 0 { rng.below(SLOT_MS as u64) as i64 } else { 0 };
        if samples.times.last().is_none_or(|last| last.div_euclid(SLOT_MS) < time_ms.div_euclid(SLOT_MS)) {
            samples.push(time_ms, value);
        }
    }
    let mut methods = vec![RollupMethod::Count];
    methods.extend(RollupMethod::ALL.into_iter().filter(|_| rng.below(8) != 0));
    let methods = RollupMethods::of(&methods);
    let archive = |slots: i64| RollupArchive::new(SLOT_MS * slots, SLOT_MS, methods).expect("whole slots");
    let start = rng.below(40_000) as i64 - 20_000;
    let facts = RollupFacts::of(&samples, samples.len());
    Series {
        samples,
        archives: [6, 60, 45].map(archive)[..rng.below(4) as usize].to_vec(),
        unknown: TimeRange::new(start, start + rng.below(2000) as i64),
        facts,
    }
}

fn random_windows(rng: &Rng) -> Windows {
    let round = |ms: i64, rng: &Rng| if rng.below(2) == 0 { ms - ms.rem_euclid(60 * SLOT_MS) } else { ms };
    let start_ms = round(rng.below(40_000) as i64 - 20_000, rng);
    let step_ms = round(1 + rng.below(20_000) as i64, rng).max(1);
    let end_ms = start_ms + step_ms * rng.below(6) as i64;
    let width_ms = round(1 + rng.below(40_000) as i64, rng).max(1);
    let shift = TimeShift { fixed_ms: None, offset_ms: rng.below(3) as i64 * 5 };
    Windows::new(Grid::between(start_ms, end_ms, step_ms).expect("a grid"), shift, width_ms)
}

const FUNCTIONS: [Rollup; 9] = [
    Rollup::Min,
    Rollup::Max,
    Rollup::First,
    Rollup::Last,
    Rollup::Count,
    Rollup::Sum,
    Rollup::Avg,
    Rollup::Rate,
    Rollup::Increase,
];

#[test]
fn results_are_those_of_all_samples() {
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    let settings =
        Settings { samples_max: u64::MAX, threads: 1, name_removal: NameRemoval::Immediate, shares: true };
    let mut used = [0; FUNCTIONS.len()];
    let mut scratch = RolledUpScratch::default();
    for seed in 0..600 {
        let rng = Rng::from_seed(seed);
        let (trace, spare_threads) = (Trace::new(), SpareThreads::new(0));
        let environment =
            Environment { source: &NoSeries, ctx: &ctx, trace: &trace, spare_threads: &spare_threads };
        let execution = Execution::new(environment, settings, None, Box::new(|_| 0));
        let source = random_series(&rng);
        let series =
            SeriesRead { labels: Labels::from_pairs([("__name__", "a_total")]), samples: Box::new(source) };
        let windows = random_windows(&rng);
        for (rollup, used) in FUNCTIONS.into_iter().zip(&mut used) {
            let function = RangeFn {
                execution: &execution,
                windows,
                rollup,
                extension: None,
                origin: Origin::default(),
                param_origin: Origin::default(),
                counter_check: |_| None,
                keeps_labels: true,
            };
            let mut range_scratch = RangeScratch::default();
            let mut samples = RangeSamples::default();
            series.samples.read(windows.read_range(), &mut samples.floats).expect("reads");
            samples.split(SampleParts::default());
            let mut want = StepSeries::default();
            let want_any = function
                .apply(&series.labels, false, &samples, &mut range_scratch, &mut want)
                .expect("computed");
            let kind = RolledUpFn::of(&function).expect("a function of roll-ups");
            let mut got = StepSeries::default();
            let any = apply(kind, &function, &series, &mut scratch, &mut range_scratch, &mut got);
            let Some(any) = any.expect("computed") else { continue };
            *used += 1;
            let bits = |series: &StepSeries| series.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(any, want_any, "seed {seed}, {:?}", function.rollup);
            assert!(
                !any || bits(&got) == bits(&want),
                "seed {seed}, {:?}: {:?} instead of {:?}, {windows:?}",
                function.rollup,
                got.values,
                want.values
            );
        }
    }
    assert!(used.iter().all(|count| *count > 20), "used {used:?} times");
}
