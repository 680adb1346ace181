//! Failures of writes, which each protocol turns into a status and a text.

use chronolith_cluster::gateway::GatewayError;
use chronolith_ingest::added_labels::AddedLabelsTooLarge;
use chronolith_model::databases::CatalogError;
use chronolith_tsdb::WriteError;

/// Failure of a write. Samples that were applied before it are not acknowledged.
#[derive(Debug)]
pub enum WriteFailure<E> {
    /// The request could not be decoded.
    Decode(E),
    /// The store refused a batch, or could not make it durable.
    Store(StoreFailure),
}

/// A batch that the store refused.
#[derive(Debug, thiserror::Error)]
pub enum StoreFailure {
    /// The batch could not be applied or made durable.
    #[error("{error}")]
    Batch {
        /// Error of the store.
        error: WriteError,
        /// Limit that refused it, as metrics name it.
        limit: Option<&'static str>,
    },
    /// The store of the samples could not be created.
    #[error("{0}")]
    Catalog(#[from] CatalogError),
    /// The labels of the sender do not fit.
    #[error("{0}")]
    Labels(#[from] AddedLabelsTooLarge),
    /// The replicated log did not acknowledge the samples.
    #[error("{0}")]
    Log(GatewayError),
}

impl StoreFailure {
    /// Limit that refused the batch, as metrics name it.
    #[must_use]
    pub fn limit(&self) -> Option<&'static str> {
        match self {
            StoreFailure::Batch { limit, .. } => *limit,
            StoreFailure::Catalog(_) | StoreFailure::Labels(_) | StoreFailure::Log(_) => None,
        }
    }
}
