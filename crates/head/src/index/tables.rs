//! Inverted index of one tenant: label pairs, postings, lookups, bulk load.
//!
//! Not here: samples (`series`), locking (`tenant`).

mod load;
mod lookup;
mod members;
mod order;
mod project;
mod rows;
mod tag_values;
mod tenant_index;
mod value_search;

pub(crate) use load::LoadScratch;
pub(crate) use lookup::IdSet;
pub use lookup::{Cardinality, LargestUses};
pub(crate) use order::sort_by_labels;
pub(crate) use project::{Groups, LeastRows};
pub(crate) use tag_values::FullTag;
pub(crate) use tenant_index::TenantIndex;
pub(crate) use value_search::ValuePosition;

#[cfg(test)]
mod tests;
