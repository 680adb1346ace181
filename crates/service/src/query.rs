//! Queries of all languages: what they share.

pub mod context;
pub mod family;
pub mod log;
pub(crate) mod lookback;
pub mod range_cache;
pub(crate) mod selection_limits;
pub mod selectors;
pub mod slow;
