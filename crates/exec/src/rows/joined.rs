//! Rows of a plan with calls: groups are folded in parallel, then the results of all calls are joined.
//!
//! Morsels: a group's members are split into parts of fixed size, so that a result does not depend on the
//! number of threads. Groups are computed some at a time, so that a query over many groups streams.
//! Invariants: rows are in the order of the plan; points of several calls share a row if they have the same
//! time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chronolith_base::Reservation;
use chronolith_model::TimeRange;
use chronolith_model::query::{ColumnType, TypedColumns};

use super::accumulate::{Points, Samples};
use super::allowance::{Allowance, row_bytes};
use super::bounds::WindowBounds;
use super::call::{Part, PreparedCall, column_without_points, result_type};
use super::column::{NULL_ROW, RowBatch, RowColumn};
use super::error::RowError;
use super::eval::{EvalInput, Place, column_types, number_of, shown_columns};
use super::execution::RowExecution;
use super::fill::Defaults;
use super::plan::{Call, Fill, Order, RowPlan};
use super::points::{Group, Member, PointSource, ReadBuffers, RowNeed, Wanted};
use super::selection::Selection;
use super::source::RowSource;
use super::variables::{Variables, input_variable};

/// Members per morsel.
const MORSEL_MEMBERS: usize = 16;
/// Samples of the groups that are computed at a time, about.
const SAMPLES_AT_A_TIME: usize = 4 << 20;
/// Samples from which groups are computed by several threads.
const PARALLEL_SAMPLES_MIN: usize = if cfg!(test) { 16 } else { 32 * 1024 };
/// Groups that are computed at a time.
const GROUPS_AT_A_TIME: usize = 4096;
/// Calls of a member between two checks of the deadline.
const CALLS_PER_CHECK: usize = 256;
/// Samples of a series from which their memory is reserved before they are read.
const RESERVED_SAMPLES_MIN: usize = 1 << 20;
/// Rows per batch.
const BATCH_ROWS: usize = 64 * 1024;

/// Rows of a plan with calls.
pub(crate) struct JoinedRows {
    plan: Arc<RowPlan>,
    execution: Arc<RowExecution>,
    selection: Selection,
    types: Vec<Option<ColumnType>>,
    next_group: usize,
    ready: VecDeque<RowBatch>,
    /// Memory of the batches, those that were returned included until the next groups.
    memory: Vec<Reservation>,
}

impl JoinedRows {
    pub(crate) fn new(
        plan: Arc<RowPlan>,
        execution: Arc<RowExecution>,
        selection: Selection,
    ) -> Result<JoinedRows, RowError> {
        let calls = call_types(&plan, &selection.variables);
        let types = column_types(&plan, &selection.variables, &calls, &execution)?;
        Ok(JoinedRows {
            plan,
            execution,
            selection,
            types,
            next_group: 0,
            ready: VecDeque::new(),
            memory: Vec::new(),
        })
    }

    /// Computes the next groups.
    fn compute(&mut self) -> Result<(), RowError> {
        self.execution.check()?;
        let first = self.next_group;
        let filled = filled_count(&self.plan);
        let mut samples = 0_usize;
        while self.next_group < self.selection.groups.len()
            && self.next_group - first < GROUPS_AT_A_TIME
            && samples < SAMPLES_AT_A_TIME
        {
            let members = &self.selection.groups[self.next_group].members;
            let hint = |member: &Member| {
                self.selection.drivers.iter().map(|idx| member.point_count_hint(*idx)).sum::<usize>()
            };
            samples = samples.saturating_add(members.iter().map(hint).sum::<usize>()).saturating_add(filled);
            self.next_group += 1;
        }
        let groups = &self.selection.groups[first..self.next_group];
        let variables = &self.selection.variables;
        let mut calls: Vec<Option<PreparedCall<'_>>> = Vec::with_capacity(self.plan.calls.len());
        for (idx, call) in self.plan.calls.iter().enumerate() {
            if idx.is_multiple_of(CALLS_PER_CHECK) {
                self.execution.check()?;
            }
            calls.push(PreparedCall::new(&self.plan, call, variables, &self.execution)?);
        }
        let worker = Worker {
            plan: &self.plan,
            execution: &self.execution,
            selection: &self.selection,
            calls: &calls,
            groups,
            helper_max: if samples < PARALLEL_SAMPLES_MIN { 0 } else { usize::MAX },
        };
        for (batches, memory) in worker.run()? {
            self.ready.extend(batches);
            self.memory.push(memory);
        }
        Ok(())
    }
}

