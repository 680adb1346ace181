//! One pass over the rules of a tenant: evaluates rounds again and collects what differs.
//!
//! Invariants: a unit is evaluated after the units that it reads; a change of a result marks the rounds that
//! see it, of the unit itself later ones alone, so a pass ends. Marks that the pass does not come to stay.
//! Not here: writes (`commit`), which rounds a repair takes (`rules::repair`).

mod shared;
mod units;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_model::change::ChangedRanges;
use chronolith_model::query::Selector;
use chronolith_model::{Columns, QueryError, Queryable, TenantId, TimeRange};
use chronolith_promql::engine::trace::Trace;
use chronolith_promql::engine::{Query, Value, VectorSample};
use chronolith_rules::group::Group;
use chronolith_rules::group::repair_order::matchers_of;
use chronolith_rules::repair::{Correction, Recorded, stored_value};
use chronolith_rules::round::RuleSample;
use chronolith_rules::round::recording::recorded_samples;
use chronolith_rules::rule::Rule;

use self::units::Units;
use crate::access::Identity;
use crate::evaluation::call_context::CallContext;
use crate::evaluation::promql::value_bytes;
use crate::evaluation::rules::component::{begin_query, query_over};
use crate::evaluation::rules::view::{Corrections, RepairView};
use crate::evaluation::run::{Admitted, further_query};
use crate::evaluation::running::RunningQuery;
use crate::rules::repair::{RepairedGroup, TakenRepair};
use crate::service::Service;

/// Corrected samples of one pass; rounds that are left wait for the next one.
const CORRECTIONS_MAX: usize = 1_000_000;

/// The pass ends: its time is over, the server stops, or the source cannot be read.
struct Ended;

/// Reason that a query has no value.
enum Failure {
    /// Interrupted; it may succeed later.
    Interrupted,
    /// Failed with this text.
    Failed(String),
}

/// Results of a rule by the time of the round, and their memory; rounds that failed have none.
#[derive(Default)]
struct Results {
    rounds: BTreeMap<i64, Vec<RuleSample>>,
    memory: Vec<Reservation>,
}

/// A value, and its memory in the call.
struct CountedValue {
    value: Value,
    memory: Reservation,
}

impl CountedValue {
    fn new(admitted: &Admitted, value: Value) -> Result<CountedValue, Failure> {
        match admitted.ctx().budget.reserve(value_bytes(&value)) {
            Ok(memory) => Ok(CountedValue { value, memory }),
            Err(full) => Err(Failure::Failed(QueryError::from(full).to_string())),
        }
    }
}

impl Results {
    fn append(&mut self, mut other: Results) {
        self.rounds.append(&mut other.rounds);
        self.memory.append(&mut other.memory);
    }
}

/// Differences in rounds of a unit, by time.
type RoundChanges = Vec<(i64, Correction)>;

/// A pass and what it has found.
pub(super) struct Pass<'a> {
    service: &'a Service,
    taken: &'a TakenRepair,
    admitted: Admitted,
    below: Arc<dyn Queryable>,
    units: Units<'a>,
    /// Rounds to evaluate, by unit.
    marks: Vec<ChangedRanges>,
    /// The last round of each unit up to which its marked ones have been evaluated.
    done_ms: Vec<i64>,
    corrections: Arc<Corrections>,
    written: Correction,
    /// Rounds that were evaluated, by group.
    rounds: Vec<BTreeSet<i64>>,
    deadline_ns: u64,
    /// The first failure has been logged; others are counted alone.
    has_logged: Cell<bool>,
}

/// A round in the order of evaluation of units that read each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    time_ms: i64,
    unit: usize,
    /// The round sees no change, and the one before has other series.
    is_marker_round: bool,
}

impl Step {
    fn of(unit: usize, time_ms: i64) -> Step {
        Step { time_ms, unit, is_marker_round: false }
    }
}

