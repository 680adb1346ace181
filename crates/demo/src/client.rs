//! Sends requests to a server, and compares what it stored with what the request has.
//!
//! Invariant: an answer other than the expected one is an error with its text.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reqwest::header::HeaderMap;
use tokio::runtime::Runtime;

use crate::request::{DATABASE, Protocol, Request};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than a server waits for its disk.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Texts of answers are cut off here.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Connections to a server, on a runtime of their own.
pub(crate) struct Client {
    runtime: Runtime,
    client: reqwest::Client,
    url: String,
}

impl Client {
    /// # Errors
    /// The system has no event queue left.
    pub(crate) fn new(url: &str) -> Result<Client> {
        // Without a provider the client does not start, though the demo's own servers have no TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .user_agent(concat!("chronolith-demo/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(RESPONSE_TIMEOUT)
            .build()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Client { runtime, client, url: url.trim_end_matches('/').to_owned() })
    }

    /// Returns true if the server is ready for requests.
    pub(crate) fn is_ready(&self) -> bool {
        let request = self.client.get(format!("{}/-/ready", self.url));
        // Timers of the request need the runtime, so it is sent within.
        let sent = async { request.send().await };
        self.runtime.block_on(sent).is_ok_and(|answer| answer.status() == 200)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The server cannot be reached, or it stores or refuses anything else than expected.
    pub(crate) fn send(&self, request: &Request) -> Result<()> {
        let path = path_of(request.protocol);
        let mut post = self.client.post(format!("{}{path}", self.url));
        post = post.header("X-Scope-OrgID", request.tenant.name());
        for (name, value) in headers_of(request.protocol) {
            post = post.header(*name, *value);
        }
        post = match request.protocol {
            Protocol::CreateDatabase => {
                let statement = std::str::from_utf8(&request.body).context("a statement is text")?;
                post.form(&[("q", statement)])
            }
            _ => post.body(request.body.clone()),
        };
        let answer = self.runtime.block_on(answer(post));
        let answer = answer.with_context(|| format!("{}{path}: is the server running there?", self.url))?;
        check(request, &answer).with_context(|| format!("{}{path}", self.url))
    }
}

/// Answer of a server.
struct Answer {
    status: u16,
    headers: HeaderMap,
    /// Start of the body.
    text: String,
}

async fn answer(request: reqwest::RequestBuilder) -> Result<Answer> {
    let mut response = request.send().await?;
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut bytes = Vec::new();
    // The status decides; a body that cannot be read costs the message only.
    while let Ok(Some(chunk)) = response.chunk().await {
        if bytes.len() < ANSWER_BYTES_MAX {
            bytes.extend_from_slice(&chunk);
        }
    }
    bytes.truncate(ANSWER_BYTES_MAX);
    Ok(Answer { status, headers, text: String::from_utf8_lossy(&bytes).trim().to_owned() })
}

fn path_of(protocol: Protocol) -> String {
    match protocol {
        Protocol::RemoteWrite => "/api/v1/write".to_owned(),
        Protocol::CreateDatabase => "/query".to_owned(),
        Protocol::Lines => format!("/write?db={DATABASE}&precision=s"),
        Protocol::Carbon => "/api/v1/carbon".to_owned(),
    }
}

fn headers_of(protocol: Protocol) -> &'static [(&'static str, &'static str)] {
    match protocol {
        Protocol::RemoteWrite => &[
            ("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
            ("Content-Encoding", "snappy"),
            ("X-Prometheus-Remote-Write-Version", "2.0.0"),
        ],
        Protocol::CreateDatabase => &[],
        Protocol::Lines | Protocol::Carbon => &[("Content-Type", "text/plain; charset=utf-8")],
    }
}

fn check(request: &Request, answer: &Answer) -> Result<()> {
    let Answer { status, headers, text } = answer;
    let status = *status;
    if status == 401 {
        bail!("status 401: {text}; start the server with --multitenancy");
    }
    let is_expected = if request.refused_count > 0 { status == 400 } else { status / 100 == 2 };
    ensure!(is_expected, "tenant {}: status {status}: {text}", request.tenant.name());
    if request.protocol != Protocol::RemoteWrite {
        return Ok(());
    }
    let stored = request.stored;
    let counts =
        [("Samples", stored.floats), ("Histograms", stored.histograms), ("Exemplars", stored.exemplars)];
    for (what, sent) in counts {
        let header = format!("X-Prometheus-Remote-Write-{what}-Written");
        let written = headers.get(&header).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        ensure!(
            written == Some(sent),
            "tenant {}: {what}: {sent} to store, the server stored {written:?}: {text}",
            request.tenant.name()
        );
    }
    Ok(())
}
