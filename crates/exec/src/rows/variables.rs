//! Variables of a plan: which there are, their types, and which of them a point needs.
//!
//! Invariants: each variable occurs once; its type is the first of all that its sources have.

use chronolith_model::query::ColumnType;

use super::column::type_rank;
use super::plan::{Call, Expr, Input, RowPlan, Variable};

/// Variables of a plan with their types.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables {
    pub(crate) all: Vec<Variable>,
    /// Type over all sources; `None` if no source has the variable.
    pub(crate) types: Vec<Option<ColumnType>>,
}

impl Variables {
    /// Index of a variable of the plan.
    pub(crate) fn index(&self, variable: &Variable) -> Option<usize> {
        self.all.iter().position(|known| known == variable)
    }
}

/// Raises the type of a variable to that of another series.
pub(crate) fn widen(of: &mut Option<ColumnType>, found: ColumnType) {
    match of {
        Some(known) if type_rank(*known) <= type_rank(found) => {}
        _ => *of = Some(found),
    }
}

/// Variables of a plan, each once. Types are not known, except of tags and casts.
pub(crate) fn variables_of(plan: &RowPlan) -> Variables {
    let mut all = Vec::new();
    plan.columns.iter().for_each(|column| collect_variables(&column.expr, &mut all));
    plan.calls.iter().for_each(|call| push_variable(input_variable(call), &mut all));
    if let Some(filter) = &plan.filter {
        collect_variables(filter, &mut all);
    }
    let types = all.iter().map(|variable| match variable {
        Variable::Tag { .. } => Some(ColumnType::Text),
        Variable::Field { cast, .. } => *cast,
    });
    let types = types.collect();
    Variables { all, types }
}

fn push_variable(variable: &Variable, all: &mut Vec<Variable>) {
    if !all.contains(variable) {
        all.push(variable.clone());
    }
}

fn collect_variables(expr: &Expr, all: &mut Vec<Variable>) {
    match expr {
        Expr::Variable(variable) => push_variable(variable, all),
        Expr::Call(_) | Expr::Literal(_) => {}
        Expr::Binary(_, left, right) => {
            collect_variables(left, all);
            collect_variables(right, all);
        }
        Expr::Match { operand, .. } => collect_variables(operand, all),
        Expr::Math(_, arguments) => {
            arguments.iter().for_each(|argument| collect_variables(argument, all));
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

/// Variables of the columns of a plan.
pub(crate) fn column_variables(plan: &RowPlan, variables: &Variables) -> Vec<usize> {
    let mut all = Vec::new();
    plan.columns.iter().for_each(|column| collect_variables(&column.expr, &mut all));
    all.iter().filter_map(|variable| variables.index(variable)).collect()
}

/// Variables of which a point needs a value.
pub(crate) fn drivers_of(plan: &RowPlan, variables: &Variables) -> Vec<usize> {
    let mut drivers: Vec<usize> = if plan.calls.is_empty() {
        column_variables(plan, variables)
    } else {
        plan.calls.iter().filter_map(|call| variables.index(input_variable(call))).collect()
    };
    drivers.sort_unstable();
    drivers.dedup();
    drivers
}
