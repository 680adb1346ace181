//! Meaning of SELECT: checks what InfluxDB 1.8 checks before it knows any series, then, with the fields and
//! tags of the measurements, expands wildcards and assigns types.
//!
//! Invariants: a [`CheckedSelect`] has no `time` among its fields, no bounds of time in its condition, and
//! DISTINCT only as a call; what a subquery inherits is written out in it. Texts of errors are 1.8's.
//! Not here: the plan (`lowering`).

mod check;
mod checked;
mod dimension;
mod expand;
mod field;
mod function;
mod schema;
#[cfg(test)]
pub(crate) mod tests;
mod types;

pub use check::check_select;
pub use checked::{CheckedSelect, CheckedSource, Interval};
pub use expand::expand_select;
pub use function::{FunctionKind, function_kind};
pub use schema::Schema;
pub use types::type_of;
