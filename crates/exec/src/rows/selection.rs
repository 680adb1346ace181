//! Selection of a plan: the series of its measurements and the rows of its subqueries, as groups of members.
//!
//! Invariants: groups ascend by name and grouping tags, members by their tags; a descending plan has both
//! reversed. A variable has one type over all sources.
//! Cost: linear in the fields and in the series; memory is reserved before series are kept. A subquery is
//! opened before the tables of the plan are made, so that nested plans have tables of two levels at a time.
//! Not here: reading of samples (`points`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chronolith_base::hash::{HashMap, HashSet};
use chronolith_model::kind::RESERVED_LABELS;
use chronolith_model::query::{ColumnType, SampleSource};
use chronolith_model::{FIELD_LABEL, Labels, METRIC_NAME, Matcher, Selector, SeriesRead, TimeRange};

use super::allowance::{ALLOCATION_BYTES, Allowance, TEXT_BYTES, row_bytes};
use super::call;
use super::column::{ResultSeries, RowBatch, RowColumn, converts};
use super::error::RowError;
use super::execution::RowExecution;
use super::filter::{SeriesFilter, expr_bytes, filter_of_series, has_tags, series_matchers};
use super::math::nan_as_null;
use super::plan::{Call, Literal, Order, RowPlan, Slice, Source, Variable};
use super::points::{Group, Member, PointColumns, PointSource};
use super::range::{intersection, range_of_plan, ranges_of_calls};
use super::source::RowSource;
use super::variables::{Variables, drivers_of, variables_of, widen};

/// Bytes of a selected series besides its labels, about.
const SERIES_BYTES: usize = 256;
/// Fields that are selected one by one. More of them are selected as all series of the measurement: each
/// selection costs as much as the measurement has series.
const FIELDS_ONE_BY_ONE_MAX: usize = 32;
/// Series of a loop between two checks of the deadline.
const SERIES_PER_CHECK: usize = 64;

/// Bytes of a variable in the tables of a plan: itself, its type, its entry by name.
const VARIABLE_BYTES: usize = 128;

/// Bytes of an entry of a table of names.
const NAME_BYTES: usize = 64;

/// Runs the plan of a subquery.
pub(crate) type RunSubquery<'r> = &'r dyn Fn(RowPlan) -> Result<Box<dyn RowSource>, RowError>;

/// Groups of a plan.
pub(crate) struct Selection {
    pub(crate) groups: Vec<Group>,
    pub(crate) variables: Variables,
    /// Variables of which a point needs a value.
    pub(crate) drivers: Vec<usize>,
    _memory: Allowance,
}

/// Member with the values of its grouping tags.
struct KeyedMember {
    name: Arc<str>,
    key: Vec<Arc<str>>,
    member: Member,
}

struct Builder<'s> {
    plan: &'s RowPlan,
    execution: &'s RowExecution,
    /// Grouping tags, ascending.
    group_tags: Vec<Arc<str>>,
    variables: Variables,
    drivers: Vec<usize>,
    members: Vec<KeyedMember>,
    memory: Allowance,
}

/// Sources of the fields of each set of tags, one entry per variable.
type FieldTable = HashMap<Labels, Vec<Vec<Arc<dyn SampleSource>>>>;

/// Selects all series of a plan and runs its subqueries. `sources` are the sources of the plan.
pub(crate) fn select(
    plan: &RowPlan,
    sources: Vec<Source>,
    execution: &RowExecution,
    run: RunSubquery<'_>,
) -> Result<Selection, RowError> {
    let mut builder = None;
    for source in sources {
        execution.check()?;
        match source {
            Source::Measurement { store, name } => {
                Builder::of(&mut builder, plan, execution)?.select_measurement(store, &name)?;
            }
            Source::Subquery(inner) => {
                // Windows before the range of the plan are read from it too.
                let ranges = ranges_of_calls(plan);
                let is_shared = ranges.len() > 1;
                let copies = std::iter::repeat_n(inner, ranges.len());
                for (range, inner) in ranges.into_iter().zip(copies) {
                    let _copy = execution.reserve(if is_shared { plan_bytes(&inner) } else { 0 })?;
                    let mut inner = Arc::unwrap_or_clone(inner);
                    inner.range = intersection(inner.range, range);
                    let rows = SubqueryRows::open(plan, inner, is_shared.then_some(range), run)?;
                    Builder::of(&mut builder, plan, execution)?.add_subquery(rows)?;
                }
            }
        }
    }
    Builder::of(&mut builder, plan, execution)?.limit_groups_of_subqueries();
    let builder = builder.map_or_else(|| Builder::new(plan, execution), Ok)?;
    Ok(builder.finish())
}

