//! HTTP client of the tools: posts one form and reads one answer, with TLS for `https://`.
//! Invariants: answers are bounded in time and size; every failure names the address. Not here: TLS and HTTP
//! (`ureq`).

use std::time::Duration;

use anyhow::Context as _;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the begin of an answer: more than the server lets a query run.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(180);
/// Longest wait for the rest of it: as long as the server lets a client read one.
const BODY_TIMEOUT: Duration = Duration::from_secs(600);
/// Largest response that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Answer of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Posts a form to `path` below `url`; without a scheme that is `http://`.
pub(crate) fn post_form(
    url: &str,
    path: &str,
    form: &[(&str, &str)],
    headers: &[(&str, &str)],
) -> anyhow::Result<Answer> {
    let url = join(url, path);
    let mut request = agent().post(&url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let sent = request.send_form(form.iter().copied());
    let mut answer = sent.with_context(|| format!("posting to {url}: is the server running there?"))?;
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    Ok(Answer { status, body: body.with_context(|| format!("reading the response of {url}"))? })
}

fn agent() -> Agent {
    agent_with(BODY_TIMEOUT)
}

/// A client that waits `body_timeout` at most for the body of an answer, its connections kept for the next
/// request.
pub(crate) fn agent_with(body_timeout: Duration) -> Agent {
    // Servers inside a company have certificates of its own authority, which the system knows.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .proxy(None)
        .user_agent(concat!("chronolith/", env!("CARGO_PKG_VERSION")))
        // The API explains refusals in the body of its answer.
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(RESPONSE_TIMEOUT))
        .timeout_recv_body(Some(body_timeout));
    config.build().into()
}

/// Returns the address of `path` below `url`; without a scheme that is `http://`.
pub(crate) fn join(url: &str, path: &str) -> String {
    let scheme = if url.contains("://") { "" } else { "http://" };
    format!("{scheme}{}{path}", url.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Serves one request with `answer`; returns what the client got, and the request.
    fn exchange(
        prefix: &str,
        headers: &[(&str, &str)],
        answer: &'static str,
    ) -> (anyhow::Result<Answer>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            // The form ends with these bytes.
            while !request.ends_with(b"time=1") {
                let len = stream.read(&mut buffer).unwrap();
                assert!(len > 0, "the request ends early");
                request.extend_from_slice(&buffer[..len]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        };
        std::thread::scope(|scope| {
            let request = scope.spawn(server);
            let form = [("query", "a{b=\"ü\"} + 1"), ("time", "1")];
            let answer = post_form(&format!("{prefix}{address}/x/"), "/api/v1/query", &form, headers);
            (answer, request.join().unwrap())
        })
    }

    #[test]
    fn a_form_is_posted_and_a_refusal_is_an_answer() {
        let chunked =
            "HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        for prefix in ["http://", ""] {
            let (answer, request) = exchange(prefix, &[("X-Scope-OrgID", "team-a")], chunked);
            let answer = answer.unwrap();
            assert_eq!((answer.status, answer.body), (400, b"abc".to_vec()));
            assert!(request.starts_with("POST /x/api/v1/query HTTP/1.1\r\n"), "{request}");
            assert!(request.to_ascii_lowercase().contains("\r\nx-scope-orgid: team-a\r\n"), "{request}");
            assert!(request.contains("application/x-www-form-urlencoded"), "{request}");
            assert!(request.ends_with("\r\n\r\nquery=a%7Bb%3D%22%C3%BC%22%7D+%2B+1&time=1"), "{request}");
        }
    }

    #[test]
    fn what_is_no_answer_names_the_address() {
        for answer in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"] {
            let (result, _) = exchange("http://", &[], answer);
            let error = format!("{:#}", result.unwrap_err());
            assert!(error.contains("http://127.0.0.1:"), "{error}");
        }
        for bad in ["http://", "ftp://a", "http://a:b"] {
            assert!(post_form(bad, "/", &[], &[]).is_err(), "{bad}");
        }
    }
}
