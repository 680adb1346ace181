//! The functions of the language: one table of names, parameters and implementations.
//!
//! Invariants: names, parameters and defaults are graphite-web's; an implementation gets bound arguments and returns
//! a value, and never panics on what a client sends.
//! Not here: the tree walk (`eval`), the listing of `/functions` (`output::functions`).

mod alias;
mod combine;
mod draw;
mod filter;
mod gaps;
mod generate;
mod grid;
mod group;
mod holt_winters;
mod moving;
mod node_key;
mod percent;
mod percentile;
mod rate;
mod regression;
mod shift;
mod signature;
mod sort;
mod summarize;
#[cfg(test)]
mod tests;
mod transform;

use crate::error::EvalError;
use crate::parameters::{Bound, Parameter};
use crate::scope::Scope;
use crate::value::Value;

/// Implementation of a function.
pub(crate) type Implementation = fn(&mut Scope<'_>, &mut Bound) -> Result<Value, EvalError>;

/// One function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    /// Name in targets.
    pub name: &'static str,
    /// Group in `/functions`.
    pub group: Group,
    /// One sentence for `/functions`.
    pub description: &'static str,
    /// Parameters in order.
    pub parameters: &'static [Parameter],
    /// Implementation.
    pub run: Implementation,
}

/// Group of a function in `/functions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Several series to one.
    Combine,
    /// Each value to another.
    Transform,
    /// Statistics and forecasts.
    Calculate,
    /// Series by their values.
    FilterSeries,
    /// Values by themselves.
    FilterData,
    /// Order of series.
    Sorting,
    /// Names of series.
    Alias,
    /// Drawing.
    Graph,
    /// Everything else.
    Special,
}

impl Group {
    /// Name in `/functions`.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Group::Combine => "Combine",
            Group::Transform => "Transform",
            Group::Calculate => "Calculate",
            Group::FilterSeries => "Filter Series",
            Group::FilterData => "Filter Data",
            Group::Sorting => "Sorting",
            Group::Alias => "Alias",
            Group::Graph => "Graph",
            Group::Special => "Special",
        }
    }
}

const TABLES: [&[Function]; 16] = [
    alias::FUNCTIONS,
    combine::FUNCTIONS,
    draw::FUNCTIONS,
    filter::FUNCTIONS,
    gaps::FUNCTIONS,
    generate::FUNCTIONS,
    group::FUNCTIONS,
    holt_winters::FUNCTIONS,
    moving::FUNCTIONS,
    percent::FUNCTIONS,
    percentile::FUNCTIONS,
    rate::FUNCTIONS,
    regression::FUNCTIONS,
    shift::FUNCTIONS,
    sort::FUNCTIONS,
    summarize::FUNCTIONS,
];

/// All functions, by theme.
pub(crate) fn all() -> impl Iterator<Item = &'static Function> {
    TABLES.iter().copied().chain([transform::FUNCTIONS]).flatten()
}

/// Returns the function of this name.
#[must_use]
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    all().find(|function| function.name == name)
}
