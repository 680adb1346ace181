//! Variables of a SELECT: which names are columns of a subquery, which are tags.

use std::sync::Arc;

use chronolith_base::hash::HashSet;
use chronolith_exec::rows::plan::{Source, Variable};
use chronolith_model::query::ColumnType;
use chronolith_model::time::TimeUnit;

use super::names::Names;
use crate::ast::{DataType, Expr, VarRef};
use crate::semantics::CheckedSelect;

/// Name of a variable that no source has: `::field` of a tag, or the points of a column without a type.
const NO_FIELD: &str = "\0";

pub(super) struct Scope<'a> {
    /// Columns of all subqueries. A tag among them is a field of the outer query.
    columns: HashSet<Arc<str>>,
    /// Tags that subqueries group by.
    group_tags: HashSet<Arc<str>>,
    /// True if a name in the columns has a type. Without one, there are no rows.
    has_typed_column: bool,
    /// Casts to texts and booleans in calls of which no source has a value, as names with types.
    casts_without_values: HashSet<VarRef>,
    /// Width of the windows in nanoseconds, if there are some.
    pub(super) interval_ns: Option<i64>,
    /// Unit of the times of the store.
    pub(super) unit: TimeUnit,
    names: &'a Names,
}

impl<'a> Scope<'a> {
    /// The scope of a SELECT over `sources`.
    pub(super) fn new(
        select: &CheckedSelect,
        sources: &[Source],
        unit: TimeUnit,
        names: &'a Names,
    ) -> Scope<'a> {
        let mut columns = HashSet::default();
        let mut group_tags = HashSet::default();
        for source in sources {
            if let Source::Subquery(inner) = source {
                columns.extend(inner.columns.iter().map(|column| column.name.clone()));
                group_tags.extend(inner.group_tags.iter().cloned());
            }
        }
        let is_typed = |expr: &Expr| matches!(expr, Expr::Ref(var) if !is_untyped(var));
        let has_typed_column = select.fields.iter().any(|field| field.expr.any(&mut |expr| is_typed(expr)));
        let interval_ns = select.interval.map(|interval| interval.width_ns).filter(|width_ns| *width_ns > 0);
        let casts_without_values = HashSet::default();
        Scope { columns, group_tags, has_typed_column, casts_without_values, interval_ns, unit, names }
    }

    /// Sets the casts of which no source has a value: their calls have no points, of whatever type.
    pub(super) fn set_casts_without_values(&mut self, casts: HashSet<VarRef>) {
        self.casts_without_values = casts;
    }

    /// Returns true if no source has a value of the type to which a call casts its argument.
    pub(super) fn is_without_values(&self, var: &VarRef) -> bool {
        self.casts_without_values.contains(var)
    }

    /// Returns true if a name is a column of a subquery or a tag that it groups by.
    pub(super) fn is_of_subquery(&self, name: &str) -> bool {
        self.is_column(name) || self.group_tags.contains(name)
    }

    /// The shared form of a name.
    pub(super) fn name(&self, name: &str) -> Arc<str> {
        self.names.shared(name)
    }

    fn is_column(&self, name: &str) -> bool {
        self.columns.contains(name)
    }

    /// Returns true if no row has a value of the name: a tag with `::field`. Next to a name of a subquery,
    /// `::field` is no type: the name has the value that it has without.
    fn is_never_stored(&self, var: &VarRef) -> bool {
        var.kind == DataType::AnyField && !self.is_of_subquery(&var.name)
    }

    /// Returns true for a column of a subquery that has no type.
    fn is_untyped_column(&self, var: &VarRef) -> bool {
        is_untyped(var) && self.is_column(&var.name)
    }

    /// A value that no row has.
    pub(super) fn null(&self) -> Variable {
        Variable::Field { name: self.name(NO_FIELD), cast: None }
    }

    /// The value of a name in a column.
    pub(super) fn variable_of_column(&self, var: &VarRef) -> Variable {
        let may_be_null = var.kind == DataType::AnyField || self.is_untyped_column(var);
        if may_be_null && !self.has_typed_column { self.null() } else { self.variable(var) }
    }

    /// The value of a name in a row.
    fn variable(&self, var: &VarRef) -> Variable {
        if self.is_never_stored(var) {
            return self.null();
        }
        let name = self.name(&var.name);
        if var.kind == DataType::Tag && !self.is_column(&var.name) {
            return Variable::Tag { name };
        }
        Variable::Field { name, cast: column_type(var.kind) }
    }

    /// The value of a name in a condition, where a name that is no field is a tag.
    pub(super) fn variable_of_condition(&self, var: &VarRef) -> Variable {
        if var.kind == DataType::Unknown && !self.is_column(&var.name) {
            return Variable::Tag { name: self.name(&var.name) };
        }
        self.variable(var)
    }

    /// The points of a call; a tag has none, unless a subquery has it.
    pub(super) fn points(&self, var: &VarRef) -> Variable {
        // A column without a type has values, but no points.
        let is_without_values = self.is_without_values(var);
        let is_absent = self.is_untyped_column(var) || is_without_values || self.is_never_stored(var);
        let name = if is_absent { NO_FIELD } else { &var.name };
        let cast = match var.kind {
            // Without points, the type decides only that the number of `fill()` stands for the nulls.
            DataType::Tag if !self.is_of_subquery(&var.name) => Some(ColumnType::Float),
            _ if is_without_values => Some(ColumnType::Float),
            kind => column_type(kind),
        };
        Variable::Field { name: self.name(name), cast }
    }
}

/// Returns true if neither the text nor a source gives the name a type.
fn is_untyped(var: &VarRef) -> bool {
    matches!(var.kind, DataType::AnyField | DataType::Unknown)
}

fn column_type(kind: DataType) -> Option<ColumnType> {
    match kind {
        DataType::Float => Some(ColumnType::Float),
        DataType::Integer => Some(ColumnType::Integer),
        DataType::Unsigned => Some(ColumnType::Unsigned),
        DataType::String => Some(ColumnType::Text),
        DataType::Boolean => Some(ColumnType::Boolean),
        _ => None,
    }
}
