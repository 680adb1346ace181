//! Running server that lines are sent to.
//!
//! Invariants: a request is repeated while the server is away or overloaded, for [`RETRY_FOR_NS`] at most;
//! every failure names the address.
//! Not here: the lines (`whisper_server`).

use std::time::Duration;

use anyhow::bail;
use chronolith_base::Env;
use ureq::Agent;

use crate::client;

/// Time after which a server that is away ends the import.
const RETRY_FOR_NS: u64 = 60_000_000_000;
/// First pause before a request is repeated; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest time for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(180);
/// Bytes of an error response that are read at most.
const ERROR_BYTES_MAX: u64 = 1 << 16;

/// The server that is written to.
pub(super) struct Target {
    pub(super) env: Env,
    pub(super) url: String,
    pub(super) tenant: Option<String>,
    agent: Agent,
}

impl Target {
    pub(super) fn new(env: &Env, url: String, tenant: Option<String>) -> Target {
        Target { env: env.clone(), url, tenant, agent: client::agent_with(RESPONSE_TIMEOUT) }
    }

    /// Sends lines; returns the text of the server if it has refused some of them.
    pub(super) fn send_lines(&self, body: &str) -> anyhow::Result<Option<String>> {
        let url = client::join(&self.url, "/api/v1/carbon");
        let start_ns = self.env.clock.mono_ns();
        let mut pause = PAUSE_FIRST;
        loop {
            let mut request = self.agent.post(&url).content_type("text/plain; charset=utf-8");
            if let Some(tenant) = &self.tenant {
                request = request.header("X-Scope-OrgID", tenant);
            }
            let failure = match request.send(body) {
                Ok(mut response) => {
                    let status = response.status().as_u16();
                    let text = response.body_mut().with_config().limit(ERROR_BYTES_MAX).read_to_string();
                    let text = text.unwrap_or_else(|error| error.to_string());
                    match status {
                        200 | 204 => return Ok(None),
                        400 => return Ok(Some(text)),
                        429 | 500.. => format!("status {status}: {text}"),
                        _ => bail!("writing to {url}: status {status}: {text}"),
                    }
                }
                Err(error) => error.to_string(),
            };
            if self.env.clock.mono_ns().saturating_sub(start_ns) > RETRY_FOR_NS {
                bail!("writing to {url}: {failure}; running the import again continues it");
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
