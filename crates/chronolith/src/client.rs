//! A small HTTP/1.1 client for the tools: one request, one answer, plain TCP.
//! Holds: answers are bounded; every failure says which address. Not here: TLS, keep-alive, redirects.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context as _, bail};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the next bytes of an answer: more than the server lets a query run.
const READ_TIMEOUT: Duration = Duration::from_secs(180);
const ANSWER_BYTES_MAX: u64 = 1 << 30;
/// Longest header line.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Header lines of an answer.
const HEADER_COUNT_MAX: usize = 200;

/// Answer of the server: headers and body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// `http://host:port/prefix`, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    prefix: String,
}

/// Posts a form to `path` below `url`.
pub(crate) fn post_form(
    url: &str,
    path: &str,
    form: &[(&str, &str)],
    headers: &[(&str, &str)],
) -> anyhow::Result<Answer> {
    let target = Target::parse(url)?;
    let body: Vec<String> =
        form.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    let body = body.join("&");
    let mut request = format!(
        "POST {}{path} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n",
        target.prefix,
        target.host,
        target.port,
        body.len()
    );
    for (name, value) in headers {
        if value.contains(['\r', '\n']) {
            bail!("header {name} has a line break");
        }
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(&body);
    let stream = target.connect()?;
    let at = || format!("request to {}:{}", target.host, target.port);
    (&stream).write_all(request.as_bytes()).with_context(at)?;
    read_answer(BufReader::new(stream)).with_context(at)
}

impl Target {
    fn parse(url: &str) -> anyhow::Result<Target> {
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some((scheme, _)) => bail!("{scheme}:// is not supported: use http://host:port, or curl"),
            None => url,
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().with_context(|| format!("invalid port {port:?}"))?)
            }
            _ => (authority, 80),
        };
        if host.is_empty() {
            bail!("{url:?} names no host: use http://host:port");
        }
        let path = path.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Target { host: host.to_owned(), port, prefix })
    }

    fn connect(&self) -> anyhow::Result<TcpStream> {
        let name = format!("{}:{}", self.host, self.port);
        let addresses = name.to_socket_addrs().with_context(|| format!("looking up {name}"))?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(READ_TIMEOUT))?;
                    return Ok(stream);
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) => bail!("connecting to {name}: {error}; is the server running there?"),
            None => bail!("{name} resolves to no address"),
        }
    }
}

fn read_answer(mut reader: impl BufRead) -> anyhow::Result<Answer> {
    let status_line = read_line(&mut reader)?;
    let status = status_line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    let status = status.and_then(|code| code.parse().ok()).context("the answer is not HTTP")?;
    let (mut length, mut chunked) = (None, false);
    for count in 0.. {
        let line = read_line(&mut reader)?;
        if line.is_empty() {
            break;
        }
        if count >= HEADER_COUNT_MAX {
            bail!("the answer has more than {HEADER_COUNT_MAX} headers");
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<u64>().context("Content-Length")?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.trim().eq_ignore_ascii_case("chunked");
        }
    }
    let mut body = Vec::new();
    if chunked {
        read_chunks(&mut reader, &mut body)?;
    } else {
        read_part(&mut reader, length.unwrap_or(ANSWER_BYTES_MAX), &mut body)?;
        if length.is_some_and(|length| length != body.len() as u64) {
            bail!("the answer ends after {} bytes", body.len());
        }
    }
    Ok(Answer { status, body })
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> anyhow::Result<()> {
    loop {
        let line = read_line(reader)?;
        let digits = line.split(';').next().unwrap_or("").trim();
        let length = u64::from_str_radix(digits, 16).context("length of a chunk")?;
        if length == 0 {
            return Ok(());
        }
        let before = body.len() as u64;
        read_part(reader, length, body)?;
        if body.len() as u64 - before != length {
            bail!("the answer ends within a chunk");
        }
        read_line(reader)?;
    }
}

fn read_part(reader: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> anyhow::Result<()> {
    let room = ANSWER_BYTES_MAX.saturating_sub(body.len() as u64);
    if length > room {
        bail!("the answer is larger than {ANSWER_BYTES_MAX} bytes");
    }
    reader.take(length).read_to_end(body)?;
    Ok(())
}

fn read_line(reader: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    reader.take(LINE_BYTES_MAX).read_line(&mut line)?;
    if !line.ends_with('\n') {
        bail!("the answer ends early, or has a line longer than {LINE_BYTES_MAX} bytes");
    }
    Ok(line.trim_end().to_owned())
}

fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let target = |host: &str, port, prefix: &str| Target {
            host: host.to_owned(),
            port,
            prefix: prefix.to_owned(),
        };
        assert_eq!(Target::parse("http://a:9595").unwrap(), target("a", 9595, ""));
        assert_eq!(Target::parse("a:1/x/y/").unwrap(), target("a", 1, "/x/y"));
        assert_eq!(Target::parse("http://[::1]:9595/").unwrap(), target("[::1]", 9595, ""));
        assert_eq!(Target::parse("http://a").unwrap(), target("a", 80, ""));
        for bad in ["https://a", "http://", "http://a:b"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_with_a_length_in_chunks_or_to_the_end() {
        let body = |text: &str| read_answer(text.as_bytes()).map(|answer| (answer.status, answer.body));
        let plain = body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd").unwrap();
        assert_eq!(plain, (200, b"abc".to_vec()));
        let chunks = "HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(body(chunks).unwrap(), (400, b"abc".to_vec()));
        assert_eq!(body("HTTP/1.0 200 OK\r\n\r\nall").unwrap(), (200, b"all".to_vec()));
        for bad in
            ["", "SSH-2.0\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "HTTP/1.1 200 OK\r\n"]
        {
            assert!(body(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode("a{b=\"ü\"} + 1"), "a%7Bb%3D%22%C3%BC%22%7D%20%2B%201");
    }
}
