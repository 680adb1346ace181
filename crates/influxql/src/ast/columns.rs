//! Names of the columns of a SELECT.
//!
//! Invariants: the first column is `time`; no two columns that have no alias have equal names.

use chronolith_base::hash::HashMap;

use super::expr::Expr;
use super::select::{Field, Select};

/// Name of the column of times.
pub(crate) const TIME_COLUMN: &str = "time";

impl Field {
    /// Name of the column, before a number makes it unique: the alias, or what the expression reads.
    #[must_use]
    pub fn name(&self) -> String {
        self.alias.clone().unwrap_or_else(|| default_name(&self.expr))
    }
}

/// Name of a column without an alias: `mean` of `mean(a)`, `a_b` of `a + b`.
fn default_name(expr: &Expr) -> String {
    match expr.without_parens() {
        Expr::Call(call) => call.name.clone(),
        Expr::Ref(var) => var.name.clone(),
        chain @ Expr::Chain(_) => {
            let mut names = Vec::new();
            operand_names(chain, &mut names);
            names.join("_")
        }
        _ => String::new(),
    }
}

/// Pushes references and outermost functions in order of the text.
fn operand_names<'a>(expr: &'a Expr, names: &mut Vec<&'a str>) {
    match expr {
        Expr::Chain(chain) => {
            operand_names(&chain.first, names);
            chain.rest.iter().for_each(|(_, operand)| operand_names(operand, names));
        }
        Expr::Paren(inner) => operand_names(inner, names),
        Expr::Call(call) => names.push(&call.name),
        Expr::Ref(var) => names.push(&var.name),
        _ => {}
    }
}

impl Select {
    /// Fields that are columns of the result: the fields of SELECT and, without INTO, the tags and fields
    /// that `top()` and `bottom()` return with their values.
    #[must_use]
    pub fn column_fields(&self) -> Vec<Field> {
        column_fields(&self.fields, self.target.is_some())
    }

    /// Names of the columns, `time` first. Equal default names get a number: `mean`, `mean_1`.
    #[must_use]
    pub fn column_names(&self) -> Vec<String> {
        let mut names = vec![TIME_COLUMN.to_owned()];
        names.extend(unique_names(&self.column_fields()));
        names
    }
}

/// Columns of `fields`; `has_target` with INTO.
pub(crate) fn column_fields(fields: &[Field], has_target: bool) -> Vec<Field> {
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        columns.push(field.clone());
        if let Some(call) = field.expr.as_call()
            && !has_target
            && matches!(call.name.as_str(), "top" | "bottom")
        {
            let extra = call.args.iter().skip(1).filter(|arg| matches!(arg, Expr::Ref(_)));
            columns.extend(extra.map(|arg| Field { expr: arg.clone(), alias: None }));
        }
    }
    columns
}

/// Names of `columns`: aliases as they are, all others numbered where they are taken.
pub(crate) fn unique_names(columns: &[Field]) -> Vec<String> {
    let mut next_numbers: HashMap<String, usize> = HashMap::default();
    for alias in columns.iter().filter_map(|column| column.alias.as_ref()) {
        next_numbers.insert(alias.clone(), 1);
    }
    let mut names = Vec::with_capacity(columns.len());
    for column in columns {
        let mut name = column.name();
        if column.alias.is_none() {
            if let Some(&first_number) = next_numbers.get(&name) {
                let mut number = first_number;
                let numbered = loop {
                    let numbered = format!("{name}_{number}");
                    if !next_numbers.contains_key(&numbered) {
                        break numbered;
                    }
                    number += 1;
                };
                next_numbers.insert(name, number + 1);
                name = numbered;
            }
            *next_numbers.entry(name.clone()).or_insert(0) += 1;
        }
        names.push(name);
    }
    names
}
