//! Client of Azure Blob Storage. Compiled with the feature `azure`.

use std::sync::Arc;

use object_store::azure::MicrosoftAzureBuilder;

use super::{Backend, StatusConnector, StoreConfig, no_retries};
use crate::error::BucketError;

/// Makes the client. Sends no request.
pub(super) fn open(config: &StoreConfig, container: &str) -> Result<Arc<dyn Backend>, BucketError> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_retry(no_retries())
        .with_http_connector(StatusConnector);
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if let Some(account) = &config.access_key_id {
        builder = builder.with_account(account);
    }
    if let Some(key) = &config.secret_access_key {
        builder = builder.with_access_key(key);
    }
    let builder = builder.with_client_options(config.client_options());
    let store = builder.build().map_err(|error| config.refused_settings(&error))?;
    Ok(Arc::new(store))
}
