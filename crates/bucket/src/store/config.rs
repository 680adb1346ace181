//! Settings of the bucket: URL, endpoint, credentials, timeouts, limits.
//!
//! Invariants: an error names the setting, its valid values and the value found; secrets are in no error and
//! no debug output.
//! Not here: command-line flags (`chronolith`).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use object_store::aws::AmazonS3Builder;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use tokio::runtime::Handle;
use url::Url;

use super::backend::Backend;
use super::http::StatusConnector;
use super::local::LocalDir;
use crate::error::BucketError;
use crate::layout::BucketLayout;

/// Time to the end of an answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests at once of the process.
pub const REQUESTS_MAX: usize = 128;
/// Requests at once of one tenant.
pub const TENANT_REQUESTS_MAX: usize = 64;

const URL_FORMS: &str =
    "s3://BUCKET[/PREFIX], gs://BUCKET[/PREFIX], az://CONTAINER[/PREFIX], file:///DIR or memory://";

/// Location of the bucket and the limits of requests to it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// `s3://`, `gs://`, `az://`, `file:///` or `memory://` URL.
    pub url: String,
    /// Arrangement of its blocks.
    pub layout: BucketLayout,
    /// URL of the server, for stores compatible with S3, Azure or GCS.
    pub endpoint: Option<String>,
    /// Region of S3.
    pub region: Option<String>,
    /// `https://BUCKET.HOST/` instead of `https://HOST/BUCKET/`.
    pub is_virtual_hosted: bool,
    /// Allows an endpoint without TLS.
    pub allow_http: bool,
    /// Access key id of S3, account of Azure. Without it, environment variables and the instance metadata
    /// service are asked.
    pub access_key_id: Option<String>,
    /// Secret access key of S3, access key of Azure.
    pub secret_access_key: Option<String>,
    /// Service account file of GCS.
    pub credentials_file: Option<String>,
    /// Time to the end of one answer.
    pub request_timeout: Duration,
    /// Time to a connection.
    pub connect_timeout: Duration,
    /// Requests, and so connections, at once.
    pub requests_max: usize,
    /// Requests at once of one tenant.
    pub tenant_requests_max: usize,
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig")
            .field("url", &self.url)
            .field("layout", &self.layout)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("is_virtual_hosted", &self.is_virtual_hosted)
            .field("request_timeout", &self.request_timeout)
            .field("requests_max", &self.requests_max)
            .field("tenant_requests_max", &self.tenant_requests_max)
            .finish_non_exhaustive()
    }
}

/// A store and the key prefix of its URL.
pub(crate) struct Opened {
    pub(crate) backend: Arc<dyn Backend>,
    /// Set for a local directory.
    pub(crate) local: Option<LocalDir>,
    /// Prefix of all keys, without slashes at its ends; may be empty.
    pub(crate) prefix: String,
}

/// Parts of the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Location {
    S3 { bucket: String },
    Gcs { bucket: String },
    Azure { container: String },
    File { dir: PathBuf },
    Memory,
}

impl StoreConfig {
    /// Settings for `url`, all others at their defaults.
    #[must_use]
    pub fn new(url: &str) -> StoreConfig {
        StoreConfig {
            url: url.to_owned(),
            layout: BucketLayout::default(),
            endpoint: None,
            region: None,
            is_virtual_hosted: false,
            allow_http: false,
            access_key_id: None,
            secret_access_key: None,
            credentials_file: None,
            request_timeout: REQUEST_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            requests_max: REQUESTS_MAX,
            tenant_requests_max: TENANT_REQUESTS_MAX,
        }
    }

    /// Checks all settings and makes the client. Sends no request.
    ///
    /// # Errors
    /// [`BucketError::Config`].
    pub(crate) fn open(&self, env: &Env, handle: &Handle) -> Result<Opened, BucketError> {
        self.check_limits()?;
        let (location, prefix) = parse_url(&self.url)?;
        self.check_endpoint()?;
        let backend: Arc<dyn Backend> = match &location {
            Location::S3 { bucket } => Arc::new(self.s3(bucket)?),
            Location::Gcs { bucket } => self.gcs(bucket)?,
            Location::Azure { container } => self.azure(container)?,
            Location::Memory => Arc::new(InMemory::new()),
            Location::File { dir } => {
                let local = LocalDir::open(env, dir.clone(), handle.clone()).map_err(|error| {
                    invalid("bucket", "an existing directory", format!("{}: {error}", dir.display()))
                })?;
                return Ok(Opened { backend: Arc::new(local.clone()), local: Some(local), prefix });
            }
        };
        Ok(Opened { backend, local: None, prefix })
    }

    fn check_limits(&self) -> Result<(), BucketError> {
        let counts = [
            ("bucket.requests-max", self.requests_max),
            ("bucket.tenant-requests-max", self.tenant_requests_max),
        ];
        for (setting, count) in counts {
            if !(1..=65_536).contains(&count) {
                return Err(invalid(setting, "1 to 65536", count.to_string()));
            }
        }
        let timeouts = [
            ("bucket.request-timeout", self.request_timeout),
            ("bucket.connect-timeout", self.connect_timeout),
        ];
        for (setting, timeout) in timeouts {
            if timeout < Duration::from_millis(100) || timeout > Duration::from_secs(3600) {
                return Err(invalid(setting, "100ms to 1h", format!("{timeout:?}")));
            }
        }
        Ok(())
    }

