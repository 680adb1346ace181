//! Store in memory that is filled from lines `measurement,tag=value field=value,... time`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::{MemoryBudget, SystemClock};
use chronolith_model::query::{
    ColumnType, Opened, Read, SampleSource, TypedColumns, TypedValues, VecBatches, Wanted,
};
use chronolith_model::{
    Columns, FIELD_LABEL, KIND_LABEL, Labels, METRIC_NAME, QueryError, ReadContext, SeriesRead, TimeRange,
};

use crate::rows::column::RowColumn;
use crate::rows::execution::{RowEnvironment, RowLimits};
use crate::rows::plan::Literal;

/// Series of a store.
#[derive(Default)]
pub(super) struct MemoryStore {
    series: BTreeMap<Labels, Arc<Stored>>,
    /// Samples that have been read.
    pub(super) read: Arc<AtomicUsize>,
}

struct Stored {
    columns: TypedColumns,
}

struct Source {
    stored: Arc<Stored>,
    range: TimeRange,
    read: Arc<AtomicUsize>,
}

impl SampleSource for Source {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let mut typed = TypedColumns::new(ColumnType::Float);
        self.read_typed(range, &mut typed)?;
        let TypedValues::Floats(values) = typed.values else { panic!("only floats are read as floats") };
        typed.times.into_iter().zip(values).for_each(|(time, value)| out.push(time, value));
        Ok(())
    }

    fn column_type(&self) -> ColumnType {
        self.stored.columns.values.column_type()
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        let columns = &self.stored.columns;
        assert_eq!(out.values.column_type(), self.column_type(), "a source is read as its type");
        let from = columns.times.partition_point(|time| *time < range.start.max(self.range.start));
        let to = columns.times.partition_point(|time| *time < range.end.min(self.range.end));
        self.read.fetch_add(to.saturating_sub(from), Ordering::Relaxed);
        for row in from..to.max(from) {
            out.times.push(columns.times[row]);
            out.values.push_from(&columns.values, row);
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        let times = &self.stored.columns.times;
        times.iter().filter(|time| self.range.contains(**time)).count()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        let times = &self.stored.columns.times;
        Some((*times.first()?, *times.last()?))
    }
}

impl MemoryStore {
    pub(super) fn of_lines(lines: &str) -> MemoryStore {
        let mut store = MemoryStore::default();
        lines.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| store.add_line(line));
        store
    }

    fn add_line(&mut self, line: &str) {
        let mut parts = line.split(' ');
        let (Some(key), Some(fields), Some(time)) = (parts.next(), parts.next(), parts.next()) else {
            panic!("line {line:?}")
        };
        let time: i64 = time.parse().expect("a time");
        let mut names = key.split(',');
        let name = names.next().expect("a measurement");
        let tags: Vec<(&str, &str)> = names.map(|tag| tag.split_once('=').expect("a tag")).collect();
        for field in fields.split(',') {
            let (field, value) = field.split_once('=').expect("a field");
            let value = match value {
                "true" | "false" => Literal::Boolean(value == "true"),
                _ if value.starts_with('"') => Literal::Text(value.trim_matches('"').as_bytes().into()),
                _ if value.ends_with('i') => {
                    Literal::Integer(value.trim_end_matches('i').parse().expect("an integer"))
                }
                _ if value.ends_with('u') => {
                    Literal::Unsigned(value.trim_end_matches('u').parse().expect("an integer"))
                }
                _ => Literal::Float(value.parse().expect("a float")),
            };
            self.add(name, &tags, field, time, &value);
        }
    }

    pub(super) fn add(&mut self, name: &str, tags: &[(&str, &str)], field: &str, time: i64, value: &Literal) {
        let (kind, column_type) = match value {
            Literal::Float(_) => ("", ColumnType::Float),
            Literal::Integer(_) => ("int", ColumnType::Integer),
            Literal::Unsigned(_) => ("uint", ColumnType::Unsigned),
            Literal::Boolean(_) => ("bool", ColumnType::Boolean),
            Literal::Text(_) => ("text", ColumnType::Text),
        };
        let reserved = [(METRIC_NAME, name), (FIELD_LABEL, field), (KIND_LABEL, kind)];
        let labels = Labels::from_pairs(tags.iter().copied().chain(reserved));
        let stored = self
            .series
            .entry(labels)
            .or_insert_with(|| Arc::new(Stored { columns: TypedColumns::new(column_type) }));
        let stored = Arc::get_mut(stored).expect("no source reads yet");
        let mut column =
            RowColumn::of(std::mem::replace(&mut stored.columns.values, TypedValues::new(ColumnType::Float)));
        column.push(Some(value));
        stored.columns.values = column.values;
        assert!(stored.columns.times.last().is_none_or(|last| *last < time), "points of a series ascend");
        stored.columns.times.push(time);
    }
}

impl chronolith_model::query::Source for MemoryStore {
    /// Rows need no names and no values.
    fn open(&self, read: Read, _ctx: &ReadContext) -> Result<Opened, QueryError> {
        assert_eq!(read.wanted, Wanted::Series);
        let selector = read.request.selector();
        let selected = self
            .series
            .iter()
            .filter(|(labels, _)| selector.matchers.iter().all(|matcher| matcher.matches_labels(labels)))
            .filter(|(_, stored)| stored.columns.times.iter().any(|time| selector.range.contains(*time)))
            .map(|(labels, stored)| {
                let source =
                    Source { stored: stored.clone(), range: selector.range, read: self.read.clone() };
                SeriesRead { labels: labels.clone(), samples: Box::new(source) as _ }
            });
        Ok(Opened::Series(Box::new(VecBatches::new(selected.collect()))))
    }
}

/// An environment over `store` with a budget of memory.
pub(super) fn environment(store: MemoryStore, budget_bytes: u64, limits: RowLimits) -> RowEnvironment {
    let budget = MemoryBudget::new("query", budget_bytes);
    let ctx = ReadContext::new(Arc::new(SystemClock::new()), u64::MAX, budget);
    RowEnvironment { stores: vec![Arc::new(store)], ctx, limits, seed: 1 }
}