impl RowSource for JoinedRows {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, RowError> {
        while self.ready.is_empty() {
            self.memory.clear();
            if self.next_group >= self.selection.groups.len() {
                return Ok(None);
            }
            self.compute()?;
        }
        Ok(self.ready.pop_front())
    }

    fn column_types(&self) -> &[Option<ColumnType>] {
        &self.types
    }
}

/// Values of the windows of a group that is filled.
fn filled_count(plan: &RowPlan) -> usize {
    let count = WindowBounds::new(plan.range, plan.windows.clone()).count();
    match count {
        Some(count) if plan.fill != Fill::None => {
            usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(plan.calls.len())
        }
        _ => 0,
    }
}

fn batch_bytes(batch: &RowBatch) -> usize {
    batch.times.len() * size_of::<i64>() + batch.columns.iter().map(RowColumn::heap_bytes).sum::<usize>()
}

/// Computation of some groups, for the threads that run it.
struct Worker<'w> {
    plan: &'w RowPlan,
    execution: &'w RowExecution,
    selection: &'w Selection,
    calls: &'w [Option<PreparedCall<'w>>],
    groups: &'w [Group],
    /// Threads besides the calling one.
    helper_max: usize,
}

/// Members of a group that are folded by one thread.
struct Morsel {
    group: usize,
    first: usize,
}

/// Parts of the calls of a group.
struct Folded {
    parts: Vec<Option<Part>>,
    /// Released when the group is finished.
    memory: Allowance,
}

/// Rows of a group with their memory.
type GroupRows = (Vec<RowBatch>, Reservation);