impl<'s> Builder<'s> {
    /// Makes the tables of a plan.
    fn new(plan: &'s RowPlan, execution: &'s RowExecution) -> Result<Builder<'s>, RowError> {
        let mut memory = execution.allowance()?;
        // Variables with their types and indexes, and the columns that lead to them.
        memory.take((plan.columns.len() + plan.calls.len()).saturating_mul(VARIABLE_BYTES))?;
        let variables = variables_of(plan, execution)?;
        execution.check()?;
        let mut group_tags = plan.group_tags.clone();
        group_tags.sort();
        group_tags.dedup();
        let drivers = drivers_of(plan, &variables, execution)?;
        Ok(Builder { plan, execution, group_tags, variables, drivers, members: Vec::new(), memory })
    }

    /// The builder of a plan, which is made when the first source needs it.
    fn of<'b>(
        builder: &'b mut Option<Builder<'s>>,
        plan: &'s RowPlan,
        execution: &'s RowExecution,
    ) -> Result<&'b mut Builder<'s>, RowError> {
        match builder {
            Some(builder) => Ok(builder),
            None => Ok(builder.insert(Builder::new(plan, execution)?)),
        }
    }

    fn select_measurement(&mut self, store: usize, name: &Arc<str>) -> Result<(), RowError> {
        let tag_matchers = series_matchers(self.plan.filter.as_ref());
        let mut table = FieldTable::default();
        let mut matchers = vec![Matcher::equal(METRIC_NAME, name)];
        matchers.extend(tag_matchers.iter().cloned());
        if self.variables.field_names().len() > FIELDS_ONE_BY_ONE_MAX {
            for (number, series) in self.read_series(store, &matchers)?.into_iter().enumerate() {
                if number.is_multiple_of(SERIES_PER_CHECK) {
                    self.execution.check()?;
                }
                self.add_field(series, &mut table)?;
            }
        } else {
            let fields: Vec<Arc<str>> = self.variables.field_names().cloned().collect();
            for field in fields {
                let of_field = [Matcher::equal(FIELD_LABEL, &field)];
                let of_field: Vec<Matcher> = matchers.iter().chain(&of_field).cloned().collect();
                for series in self.read_series(store, &of_field)? {
                    self.add_field(series, &mut table)?;
                }
            }
        }
        let slice = self.plan.slice;
        let kept = match slice.series_limit | slice.series_offset {
            0 => None,
            _ => Some(self.sliced_keys(store, name, slice, tag_matchers)?),
        };
        let count = self.add_members(name, table, kept.as_ref())?;
        self.execution.count_series(count)
    }

    /// Adds the sets of tags of a measurement that meet the condition; returns their number.
    fn add_members(
        &mut self,
        name: &Arc<str>,
        table: FieldTable,
        kept: Option<&HashSet<Vec<Arc<str>>>>,
    ) -> Result<usize, RowError> {
        let shared = self.plan.filter.as_ref().filter(|filter| !has_tags(filter)).cloned().map(Arc::new);
        // A condition with tags is simplified per series, by the tags of the series.
        let own_bytes = match (&shared, &self.plan.filter) {
            (None, Some(filter)) => expr_bytes(filter),
            _ => 0,
        };
        let mut count = 0;
        for (number, (tags, fields)) in table.into_iter().enumerate() {
            if number.is_multiple_of(SERIES_PER_CHECK) || own_bytes > 0 {
                self.execution.check()?;
            }
            let has_driver = self.drivers.iter().any(|idx| !fields[*idx].is_empty());
            let key = self.key_of(&tags)?;
            if !has_driver || kept.is_some_and(|kept| !kept.contains(&key)) {
                continue;
            }
            let filter = match (&shared, &self.plan.filter) {
                (Some(filter), _) => SeriesFilter::Rows(filter.clone()),
                (None, Some(filter)) => {
                    self.memory.take(own_bytes)?;
                    let simple = filter_of_series(filter, &tags, self.execution)?;
                    let bytes = match &simple {
                        SeriesFilter::Rows(simple) => expr_bytes(simple),
                        SeriesFilter::All | SeriesFilter::None => 0,
                    };
                    // Texts of tags may be longer than their names in the condition.
                    self.memory.take(bytes)?;
                    self.memory.give_back(own_bytes);
                    simple
                }
                (None, None) => SeriesFilter::All,
            };
            if !matches!(filter, SeriesFilter::None) {
                let member = Member { tags, filter, source: PointSource::Series(fields), calls: None };
                self.members.push(KeyedMember { name: name.clone(), key, member });
                count += 1;
            }
        }
        Ok(count)
    }

    fn read_series(&mut self, store: usize, matchers: &[Matcher]) -> Result<Vec<SeriesRead>, RowError> {
        let environment = &self.execution.environment;
        let Some(source) = environment.stores.get(store) else { return Ok(Vec::new()) };
        environment.ctx.check()?;
        let selector = Selector { matchers, range: range_of_plan(self.plan) };
        let mut batches = source.select(&selector, &environment.ctx)?;
        let mut all = Vec::new();
        let mut reserved = 0;
        let mut has_more = true;
        while has_more {
            environment.ctx.check()?;
            has_more = batches.next_batch(&mut all)?;
            let bytes = |series: &SeriesRead| SERIES_BYTES + series.labels.heap_bytes();
            self.memory.take(all[reserved..].iter().map(bytes).sum())?;
            reserved = all.len();
        }
        Ok(all)
    }

    /// Adds a series to the variables that read its field.
    fn add_field(&mut self, series: SeriesRead, table: &mut FieldTable) -> Result<(), RowError> {
        let variables = &mut self.variables;
        let field = series.labels.get(FIELD_LABEL).unwrap_or("");
        if variables.of_field(field).is_empty() {
            return Ok(());
        }
        let tags = series.labels.filtered(|name| name != METRIC_NAME && !RESERVED_LABELS.contains(&name));
        let found = series.samples.column_type();
        let samples: Arc<dyn SampleSource> = Arc::from(series.samples);
        let variable_count = variables.all.len();
        if !table.contains_key(&tags) {
            let bytes = variable_count * size_of::<Vec<Arc<dyn SampleSource>>>();
            self.memory.take(bytes + tags.heap_bytes() + 2 * SERIES_BYTES)?;
        }
        let fields = table.entry(tags).or_insert_with(|| vec![Vec::new(); variable_count]);
        variables.widen_field(field, found, |idx| fields[idx].push(samples.clone()));
        Ok(())
    }

    /// Removes members of subqueries whose group the plan does not return.
    fn limit_groups_of_subqueries(&mut self) {
        let slice = self.plan.slice;
        if slice.series_limit | slice.series_offset == 0 {
            return;
        }
        let is_of_subquery = |keyed: &KeyedMember| matches!(keyed.member.source, PointSource::Rows(_));
        let mut keys: HashMap<Arc<str>, Vec<Vec<Arc<str>>>> = HashMap::default();
        for keyed in self.members.iter().filter(|keyed| is_of_subquery(keyed)) {
            keys.entry(keyed.name.clone()).or_default().push(keyed.key.clone());
        }
        let kept: HashMap<_, _> =
            keys.into_iter().map(|(name, keys)| (name, kept_keys(keys, slice))).collect();
        let is_kept =
            |keyed: &KeyedMember| kept.get(&keyed.name).is_some_and(|kept| kept.contains(&keyed.key));
        self.members.retain(|keyed| !is_of_subquery(keyed) || is_kept(keyed));
    }

    /// Keys of the groups of a measurement that the plan returns. All series count, whatever their fields.
    fn sliced_keys(
        &mut self,
        store: usize,
        name: &str,
        slice: Slice,
        mut matchers: Vec<Matcher>,
    ) -> Result<HashSet<Vec<Arc<str>>>, RowError> {
        matchers.push(Matcher::equal(METRIC_NAME, name));
        let mut keys = Vec::new();
        for series in self.read_series(store, &matchers)? {
            let filter = match &self.plan.filter {
                Some(filter) => {
                    self.execution.check()?;
                    filter_of_series(filter, &series.labels, self.execution)?
                }
                None => SeriesFilter::All,
            };
            if !matches!(filter, SeriesFilter::None) {
                keys.push(self.key_of(&series.labels)?);
            }
        }
        Ok(kept_keys(keys, slice))
    }

    /// Adds the rows of a subquery as members.
    fn add_subquery(&mut self, subquery: SubqueryRows) -> Result<(), RowError> {
        let SubqueryRows { mut rows, names, own_tags, order, calls } = subquery;
        self.memory.take(names.len().saturating_mul(NAME_BYTES))?;
        let mut columns = BTreeMap::new();
        for (idx, name) in names.into_iter().enumerate() {
            columns.entry(name).or_insert(idx);
        }
        self.execution.check()?;
        let mut open: Option<(Arc<ResultSeries>, PointColumns)> = None;
        while let Some(batch) = rows.next_batch()? {
            self.execution.check()?;
            let starts_series = open.as_ref().is_none_or(|(series, _)| *series != batch.series);
            if starts_series && let Some((series, points)) = open.take() {
                self.add_rows(&series, points, order, calls)?;
            }
            if open.is_none() {
                self.memory.take(self.variables.all.len() * size_of::<Option<RowColumn>>() + SERIES_BYTES)?;
            }
            let (_, points) = open.get_or_insert_with(|| {
                let columns = vec![None; self.variables.all.len()];
                (batch.series.clone(), PointColumns { times: Vec::new(), columns })
            });
            let bound: usize = self.variables.all.iter().map(|one| bound_bytes(one, &columns, &batch)).sum();
            // Columns grow to up to twice their length, and are copied then.
            let bytes = batch.times.len() * size_of::<i64>() + bound;
            self.memory.take(bytes.saturating_mul(3))?;
            let added = bind(&self.variables, &columns, &own_tags, &batch);
            points.times.extend_from_slice(&batch.times);
            for (column, added) in points.columns.iter_mut().zip(added) {
                match (column, added) {
                    (Some(column), Some(added)) => column.append(&added),
                    (column, added) => *column = added,
                }
            }
            self.memory.give_back(bytes);
        }
        if let Some((series, points)) = open {
            self.add_rows(&series, points, order, calls)?;
        }
        Ok(())
    }

    fn add_rows(
        &mut self,
        series: &ResultSeries,
        mut points: PointColumns,
        order: Order,
        calls: Option<TimeRange>,
    ) -> Result<(), RowError> {
        if order == Order::Descending {
            points.times.reverse();
            points.columns.iter_mut().flatten().for_each(RowColumn::reverse);
        }
        for (idx, column) in points.columns.iter_mut().enumerate() {
            let Some(column) = column else { continue };
            if let Variable::Field { cast: Some(cast), .. } = &self.variables.all[idx] {
                let is_input = !self.plan.calls.is_empty() && self.drivers.contains(&idx);
                if !is_input && !converts(column.values.column_type(), *cast) {
                    // Only the points of calls need the type: other values stay what they are.
                    self.variables.types[idx] = Some(column.values.column_type());
                    continue;
                }
                let row = row_bytes(*cast) + row_bytes(column.values.column_type());
                let _copy = self.execution.reserve(2 * column.len() * row)?;
                let nan_is_null = !is_input && *cast != ColumnType::Float;
                let source = if nan_is_null {
                    Cow::Owned(nan_as_null(column.clone()))
                } else {
                    Cow::Borrowed(&*column)
                };
                let mut converted = RowColumn::new(*cast);
                converted.append(&source);
                *column = converted;
            }
            widen(&mut self.variables.types[idx], column.values.column_type());
        }
        let pairs = series.tags.iter().map(|(name, value)| (&**name, &**value));
        let tags = Labels::from_pairs(pairs);
        let filter = match &self.plan.filter {
            None => SeriesFilter::All,
            Some(filter) => {
                self.memory.take(expr_bytes(filter))?;
                filter_of_series(filter, &tags, self.execution)?
            }
        };
        let key = self.key_of(&tags)?;
        // In a plan without calls, a column with a type has rows, null ones if the subquery lacks it.
        let is_typed = |idx: &usize| match &self.variables.all[*idx] {
            Variable::Tag { .. } => true,
            Variable::Field { cast, .. } => cast.is_some(),
        };
        let is_raw = self.plan.calls.is_empty();
        let is_driver = |idx: &usize| points.columns[*idx].is_some() || is_raw && is_typed(idx);
        let has_driver = self.drivers.iter().any(is_driver);
        if has_driver && !matches!(filter, SeriesFilter::None) {
            let member = Member { tags, filter, source: PointSource::Rows(points), calls };
            self.members.push(KeyedMember { name: series.name.clone(), key, member });
        }
        Ok(())
    }

    /// Values of the grouping tags, with the memory of a member.
    fn key_of(&mut self, tags: &Labels) -> Result<Vec<Arc<str>>, RowError> {
        let values = || self.group_tags.iter().map(|name| tags.get(name).unwrap_or(""));
        let texts: usize = values().map(|value| value.len() + TEXT_BYTES + size_of::<Arc<str>>()).sum();
        let bytes = texts + ALLOCATION_BYTES + size_of::<KeyedMember>();
        let key = values().map(Arc::from).collect();
        self.memory.take(bytes)?;
        Ok(key)
    }

    fn finish(mut self) -> Selection {
        self.members.sort_by(|a, b| {
            (&a.name, &a.key).cmp(&(&b.name, &b.key)).then_with(|| a.member.tags.cmp(&b.member.tags))
        });
        if self.plan.order == Order::Descending {
            self.members.reverse();
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut last: Option<(Arc<str>, Vec<Arc<str>>)> = None;
        for KeyedMember { name, key, member } in self.members {
            if last.as_ref().is_none_or(|(last, last_key)| *last != name || *last_key != key) {
                let tags = self.group_tags.iter().cloned().zip(key.iter().cloned()).collect();
                let series = Arc::new(ResultSeries { name: name.clone(), tags });
                groups.push(Group { series, members: Vec::new() });
                last = Some((name, key));
            }
            if let Some(group) = groups.last_mut() {
                group.members.push(member);
            }
        }
        Selection { groups, variables: self.variables, drivers: self.drivers, _memory: self.memory }
    }
}

