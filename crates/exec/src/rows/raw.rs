//! Raw select: rows of the points of each group, merged by time, in bounded memory.
//!
//! Time slices: all members of a group are read for one part of its time range after the other, so that a
//! group is never in memory as a whole. Slices start small, for limits, and grow up to a number of rows;
//! their length in time follows from the density of the slice before.
//! Invariants: rows are in the order of the plan. A slice is empty only at the end of a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::Reservation;
use chronolith_model::TimeRange;
use chronolith_model::query::ColumnType;

use super::allowance::Allowance;
use super::column::{RowBatch, RowColumn};
use super::error::RowError;
use super::eval::{EvalInput, Place, column_types, number_of, shown_columns};
use super::execution::RowExecution;
use super::fill::Defaults;
use super::merge::{merge_bytes, merge_members};
use super::plan::{Fill, Literal, Order, RowPlan};
use super::points::{Group, PointColumns, ReadBuffers, RowNeed, Wanted};
use super::selection::Selection;
use super::source::RowSource;

/// Rows of the first slice of a group.
const FIRST_SLICE_ROWS: usize = 1024;
/// Rows of a slice.
const SLICE_ROWS: usize = 64 * 1024;
/// Rows of a slice per member: about the samples of a chunk, which would be decoded again for each slice.
const SLICE_ROWS_PER_MEMBER: usize = 128;
/// Rows of a slice of a plan with many columns at least: each slice decodes the chunks of its time again.
const SLICE_ROWS_MIN: usize = 32;
/// Rows of a slice of a group with many members.
const SLICE_ROWS_MAX: usize = 1 << 20;
/// Values of a slice, in all columns.
const SLICE_VALUES_MAX: usize = 2 << 20;
/// Rows from which members are read by several threads.
const PARALLEL_ROWS_MIN: usize = 16 * 1024;

/// Rows of a plan without calls.
pub(crate) struct RawRows {
    plan: Arc<RowPlan>,
    execution: Arc<RowExecution>,
    selection: Selection,
    wanted: Vec<usize>,
    types: Vec<Option<ColumnType>>,
    group_idx: usize,
    slices: Option<Slices>,
    /// Values of the last row of the group, for fill.
    last: Vec<Option<Literal>>,
    /// Rows of the group before those that are returned, and rows returned.
    skipped: usize,
    returned: usize,
    memory: Option<Reservation>,
}

impl RawRows {
    pub(crate) fn new(
        plan: Arc<RowPlan>,
        execution: Arc<RowExecution>,
        selection: Selection,
    ) -> Result<RawRows, RowError> {
        let wanted = (0..selection.variables.all.len()).collect();
        let types = column_types(&plan, &selection.variables, &[], &execution)?;
        Ok(RawRows {
            plan,
            execution,
            selection,
            wanted,
            types,
            group_idx: 0,
            slices: None,
            last: Vec::new(),
            skipped: 0,
            returned: 0,
            memory: None,
        })
    }

    /// Reads the next slice of the group, with the memory of its points; `None` at its end.
    fn read_slice(&mut self) -> Result<Option<Slice>, RowError> {
        let Some(group) = self.selection.groups.get(self.group_idx) else { return Ok(None) };
        let slices = match &mut self.slices {
            Some(slices) => slices,
            None => self.slices.insert(Slices::new(group, &self.selection.drivers, &self.plan)),
        };
        let Some(range) = slices.next_range() else { return Ok(None) };
        let wanted = Wanted { drivers: &self.selection.drivers, all: &self.wanted, rows: RowNeed::All };
        let reader = Reader {
            selection: &self.selection,
            execution: &self.execution,
            wanted,
            range,
            plan_range: self.plan.range,
        };
        let (all, memory) = reader.read_members(group, slices.rows_wanted)?;
        // A row is moved to the merged points, and one column is copied at a time for limit and fill.
        let merged = self.execution.reserve(merge_bytes(&all))?;
        let points = merge_members(all, self.plan.order);
        slices.advance(range, points.times.len());
        Ok(Some(Slice { points, _memory: memory, _merged: merged }))
    }