impl Worker<'_> {
    fn run(&self) -> Result<Vec<GroupRows>, RowError> {
        let mut morsels = Vec::new();
        for (group, members) in self.groups.iter().map(|group| group.members.len()).enumerate() {
            morsels.extend((0..members).step_by(MORSEL_MEMBERS).map(|first| Morsel { group, first }));
        }
        let folded = self.for_each(morsels.len(), |idx, buffers| self.fold(&morsels[idx], buffers))?;
        let groups: Vec<Mutex<Vec<Folded>>> = self.groups.iter().map(|_| Mutex::default()).collect();
        let folded_of = |group: usize| groups[group].lock().unwrap_or_else(PoisonError::into_inner);
        for (morsel, folded) in morsels.iter().zip(folded) {
            folded_of(morsel.group).push(folded);
        }
        self.for_each(groups.len(), |idx, _| {
            let folded = std::mem::take(&mut *folded_of(idx));
            self.finish(&self.groups[idx], folded)
        })
    }

    /// Applies `work` to each index by several threads; results are in the order of the indexes.
    fn for_each<T: Send>(
        &self,
        count: usize,
        work: impl Fn(usize, &mut ReadBuffers) -> Result<T, RowError> + Sync,
    ) -> Result<Vec<T>, RowError> {
        let next = AtomicUsize::new(0);
        let ctx = &self.execution.environment.ctx;
        let run = || -> Result<Vec<(usize, T)>, RowError> {
            let mut buffers = ReadBuffers::default();
            let mut results = Vec::new();
            loop {
                let idx = next.fetch_add(1, Ordering::Relaxed);
                if idx >= count {
                    return Ok(results);
                }
                results.push((idx, work(idx, &mut buffers)?));
                if ctx.is_slice_over() {
                    return Ok(results);
                }
            }
        };
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            ctx.yield_point()?;
            for part in ctx.run_in_parallel(self.helper_max.min(count - all.len() - 1), run) {
                all.extend(part?);
            }
        }
        all.sort_by_key(|(idx, _)| *idx);
        Ok(all.into_iter().map(|(_, result)| result).collect())
    }

    fn fold(&self, morsel: &Morsel, buffers: &mut ReadBuffers) -> Result<Folded, RowError> {
        let members = &self.groups[morsel.group].members[morsel.first..];
        let members = &members[..members.len().min(MORSEL_MEMBERS)];
        let mut memory = self.execution.allowance()?;
        memory.take(self.calls.len() * size_of::<Option<Part>>())?;
        let new_part =
            |call: &Option<PreparedCall<'_>>| call.as_ref().map(PreparedCall::new_part).transpose();
        let mut parts = self.calls.iter().map(new_part).collect::<Result<Vec<_>, RowError>>()?;
        for member in members {
            self.execution.check()?;
            let mut read = MemberSamples::new(self.execution.allowance()?);
            for (number, (call, part)) in self.calls.iter().zip(&mut parts).enumerate() {
                if number.is_multiple_of(CALLS_PER_CHECK) {
                    self.execution.check()?;
                }
                if let (Some(call), Some(part)) = (call, part)
                    && member.has(call.variable)
                    && member.is_read_by(call.bounds.range)
                {
                    let samples = self.read(call, member, &mut read, buffers)?;
                    call.fold(part, member, &samples.view(), &mut memory)?;
                }
            }
            read.recycle(buffers);
        }
        Ok(Folded { parts, memory })
    }

    /// Samples of the argument of a call, read once per member.
    fn read<'r>(
        &self,
        call: &PreparedCall<'_>,
        member: &Member,
        known: &'r mut MemberSamples,
        buffers: &mut ReadBuffers,
    ) -> Result<&'r ReadSamples, RowError> {
        let range = member.read_range(self.execution.readable(call.bounds.range));
        let variables = &self.selection.variables;
        if let Some(found) = known.find(call.variable, range) {
            return Ok(&known.read[found]);
        }
        let memory = &mut known.memory;
        let hint = member.point_count_hint(call.variable);
        // A series is read as a whole: a long one is refused before that.
        let _whole = match hint > RESERVED_SAMPLES_MIN {
            true => Some(self.execution.reserve(hint.saturating_mul(size_of::<i64>() * 2))?),
            false => None,
        };
        let read = if member.is_unfiltered() && call.aux.is_empty() {
            let columns = member.read_variable(call.variable, variables, range, buffers, memory)?;
            if matches!(member.source, PointSource::Series(_)) {
                self.execution.count_points(columns.times.len())?;
            }
            ReadSamples { range, columns, aux: Vec::new() }
        } else {
            let all: Vec<usize> = (0..variables.all.len()).collect();
            let wanted = Wanted { drivers: &[call.variable], all: &all, rows: RowNeed::WithDriver };
            let mut points = member.read_points(wanted, variables, range, self.execution, buffers, memory)?;
            let empty = |column_type: Option<ColumnType>| {
                RowColumn::nulls(column_type.unwrap_or_default(), points.times.len())
            };
            let aux_bytes: usize = call.aux_types.iter().map(|column_type| row_bytes(*column_type)).sum();
            memory.take(points.times.len().saturating_mul(aux_bytes))?;
            let aux = call
                .aux
                .iter()
                .map(|idx| points.columns[*idx].clone().unwrap_or_else(|| empty(variables.types[*idx])));
            let aux = aux.collect();
            let values =
                points.columns[call.variable].take().unwrap_or_else(|| RowColumn::new(call.column_type));
            let columns = TypedColumns { times: points.times, values: values.values };
            ReadSamples { range, columns, aux }
        };
        Ok(known.push(call.variable, read))
    }

    /// Merges the parts of a group, and joins the results of its calls.
    fn finish(&self, group: &Group, folded: Vec<Folded>) -> Result<GroupRows, RowError> {
        let mut folded = folded.into_iter();
        let Some(Folded { mut parts, mut memory }) = folded.next() else {
            return Ok((Vec::new(), self.execution.reserve(0)?));
        };
        let mut reserved = Vec::with_capacity(folded.len());
        for later in folded {
            self.execution.check()?;
            reserved.push(later.memory);
            for (part, later) in parts.iter_mut().zip(later.parts) {
                if let (Some(part), Some(later)) = (part.as_mut(), later) {
                    part.merge(later, &mut memory)?;
                }
            }
        }
        let mut results = Vec::with_capacity(parts.len());
        for (call, part) in self.calls.iter().zip(parts) {
            results.push(match (call, part) {
                (Some(call), Some(part)) => Some(call.finish(part, self.execution, &mut memory)?),
                _ => None,
            });
        }
        self.batches(group, results)
    }

    fn batches(&self, group: &Group, results: Vec<Option<Points>>) -> Result<GroupRows, RowError> {
        let _joined = self.execution.reserve(self.joined_bytes(&results))?;
        let (times, rows) = join_times(&results, self.plan.order);
        let mut defaults = Defaults::after(&self.plan.fill, Vec::new());
        let variables = &self.selection.variables;
        let mut aux: Vec<Option<RowColumn>> = vec![None; variables.all.len()];
        let mut columns = Vec::with_capacity(results.len());
        for (((points, call), rows), plan) in
            results.into_iter().zip(self.calls).zip(&rows).zip(&self.plan.calls)
        {
            let (Some(points), Some(call)) = (points, call) else {
                columns.push(column_without_points(plan, &self.plan.fill, times.len()));
                continue;
            };
            let joined = |column: RowColumn| match rows {
                Some(rows) => column.gather(rows),
                None => column,
            };
            let mut column = joined(points.values);
            // A point without a value stays null.
            let is_missing = |row: usize| rows.as_ref().is_some_and(|rows| rows[row] == NULL_ROW);
            defaults.apply(columns.len(), &mut column, is_missing);
            columns.push(column);
            for (idx, column) in call.aux.iter().zip(points.aux) {
                let mut column = joined(column);
                let nulls = column.present.clone();
                let is_null = |row: usize| nulls.as_ref().is_some_and(|present| !present[row]);
                defaults.apply(self.calls.len() + idx, &mut column, is_null);
                aux[*idx] = Some(column);
            }
        }
        let input = EvalInput {
            variables,
            columns: &aux,
            calls: &columns,
            row_count: times.len(),
            place: Place::Column,
            number: number_of(&self.plan.fill),
            execution: self.execution,
        };
        let (columns, mut memory) = shown_columns(self.plan, &input)?;
        memory.grow((times.len() * size_of::<i64>()) as u64)?;
        if times.len() > BATCH_ROWS {
            // The batches are copies.
            memory.grow(memory.bytes())?;
        }
        let batches = split(group, times, columns);
        let bytes = batches.iter().map(batch_bytes).sum::<usize>() as u64;
        memory.shrink(memory.bytes().saturating_sub(bytes));
        Ok((batches, memory))
    }

    /// Bytes that the join of the results of a group needs besides them, at most: times, rows of each call
    /// in them, and columns.
    fn joined_bytes(&self, results: &[Option<Points>]) -> usize {
        let mut present = results.iter().flatten();
        let Some(first) = present.next() else { return 0 };
        let column_bytes = |points: &Points| {
            let columns = points.aux.iter().chain([&points.values]);
            columns.map(|column| row_bytes(column.values.column_type())).sum::<usize>()
        };
        let fixed = self.selection.variables.all.len() * size_of::<Option<RowColumn>>();
        if present.clone().all(|points| points.times == first.times) {
            let missing = results.iter().filter(|points| points.is_none()).count();
            // One column is copied at a time, where missing values are replaced.
            let row = size_of::<i64>() + missing * row_bytes(ColumnType::Float) + 3 * column_bytes(first);
            return fixed.saturating_add(first.times.len().saturating_mul(row));
        }
        let count: usize = results.iter().flatten().map(|points| points.times.len()).sum();
        let columns: usize = results
            .iter()
            .map(|points| points.as_ref().map_or(row_bytes(ColumnType::Float), column_bytes))
            .sum();
        // Vectors that grow are up to three times as large while they are copied.
        let row = 3 * (size_of::<i64>() + results.len() * size_of::<u32>()) + 2 * columns;
        fixed.saturating_add(count.saturating_mul(row))
    }
}

