//! Memory of statements and of the plans that are made of them, for budgets.
//!
//! Upper bounds, not measurements: a field that the text contains is there as text, as an expression before
//! and after expansion, as a column of the plan and of the result. A field that a wildcard stands for is an
//! expression and a column of the plan per level of subqueries, its name is shared by all levels of the plan,
//! and tables of names exist for one level at a time.
//! Not here: memory of rows (`exec`).

use chronolith_exec::rows::plan::Column;

use crate::ast::{Expr, Field, Select, Source};

/// Bytes of one field of SELECT in all its forms, its name and expression aside.
pub(crate) const FIELD_BYTES: usize = 448;
/// Bytes of an entry of the tables of names of a level: types by name, expanded columns, names that are
/// taken, names of the columns of a subquery.
const LEVEL_FIELD_BYTES: usize = 192;
/// Fields between two checks of the deadline.
pub(crate) const FIELDS_PER_CHECK: usize = 1024;
/// Bytes of one part of an expression in all its forms.
const PART_BYTES: usize = 400;
/// Bytes of a source, a dimension or a subquery in all its forms.
const CLAUSE_BYTES: usize = 1024;
/// Bytes of an allocation besides its contents.
const ALLOCATION_BYTES: usize = 24;

/// Bytes of a name in one form.
pub(crate) fn name_bytes(name: &str) -> usize {
    size_of::<String>() + name.len() + ALLOCATION_BYTES
}

/// Bytes of a field that a wildcard stands for, at one level: its expression and its column of the plan.
pub(crate) fn expanded_bytes(name: &str) -> usize {
    size_of::<Field>() + size_of::<Column>() + name.len() + ALLOCATION_BYTES
}

/// Bytes of a field of one level in the tables of names of that level.
pub(crate) fn level_bytes(name: &str) -> usize {
    LEVEL_FIELD_BYTES + 4 * name_bytes(name)
}

/// Bytes of an expression in all its forms.
pub(crate) fn expr_bytes(expr: &Expr) -> usize {
    let mut bytes = 0;
    expr.any(&mut |part| {
        bytes += PART_BYTES
            + match part {
                Expr::Text(text) | Expr::Distinct(text) => 3 * text.len(),
                Expr::Ref(var) => 3 * var.name.len(),
                Expr::Regex(regex) => 3 * regex.pattern().len() + 2 * regex.program_bytes(),
                _ => 0,
            };
        false
    });
    bytes
}

/// Bytes of a SELECT with its subqueries and its plan, wildcards as they are written.
pub(crate) fn select_bytes(select: &Select) -> usize {
    let field = |expr: &Expr, alias: &Option<String>| {
        FIELD_BYTES + expr_bytes(expr) + alias.as_ref().map_or(0, |alias| 4 * name_bytes(alias))
    };
    let fields: usize = select.fields.iter().map(|one| field(&one.expr, &one.alias)).sum();
    let dimensions: usize =
        select.dimensions.iter().map(|dimension| CLAUSE_BYTES + expr_bytes(&dimension.expr)).sum();
    let sources: usize = select
        .sources
        .iter()
        .map(|source| match source {
            Source::Measurement(_) => CLAUSE_BYTES,
            Source::Select(inner) => select_bytes(inner),
        })
        .sum();
    CLAUSE_BYTES + fields + dimensions + sources + select.condition.as_ref().map_or(0, expr_bytes)
}
