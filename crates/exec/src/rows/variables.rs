//! Variables of a plan: which there are, their types, and which of them a point needs.
//!
//! Invariants: each variable occurs once; its type is the first of all that its sources have. Look-ups are
//! by name, so that work on all variables is linear in their number.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::query::ColumnType;

use super::column::type_rank;
use super::error::RowError;
use super::execution::RowExecution;
use super::plan::{Call, Expr, Input, RowPlan, Variable};

/// Columns of a plan between two checks of the deadline.
const COLUMNS_PER_CHECK: usize = 256;

/// Variables of a plan with their types.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables {
    pub(crate) all: Vec<Variable>,
    /// Type over all sources; `None` if no source has the variable.
    pub(crate) types: Vec<Option<ColumnType>>,
    /// Indexes of the variables of a field: one per cast.
    fields: BTreeMap<Arc<str>, Vec<usize>>,
    tags: BTreeMap<Arc<str>, usize>,
}

impl Variables {
    /// Index of a variable of the plan.
    pub(crate) fn index(&self, variable: &Variable) -> Option<usize> {
        match variable {
            Variable::Field { name, .. } => {
                let of_field = self.fields.get(name)?;
                of_field.iter().copied().find(|idx| self.all.get(*idx) == Some(variable))
            }
            Variable::Tag { name } => self.tags.get(name).copied(),
        }
    }

    /// Indexes of the variables that read a field.
    pub(crate) fn of_field(&self, name: &str) -> &[usize] {
        self.fields.get(name).map_or(&[], Vec::as_slice)
    }

    /// Raises the types of the variables that read a field to the type of another series, and calls `visit`
    /// with the index of each.
    pub(crate) fn widen_field(&mut self, field: &str, found: ColumnType, mut visit: impl FnMut(usize)) {
        for &idx in self.fields.get(field).into_iter().flatten() {
            if let Variable::Field { cast, .. } = &self.all[idx] {
                widen(&mut self.types[idx], cast.unwrap_or(found));
                visit(idx);
            }
        }
    }

    /// Names of the fields that are read.
    pub(crate) fn field_names(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.fields.keys()
    }

    fn add(&mut self, variable: &Variable) {
        if self.index(variable).is_some() {
            return;
        }
        let idx = self.all.len();
        let known_type = match variable {
            Variable::Field { name, cast } => {
                self.fields.entry(name.clone()).or_default().push(idx);
                *cast
            }
            Variable::Tag { name } => {
                self.tags.insert(name.clone(), idx);
                Some(ColumnType::Text)
            }
        };
        self.all.push(variable.clone());
        self.types.push(known_type);
    }
}

/// Raises the type of a variable to the type of another series.
pub(crate) fn widen(of: &mut Option<ColumnType>, found: ColumnType) {
    match of {
        Some(known) if type_rank(*known) <= type_rank(found) => {}
        _ => *of = Some(found),
    }
}

/// Variables of a plan, each once. Types are not known, except of tags and casts.
///
/// # Errors
/// Deadline and cancellation.
pub(crate) fn variables_of(plan: &RowPlan, execution: &RowExecution) -> Result<Variables, RowError> {
    let mut variables = Variables::default();
    for columns in plan.columns.chunks(COLUMNS_PER_CHECK) {
        execution.check()?;
        columns.iter().for_each(|column| visit_variables(&column.expr, &mut |one| variables.add(one)));
    }
    for calls in plan.calls.chunks(COLUMNS_PER_CHECK) {
        execution.check()?;
        calls.iter().for_each(|call| variables.add(input_variable(call)));
    }
    if let Some(filter) = &plan.filter {
        visit_variables(filter, &mut |one| variables.add(one));
    }
    Ok(variables)
}

/// Calls `visit` for each variable of an expression, in order of the text.
fn visit_variables(expr: &Expr, visit: &mut impl FnMut(&Variable)) {
    match expr {
        Expr::Variable(variable) => visit(variable),
        Expr::Call(_) | Expr::Literal(_) => {}
        Expr::Binary(_, left, right) => {
            visit_variables(left, visit);
            visit_variables(right, visit);
        }
        Expr::Match { operand, .. } => visit_variables(operand, visit),
        Expr::Math(_, arguments) => {
            arguments.iter().for_each(|argument| visit_variables(argument, visit));
        }
    }
}

/// The variable at the bottom of a call.
pub(crate) fn input_variable(call: &Call) -> &Variable {
    match &call.input {
        Input::Points(variable) => variable,
        Input::Call(inner) => input_variable(inner),
    }
}

/// Variables of the columns of a plan, each once, in their order.
///
/// # Errors
/// Deadline and cancellation.
pub(crate) fn column_variables(
    plan: &RowPlan,
    variables: &Variables,
    execution: &RowExecution,
) -> Result<Vec<usize>, RowError> {
    let mut is_known = vec![false; variables.all.len()];
    let mut all = Vec::new();
    let mut add = |variable: &Variable| {
        if let Some(idx) = variables.index(variable)
            && !std::mem::replace(&mut is_known[idx], true)
        {
            all.push(idx);
        }
    };
    for columns in plan.columns.chunks(COLUMNS_PER_CHECK) {
        execution.check()?;
        columns.iter().for_each(|column| visit_variables(&column.expr, &mut add));
    }
    Ok(all)
}

/// Variables of which a point needs a value.
///
/// # Errors
/// Deadline and cancellation.
pub(crate) fn drivers_of(
    plan: &RowPlan,
    variables: &Variables,
    execution: &RowExecution,
) -> Result<Vec<usize>, RowError> {
    let mut drivers: Vec<usize> = if plan.calls.is_empty() {
        column_variables(plan, variables, execution)?
    } else {
        plan.calls.iter().filter_map(|call| variables.index(input_variable(call))).collect()
    };
    drivers.sort_unstable();
    drivers.dedup();
    Ok(drivers)
}