fn split(group: &Group, times: Vec<i64>, columns: Vec<RowColumn>) -> Vec<RowBatch> {
    let series = || group.series.clone();
    if times.len() <= BATCH_ROWS {
        let batch = RowBatch { series: series(), times, columns };
        return if batch.times.is_empty() { Vec::new() } else { vec![batch] };
    }
    let starts = (0..times.len()).step_by(BATCH_ROWS);
    let batch = |from: usize| {
        let to = (from + BATCH_ROWS).min(times.len());
        let columns = columns.iter().map(|column| column.range(from, to)).collect();
        RowBatch { series: series(), times: times[from..to].to_vec(), columns }
    };
    starts.map(batch).collect()
}

/// Times of the joined rows, and the points of each call in them; `None` if they are its points in order.
fn join_times(results: &[Option<Points>], order: Order) -> (Vec<i64>, Vec<Option<Vec<u32>>>) {
    let mut present = results.iter().flatten();
    let Some(first) = present.next() else { return (Vec::new(), vec![None; results.len()]) };
    if present.all(|points| points.times == first.times) {
        return (first.times.clone(), vec![None; results.len()]);
    }
    let mut times = Vec::new();
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); results.len()];
    let mut heads = vec![0_usize; results.len()];
    loop {
        let next = results.iter().zip(&heads).filter_map(|(points, head)| points.as_ref()?.times.get(*head));
        let next = match order {
            Order::Ascending => next.min(),
            Order::Descending => next.max(),
        };
        let Some(next) = next.copied() else { break };
        times.push(next);
        for ((points, head), rows) in results.iter().zip(&mut heads).zip(&mut rows) {
            let is_hit = points.as_ref().is_some_and(|points| points.times.get(*head) == Some(&next));
            rows.push(if is_hit { *head as u32 } else { NULL_ROW });
            *head += usize::from(is_hit);
        }
    }
    (times, rows.into_iter().map(Some).collect())
}

