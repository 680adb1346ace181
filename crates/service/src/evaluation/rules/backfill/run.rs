//! A run of a backfill: stage after stage, chunk after chunk.
//!
//! Invariants: a chunk is stored before the position goes on, and a run from any reported position ends with
//! the samples of an uninterrupted one.
//! Not here: queries (`queries`), comparison and writes (`changes`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::TimeRange;
use chronolith_rules::backfill::{RoundResults, RoundTimes, SampleCounts, Stage};
use chronolith_rules::group::repair_order::matchers_of;
use chronolith_rules::rule::Rule;

use super::changes::{PendingWrite, UnitChanges, UnitSeries, correction_of, live_at, results_as_stored};
use super::pace::{ChunkCost, Pace};
use super::progress::{BackfillEnd, BackfillProgress, BackfillTotals, Position};
use super::queries::{BackfillError, Overlay, RuleQueries, StoredSeries};
use super::readers::Readers;
use super::request::{Backfill, BackfillMode};
use crate::access::Identity;
use crate::evaluation::rules::view::Corrections;
use crate::evaluation::run::Admitted;
use crate::service::Service;

/// Rounds of units that are evaluated one after the other, between two writes.
const STEPS_MAX: usize = 256;
/// Changed samples between two writes of these: each query reads the changes of its series.
const STEP_SAMPLES_MAX: u64 = 50_000;

/// Gets the progress after each chunk. An error ends the run.
pub(super) type Report<'r> = dyn FnMut(&BackfillProgress<'_>) -> Result<(), BackfillError> + 'r;

struct Run<'a, 'r> {
    backfill: &'a Backfill<'a>,
    queries: RuleQueries<'a>,
    readers: Readers,
    report: &'r mut Report<'r>,
    totals: BackfillTotals,
    first_failure: Option<String>,
    first_reject: Option<String>,
    position: Position,
    /// Rounds of rules before the stage.
    done_rounds: u64,
    round_count: u64,
}

/// A round of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    time_ms: i64,
    unit: usize,
}

impl Backfill<'_> {
    /// Runs the backfill on this thread with the permit of `admitted`. `report` gets the progress after each
    /// chunk, and may end the run. Cost: each expression once per chunk of rounds, and a read of the
    /// stored results; memory for the samples of a chunk.
    pub fn run<'r>(
        &self,
        service: &Service,
        admitted: &Admitted,
        report: &'r mut (dyn FnMut(&BackfillProgress<'_>) -> Result<(), BackfillError> + 'r),
    ) -> BackfillEnd {
        let identity = Identity::internal(&self.tenant);
        let mut run = Run {
            backfill: self,
            queries: RuleQueries { service, identity: &identity, admitted },
            readers: Readers::of(service, &self.tenant, &self.plan),
            report,
            totals: BackfillTotals::default(),
            first_failure: None,
            first_reject: None,
            position: self.position,
            done_rounds: 0,
            round_count: self.round_count(),
        };
        let error = run.run_all().err();
        let Run { totals, first_failure, first_reject, position, .. } = run;
        BackfillEnd { totals, first_failure, first_reject, resume: position.token(self.hash), error }
    }
}