impl<'a> Pass<'a> {
    /// `None` without a permit or a source.
    pub(super) fn begin(service: &'a Service, taken: &'a TakenRepair, deadline_ns: u64) -> Option<Pass<'a>> {
        let identity = Identity::internal(&taken.tenant);
        let timeout_ms = service.options.query.timeout_ms;
        let admitted = service.try_admit(&service.admission.rule_work.repairs, &identity, timeout_ms)?;
        let below = further_query(service, &admitted).source_of(service, &identity).ok()?;
        let units = Units::of(taken);
        let pending = |unit: &chronolith_rules::group::repair_order::RepairUnit| {
            let mut all = ChangedRanges::EMPTY;
            let rules = &taken.groups[unit.group_idx].1.rules;
            unit.rules.iter().for_each(|&idx| all.add_all(&rules[idx].pending));
            all
        };
        Some(Pass {
            marks: units.order.units.iter().map(pending).collect(),
            done_ms: vec![i64::MIN; units.order.units.len()],
            rounds: vec![BTreeSet::new(); units.groups.len()],
            corrections: Arc::default(),
            written: Correction::default(),
            service,
            taken,
            admitted,
            below,
            units,
            deadline_ns,
            has_logged: Cell::new(false),
        })
    }

    /// Evaluates all units, or as many as there is time for.
    pub(super) fn run(&mut self) {
        let mut left: VecDeque<usize> = self.units.order.acyclic.iter().copied().collect();
        // Units that each unit reads and that are still left.
        let mut inputs = vec![0_usize; self.units.order.units.len()];
        self.units.order.units.iter().flat_map(|unit| &unit.readers).for_each(|reader| inputs[*reader] += 1);
        while let Some(unit) = left.pop_front() {
            let mut units = vec![unit];
            let ended = if self.units.is_stepped(unit) {
                self.run_steps(&units)
            } else {
                units.extend(self.companions(unit, &left, &inputs));
                left.retain(|unit| !units.contains(unit));
                self.run_ranges(&units)
            };
            if ended.is_err() {
                return;
            }
            let readers = units.iter().flat_map(|unit| &self.units.order.units[*unit].readers);
            readers.for_each(|reader| inputs[*reader] -= 1);
        }
        let cyclic = self.units.order.cyclic.clone();
        // Rounds that are left wait for the next pass.
        drop(self.run_steps(&cyclic));
    }

    /// Samples to write.
    pub(super) fn written(&self) -> &Correction {
        &self.written
    }

    /// Rounds that were evaluated, and those that are left.
    pub(super) fn outcome(self) -> Vec<RepairedGroup> {
        let mut outcome: Vec<RepairedGroup> = Vec::with_capacity(self.units.groups.len());
        for (group, rounds) in self.units.groups.iter().zip(&self.rounds) {
            let left = vec![ChangedRanges::EMPTY; group.rules().len()];
            outcome.push(RepairedGroup { left, round_count: rounds.len() as u64 });
        }
        for (idx, unit) in self.units.order.units.iter().enumerate() {
            for &(first_ms, last_ms) in self.marks[idx].as_slice() {
                let first_ms = first_ms.max(self.done_ms[idx].saturating_add(1));
                if first_ms <= last_ms {
                    let left = &mut outcome[unit.group_idx].left;
                    unit.rules.iter().for_each(|&rule| left[rule].add(first_ms, last_ms));
                }
            }
        }
        outcome
    }

    /// Units among those that are `left` that may be evaluated together with `unit`: of its group, with the
    /// same rounds, and none of their `inputs` is left. Units of several rules are evaluated by themselves.
    fn companions(&self, unit: usize, left: &VecDeque<usize>, inputs: &[usize]) -> Vec<usize> {
        let units = &self.units.order.units;
        let may_share = |idx: usize| units[idx].rules.len() == 1 && inputs[idx] == 0;
        if !may_share(unit) {
            return Vec::new();
        }
        let due = self.units.due(unit, &self.marks[unit], i64::MIN);
        let is_companion = |other: &usize| {
            units[*other].group_idx == units[unit].group_idx
                && may_share(*other)
                && !self.units.is_stepped(*other)
                && self.units.due(*other, &self.marks[*other], i64::MIN) == due
        };
        left.iter().copied().filter(is_companion).collect()
    }

    /// Evaluates the marked rounds of units by range queries. The units are of one group, have the same
    /// rounds, and none reads another one.
    fn run_ranges(&mut self, units: &[usize]) -> Result<(), Ended> {
        let Some(&first_unit) = units.first() else { return Ok(()) };
        let due = self.units.due(first_unit, &self.marks[first_unit], i64::MIN);
        for times in self.units.chains(first_unit, &due) {
            let mut left = units.to_vec();
            if units.len() > 1 {
                self.run_shared(units, &times, &due, &mut left)?;
            }
            for unit in left {
                self.check()?;
                let rule_count = self.units.order.units[unit].rules.len();
                let results: Result<Vec<Results>, Ended> =
                    (0..rule_count).map(|idx| self.evaluate(unit, idx, &times, &[])).collect();
                let changes = self.compare_rounds(unit, &times, &due, results?)?;
                self.take_changes(unit, &times, changes);
            }
        }
        for &unit in units {
            self.done_ms[unit] = self.units.group(unit).end_ms().saturating_sub(1);
        }
        Ok(())
    }

    /// Compares consecutive rounds of a unit with the stored samples; the markers of the round after them
    /// are corrected by its own query if it is `due`.
    fn compare_rounds(
        &self,
        unit: usize,
        times: &[i64],
        due: &[i64],
        mut results: Vec<Results>,
    ) -> Result<RoundChanges, Ended> {
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return Ok(Vec::new()) };
        let mut recorded = self.recorded(unit, first)?;
        let mut changes = RoundChanges::with_capacity(times.len() + 1);
        for &time_ms in times {
            let of_round = results.iter_mut().filter_map(|one| one.rounds.remove(&time_ms)).collect();
            changes.push((
                time_ms,
                self.units.compare(
                    unit,
                    &mut recorded,
                    time_ms,
                    of_round,
                    &self.service.rules.repairs.given_up_rounds,
                ),
            ));
        }
        if let Some(next_ms) = self.units.next_round(unit, last).filter(|next_ms| !due.contains(next_ms)) {
            let before_ms = self.units.round_before(unit, &recorded, next_ms);
            changes.push((next_ms, recorded.correct(next_ms, before_ms, None)));
        }
        Ok(changes)
    }

    /// Takes the changes of the rounds at `times`, and of the markers after them, over.
    fn take_changes(&mut self, unit: usize, times: &[i64], changes: RoundChanges) {
        let group_idx = self.units.order.units[unit].group_idx;
        self.rounds[group_idx].extend(times);
        for (time_ms, correction) in changes {
            self.apply(unit, time_ms, correction);
        }
        self.done_ms[unit] = times.last().copied().unwrap_or(self.done_ms[unit]);
    }

    /// Evaluates the marked rounds of units that see each other's earlier results, in order of time.
    fn run_steps(&mut self, units: &[usize]) -> Result<(), Ended> {
        let mut steps = BTreeSet::new();
        for &unit in units {
            steps.extend(
                self.units
                    .due(unit, &self.marks[unit], i64::MIN)
                    .into_iter()
                    .map(|time_ms| Step::of(unit, time_ms)),
            );
        }
        let ended = self.run_all_steps(units, &mut steps);
        // Steps for the markers of a round are not marked otherwise.
        for step in steps {
            self.marks[step.unit].add(step.time_ms, step.time_ms);
        }
        if ended.is_ok() {
            units
                .iter()
                .for_each(|&unit| self.done_ms[unit] = self.units.group(unit).end_ms().saturating_sub(1));
        }
        ended
    }

    fn run_all_steps(&mut self, units: &[usize], steps: &mut BTreeSet<Step>) -> Result<(), Ended> {
        let mut recorded: BTreeMap<usize, Recorded> = BTreeMap::new();
        while let Some(&Step { time_ms, unit, is_marker_round }) = steps.first() {
            self.check()?;
            let mut own = match recorded.remove(&unit) {
                Some(own) => own,
                None => self.recorded(unit, time_ms)?,
            };
            let is_changed = if is_marker_round {
                self.correct_markers(unit, &mut own, time_ms)
            } else {
                let mut results = Vec::new();
                for idx in 0..self.units.order.units[unit].rules.len() {
                    let later = self.units.order.units[unit].later.clone();
                    results.extend(self.evaluate(unit, idx, &[time_ms], &later)?.rounds.remove(&time_ms));
                }
                let is_changed = self.correct(unit, &mut own, time_ms, results);
                // After a step that evaluates the round, one for its markers changes nothing.
                let next = self.units.next_round(unit, time_ms);
                steps.extend(next.map(|time_ms| Step { time_ms, unit, is_marker_round: true }));
                is_changed
            };
            recorded.insert(unit, own);
            steps.pop_first();
            self.done_ms[unit] = time_ms;
            if is_changed {
                for &reader in units {
                    // Rounds at this time come next if the reader does.
                    let after_ms = if reader > unit { time_ms.saturating_sub(1) } else { time_ms };
                    steps.extend(
                        self.units
                            .due(reader, &self.marks[reader], after_ms)
                            .into_iter()
                            .map(|time_ms| Step::of(reader, time_ms)),
                    );
                }
            }
        }
        Ok(())
    }

    /// # Errors
    /// The time is over, the server stops, or the corrections are too many.
    fn check(&self) -> Result<(), Ended> {
        let count = self.written.replaced.len() + self.written.added.len() + self.written.removed.len();
        let is_late = self.service.env.clock.mono_ns() >= self.deadline_ns;
        let is_stopping = self.service.rules.engine.is_stopping();
        if is_late || is_stopping || count >= CORRECTIONS_MAX { Err(Ended) } else { Ok(()) }
    }

    /// Corrects a round by the results of the rules that did not fail. Returns true if it was wrong.
    fn correct(
        &mut self,
        unit: usize,
        recorded: &mut Recorded,
        time_ms: i64,
        results: Vec<Vec<RuleSample>>,
    ) -> bool {
        let group_idx = self.units.order.units[unit].group_idx;
        self.rounds[group_idx].insert(time_ms);
        let correction =
            self.units.compare(unit, recorded, time_ms, results, &self.service.rules.repairs.given_up_rounds);
        self.apply(unit, time_ms, correction)
    }

    /// Corrects the staleness markers of a round whose result does not change.
    fn correct_markers(&mut self, unit: usize, recorded: &mut Recorded, time_ms: i64) -> bool {
        let before_ms = self.units.round_before(unit, recorded, time_ms);
        let correction = recorded.correct(time_ms, before_ms, None);
        self.apply(unit, time_ms, correction)
    }

    /// Takes a correction over, and marks the rounds that see it.
    fn apply(&mut self, unit: usize, time_ms: i64, correction: Correction) -> bool {
        if correction.is_empty() {
            return false;
        }
        Arc::make_mut(&mut self.corrections).add(&correction);
        self.written.replaced.extend(correction.replaced);
        self.written.added.extend(correction.added);
        self.written.removed.extend(correction.removed);
        for reader in self.units.order.units[unit].readers.clone() {
            let seen: Vec<(i64, i64)> =
                self.units.rules(reader).map(|(_, rule)| rule.rounds_that_see((time_ms, time_ms))).collect();
            seen.into_iter().for_each(|(first, last)| self.marks[reader].add(first, last));
        }
        true
    }

    fn view(&self, hidden: &[usize], hidden_from_ms: i64) -> RepairView {
        let hidden =
            hidden.iter().flat_map(|&unit| self.units.rules(unit)).map(|(rule, _)| matchers_of(rule));
        RepairView {
            below: self.below.clone(),
            corrections: self.corrections.clone(),
            hidden: hidden.collect(),
            hidden_from_ms,
        }
    }

    /// Samples of a unit, from the round before `first_ms` that has not failed on.
    fn recorded(&self, unit: usize, first_ms: i64) -> Result<Recorded, Ended> {
        let rounds = &self.units.group(unit).rounds;
        let mut from_ms = rounds.previous(first_ms).unwrap_or(first_ms);
        while self.units.rules(unit).any(|(_, rule)| rule.failed.contains(&from_ms)) {
            let Some(before_ms) = rounds.previous(from_ms) else { break };
            from_ms = before_ms;
        }
        let range = TimeRange::inclusive(from_ms, self.units.group(unit).end_ms());
        let view = self.view(&[], i64::MAX);
        let ctx = further_query(self.service, &self.admitted);
        let mut recorded = Recorded::default();
        let mut columns = Columns::default();
        for (rule, _) in self.units.rules(unit) {
            let matchers = matchers_of(rule);
            let selected = view.select(&Selector { matchers: &matchers, range }, &ctx);
            let mut batches = selected.map_err(|_| Ended)?;
            let mut series = Vec::new();
            while batches.next_batch(&mut series).map_err(|_| Ended)? {}
            for one in series {
                columns.clear();
                one.samples.read(range, &mut columns).map_err(|_| Ended)?;
                for (idx, &time_ms) in columns.times.iter().enumerate() {
                    if rounds.contains(time_ms) {
                        recorded.push(one.labels.clone(), time_ms, stored_value(&columns, idx));
                    }
                }
            }
        }
        Ok(recorded)
    }

    /// Results of a rule of a unit in consecutive rounds.
    fn evaluate(&self, unit: usize, idx: usize, times: &[i64], hidden: &[usize]) -> Result<Results, Ended> {
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else {
            return Ok(Results::default());
        };
        let group_idx = self.units.order.units[unit].group_idx;
        let group = &self.units.groups[group_idx];
        let rule = &group.rules()[self.units.order.units[unit].rules[idx]];
        let query = query_over(rule, first, last, group.interval_ms);
        let value = match self.value(&query, hidden) {
            Ok(value) => value,
            // Series that are equal in no single round may fail a query over several.
            Err(Failure::Failed(_)) if first != last => {
                let mut results = Results::default();
                for &time_ms in times {
                    self.check()?;
                    results.append(self.evaluate(unit, idx, &[time_ms], hidden)?);
                }
                return Ok(results);
            }
            Err(Failure::Failed(error)) => {
                let tenant = &self.taken.tenant;
                if !self.has_logged.replace(true) {
                    let group = &group.key.name;
                    tracing::warn!(%tenant, group, rule = rule.name, error, "recording rule not repaired");
                }
                return Ok(Results::default());
            }
            Err(Failure::Interrupted) => return Err(Ended),
        };
        let series_max = series_max(self.service, &self.taken.tenant);
        Ok(results_of(series_max, rule, group, value, times))
    }

    fn value(&self, query: &Query<'_>, hidden: &[usize]) -> Result<CountedValue, Failure> {
        let service = self.service;
        let ctx = further_query(service, &self.admitted);
        let _listed = service.rules.engine.interrupts.enter(ctx.cancel_flag());
        let trace = Arc::new(Trace::new());
        let _running = begin_counted(service, &self.taken.tenant, query, &ctx, &trace);
        let view = self.view(hidden, query.start_ms);
        match service.queries.engine.run_traced(&view, query, &ctx, &trace) {
            Ok(result) => CountedValue::new(&self.admitted, result.value),
            Err(_) if ctx.check().is_err() => Err(Failure::Interrupted),
            Err(error) => Err(Failure::Failed(error.to_string())),
        }
    }
}

