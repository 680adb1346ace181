//! Expansion of wildcards and regexes, and types of references, from the fields and tags of the sources.
//!
//! Invariants: names are in ascending order, a field before a tag of the same name.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::checked::{CheckedSelect, CheckedSource};
use super::schema::Schema;
use super::types::type_of;
use crate::ast::{Call, DataType, Dimension, Expr, Field, Regex, VarRef};
use crate::condition::check_operands;
use crate::error::SemanticError;
use crate::footprint::{FIELD_BYTES, FIELDS_PER_CHECK, expanded_bytes, expr_bytes, level_bytes, name_bytes};

/// Types by field, and tags, of some sources.
#[derive(Default)]
struct Names {
    fields: BTreeMap<String, DataType>,
    tags: BTreeSet<String>,
}

/// Expands wildcards of fields and GROUP BY, and sets the type of each reference that has none: of a field
/// the type of the highest rank, else a tag; unknown if there is neither.
///
/// # Errors
/// Errors of the schema, and [`SemanticError`] for expressions with operands that their operators cannot
/// have.
pub fn expand_select<S: Schema>(select: CheckedSelect, schema: &S) -> Result<CheckedSelect, S::Error>
where
    S::Error: From<SemanticError>,
{
    let expanded = expand(select, schema)?;
    for (idx, field) in expanded.fields.iter().enumerate() {
        if idx.is_multiple_of(FIELDS_PER_CHECK) {
            schema.reserve(0)?;
        }
        type_of(&field.expr)?;
    }
    check_conditions(&expanded)?;
    Ok(expanded)
}

/// Refuses conditions that are constants and no booleans, after all other errors, as InfluxDB does.
fn check_conditions(select: &CheckedSelect) -> Result<(), SemanticError> {
    select.condition.as_ref().map_or(Ok(()), check_operands)?;
    select.sources.iter().try_for_each(|source| match source {
        CheckedSource::Select(inner) => check_conditions(inner),
        CheckedSource::Measurement(_) => Ok(()),
    })
}

fn expand<S: Schema>(mut select: CheckedSelect, schema: &S) -> Result<CheckedSelect, S::Error>
where
    S::Error: From<SemanticError>,
{
    let mut sources = Vec::with_capacity(select.sources.len());
    for source in select.sources {
        sources.push(match source {
            CheckedSource::Select(inner) => CheckedSource::Select(Box::new(expand(*inner, schema)?)),
            measurement @ CheckedSource::Measurement(_) => measurement,
        });
    }
    select.sources = sources;
    let names = names_of(&select.sources, schema)?;
    let typed = &mut |expr: Expr| -> Result<Expr, S::Error> { Ok(with_type(expr, &names)) };
    for (idx, field) in select.fields.iter_mut().enumerate() {
        if idx.is_multiple_of(FIELDS_PER_CHECK) {
            schema.reserve(0)?;
        }
        field.expr = std::mem::replace(&mut field.expr, Expr::Nil).try_map(typed)?;
    }
    select.condition = select.condition.map(|condition| condition.try_map(typed)).transpose()?;
    let has_wildcard_dimension = select.dimensions.iter().any(|dimension| is_wildcard(&dimension.expr));
    if select.fields.iter().any(|field| has_wildcard(&field.expr)) {
        let columns = wildcard_columns(&select, &names, has_wildcard_dimension);
        schema.reserve(0)?;
        let columns_bytes: usize = columns.iter().map(|var| expanded_bytes(&var.name)).sum();
        let mut fields = Vec::with_capacity(select.fields.len());
        for (idx, field) in select.fields.into_iter().enumerate() {
            let is_expanded = has_wildcard(&field.expr);
            // Each column of a call has the expression of the wildcard, and a name of its own.
            let own = match &field.expr {
                Expr::Wildcard(_) | Expr::Regex(_) => 0,
                call => FIELD_BYTES + expr_bytes(call) + 4 * name_bytes(&field.name()),
            };
            let bytes = columns_bytes.saturating_add(columns.len().saturating_mul(own));
            if is_expanded || idx.is_multiple_of(FIELDS_PER_CHECK) {
                schema.reserve(if is_expanded { bytes } else { 0 })?;
            }
            expand_field(field, &columns, &mut fields)?;
        }
        select.fields = fields;
    }
    if has_wildcard_dimension {
        let of_all: usize = names.tags.iter().map(|tag| name_bytes(tag)).sum();
        let wildcards = select.dimensions.iter().filter(|dimension| is_wildcard(&dimension.expr)).count();
        schema.reserve(of_all.saturating_mul(2).saturating_mul(wildcards))?;
        select.dimensions = expand_dimensions(select.dimensions, &names.tags)?;
    }
    Ok(select)
}

