//! Selection of a plan: the series of its measurements and the rows of its subqueries, as groups of members.
//!
//! Invariants: groups ascend by name and grouping tags, members by their tags; a descending plan has both
//! reversed. A variable has one type over all sources.
//! Not here: reading of samples (`points`).

use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_base::hash::{HashMap, HashSet};
use chronolith_model::kind::RESERVED_LABELS;
use chronolith_model::query::SampleSource;
use chronolith_model::{FIELD_LABEL, Labels, METRIC_NAME, Matcher, Selector, SeriesRead, TimeRange};

use super::column::{ResultSeries, RowBatch, RowColumn};
use super::error::RowError;
use super::execution::RowExecution;
use super::filter::{SeriesFilter, filter_of_series, has_tags, series_matchers};
use super::plan::{Literal, Order, RowPlan, Slice, Source, Variable};
use super::points::{Group, Member, PointColumns, PointSource};
use super::range::{intersection, range_of_plan, ranges_of_calls};
use super::source::RowSource;
use super::variables::{Variables, drivers_of, variables_of, widen};

/// Bytes of a selected series besides its labels, about.
const SERIES_BYTES: usize = 256;

/// Runs the plan of a subquery.
pub(crate) type RunSubquery<'r> = &'r dyn Fn(RowPlan) -> Result<Box<dyn RowSource>, RowError>;

/// Groups of a plan.
pub(crate) struct Selection {
    pub(crate) groups: Vec<Group>,
    pub(crate) variables: Variables,
    /// Variables of which a point needs a value.
    pub(crate) drivers: Vec<usize>,
    _memory: Option<Reservation>,
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
    memory: Option<Reservation>,
}

/// Selects all series of a plan and runs its subqueries.
pub(crate) fn select(
    plan: &RowPlan,
    execution: &RowExecution,
    run: RunSubquery<'_>,
) -> Result<Selection, RowError> {
    let variables = variables_of(plan);
    let mut group_tags = plan.group_tags.clone();
    group_tags.sort();
    group_tags.dedup();
    let drivers = drivers_of(plan, &variables);
    let mut builder =
        Builder { plan, execution, group_tags, variables, drivers, members: Vec::new(), memory: None };
    for source in &plan.sources {
        match source {
            Source::Measurement { store, name } => builder.select_measurement(*store, name)?,
            Source::Subquery(inner) => builder.run_subqueries(inner, run)?,
        }
    }
    builder.limit_groups_of_subqueries();
    Ok(builder.finish())
}

