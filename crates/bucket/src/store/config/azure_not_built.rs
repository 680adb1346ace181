//! Azure Blob Storage in a build without the feature `azure`: every URL of it is refused.

use std::sync::Arc;

use super::{Backend, StoreConfig, not_built};
use crate::error::BucketError;

/// Refuses the bucket.
pub(super) fn open(config: &StoreConfig, _: &str) -> Result<Arc<dyn Backend>, BucketError> {
    Err(not_built("azure", &config.url))
}