/// Rows of a subquery that has been opened.
struct SubqueryRows {
    rows: Box<dyn RowSource>,
    /// Names of its columns, in their order.
    names: Vec<Arc<str>>,
    /// Tags that it groups by itself.
    own_tags: BTreeSet<Arc<str>>,
    order: Order,
    /// Range of the calls that read the rows; `None`: all calls.
    calls: Option<TimeRange>,
}

impl SubqueryRows {
    /// Opens a subquery of a plan.
    fn open(
        plan: &RowPlan,
        mut inner: RowPlan,
        calls: Option<TimeRange>,
        run: RunSubquery<'_>,
    ) -> Result<SubqueryRows, RowError> {
        // A tag of the outer grouping alone is none that columns can refer to.
        let own_tags: BTreeSet<Arc<str>> = inner.group_tags.iter().cloned().collect();
        let calls_tags = plan.calls.iter().flat_map(call::distinct_tags);
        let outer_tags: BTreeSet<&Arc<str>> = plan.group_tags.iter().chain(calls_tags).collect();
        inner.group_tags.extend(outer_tags.into_iter().filter(|tag| !own_tags.contains(*tag)).cloned());
        let names = inner.columns.iter().map(|column| column.name.clone()).collect();
        let order = inner.order;
        Ok(SubqueryRows { rows: run(inner)?, names, own_tags, order, calls })
    }
}

