//! The functions of the language: one table of names, parameters and implementations.
//!
//! Invariants: names, parameters and defaults are graphite-web's; an implementation gets bound arguments and
//! returns a value, and never panics on what a client sends.
//! Not here: the tree walk (`eval`), the listing of `/functions` (`output::functions`).

mod alias;
mod combine;
mod draw;
mod filter;
mod function;
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

pub(crate) use function::{Function, PointUse};

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
