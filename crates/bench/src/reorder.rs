//! Benchmark `reorder`: the 24 published benchmarks of Metrictank's reorder buffer on `head::reorder`, in
//! this process, and the same through the append of the head with the WAL.
//!
//! Invariants: samples are made before the clock starts; what passes is checked sample by sample before a
//! case is timed, and every timed round must pass and refuse as many; rounds go over all cases in turn, so
//! that a neighbour on the machine disturbs some rounds of all cases and not all rounds of one.
//! Not here: Metrictank itself (a Go test binary; BENCHMARKS.md says how its figures are taken).

mod append;
mod case;

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use chronolith_head::reorder::{Added, ReorderBuffer, Sample};
use chronolith_model::ReorderRule;
use stats_alloc::Region;

use crate::allocations::ALLOCATOR;
use crate::driver::{Benchmark, Run};
use crate::latency::{at, median};
use crate::report::Table;
use case::Case;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cases to measure: those whose names contain one of these texts (default: all 24).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Samples a round.
    #[arg(long, default_value_t = 4_000_000)]
    samples: usize,
    /// Rounds over all cases.
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// Interval of the buffer and distance of the samples; published is 1.
    #[arg(long, default_value_t = 1)]
    interval_ms: u64,
    /// Rounds per case through the head; 0 leaves these rows out.
    #[arg(long, default_value_t = 3)]
    append_rounds: usize,
}

/// Counts of the timed loop, which keep the compiler from removing its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    passed_count: u64,
    refused_count: usize,
}

/// Figures of one case.
struct Measured {
    case: Case,
    tally: Tally,
    round_ns: Vec<f64>,
    allocation_count: usize,
}

impl Benchmark for Options {
    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.samples > 0 && self.rounds > 0, "samples and rounds must be above 0");
        let wanted = |case: &Case| self.only.is_empty() || self.only.iter().any(|n| case.name().contains(n));
        let cases: Vec<Case> = case::ALL.into_iter().filter(wanted).collect();
        ensure!(!cases.is_empty(), "no case of that name");
        let mut measured = Vec::new();
        for case in cases {
            let samples = case.samples(self.samples, self.interval_ms);
            let tally = verify(case, &samples, self.interval_ms)?;
            measured.push(Measured { case, tally, round_ns: Vec::new(), allocation_count: 0 });
        }
        let groups = case::GROUPS.map(|group_len| {
            let used = measured.iter().any(|m| m.case.group_len == group_len);
            (group_len, case::samples(if used { self.samples } else { 0 }, group_len, self.interval_ms))
        });
        for _ in 0..self.rounds {
            for one in &mut measured {
                let samples = groups.iter().find(|(group_len, _)| *group_len == one.case.group_len);
                measure(one, samples.map_or(&[], |(_, samples)| samples), self.interval_ms)?;
            }
        }
        self.report(&measured, run);
        if self.append_rounds > 0 {
            let cases = measured.iter().map(|one| one.case);
            append::measure(cases, self.append_rounds, run)?;
        }
        Ok(())
    }
}

impl Options {
    fn report(&self, measured: &[Measured], run: &mut Run) {
        run.note(format!(
            "{} samples a round, {} rounds over all cases in turn, interval {} ms",
            self.samples, self.rounds, self.interval_ms
        ));
        run.note(
            "the minimum is the figure: whatever else runs on the machine can only add to it; the median shows how \
             much did",
        );
        let columns =
            ["ns/add, minimum", "ns/add, median", "allocations/add", "refused, %", "target, ns", "met (1)"];
        let mut table = Table::new("benchmark", columns);
        for one in measured {
            let min_ns = at(&one.round_ns, 0.0);
            let allocations = one.allocation_count as f64 / (self.samples * self.rounds) as f64;
            let refused = one.tally.refused_count as f64 / self.samples as f64 * 100.0;
            let is_met = min_ns <= one.case.target_ns() && one.allocation_count == 0;
            let cells = [
                (2, min_ns),
                (2, median(&one.round_ns)),
                (4, allocations),
                (0, refused),
                (0, one.case.target_ns()),
                (0, f64::from(u8::from(is_met))),
            ];
            table.mixed_row(one.case.name(), cells);
            table.keep_rounds(1, one.round_ns.clone());
        }
        run.table(table);
    }
}

fn measure(one: &mut Measured, samples: &[Sample], interval_ms: u64) -> Result<()> {
    let mut buffer = ReorderBuffer::new(one.case.rule(interval_ms)?);
    let mut passed = vec![Sample::EMPTY; one.case.window_len];
    let allocations = Region::new(ALLOCATOR);
    let start = Instant::now();
    let tally = add_all(&mut buffer, samples, &mut passed);
    let elapsed = start.elapsed();
    let counted = allocations.change();
    one.allocation_count += counted.allocations + counted.reallocations;
    one.round_ns.push(elapsed.as_secs_f64() * 1e9 / samples.len() as f64);
    ensure!(tally == one.tally, "{}: {tally:?} in a timed round, expected {:?}", one.case.name(), one.tally);
    Ok(())
}

/// The timed loop: one add a sample; the next add overwrites what passed.
#[inline(never)]
fn add_all(buffer: &mut ReorderBuffer, samples: &[Sample], passed: &mut [Sample]) -> Tally {
    let mut tally = Tally::default();
    for sample in samples {
        match buffer.add(sample.time_ms, sample.value, passed) {
            Ok(Added::Newest(passed_count)) => tally.passed_count += u64::from(passed_count),
            Ok(Added::Late | Added::Updated) => {}
            Err(_) => tally.refused_count += 1,
        }
        // Otherwise the compiler may keep samples that pass from ever being written.
        black_box(passed.as_mut_ptr());
    }
    tally
}

/// Adds all, and checks that what passed and what waits at the end are the samples of the case that are not
/// too old, in order, with their values.
fn verify(case: Case, samples: &[Sample], interval_ms: u64) -> Result<Tally> {
    let rule: ReorderRule = case.rule(interval_ms)?;
    let mut buffer = ReorderBuffer::new(rule);
    let mut passed = vec![Sample::EMPTY; case.window_len];
    let mut kept = Vec::with_capacity(samples.len());
    let mut tally = Tally::default();
    for sample in samples {
        match buffer.add(sample.time_ms, sample.value, &mut passed) {
            Ok(Added::Newest(passed_count)) => {
                kept.extend_from_slice(&passed[..passed_count as usize]);
                tally.passed_count += u64::from(passed_count);
            }
            Ok(Added::Late | Added::Updated) => {}
            Err(_) => tally.refused_count += 1,
        }
    }
    kept.extend(buffer.iter());
    let expected = case.kept(samples, interval_ms);
    ensure!(kept == expected, "{}: other samples come out than go in", case.name());
    ensure!(tally.refused_count == samples.len() - expected.len(), "{}: refused without cause", case.name());
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::{ALLOCATOR, Region, case, verify};

    #[test]
    fn the_allocator_counts() {
        let region = Region::new(ALLOCATOR);
        std::hint::black_box(vec![0_u8; 100]);
        assert!(region.change().allocations >= 1);
    }

    #[test]
    fn all_cases_keep_what_they_should() {
        for case in case::ALL {
            for sample_count in [1, 499, 500, 501, 3000] {
                verify(case, &case.samples(sample_count, 1), 1).unwrap();
            }
            verify(case, &case.samples(3000, 10_000), 10_000).unwrap();
        }
    }
}