impl<'a> Run<'a, '_> {
    fn run_all(&mut self) -> Result<(), BackfillError> {
        let backfill = self.backfill;
        let begin = self.position;
        for (idx, stage) in backfill.plan.stages().iter().enumerate() {
            if idx >= begin.stage {
                let from_ms = if idx == begin.stage { begin.next_ms } else { i64::MIN };
                self.position = Position { stage: idx, next_ms: from_ms };
                match stage {
                    Stage::Ranges { group_idx, units } => self.run_ranges(*group_idx, units, from_ms)?,
                    Stage::Rounds { units } => self.run_rounds(units, from_ms)?,
                }
            }
            self.done_rounds += self.rounds_before(stage, i64::MAX);
        }
        self.position = Position { stage: backfill.plan.stages().len(), next_ms: i64::MIN };
        Ok(())
    }

    /// Evaluates units of one group by range queries.
    fn run_ranges(&mut self, group_idx: usize, units: &[usize], from_ms: i64) -> Result<(), BackfillError> {
        let Some(all) = self.backfill.rounds[group_idx] else { return Ok(()) };
        let mut states: Vec<UnitSeries> = units.iter().map(|_| UnitSeries::default()).collect();
        let mut pace = Pace::new();
        let mut rest = all.since(from_ms);
        while let Some(left) = rest {
            self.queries.check()?;
            let chunk = pace.take(left);
            let cost = self.run_chunk(units, &mut states, chunk)?;
            pace.note(chunk.count(), cost);
            self.advance(units, chunk.last_ms(), chunk.next_ms())?;
            rest = left.since(chunk.next_ms());
        }
        for (&unit, state) in units.iter().zip(&mut states) {
            self.mark_ended(unit, state, all)?;
        }
        Ok(())
    }

    fn run_chunk(
        &mut self,
        units: &[usize],
        states: &mut [UnitSeries],
        rounds: RoundTimes,
    ) -> Result<ChunkCost, BackfillError> {
        let clock = &self.queries.service.env.clock;
        let started_ns = clock.mono_ns();
        let plan = &self.backfill.plan;
        let mut rules: Vec<&Rule> = Vec::new();
        // Slot of the unit of each rule, and results of units whose other rules are not evaluated yet.
        let mut slot_of: Vec<usize> = Vec::new();
        let mut waiting: Vec<BTreeMap<usize, RoundResults>> = units.iter().map(|_| BTreeMap::new()).collect();
        for (slot, &unit) in units.iter().enumerate() {
            plan.rules_of(unit).for_each(|rule| rules.push(rule));
            slot_of.resize(rules.len(), slot);
        }
        let Some(&first) = units.first() else {
            return Ok(ChunkCost { sample_count: 0, duration_ns: 0, is_repeated: false });
        };
        let mut pending = self.pending();
        let mut sample_count = 0;
        let queries = self.queries;
        let is_repeated =
            queries.evaluate_together(plan.group_of(first), &rules, rounds, &mut |idx, results| {
                sample_count += results.sample_count();
                self.note_failures(rules[idx], &results);
                let slot = slot_of[idx];
                waiting[slot].insert(idx, results);
                if waiting[slot].len() < plan.order().units[units[slot]].rules.len() {
                    return Ok(());
                }
                let results = joined(std::mem::take(&mut waiting[slot]));
                self.compare(units[slot], &mut states[slot], rounds, &results, &mut pending)
            })?;
        self.count_rounds((rules.len() * rounds.count()) as u64);
        self.store(units, pending)?;
        let duration_ns = clock.mono_ns().saturating_sub(started_ns);
        Ok(ChunkCost { sample_count, duration_ns, is_repeated })
    }

    /// Compares the results of a unit with the stored samples.
    fn compare(
        &mut self,
        unit: usize,
        state: &mut UnitSeries,
        rounds: RoundTimes,
        results: &RoundResults,
        pending: &mut PendingWrite,
    ) -> Result<(), BackfillError> {
        let from_ms = if state.live.is_none() { rounds.previous_ms() } else { rounds.first_ms() };
        let stored = self.stored(unit, from_ms, rounds.last_ms())?;
        let changes = state.compare(rounds, results, &stored.series);
        self.add_changes(changes, &stored, pending);
        Ok(())
    }

    /// Evaluates units that see each other's earlier results, round by round in order of time.
    fn run_rounds(&mut self, units: &[usize], from_ms: i64) -> Result<(), BackfillError> {
        let mut states: BTreeMap<usize, UnitSeries> =
            units.iter().map(|unit| (*unit, UnitSeries::default())).collect();
        let mut from_ms = from_ms;
        loop {
            self.queries.check()?;
            let steps = self.next_steps(units, from_ms);
            if steps.is_empty() {
                break;
            }
            let last_ms = self.run_steps(units, &mut states, &steps)?;
            from_ms = last_ms.saturating_add(1);
            self.advance(units, last_ms, from_ms)?;
        }
        for (unit, mut state) in states {
            let group_idx = self.backfill.plan.order().units[unit].group_idx;
            if let Some(all) = self.backfill.rounds[group_idx] {
                self.mark_ended(unit, &mut state, all)?;
            }
        }
        Ok(())
    }

    /// The next rounds of all units from a time on, in order: all rounds up to the time of the last one.
    fn next_steps(&self, units: &[usize], from_ms: i64) -> Vec<Step> {
        let mut steps = Vec::new();
        for &unit in units {
            let rounds = self.backfill.rounds[self.backfill.plan.order().units[unit].group_idx];
            if let Some(rounds) = rounds.and_then(|rounds| rounds.since(from_ms)) {
                steps.extend(rounds.first(STEPS_MAX).iter().map(|time_ms| Step { time_ms, unit }));
            }
        }
        steps.sort_unstable();
        let last = steps.get(STEPS_MAX - 1).or(steps.last()).map(|step| step.time_ms);
        steps.retain(|step| Some(step.time_ms) <= last);
        steps
    }

    /// Evaluates steps, or the first of them if they change many samples; returns the time of the last one.
    fn run_steps(
        &mut self,
        units: &[usize],
        states: &mut BTreeMap<usize, UnitSeries>,
        steps: &[Step],
    ) -> Result<i64, BackfillError> {
        let mut corrections: Arc<Corrections> = Arc::default();
        let mut stored: BTreeMap<usize, StoredSeries> = BTreeMap::new();
        let mut pending = self.pending();
        let mut changed_count = 0;
        let mut last_ms = i64::MIN;
        for step in steps {
            if changed_count >= STEP_SAMPLES_MAX && step.time_ms > last_ms {
                break;
            }
            self.queries.check()?;
            let Step { time_ms, unit } = *step;
            let interval_ms = self.backfill.plan.group_of(unit).interval_ms;
            let rounds = RoundTimes::new(time_ms, interval_ms, 1);
            let own_stored = match stored.remove(&unit) {
                Some(found) => found,
                None => {
                    let end_ms = steps.last().map_or(time_ms, |last| last.time_ms);
                    self.stored(unit, rounds.previous_ms(), end_ms)?
                }
            };
            let results = self.evaluate_step(unit, rounds, &corrections)?;
            let Some(state) = states.get_mut(&unit) else { continue };
            let changes = state.compare(rounds, &results, &own_stored.series);
            for (labels, change) in &changes.series {
                Arc::make_mut(&mut corrections).add(&correction_of(labels, change));
            }
            changed_count += changes.counts.added + changes.counts.replaced + changes.counts.removed;
            self.add_changes(changes, &own_stored, &mut pending);
            stored.insert(unit, own_stored);
            last_ms = time_ms;
        }
        drop(stored);
        self.store(units, pending)?;
        Ok(last_ms)
    }

    fn evaluate_step(
        &mut self,
        unit: usize,
        rounds: RoundTimes,
        corrections: &Arc<Corrections>,
    ) -> Result<RoundResults, BackfillError> {
        let plan = &self.backfill.plan;
        let hidden = plan.order().units[unit].later.iter().flat_map(|&later| plan.rules_of(later));
        let overlay = Overlay {
            corrections: corrections.clone(),
            hidden: hidden.map(matchers_of).collect(),
            hidden_from_ms: rounds.first_ms(),
        };
        let mut all = RoundResults::default();
        for rule in plan.rules_of(unit) {
            let group = plan.group_of(unit);
            let results = self.queries.evaluate(group, rule, rounds, Some(&overlay), &mut false)?;
            self.note_failures(rule, &results);
            self.count_rounds(1);
            all.join(results);
        }
        Ok(all)
    }

    /// Corrects the staleness markers of the round after the last one, if the server has recorded it.
    fn mark_ended(
        &mut self,
        unit: usize,
        state: &mut UnitSeries,
        rounds: RoundTimes,
    ) -> Result<(), BackfillError> {
        let next_ms = rounds.next_ms();
        let stored = self.stored(unit, rounds.last_ms(), next_ms)?;
        let is_recorded = stored.series.values().any(|one| one.times.binary_search(&next_ms).is_ok());
        if !is_recorded {
            return Ok(());
        }
        state.live.get_or_insert_with(|| live_at(&stored.series, rounds.last_ms()));
        let results = results_as_stored(&stored, next_ms);
        let next = RoundTimes::new(next_ms, rounds.interval_ms(), 1);
        let mut changes = state.compare(next, &results, &stored.series);
        // The samples of this round are not the backfill's.
        changes.counts.equal = 0;
        changes.new_series_count = 0;
        let mut pending = self.pending();
        self.add_changes(changes, &stored, &mut pending);
        self.store(&[unit], pending)
    }

    fn stored(&self, unit: usize, first_ms: i64, last_ms: i64) -> Result<StoredSeries, BackfillError> {
        let selectors: Vec<_> = self.backfill.plan.rules_of(unit).map(matchers_of).collect();
        self.queries.stored(&selectors, TimeRange::inclusive(first_ms, last_ms))
    }

    fn pending(&self) -> PendingWrite {
        PendingWrite::new(self.queries.service.limits_of(&self.backfill.tenant).duplicates)
    }

    fn add_changes(&mut self, changes: UnitChanges, stored: &StoredSeries, pending: &mut PendingWrite) {
        self.totals.samples.add(changes.counts);
        self.totals.series += changes.new_series_count;
        if self.backfill.mode == BackfillMode::Write {
            let SampleCounts { added, replaced, removed, .. } = changes.counts;
            self.queries.service.rules.backfills.changed_samples.add(added + replaced + removed);
        }
        pending.add(changes.series, &stored.series);
    }

    /// Stores the changes of units, unless this is a dry run.
    fn store(&mut self, units: &[usize], pending: PendingWrite) -> Result<(), BackfillError> {
        let service = self.queries.service;
        let Some(range) = pending.range().filter(|_| self.backfill.mode == BackfillMode::Write) else {
            return Ok(());
        };
        let stored = pending.store(service, &self.backfill.tenant);
        // Also after a failure: part of the changes may be stored.
        self.readers.note_change(service, units, range);
        let rejected = stored?;
        self.totals.rejected += rejected.count;
        self.first_reject = self.first_reject.take().or(rejected.first);
        Ok(())
    }

    fn note_failures(&mut self, rule: &Rule, results: &RoundResults) {
        let count = results.failed.len() as u64;
        self.totals.failed_rounds += count;
        self.queries.service.rules.backfills.failed_rounds.add(count);
        if let (None, Some((time_ms, why))) = (&self.first_failure, results.failed.first_key_value()) {
            self.first_failure = Some(format!("{} at {}: {why}", rule.name, *time_ms as f64 / 1000.0));
        }
    }

    fn count_rounds(&mut self, count: u64) {
        self.totals.rounds += count;
        self.queries.service.rules.backfills.rounds.add(count);
    }

    /// Goes on to the rounds from `next_ms` on, and reports it.
    fn advance(&mut self, units: &[usize], done_until_ms: i64, next_ms: i64) -> Result<(), BackfillError> {
        self.position.next_ms = next_ms;
        let plan = &self.backfill.plan;
        let Some(&first) = units.first() else { return Ok(()) };
        assert!(done_until_ms < next_ms, "the position goes on");
        let of_stage: u64 = units.iter().map(|unit| self.backfill.rounds_of(*unit, next_ms)).sum();
        let progress = BackfillProgress {
            group: &plan.group_of(first).key,
            rules: units
                .iter()
                .flat_map(|unit| plan.rules_of(*unit))
                .map(|rule| rule.name.as_str())
                .collect(),
            stage: self.position.stage + 1,
            stage_count: plan.stages().len(),
            done_until_ms,
            done_rounds: self.done_rounds + of_stage,
            round_count: self.round_count,
            totals: self.totals,
            resume: self.position.token(self.backfill.hash),
        };
        assert!(progress.done_rounds <= progress.round_count, "rounds are done once");
        (self.report)(&progress)
    }

    fn rounds_before(&self, stage: &Stage, end_ms: i64) -> u64 {
        stage.units().iter().map(|unit| self.backfill.rounds_of(*unit, end_ms)).sum()
    }
}

/// Results of the rules of a unit, in their order.
fn joined(results: BTreeMap<usize, RoundResults>) -> RoundResults {
    let mut all = RoundResults::default();
    results.into_values().for_each(|one| all.join(one));
    all
}
