//! Fetches of issuers' keys from OpenID Connect providers.
//!
//! Invariants: no request of a client waits for a fetch; both responses of a fetch are bounded in size, and
//! both together in time; no redirects, no proxy, no compression.
//! Not here: times of fetches, content and addresses (`service::access::jwt`).

use std::error::Error;
use std::time::Duration;

use chronolith_service::access::jwt::providers::{FetchedKeys, KeyFetch};
use reqwest::{Client, Response, StatusCode, header};
use tokio::runtime::Handle;

use crate::web::Web;

/// Time for both requests of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Client of the providers.
pub(super) struct KeyFetcher {
    runtime: Handle,
    /// Made for the first fetch: most servers have no use for it.
    client: Option<Client>,
}

impl KeyFetcher {
    /// Makes a client whose requests run on `runtime`.
    pub(super) fn new(runtime: Handle) -> KeyFetcher {
        KeyFetcher { runtime, client: None }
    }

    /// Starts the fetches that are due, and waits for none of them.
    pub(super) fn start_due(&mut self, web: &Web) {
        for due in web.service.access.begin_key_fetches(web.service.env.clock.mono_ns()) {
            match self.client() {
                Ok(client) => drop(self.runtime.spawn(run(client, due, FETCH_TIMEOUT))),
                Err(why) => due.finish(Err(why)),
            }
        }
    }

    fn client(&mut self) -> Result<Client, String> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = new_client().map_err(|error| format!("making an HTTP client: {}", reason(error)))?;
        Ok(self.client.insert(client).clone())
    }
}

/// Makes a client that checks certificates as the system does: providers inside a company have certificates
/// of its own authority.
fn new_client() -> reqwest::Result<Client> {
    // A second installation, by a client of a bucket, has no effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .user_agent(concat!("chronolith/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .http1_only()
        // The next fetch is minutes away.
        .pool_max_idle_per_host(0)
        .build()
}

/// Makes a fetch and ends it.
async fn run(client: Client, due: KeyFetch, timeout: Duration) {
    let fetched = tokio::time::timeout(timeout, fetch(&client, &due)).await;
    let late = |_| Err(format!("no response within {} s", timeout.as_secs_f64()));
    due.finish(fetched.unwrap_or_else(late));
}

/// Gets the document of the issuer, and the key set that it names.
async fn fetch(client: &Client, due: &KeyFetch) -> Result<FetchedKeys, String> {
    let document = get(client, &due.document_url()).await?;
    let keys = get(client, &due.keys_url(&document.body)?).await?;
    Ok(FetchedKeys { jwks: keys.body, max_age_s: keys.max_age_s })
}

/// A response with status 200.
struct Answer {
    body: Vec<u8>,
    max_age_s: Option<u64>,
}

async fn get(client: &Client, url: &str) -> Result<Answer, String> {
    let failed = |why: String| format!("{url}: {why}");
    let request = client.get(url).header(header::ACCEPT, "application/json");
    let response = request.send().await.map_err(|error| failed(reason(error)))?;
    // A redirect is no key set either: it could lead away from the host that the file names.
    if response.status() != StatusCode::OK {
        return Err(failed(format!("status {}, expected 200", response.status().as_u16())));
    }
    let cache_control = response.headers().get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let max_age_s = cache_control.and_then(max_age_s);
    Ok(Answer { body: read(response).await.map_err(failed)?, max_age_s })
}

async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let too_long = || format!("the response is longer than {RESPONSE_BYTES_MAX} bytes");
    if response.content_length().is_some_and(|bytes| bytes > RESPONSE_BYTES_MAX as u64) {
        return Err(too_long());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reason)? {
        if body.len() + chunk.len() > RESPONSE_BYTES_MAX {
            return Err(too_long());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns `max-age` of a `Cache-Control`; 0 if the response must not be kept.
fn max_age_s(cache_control: &str) -> Option<u64> {
    let directives = cache_control.split(',').map(|directive| directive.trim().to_ascii_lowercase());
    let seconds = directives.filter_map(|directive| match directive.as_str() {
        "no-store" | "no-cache" => Some(0),
        directive => directive.strip_prefix("max-age=")?.trim_matches('"').parse().ok(),
    });
    seconds.min()
}

/// Returns the first cause, such as a refused connection: the layers above add their names alone.
fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;
