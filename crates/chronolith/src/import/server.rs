//! Running server that an import writes to over HTTP.
//!
//! Invariants: a request is repeated while the server is away or overloaded, for [`RETRY_FOR_NS`] at most;
//! every failure names the address.
//! Not here: content of requests (`whisper_server`, `graphite_events`, `graphite_tags`).

use std::time::Duration;

use anyhow::bail;
use chronolith_base::Env;
use reqwest::RequestBuilder;

use crate::client::{self, HttpClient};

/// Time after which a server that is away ends the import.
const RETRY_FOR_NS: u64 = 60_000_000_000;
/// First pause before a request is repeated; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest time for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(180);
/// Bytes of a response that are read at most.
const RESPONSE_BYTES_MAX: u64 = 4 << 20;

/// The server that is written to.
pub(super) struct TargetServer {
    pub(super) env: Env,
    pub(super) url: String,
    pub(super) tenant: Option<String>,
    client: HttpClient,
}

/// Body of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    Lines(&'a str),
    Json(&'a str),
    Form(&'a [(&'a str, &'a str)]),
}

/// Failures after which a request is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// All: to send it again changes nothing.
    Always,
    /// A refusal of an overloaded server alone: a request whose response is lost may have been carried out.
    WhenOverloaded,
}

/// Response of a server that is there and not overloaded.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) text: String,
}

impl TargetServer {
    pub(super) fn new(env: &Env, url: String, tenant: Option<String>) -> anyhow::Result<TargetServer> {
        Ok(TargetServer { env: env.clone(), url, tenant, client: HttpClient::new(RESPONSE_TIMEOUT)? })
    }

    /// Sends lines; returns the text of the server if it has refused some of them.
    pub(super) fn send_lines(&self, body: &str) -> anyhow::Result<Option<String>> {
        let path = "/api/v1/carbon";
        let Response { status, text } = self.post(path, Body::Lines(body), Repeat::Always)?;
        match status {
            200 | 204 => Ok(None),
            400 => Ok(Some(text)),
            _ => bail!("writing to {}: status {status}: {text}", client::join(&self.url, path)),
        }
    }

    /// Sends a request; one that the server cannot answer is repeated.
    pub(super) fn post(&self, path: &str, body: Body<'_>, repeat: Repeat) -> anyhow::Result<Response> {
        let url = client::join(&self.url, path);
        let start_ns = self.env.clock.mono_ns();
        let mut pause = PAUSE_FIRST;
        loop {
            let (failure, is_overload) = match self.attempt(&url, body) {
                Ok(Response { status, text }) if status == 429 || status >= 500 => {
                    (format!("status {status}: {text}"), matches!(status, 429 | 503))
                }
                Ok(response) => return Ok(response),
                Err(error) => (error.to_string(), false),
            };
            let is_over = self.env.clock.mono_ns().saturating_sub(start_ns) > RETRY_FOR_NS;
            if is_over || !(is_overload || repeat == Repeat::Always) {
                bail!("writing to {url}: {failure}; running the import again continues it");
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn attempt(&self, url: &str, body: Body<'_>) -> std::io::Result<Response> {
        let mut request = self.client.post(url);
        if let Some(tenant) = &self.tenant {
            request = request.header("X-Scope-OrgID", tenant);
        }
        let typed = |request: RequestBuilder, kind: &str, text: &str| {
            request.header("Content-Type", kind).body(text.to_owned())
        };
        let request = match body {
            Body::Lines(text) => typed(request, "text/plain; charset=utf-8", text),
            Body::Json(text) => typed(request, "application/json", text),
            Body::Form(pairs) => request.form(pairs),
        };
        let mut response = self.client.send(request)?;
        let text = match response.read_all(RESPONSE_BYTES_MAX) {
            Ok(body) => String::from_utf8_lossy(&body).into_owned(),
            Err(error) => error.to_string(),
        };
        Ok(Response { status: response.status(), text })
    }
}
