//! Syntax tree of InfluxQL: statements, sources and expressions.
//!
//! Invariants: a chain of binary operators is flat, so that no walk over it recurses per operator; the depth
//! of everything else is bounded by the parser.
//! Not here: parsing (`syntax`), meaning (`semantics`).

mod columns;
mod expr;
mod keyword;
mod literal;
mod print;
mod privilege;
mod regex;
mod required;
mod schema;
mod select;
mod show;
mod statement;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use columns::{TIME_COLUMN, column_fields, unique_names};
pub use expr::{BinaryOp, Call, Chain, DataType, Expr, VarRef};
pub(crate) use keyword::keyword;
pub(crate) use literal::in_quotes;
pub use literal::{format_duration, format_duration_go, is_plain_ident, quote_ident, quote_text};
pub use privilege::Privilege;
pub use regex::Regex;
pub use required::ExecutionPrivilege;
pub use schema::{
    AlterRetentionPolicy, CreateContinuousQuery, CreateDatabase, CreateRetentionPolicy, CreateSubscription,
    CreateUser, Grant, PolicyOptions, Resample, SubscriptionMode,
};
pub use select::{
    Dimension, Field, Fill, FillNumber, Measurement, MeasurementName, OrderBy, Select, SortField, Source,
    Target, TargetName,
};
pub use show::{Cardinality, CardinalityOf, KeyMatch, Page, ShowSeries, ShowTagValues};
pub use statement::{Need, Statement};