fn is_wildcard(expr: &Expr) -> bool {
    matches!(expr, Expr::Wildcard(_) | Expr::Regex(_))
}

fn has_wildcard(expr: &Expr) -> bool {
    expr.any(&mut is_wildcard)
}

/// Fields and tags of sources. Columns of a subquery are its fields, and its tags are the tags that it groups
/// by.
fn names_of<S: Schema>(sources: &[CheckedSource], schema: &S) -> Result<Names, S::Error>
where
    S::Error: From<SemanticError>,
{
    let mut names = Names::default();
    for source in sources {
        schema.reserve(0)?;
        match source {
            CheckedSource::Measurement(measurement) => {
                for (idx, (name, kind)) in schema.fields(measurement)?.into_iter().enumerate() {
                    if idx.is_multiple_of(FIELDS_PER_CHECK) {
                        schema.reserve(0)?;
                    }
                    names.add_field(name, kind);
                }
                names.tags.extend(schema.tag_keys(measurement)?);
            }
            CheckedSource::Select(select) => {
                schema.reserve_level(select.fields.iter().map(|field| level_bytes(&field.name())).sum())?;
                for (idx, field) in select.fields.iter().enumerate() {
                    if idx.is_multiple_of(FIELDS_PER_CHECK) {
                        schema.reserve(0)?;
                    }
                    names.add_field(field.name(), type_of(&field.expr).unwrap_or_default());
                }
                let tags = select.dimensions.iter().filter_map(|dimension| dimension.expr.as_ref());
                names.tags.extend(tags.map(|var| var.name.clone()));
            }
        }
    }
    Ok(names)
}

impl Names {
    fn add_field(&mut self, name: String, kind: DataType) {
        let known = self.fields.entry(name).or_default();
        if kind.rank() < known.rank() {
            *known = kind;
        }
    }
}

/// Sets the type of a reference without a cast to a type.
fn with_type(expr: Expr, names: &Names) -> Expr {
    let Expr::Ref(mut var) = expr else { return expr };
    if !matches!(var.kind, DataType::Unknown | DataType::AnyField) {
        return Expr::Ref(var);
    }
    let is_tag = names.tags.contains(&var.name);
    let kind = match names.fields.get(&var.name) {
        Some(DataType::Unknown) | None if is_tag => DataType::Tag,
        Some(kind) => *kind,
        None => DataType::Unknown,
    };
    if !(kind == DataType::Tag && var.kind == DataType::AnyField) {
        var.kind = kind;
    }
    Expr::Ref(var)
}

/// Columns that `*` stands for: fields and, unless GROUP BY has a wildcard too, the tags that are not grouped
/// by.
fn wildcard_columns(select: &CheckedSelect, names: &Names, has_wildcard_dimension: bool) -> Vec<VarRef> {
    let mut columns: Vec<VarRef> =
        names.fields.iter().map(|(name, kind)| VarRef { name: name.clone(), kind: *kind }).collect();
    if columns.is_empty() || has_wildcard_dimension {
        return columns;
    }
    let grouped: HashSet<&str> = select
        .dimensions
        .iter()
        .filter_map(|dimension| dimension.expr.as_ref())
        .map(|var| var.name.as_str())
        .collect();
    let tags = names.tags.iter().filter(|tag| !grouped.contains(tag.as_str()));
    columns.extend(tags.map(|tag| VarRef { name: tag.clone(), kind: DataType::Tag }));
    columns.sort_by(|left, right| left.name.cmp(&right.name).then(left.kind.cmp(&right.kind)));
    columns
}

/// A matcher of names.
fn matcher(regex: &Regex) -> Result<impl Fn(&str) -> bool + use<>, SemanticError> {
    let compiled = regex.compile().map_err(|error| SemanticError::new(error.to_string()))?;
    Ok(move |name: &str| compiled.is_match(name))
}