/// Bytes of a plan without those below it.
fn plan_bytes(plan: &RowPlan) -> usize {
    let columns: usize =
        plan.columns.iter().map(|column| size_of::<Arc<str>>() + expr_bytes(&column.expr)).sum();
    let calls = plan.calls.len() * (size_of::<Call>() + ALLOCATION_BYTES);
    columns + calls + plan.filter.as_ref().map_or(0, expr_bytes)
}

/// Bytes of a variable in the rows of a batch, at most.
fn bound_bytes(variable: &Variable, columns: &BTreeMap<Arc<str>, usize>, batch: &RowBatch) -> usize {
    let (Variable::Field { name, .. } | Variable::Tag { name }) = variable;
    match columns.get(name).and_then(|at| batch.columns.get(*at)) {
        Some(column) => column.heap_bytes() + batch.times.len(),
        None => batch.times.len() * row_bytes(ColumnType::Text),
    }
}

/// Columns of a batch by variable: `columns` of the subquery by name, and the tags `own_tags` that it groups
/// by itself.
fn bind(
    variables: &Variables,
    columns: &BTreeMap<Arc<str>, usize>,
    own_tags: &BTreeSet<Arc<str>>,
    batch: &RowBatch,
) -> Vec<Option<RowColumn>> {
    let own = batch.series.tags.iter().filter(|(tag, _)| own_tags.contains(tag));
    let tags: BTreeMap<&Arc<str>, &Arc<str>> = own.map(|(tag, value)| (tag, value)).collect();
    let bound = variables.all.iter().map(|variable| {
        let (Variable::Field { name, .. } | Variable::Tag { name }) = variable;
        if let Some(at) = columns.get(name) {
            return batch.columns.get(*at).cloned();
        }
        let value = tags.get(name)?;
        let value = Literal::Text(value.as_bytes().into());
        Some(RowColumn::repeated(Some(&value), batch.times.len()))
    });
    bound.collect()
}

/// Keys of the groups that a plan returns.
fn kept_keys(mut keys: Vec<Vec<Arc<str>>>, slice: Slice) -> HashSet<Vec<Arc<str>>> {
    keys.sort();
    keys.dedup();
    let limit = if slice.series_limit == 0 { usize::MAX } else { slice.series_limit };
    keys.into_iter().skip(slice.series_offset).take(limit).collect()
}
