//! Deletions of samples, as languages ask a store for them.

use crate::{Matcher, StoreId, TimeRange};

/// Samples of one store to delete.
#[derive(Debug, Clone)]
pub struct Deletion {
    /// The store.
    pub store: StoreId,
    /// Series must be selected by all matchers of one of them.
    pub selectors: Vec<Vec<Matcher>>,
    /// Times of the samples, in the unit of the store.
    pub range: TimeRange,
}
