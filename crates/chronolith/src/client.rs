//! HTTP client of the tools, with TLS for `https://`: the client of buckets (`reqwest`), called from one
//! thread.
//! Invariants: answers are bounded in time and size; every failure names the address; no proxy, no redirect.
//! Not here: TLS and HTTP (`reqwest`), repeated requests (callers).

use std::io::{self, Read};
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use reqwest::RequestBuilder;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::Sleep;

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
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Returns the data of an answer of the API.
    ///
    /// # Errors
    /// The error of the server, or an answer that is not its JSON.
    pub(super) fn data(&self) -> anyhow::Result<Value> {
        let mut json: Value = serde_json::from_slice(&self.body)
            .with_context(|| format!("the server answered {} without JSON", self.status))?;
        if json["status"] != "success" {
            anyhow::bail!("the server answered {}: {}", self.status, json["error"].as_str().unwrap_or(""));
        }
        Ok(json["data"].take())
    }
}

/// Posts a form to `path` below `url`; without a scheme that is `http://`.
pub(crate) fn post_form(
    url: &str,
    path: &str,
    form: &[(&str, &str)],
    headers: &[(&str, &str)],
) -> anyhow::Result<Answer> {
    let url = join(url, path);
    let client = HttpClient::new(BODY_TIMEOUT)?;
    let request = with_headers(client.post(&url), headers);
    exchange(&client, request.form(form), &url, "posting to")
}

/// Gets `path` below `url`; without a scheme that is `http://`.
pub(crate) fn get(url: &str, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
    let url = join(url, path);
    let client = HttpClient::new(BODY_TIMEOUT)?;
    exchange(&client, with_headers(client.get(&url), headers), &url, "getting")
}

/// Asks for the deletion of `path` below `url`; without a scheme that is `http://`.
pub(crate) fn delete(url: &str, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
    let url = join(url, path);
    let client = HttpClient::new(BODY_TIMEOUT)?;
    exchange(&client, with_headers(client.client.delete(&url), headers), &url, "deleting")
}

fn with_headers(request: RequestBuilder, headers: &[(&str, &str)]) -> RequestBuilder {
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

fn exchange(client: &HttpClient, request: RequestBuilder, url: &str, doing: &str) -> anyhow::Result<Answer> {
    let shown = without_login(url);
    let sent = client.send(request);
    let mut response = sent.with_context(|| format!("{doing} {shown}: is the server running there?"))?;
    let body = response.read_all(ANSWER_BYTES_MAX);
    let body = body.with_context(|| format!("reading the response of {shown}"))?;
    Ok(Answer { status: response.status(), body })
}

/// Returns the URL without user and password, for messages.
pub(crate) fn without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Blocking client on a runtime of its own. Its connections are kept for the next request.
pub(crate) struct HttpClient {
    runtime: Runtime,
    client: reqwest::Client,
    body_timeout: Duration,
}

/// Response whose body is read as it arrives.
pub(crate) struct Response<'a> {
    runtime: &'a Runtime,
    response: reqwest::Response,
    /// Part of the body that is not read yet.
    unread: Bytes,
    /// Ends the reading of the body.
    timeout: Pin<Box<Sleep>>,
}

impl HttpClient {
    /// Makes a client that waits `body_timeout` at most for the body of a response. Opens no connection.
    ///
    /// # Errors
    /// The system has no event queue left, or no certificates.
    pub(crate) fn new(body_timeout: Duration) -> anyhow::Result<HttpClient> {
        // A second installation, by a client of a bucket, has no effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Certificates are checked as the system does it: servers inside a company have certificates of its
        // own authority.
        let client = reqwest::Client::builder()
            .no_proxy()
            .user_agent(concat!("chronolith/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .context("making an HTTP client")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(HttpClient { runtime: runtime.context("making an HTTP client")?, client, body_timeout })
    }

    /// Begins a GET request.
    pub(crate) fn get(&self, url: &str) -> RequestBuilder {
        self.client.get(url)
    }

    /// Begins a POST request.
    pub(crate) fn post(&self, url: &str) -> RequestBuilder {
        self.client.post(url)
    }

    /// Sends a request and waits for the head of its response, whatever its status: the API explains
    /// refusals in the body.
    ///
    /// # Errors
    /// The connection fails, or the server does not answer in time.
    pub(crate) fn send(&self, request: RequestBuilder) -> io::Result<Response<'_>> {
        let sent = async {
            let response = tokio::time::timeout(RESPONSE_TIMEOUT, request.send()).await;
            let response = response.map_err(|_| timed_out(RESPONSE_TIMEOUT))?.map_err(io_error)?;
            Ok::<_, io::Error>((response, Box::pin(tokio::time::sleep(self.body_timeout))))
        };
        let (response, timeout) = self.runtime.block_on(sent)?;
        Ok(Response { runtime: &self.runtime, response, unread: Bytes::new(), timeout })
    }
}

impl Response<'_> {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the value of a header that is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// Has more than `bytes_max` bytes, or the connection fails.
    pub(crate) fn read_all(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        self.by_ref().take(bytes_max.saturating_add(1)).read_to_end(&mut body)?;
        match body.len() as u64 > bytes_max {
            true => Err(io::Error::other(format!("the response is longer than {bytes_max} bytes"))),
            false => Ok(body),
        }
    }
}

