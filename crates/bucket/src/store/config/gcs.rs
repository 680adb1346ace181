//! Client of Google Cloud Storage. Compiled with the feature `gcs`.

use std::sync::Arc;

use object_store::gcp::GoogleCloudStorageBuilder;

use super::{Backend, StatusConnector, StoreConfig, no_retries};
use crate::error::BucketError;

/// Makes the client. Sends no request.
pub(super) fn open(config: &StoreConfig, bucket: &str) -> Result<Arc<dyn Backend>, BucketError> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_retry(no_retries())
        .with_http_connector(StatusConnector);
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    if let Some(path) = &config.credentials_file {
        builder = builder.with_service_account_path(path);
    }
    let builder = builder.with_client_options(config.client_options());
    let store = builder.build().map_err(|error| config.refused_settings(&error))?;
    Ok(Arc::new(store))
}