impl Builder<'_> {
    fn select_measurement(&mut self, store: usize, name: &Arc<str>) -> Result<(), RowError> {
        let mut fields: Vec<Arc<str>> = Vec::new();
        for variable in &self.variables.all {
            if let Variable::Field { name, .. } = variable
                && !fields.contains(name)
            {
                fields.push(name.clone());
            }
        }
        let tag_matchers = series_matchers(self.plan.filter.as_ref());
        let mut table: HashMap<Labels, Vec<Vec<Arc<dyn SampleSource>>>> = HashMap::default();
        for field in &fields {
            let mut matchers = vec![Matcher::equal(METRIC_NAME, name), Matcher::equal(FIELD_LABEL, field)];
            matchers.extend(tag_matchers.iter().cloned());
            for series in self.read_series(store, &matchers)? {
                self.add_field(field, series, &mut table)?;
            }
        }
        let slice = self.plan.slice;
        let kept = match slice.series_limit | slice.series_offset {
            0 => None,
            _ => Some(self.sliced_keys(store, name, slice, tag_matchers)?),
        };
        let shared = self.plan.filter.as_ref().filter(|filter| !has_tags(filter)).cloned().map(Arc::new);
        let mut count = 0;
        for (tags, fields) in table {
            let filter = match (&shared, &self.plan.filter) {
                (Some(filter), _) => SeriesFilter::Rows(filter.clone()),
                (None, Some(filter)) => filter_of_series(filter, &tags),
                (None, None) => SeriesFilter::All,
            };
            let key = self.key_of(&tags);
            let has_driver = self.drivers.iter().any(|idx| !fields[*idx].is_empty());
            let is_kept = kept.as_ref().is_none_or(|kept| kept.contains(&key));
            if has_driver && is_kept && !matches!(filter, SeriesFilter::None) {
                let member = Member { tags, filter, source: PointSource::Series(fields), calls: None };
                self.members.push(KeyedMember { name: name.clone(), key, member });
                count += 1;
            }
        }
        self.execution.count_series(count)
    }

    fn read_series(&self, store: usize, matchers: &[Matcher]) -> Result<Vec<SeriesRead>, RowError> {
        let environment = &self.execution.environment;
        let Some(source) = environment.stores.get(store) else { return Ok(Vec::new()) };
        let selector = Selector { matchers, range: range_of_plan(self.plan) };
        let mut batches = source.select(&selector, &environment.ctx)?;
        let mut all = Vec::new();
        while batches.next_batch(&mut all)? {
            environment.ctx.check()?;
        }
        Ok(all)
    }

    /// Adds a series of a field to the variables that read it.
    fn add_field(
        &mut self,
        field: &str,
        series: SeriesRead,
        table: &mut HashMap<Labels, Vec<Vec<Arc<dyn SampleSource>>>>,
    ) -> Result<(), RowError> {
        let tags = series.labels.filtered(|name| name != METRIC_NAME && !RESERVED_LABELS.contains(&name));
        self.reserve(SERIES_BYTES + tags.heap_bytes())?;
        let found = series.samples.column_type();
        let samples: Arc<dyn SampleSource> = Arc::from(series.samples);
        let variable_count = self.variables.all.len();
        let fields = table.entry(tags).or_insert_with(|| vec![Vec::new(); variable_count]);
        for (idx, variable) in self.variables.all.iter().enumerate() {
            if let Variable::Field { name, cast } = variable
                && **name == *field
            {
                fields[idx].push(samples.clone());
                widen(&mut self.variables.types[idx], cast.unwrap_or(found));
            }
        }
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
        &self,
        store: usize,
        name: &str,
        slice: Slice,
        mut matchers: Vec<Matcher>,
    ) -> Result<HashSet<Vec<Arc<str>>>, RowError> {
        matchers.push(Matcher::equal(METRIC_NAME, name));
        let mut keys = Vec::new();
        for series in self.read_series(store, &matchers)? {
            let filter = self.plan.filter.as_ref().map(|filter| filter_of_series(filter, &series.labels));
            if !matches!(filter, Some(SeriesFilter::None)) {
                keys.push(self.key_of(&series.labels));
            }
        }
        Ok(kept_keys(keys, slice))
    }

    /// Runs a subquery for each range that a call of the plan reads: windows before the range are read from
    /// it too.
    fn run_subqueries(&mut self, inner: &RowPlan, run: RunSubquery<'_>) -> Result<(), RowError> {
        let ranges = ranges_of_calls(self.plan);
        for range in &ranges {
            let calls = (ranges.len() > 1).then_some(*range);
            let inner = RowPlan { range: intersection(inner.range, *range), ..inner.clone() };
            self.run_subquery(inner, calls, run)?;
        }
        Ok(())
    }

    fn run_subquery(
        &mut self,
        mut inner: RowPlan,
        calls: Option<TimeRange>,
        run: RunSubquery<'_>,
    ) -> Result<(), RowError> {
        // A tag of the outer grouping alone is none that columns can refer to.
        let own_tags = inner.group_tags.clone();
        for tag in &self.group_tags {
            if !inner.group_tags.contains(tag) {
                inner.group_tags.push(tag.clone());
            }
        }
        let names: Vec<Arc<str>> = inner.columns.iter().map(|column| column.name.clone()).collect();
        let order = inner.order;
        let mut rows = run(inner)?;
        let mut open: Option<(Arc<ResultSeries>, PointColumns)> = None;
        while let Some(batch) = rows.next_batch()? {
            let starts_series = open.as_ref().is_none_or(|(series, _)| *series != batch.series);
            if starts_series && let Some((series, points)) = open.take() {
                self.add_rows(&series, points, order, calls);
            }
            let (_, points) = open.get_or_insert_with(|| {
                let columns = vec![None; self.variables.all.len()];
                (batch.series.clone(), PointColumns { times: Vec::new(), columns })
            });
            let added = self.bind(&names, &own_tags, &batch);
            self.reserve(
                batch.times.len() * 8 + added.iter().flatten().map(RowColumn::heap_bytes).sum::<usize>(),
            )?;
            points.times.extend_from_slice(&batch.times);
            for (column, added) in points.columns.iter_mut().zip(added) {
                match (column, added) {
                    (Some(column), Some(added)) => column.append(&added),
                    (column, added) => *column = added,
                }
            }
        }
        if let Some((series, points)) = open {
            self.add_rows(&series, points, order, calls);
        }
        Ok(())
    }

    /// Columns of a batch by variable: columns of the subquery `names`, and the tags `own_tags` that it
    /// groups by itself.
    fn bind(&self, names: &[Arc<str>], own_tags: &[Arc<str>], batch: &RowBatch) -> Vec<Option<RowColumn>> {
        let bound = self.variables.all.iter().map(|variable| {
            let (Variable::Field { name, .. } | Variable::Tag { name }) = variable;
            if let Some(at) = names.iter().position(|column| column == name) {
                return batch.columns.get(at).cloned();
            }
            let mut tags = batch.series.tags.iter().filter(|(tag, _)| own_tags.contains(tag));
            let (_, value) = tags.find(|(tag, _)| tag == name)?;
            let value = Literal::Text(value.as_bytes().into());
            Some(RowColumn::repeated(Some(&value), batch.times.len()))
        });
        bound.collect()
    }

    fn add_rows(
        &mut self,
        series: &ResultSeries,
        mut points: PointColumns,
        order: Order,
        calls: Option<TimeRange>,
    ) {
        if order == Order::Descending {
            points.times.reverse();
            points.columns.iter_mut().flatten().for_each(RowColumn::reverse);
        }
        for (idx, column) in points.columns.iter_mut().enumerate() {
            let Some(column) = column else { continue };
            if let Variable::Field { cast: Some(cast), .. } = &self.variables.all[idx] {
                let mut converted = RowColumn::new(*cast);
                converted.append(column);
                *column = converted;
            }
            widen(&mut self.variables.types[idx], column.values.column_type());
        }
        let pairs = series.tags.iter().map(|(name, value)| (&**name, &**value));
        let tags = Labels::from_pairs(pairs);
        let filter = match &self.plan.filter {
            None => SeriesFilter::All,
            Some(filter) => filter_of_series(filter, &tags),
        };
        let key = self.key_of(&tags);
        let has_driver = self.drivers.iter().any(|idx| points.columns[*idx].is_some());
        if has_driver && !matches!(filter, SeriesFilter::None) {
            let member = Member { tags, filter, source: PointSource::Rows(points), calls };
            self.members.push(KeyedMember { name: series.name.clone(), key, member });
        }
    }

    fn key_of(&self, tags: &Labels) -> Vec<Arc<str>> {
        self.group_tags.iter().map(|name| Arc::from(tags.get(name).unwrap_or(""))).collect()
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), RowError> {
        let bytes = bytes as u64;
        match &mut self.memory {
            Some(memory) => memory.grow(bytes)?,
            None => self.memory = Some(self.execution.environment.ctx.budget.reserve(bytes)?),
        }
        Ok(())
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

/// Keys of the groups that a plan returns.
fn kept_keys(mut keys: Vec<Vec<Arc<str>>>, slice: Slice) -> HashSet<Vec<Arc<str>>> {
    keys.sort();
    keys.dedup();
    let limit = if slice.series_limit == 0 { usize::MAX } else { slice.series_limit };
    keys.into_iter().skip(slice.series_offset).take(limit).collect()
}
