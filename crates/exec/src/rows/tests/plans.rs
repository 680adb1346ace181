//! Short forms of plans, and results as text.

use std::fmt::Write as _;
use std::sync::Arc;

use chronolith_model::TimeRange;
use chronolith_model::query::ColumnType;

use super::memory::{MemoryStore, environment};
use crate::rows::error::RowError;
use crate::rows::execution::{RowEnvironment, RowLimits};
use crate::rows::plan::{
    Aggregate, Call, Column, Expr, Function, Input, Literal, Operator, RowPlan, Source, Transform, Variable,
    Windows,
};
use crate::rows::source::RowSource;
use crate::rows::stream::RowStream;

/// A plan over measurement `m`.
pub(super) fn from_m() -> RowPlan {
    RowPlan::new(vec![Source::Measurement { store: 0, name: "m".into() }])
}

pub(super) fn from_subquery(inner: RowPlan) -> RowPlan {
    RowPlan::new(vec![Source::Subquery(Arc::new(inner))])
}

pub(super) fn field_variable(name: &str) -> Variable {
    Variable::Field { name: name.into(), cast: None }
}

pub(super) fn field(name: &str) -> Expr {
    Expr::Variable(field_variable(name))
}

pub(super) fn cast(name: &str, to: ColumnType) -> Expr {
    Expr::Variable(Variable::Field { name: name.into(), cast: Some(to) })
}

pub(super) fn tag(name: &str) -> Expr {
    Expr::Variable(Variable::Tag { name: name.into() })
}

pub(super) fn integer(value: i64) -> Expr {
    Expr::Literal(Literal::Integer(value))
}

pub(super) fn float(value: f64) -> Expr {
    Expr::Literal(Literal::Float(value))
}

pub(super) fn text(value: &str) -> Expr {
    Expr::Literal(Literal::Text(value.as_bytes().into()))
}

pub(super) fn boolean(value: bool) -> Expr {
    Expr::Literal(Literal::Boolean(value))
}

pub(super) fn binary(operator: Operator, left: Expr, right: Expr) -> Expr {
    Expr::Binary(operator, Box::new(left), Box::new(right))
}

pub(super) fn aggregate(function: Aggregate, field: &str) -> Call {
    Call { function: Function::Aggregate(function), input: Input::Points(field_variable(field)) }
}

pub(super) fn transform(function: Transform, field: &str) -> Call {
    Call { function: Function::Transform(function), input: Input::Points(field_variable(field)) }
}

pub(super) fn over(function: Transform, inner: Call) -> Call {
    Call { function: Function::Transform(function), input: Input::Call(Box::new(inner)) }
}

impl RowPlan {
    pub(super) fn column(mut self, name: &str, expr: Expr) -> RowPlan {
        self.columns.push(Column { name: name.into(), expr });
        self
    }

    pub(super) fn fields(self, names: &[&str]) -> RowPlan {
        names.iter().fold(self, |plan, name| plan.column(name, field(name)))
    }

    /// Adds a call and a column of it.
    pub(super) fn call(mut self, name: &str, call: Call) -> RowPlan {
        self.calls.push(call);
        let idx = self.calls.len() - 1;
        self.column(name, Expr::Call(idx))
    }

    pub(super) fn by(mut self, tags: &[&str]) -> RowPlan {
        self.group_tags = tags.iter().map(|tag| Arc::from(*tag)).collect();
        self
    }

    pub(super) fn between(mut self, start: i64, end: i64) -> RowPlan {
        self.range = TimeRange::new(start, end);
        self
    }

    pub(super) fn every(mut self, width: i64) -> RowPlan {
        self.windows = Some(Windows { width, offset: 0, zone: None });
        self
    }
}

/// Runs a plan over an environment and collects its rows as text.
pub(super) fn run(plan: RowPlan, environment: RowEnvironment) -> Result<String, RowError> {
    let mut rows = RowStream::open(plan, environment)?;
    let types = rows.column_types().to_vec();
    let mut out = String::new();
    let mut last = None;
    while let Some(batch) = rows.next_batch()? {
        assert!(!batch.times.is_empty(), "batches have rows");
        if last.as_ref() != Some(&batch.series) {
            let tags = batch.series.tags.iter().map(|(name, value)| format!("{name}={value}"));
            let tags: Vec<String> = tags.collect();
            let _ = writeln!(out, "{}{{{}}}", batch.series.name, tags.join(","));
            last = Some(batch.series.clone());
        }
        for (column, known) in batch.columns.iter().zip(&types) {
            assert_eq!(column.len(), batch.times.len());
            let has_values = (0..column.len()).any(|row| column.is_present(row));
            assert!(!has_values || *known == Some(column.values.column_type()), "{known:?} {column:?}");
        }
        for (row, time) in batch.times.iter().enumerate() {
            let values = batch.columns.iter().map(|column| shown(column.get(row)));
            let values: Vec<String> = values.collect();
            let _ = writeln!(out, "{time}: {}", values.join(" "));
        }
    }
    Ok(out)
}

fn shown(value: Option<Literal>) -> String {
    match value {
        None => "null".to_owned(),
        Some(Literal::Float(value)) => format!("{value:?}"),
        Some(Literal::Integer(value)) => format!("{value}i"),
        Some(Literal::Unsigned(value)) => format!("{value}u"),
        Some(Literal::Boolean(value)) => format!("{value}"),
        Some(Literal::Text(value)) => format!("{:?}", String::from_utf8_lossy(&value)),
    }
}

/// Compares the rows of a plan with expected ones; indentation does not count.
#[track_caller]
pub(super) fn check(lines: &str, plan: RowPlan, want: &str) {
    let environment = environment(MemoryStore::of_lines(lines), u64::MAX, RowLimits::default());
    let found = run(plan, environment).expect("rows");
    let want: Vec<&str> = want.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(found.lines().collect::<Vec<_>>(), want, "\n{found}");
}

/// As [`check`], with floats equal up to a relative `error`.
#[track_caller]
pub(super) fn check_close(lines: &str, plan: RowPlan, want: &[(i64, f64)], error: f64) {
    let environment = environment(MemoryStore::of_lines(lines), u64::MAX, RowLimits::default());
    let found = run(plan, environment).expect("rows");
    let rows = found.lines().filter_map(|line| line.split_once(": "));
    let rows: Vec<(i64, f64)> =
        rows.map(|(time, value)| (time.parse().expect("a time"), value.parse().expect("a float"))).collect();
    assert_eq!(rows.len(), want.len(), "\n{found}");
    for (row, want) in rows.iter().zip(want) {
        let is_close = (row.1 - want.1).abs() <= error * want.1.abs().max(1.0);
        assert!(row.0 == want.0 && is_close, "{row:?} {want:?}\n{found}");
    }
}