impl Read for Response<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Response { runtime, response, unread, timeout } = self;
        while unread.is_empty() {
            let next = runtime.block_on(async {
                tokio::select! {
                    chunk = response.chunk() => chunk.map_err(io_error),
                    () = timeout.as_mut() => Err(io::Error::new(io::ErrorKind::TimedOut, "the body took too long")),
                }
            });
            match next? {
                Some(chunk) => *unread = chunk,
                None => return Ok(0),
            }
        }
        let len = unread.len().min(out.len());
        let part = unread.split_to(len);
        out.get_mut(..len).unwrap_or_default().copy_from_slice(&part);
        Ok(len)
    }
}

fn timed_out(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no response within {} s", timeout.as_secs()))
}

/// The first cause, such as a refused connection: what the layers above add to it names the layers.
fn io_error(error: reqwest::Error) -> io::Error {
    io::Error::other(anyhow::Error::new(error.without_url()).root_cause().to_string())
}

/// Returns the address of `path` below `url`; without a scheme that is `http://`.
pub(crate) fn join(url: &str, path: &str) -> String {
    let scheme = if url.contains("://") { "" } else { "http://" };
    format!("{scheme}{}{path}", url.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
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
    fn user_and_password_of_a_url_are_sent_and_not_shown() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let (answer, request) = exchange("http://prom:s3cret@", &[], ok);
        assert_eq!(answer.unwrap().status, 200);
        assert!(request.contains("\r\nauthorization: Basic cHJvbTpzM2NyZXQ=\r\n"), "{request}");
        let (answer, _) = exchange("http://prom:s3cret@", &[], "SSH-2.0\r\n\r\n");
        let error = format!("{:#}", answer.unwrap_err());
        assert!(error.contains("http://127.0.0.1:") && !error.contains("s3cret"), "{error}");
        for (url, shown) in [
            ("https://u:p@ss@h:1/a@b?c", "https://h:1/a@b?c"),
            ("http://h/a@b", "http://h/a@b"),
            ("http://u@h", "http://h"),
        ] {
            assert_eq!(without_login(url), shown);
        }
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

    /// Serves one response to a GET request, in `parts`.
    fn with_response<T>(parts: &[&'static [u8]], read: impl FnOnce(Response<'_>) -> T) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                parts.iter().for_each(|part| stream.write_all(part).unwrap());
            });
            let client = HttpClient::new(BODY_TIMEOUT).unwrap();
            read(client.send(client.get(&url)).unwrap())
        })
    }

    #[test]
    fn a_body_is_read_in_parts_of_any_length_and_up_to_its_limit() {
        let parts: &[&[u8]] = &[
            b"HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"4\r\nabcd\r\n",
            b"2\r\nef\r\n0\r\n\r\n",
        ];
        for part_bytes in 1..=7 {
            let body = with_response(parts, |mut response| {
                assert_eq!(
                    (response.status(), response.header("x-a"), response.header("x-b")),
                    (200, Some("b"), None)
                );
                let (mut body, mut part) = (Vec::new(), vec![0; part_bytes]);
                while let Ok(len @ 1..) = response.read(&mut part) {
                    body.extend_from_slice(&part[..len]);
                }
                body
            });
            assert_eq!(body, b"abcdef", "{part_bytes}");
        }
        for (bytes_max, fits) in [(0, false), (5, false), (6, true), (7, true), (u64::MAX, true)] {
            let body = with_response(parts, |mut response| response.read_all(bytes_max));
            assert_eq!(body.is_ok(), fits, "{bytes_max}: {body:?}");
        }
    }

    #[test]
    fn redirects_are_answers() {
        let parts: &[&[u8]] =
            &[b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"];
        assert_eq!(with_response(parts, |response| response.status()), 302);
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