    /// Removes rows outside of the limit of the plan; returns true if no further rows are returned.
    fn apply_limit(&mut self, points: &mut PointColumns) -> bool {
        let slice = self.plan.slice;
        let skipped = points.times.len().min(slice.offset - self.skipped.min(slice.offset));
        self.skipped += skipped;
        let left = points.times.len() - skipped;
        let kept = if slice.limit == 0 { left } else { left.min(slice.limit - self.returned) };
        self.returned += kept;
        if kept < points.times.len() {
            let rows: Vec<u32> = (skipped as u32..(skipped + kept) as u32).collect();
            points.keep(&rows);
        }
        slice.limit != 0 && self.returned >= slice.limit
    }

    fn finish_group(&mut self) {
        self.group_idx += 1;
        self.slices = None;
        self.last = Vec::new();
        self.skipped = 0;
        self.returned = 0;
    }

    fn batch_of(&self, points: &PointColumns, group: &Group) -> Result<(RowBatch, Reservation), RowError> {
        let input = EvalInput {
            variables: &self.selection.variables,
            columns: &points.columns,
            calls: &[],
            row_count: points.times.len(),
            place: Place::Column,
            number: number_of(&self.plan.fill),
            execution: &self.execution,
        };
        let (columns, mut memory) = shown_columns(&self.plan, &input)?;
        memory.grow((points.times.len() * size_of::<i64>()) as u64)?;
        let batch = RowBatch { series: group.series.clone(), times: points.times.clone(), columns };
        Ok((batch, memory))
    }
}

impl RowSource for RawRows {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, RowError> {
        self.memory = None;
        loop {
            self.execution.check()?;
            if self.group_idx >= self.selection.groups.len() {
                return Ok(None);
            }
            let Some(mut slice) = self.read_slice()? else {
                self.finish_group();
                continue;
            };
            let points = &mut slice.points;
            let is_done = self.apply_limit(points);
            let mut defaults = Defaults::after(&self.plan.fill, std::mem::take(&mut self.last));
            let row_count = points.times.len();
            let unknown_count = self.selection.variables.types.iter().filter(|one| one.is_none()).count();
            let _numbers = self.execution.reserve(match self.plan.fill {
                Fill::Number(_) => unknown_count.saturating_mul(row_count).saturating_mul(size_of::<f64>()),
                _ => 0,
            })?;
            for (idx, column) in points.columns.iter_mut().enumerate() {
                if let (None, None, Fill::Number(number)) =
                    (&column, self.selection.variables.types[idx], &self.plan.fill)
                {
                    // No source has the name, so that nothing casts the number.
                    *column = Some(RowColumn::repeated(Some(number), row_count));
                    continue;
                }
                if let Some(column) = column {
                    let nulls = column.present.clone();
                    defaults.apply(idx, column, |row| nulls.as_ref().is_some_and(|present| !present[row]));
                }
            }
            self.last = defaults.into_last();
            let batch = match points.times.is_empty() {
                true => None,
                false => Some(self.batch_of(points, &self.selection.groups[self.group_idx])?),
            };
            if is_done {
                self.finish_group();
            }
            if let Some((batch, memory)) = batch {
                self.memory = Some(memory);
                return Ok(Some(batch));
            }
        }
    }

    fn column_types(&self) -> &[Option<ColumnType>] {
        &self.types
    }
}

/// Points of one slice of a group.
struct Slice {
    points: PointColumns,
    _memory: Vec<Allowance>,
    _merged: Reservation,
}

/// Reads members of a group for one slice.
struct Reader<'r> {
    selection: &'r Selection,
    execution: &'r RowExecution,
    wanted: Wanted<'r>,
    /// Times of the slice, and of the plan.
    range: TimeRange,
    plan_range: TimeRange,
}

