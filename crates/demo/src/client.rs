//! Sends requests to a server, and compares what it stored with what the request has.
//!
//! Invariant: an answer other than the expected one is an error with its text.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ureq::Agent;
use ureq::http::Response;

use crate::request::{DATABASE, Protocol, Request};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than a server waits for its disk.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Texts of answers are cut off here.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Connection to a server.
pub(crate) struct Client {
    agent: Agent,
    url: String,
}

impl Client {
    pub(crate) fn new(url: &str) -> Client {
        let config = Agent::config_builder()
            .proxy(None)
            .user_agent(concat!("chronolith-demo/", env!("CARGO_PKG_VERSION")))
            // A refusal has its reason in the body.
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(RESPONSE_TIMEOUT))
            .timeout_recv_body(Some(RESPONSE_TIMEOUT));
        Client { agent: config.build().into(), url: url.trim_end_matches('/').to_owned() }
    }

    /// Returns true if the server is ready for requests.
    pub(crate) fn is_ready(&self) -> bool {
        self.agent.get(format!("{}/-/ready", self.url)).call().is_ok_and(|answer| answer.status() == 200)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The server cannot be reached, or it stores or refuses anything else than expected.
    pub(crate) fn send(&self, request: &Request) -> Result<()> {
        let path = path_of(request.protocol);
        let mut post = self.agent.post(format!("{}{path}", self.url));
        post = post.header("X-Scope-OrgID", request.tenant.name());
        for (name, value) in headers_of(request.protocol) {
            post = post.header(*name, *value);
        }
        let sent = match request.protocol {
            Protocol::CreateDatabase => {
                let statement = std::str::from_utf8(&request.body).context("a statement is text")?;
                post.send_form([("q", statement)])
            }
            _ => post.send(&request.body[..]),
        };
        let mut answer = sent.with_context(|| format!("{}{path}: is the server running there?", self.url))?;
        let text =
            answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
        check(request, &answer, text.trim()).with_context(|| format!("{}{path}", self.url))
    }
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

fn check<B>(request: &Request, answer: &Response<B>, text: &str) -> Result<()> {
    let status = answer.status().as_u16();
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
        let written =
            answer.headers().get(&header).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        ensure!(
            written == Some(sent),
            "tenant {}: {what}: {sent} to store, the server stored {written:?}: {text}",
            request.tenant.name()
        );
    }
    Ok(())
}