fn expand_field(field: Field, columns: &[VarRef], expanded: &mut Vec<Field>) -> Result<(), SemanticError> {
    let reference = |var: &VarRef| Field { expr: Expr::Ref(var.clone()), alias: None };
    match &field.expr {
        Expr::Wildcard(kind) => {
            let is_selected = |var: &&VarRef| match kind {
                DataType::AnyField => var.kind != DataType::Tag,
                DataType::Tag => var.kind == DataType::Tag,
                _ => true,
            };
            expanded.reserve_exact(columns.iter().filter(is_selected).count());
            expanded.extend(columns.iter().filter(is_selected).map(reference));
        }
        Expr::Regex(regex) => {
            let is_match = matcher(regex)?;
            expanded.extend(columns.iter().filter(|var| is_match(&var.name)).map(reference));
        }
        Expr::Call(call) => expand_call(&field, call, columns, expanded)?,
        Expr::Chain(_) => {
            let mut found = None;
            field.expr.any(&mut |expr| {
                found = match expr {
                    Expr::Wildcard(_) => Some("wildcard"),
                    Expr::Regex(_) => Some("regex field"),
                    _ => None,
                };
                found.is_some()
            });
            if let Some(what) = found {
                return Err(SemanticError::new(format!(
                    "unsupported expression with {what}: {}",
                    field.expr
                )));
            }
            expanded.push(field);
        }
        _ => expanded.push(field),
    }
    Ok(())
}

/// Adds one call per field of a type that the innermost function takes: `mean(*)` to `mean_a`, `mean_b`.
fn expand_call(
    field: &Field,
    call: &Call,
    columns: &[VarRef],
    expanded: &mut Vec<Field>,
) -> Result<(), SemanticError> {
    let mut innermost = call;
    while let Some(Expr::Call(inner)) = innermost.args.first() {
        innermost = inner;
    }
    let is_match: Box<dyn Fn(&str) -> bool> = match innermost.args.first() {
        Some(Expr::Wildcard(DataType::Tag)) => {
            return Err(SemanticError::new(format!("unable to use tag wildcard in {}()", innermost.name)));
        }
        Some(Expr::Wildcard(_)) => Box::new(|_: &str| true),
        Some(Expr::Regex(regex)) => Box::new(matcher(regex)?),
        _ => {
            expanded.push(field.clone());
            return Ok(());
        }
    };
    for var in columns.iter().filter(|var| takes(&innermost.name, var.kind) && is_match(&var.name)) {
        let expr = Expr::Call(with_field(call, var));
        expanded.push(Field { expr, alias: Some(format!("{}_{}", field.name(), var.name)) });
    }
    Ok(())
}

/// Returns true if a function expands to fields of the type.
fn takes(function: &str, kind: DataType) -> bool {
    match kind {
        DataType::Float | DataType::Integer => true,
        DataType::Unsigned => !matches!(function, "holt_winters" | "holt_winters_with_fit"),
        DataType::String => {
            matches!(function, "count" | "first" | "last" | "distinct" | "elapsed" | "mode" | "sample")
        }
        DataType::Boolean => matches!(
            function,
            "count" | "first" | "last" | "distinct" | "elapsed" | "mode" | "sample" | "min" | "max"
        ),
        _ => false,
    }
}

/// The call with `var` in the place of the wildcard.
fn with_field(call: &Call, var: &VarRef) -> Call {
    let mut replaced = call.clone();
    if let Some(first) = replaced.args.first_mut() {
        *first = match first {
            Expr::Call(inner) => Expr::Call(with_field(inner, var)),
            _ => Expr::Ref(var.clone()),
        };
    }
    replaced
}

fn expand_dimensions(
    dimensions: Vec<Dimension>,
    tags: &BTreeSet<String>,
) -> Result<Vec<Dimension>, SemanticError> {
    let mut expanded = Vec::with_capacity(dimensions.len());
    for dimension in dimensions {
        let of = |tag: &String| Dimension { expr: Expr::reference(tag) };
        match &dimension.expr {
            Expr::Wildcard(_) => expanded.extend(tags.iter().map(of)),
            Expr::Regex(regex) => {
                let is_match = matcher(regex)?;
                expanded.extend(tags.iter().filter(|tag| is_match(tag)).map(of));
            }
            _ => expanded.push(dimension),
        }
    }
    Ok(expanded)
}