/// Series that the limits of a tenant allow a rule; 0: as many as it has.
fn series_max(service: &Service, tenant: &TenantId) -> usize {
    service.limits_of(tenant).queries.rules.series_max
}

/// Results of the rounds in which the rule does not exceed a limit.
fn results_of(
    series_max: usize,
    rule: &Rule,
    group: &Group,
    counted: CountedValue,
    times: &[i64],
) -> Results {
    let CountedValue { value, memory } = counted;
    let mut results = Results { rounds: BTreeMap::new(), memory: vec![memory] };
    for (time_ms, value) in by_time(value, times) {
        let samples = recorded_samples(rule, value, group.limit, time_ms).ok();
        let samples = samples.filter(|samples| series_max == 0 || samples.len() <= series_max);
        results.rounds.extend(samples.map(|samples| (time_ms, samples)));
    }
    results
}

/// Lists a query of a repair as running until the result is dropped, and counts it.
fn begin_counted<'q>(
    service: &'q Service,
    tenant: &'q TenantId,
    query: &'q Query<'_>,
    ctx: &'q CallContext,
    trace: &Arc<Trace>,
) -> RunningQuery<'q> {
    service.rules.repairs.evaluations.add(1);
    begin_query(service, tenant, query, ctx, trace)
}

/// The value of each round.
fn by_time(value: Value, times: &[i64]) -> BTreeMap<i64, Value> {
    let Value::Matrix(series) = value else {
        return times.iter().map(|&time_ms| (time_ms, value.clone())).collect();
    };
    let mut samples: BTreeMap<i64, Vec<VectorSample>> =
        times.iter().map(|&time_ms| (time_ms, Vec::new())).collect();
    for one in series {
        let floats = one.times.iter().zip(&one.values).map(|(time_ms, value)| (*time_ms, *value, None));
        let histograms = one.histograms.iter().map(|(time_ms, value)| (*time_ms, f64::NAN, Some(value)));
        for (time_ms, value, histogram) in floats.chain(histograms) {
            if let Some(of_round) = samples.get_mut(&time_ms) {
                let labels = one.labels.clone();
                of_round.push(VectorSample { labels, time_ms, value, histogram: histogram.cloned() });
            }
        }
    }
    samples.into_iter().map(|(time_ms, samples)| (time_ms, Value::Vector(samples))).collect()
}