    fn check_endpoint(&self) -> Result<(), BucketError> {
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        let expected = "an http:// or https:// URL";
        let url = Url::parse(endpoint).map_err(|_| invalid("bucket.endpoint", expected, endpoint.clone()))?;
        match url.scheme() {
            "https" => Ok(()),
            "http" if self.allow_http => Ok(()),
            "http" => {
                Err(invalid("bucket.endpoint", "https:// unless bucket.allow-http is set", endpoint.clone()))
            }
            _ => Err(invalid("bucket.endpoint", expected, endpoint.clone())),
        }
    }

    fn client_options(&self) -> ClientOptions {
        // The TLS library asks for the process's provider; a second installation has no effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        ClientOptions::new()
            .with_allow_http(self.allow_http)
            .with_timeout(self.request_timeout)
            .with_connect_timeout(self.connect_timeout)
            .with_pool_max_idle_per_host(self.requests_max)
    }

    fn s3(&self, bucket: &str) -> Result<object_store::aws::AmazonS3, BucketError> {
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_virtual_hosted_style_request(self.is_virtual_hosted)
            .with_retry(no_retries())
            // Servers compatible with S3 do not all have it.
            .with_disable_bulk_delete(true)
            .with_http_connector(StatusConnector);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        match (&self.access_key_id, &self.secret_access_key) {
            (Some(id), Some(secret)) => {
                builder = builder.with_access_key_id(id).with_secret_access_key(secret);
            }
            (None, None) => {}
            _ => return Err(one_key_without_the_other()),
        }
        let builder = builder.with_client_options(self.client_options());
        builder.build().map_err(|error| self.refused_settings(&error))
    }

    #[cfg(feature = "gcs")]
    fn gcs(&self, bucket: &str) -> Result<Arc<dyn Backend>, BucketError> {
        let mut builder = object_store::gcp::GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(bucket)
            .with_retry(no_retries())
            .with_http_connector(StatusConnector);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_base_url(endpoint);
        }
        if let Some(path) = &self.credentials_file {
            builder = builder.with_service_account_path(path);
        }
        let builder = builder.with_client_options(self.client_options());
        let store = builder.build().map_err(|error| self.refused_settings(&error))?;
        Ok(Arc::new(store))
    }

    #[cfg(not(feature = "gcs"))]
    fn gcs(&self, _: &str) -> Result<Arc<dyn Backend>, BucketError> {
        Err(not_built("gcs", &self.url))
    }

    #[cfg(feature = "azure")]
    fn azure(&self, container: &str) -> Result<Arc<dyn Backend>, BucketError> {
        let mut builder = object_store::azure::MicrosoftAzureBuilder::from_env()
            .with_container_name(container)
            .with_retry(no_retries())
            .with_http_connector(StatusConnector);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if let Some(account) = &self.access_key_id {
            builder = builder.with_account(account);
        }
        if let Some(key) = &self.secret_access_key {
            builder = builder.with_access_key(key);
        }
        let builder = builder.with_client_options(self.client_options());
        let store = builder.build().map_err(|error| self.refused_settings(&error))?;
        Ok(Arc::new(store))
    }

    #[cfg(not(feature = "azure"))]
    fn azure(&self, _: &str) -> Result<Arc<dyn Backend>, BucketError> {
        Err(not_built("azure", &self.url))
    }

    fn refused_settings(&self, error: &object_store::Error) -> BucketError {
        invalid("bucket", "settings that the storage client accepts", format!("{}: {error}", self.url))
    }
}

fn no_retries() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}

fn invalid(setting: &'static str, expected: &str, found: String) -> BucketError {
    BucketError::Config { setting, expected: expected.to_owned(), found }
}

/// Refuses a bucket of a provider whose client this build leaves out.
#[cfg_attr(all(feature = "azure", feature = "gcs"), allow(dead_code, reason = "builds without one of them"))]
fn not_built(feature: &'static str, url: &str) -> BucketError {
    invalid("bucket", &format!("a store of this build, which lacks the feature `{feature}`"), url.to_owned())
}

fn one_key_without_the_other() -> BucketError {
    let found = "one of them".to_owned();
    invalid("bucket.access-key-id", "both access key id and secret access key, or neither", found)
}

fn parse_url(text: &str) -> Result<(Location, String), BucketError> {
    let expected = |found: &str| invalid("bucket", URL_FORMS, found.to_owned());
    let Some((scheme, rest)) = text.split_once("://") else { return Err(expected(text)) };
    if scheme == "file" {
        // A directory is taken as it is written: no percent-encoding, no host.
        let dir = PathBuf::from(rest);
        return if dir.is_absolute() {
            Ok((Location::File { dir }, String::new()))
        } else {
            Err(expected(text))
        };
    }
    let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains(['@', '?', '#']) || (host.is_empty() != (scheme == "memory")) {
        // No value: a URL with a user may have a password.
        return Err(expected(&format!("{scheme}://...")));
    }
    let host = host.to_owned();
    let location = match scheme {
        "s3" => Location::S3 { bucket: host },
        "gs" => Location::Gcs { bucket: host },
        "az" => Location::Azure { container: host },
        "memory" => Location::Memory,
        _ => return Err(expected(text)),
    };
    let prefix = prefix.trim_end_matches('/');
    let is_valid = prefix.is_empty() || Path::parse(prefix).is_ok_and(|parsed| parsed.as_ref() == prefix);
    if is_valid { Ok((location, prefix.to_owned())) } else { Err(expected(text)) }
}

#[cfg(test)]
mod tests;