/// Samples of one variable of a member.
struct ReadSamples {
    range: TimeRange,
    columns: TypedColumns,
    aux: Vec<RowColumn>,
}

impl ReadSamples {
    fn view(&self) -> Samples<'_> {
        Samples { times: &self.columns.times, values: &self.columns.values, aux: &self.aux }
    }
}

/// Samples of a member that have been read so far.
struct MemberSamples {
    read: Vec<ReadSamples>,
    /// Indexes of the samples of a variable: one per range.
    by_variable: BTreeMap<usize, Vec<usize>>,
    memory: Allowance,
}

impl MemberSamples {
    fn new(memory: Allowance) -> MemberSamples {
        MemberSamples { read: Vec::new(), by_variable: BTreeMap::new(), memory }
    }

    fn find(&self, variable: usize, range: TimeRange) -> Option<usize> {
        self.by_variable.get(&variable)?.iter().copied().find(|idx| self.read[*idx].range == range)
    }

    fn push(&mut self, variable: usize, samples: ReadSamples) -> &ReadSamples {
        let idx = self.read.len();
        self.by_variable.entry(variable).or_default().push(idx);
        self.read.push(samples);
        &self.read[idx]
    }

    /// Gives buffers back for the next member.
    fn recycle(self, buffers: &mut ReadBuffers) {
        for read in self.read {
            buffers.recycle(read.columns);
        }
    }
}

/// Types of the results of the calls of a plan.
fn call_types(plan: &RowPlan, variables: &Variables) -> Vec<Option<ColumnType>> {
    let type_of = |call: &Call| {
        let idx = variables.index(input_variable(call))?;
        result_type(call, variables.types[idx]?)
    };
    plan.calls.iter().map(type_of).collect()
}