impl Reader<'_> {
    fn read_members(
        &self,
        group: &Group,
        rows: usize,
    ) -> Result<(Vec<PointColumns>, Vec<Allowance>), RowError> {
        let next = AtomicUsize::new(0);
        let ctx = &self.execution.environment.ctx;
        let work = || -> Result<(Vec<(usize, PointColumns)>, Allowance), RowError> {
            let mut buffers = ReadBuffers::default();
            let mut memory = self.execution.allowance()?;
            let mut read = Vec::new();
            loop {
                let idx = next.fetch_add(1, Ordering::Relaxed);
                let Some(member) = group.members.get(idx) else { return Ok((read, memory)) };
                let variables = &self.selection.variables;
                let readable = member.read_range(self.plan_range);
                let range =
                    TimeRange::new(self.range.start.max(readable.start), self.range.end.min(readable.end));
                let buffers = &mut buffers;
                let points = member.read_points(
                    self.wanted,
                    variables,
                    range,
                    self.execution,
                    buffers,
                    &mut memory,
                )?;
                read.push((idx, points));
                if ctx.is_slice_over() {
                    return Ok((read, memory));
                }
            }
        };
        let helper_max = if rows < PARALLEL_ROWS_MIN { 0 } else { group.members.len() - 1 };
        let mut all = Vec::new();
        let mut memory = Vec::new();
        loop {
            let parts = match helper_max {
                0 => vec![work()],
                _ => ctx.run_in_parallel(helper_max, work),
            };
            for part in parts {
                let (read, own) = part?;
                all.extend(read);
                memory.push(own);
            }
            if all.len() >= group.members.len() {
                break;
            }
            ctx.yield_point()?;
        }
        all.sort_by_key(|(idx, _)| *idx);
        Ok((all.into_iter().map(|(_, points)| points).collect(), memory))
    }
}

/// Time slices of a group.
struct Slices {
    order: Order,
    rest: TimeRange,
    /// Ticks of the next slice.
    width: i128,
    rows_wanted: usize,
    rows_max: usize,
}

impl Slices {
    fn new(group: &Group, drivers: &[usize], plan: &RowPlan) -> Slices {
        let mut total = 0_usize;
        let mut bounds: Option<(i64, i64)> = None;
        let mut is_known = true;
        for member in &group.members {
            let counts = drivers.iter().map(|idx| member.point_count_hint(*idx));
            total += counts.max().unwrap_or(0);
            for idx in drivers.iter().filter(|idx| member.has(**idx)) {
                match member.time_bounds(*idx) {
                    None => is_known = false,
                    Some((first, last)) => {
                        let range = member.read_range(plan.range);
                        let first = first.max(range.start);
                        let last = last.min(range.end.saturating_sub(1));
                        bounds = Some(bounds.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
                    }
                }
            }
        }
        let mut rest = plan.range;
        if is_known && let Some((first, last)) = bounds {
            rest = TimeRange::new(first, last.saturating_add(1));
        }
        let rows_max = (group.members.len() * SLICE_ROWS_PER_MEMBER).clamp(SLICE_ROWS, SLICE_ROWS_MAX);
        let rows_max = rows_max.min(SLICE_VALUES_MAX / (plan.columns.len() + 1)).max(SLICE_ROWS_MIN);
        let limit = plan.slice.limit.saturating_add(plan.slice.offset);
        let first_rows = if plan.slice.limit == 0 { rows_max } else { limit.max(FIRST_SLICE_ROWS) };
        let rows_wanted = first_rows.min(rows_max);
        let span = i128::from(rest.end) - i128::from(rest.start);
        // An open range without known bounds cannot be cut by density.
        let is_open = !is_known && span > i128::from(i64::MAX) / 2;
        let width = if is_open { span } else { span * rows_wanted as i128 / total.max(1) as i128 + 1 };
        Slices { order: plan.order, rest, width, rows_wanted, rows_max }
    }

    fn next_range(&self) -> Option<TimeRange> {
        if self.rest.is_empty() {
            return None;
        }
        let start = i128::from(self.rest.start);
        let end = i128::from(self.rest.end);
        let (start, end) = match self.order {
            Order::Ascending => (start, end.min(start + self.width)),
            Order::Descending => (start.max(end - self.width), end),
        };
        Some(TimeRange::new(start as i64, end as i64))
    }

    fn advance(&mut self, read: TimeRange, rows: usize) {
        match self.order {
            Order::Ascending => self.rest.start = read.end,
            Order::Descending => self.rest.end = read.start,
        }
        self.rows_wanted = (self.rows_wanted * 4).min(self.rows_max);
        let read_width = (i128::from(read.end) - i128::from(read.start)).max(1);
        let by_density = read_width * self.rows_wanted as i128 / rows.max(1) as i128;
        self.width = by_density.clamp(read_width / 8 + 1, read_width * 8);
    }
}
