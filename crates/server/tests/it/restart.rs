//! A server on real sockets and real files: write, ask, stop or crash, start again, ask again.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use chronolith_base::{Clock as _, Env, SystemClock};
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_server::{Server, ServerOptions};

use crate::topology::{STRONG, Topology};

/// Longer than any answer takes, so that a hang fails instead of hanging the run.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

fn start(dir: &Path) -> Server {
    let mut options = ServerOptions::new(dir.to_owned());
    options.listen = "127.0.0.1:0".to_owned();
    options.self_scrape_interval_ms = 0;
    let server = Server::start(Env::real(), options, None).expect("starts");
    server.wait_ready().expect("opens");
    server
}

/// Sends one request; returns status and body.
fn ask(address: SocketAddr, head: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(ANSWER_WAIT)).expect("timeout");
    let length = body.len();
    write!(stream, "{head}Host: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n").expect("head");
    stream.write_all(body).expect("body");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answer");
    let answer = String::from_utf8(answer).expect("text");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("status");
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("body"))
}

fn write(address: SocketAddr, value: f64, time_ms: i64) {
    let mut request = RequestEncoder::new();
    request.push_series([("__name__", "kept"), ("a", "b")], &[(time_ms, value)]);
    let head =
        "POST /api/v1/write HTTP/1.1\r\nContent-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n";
    let (status, text) = ask(address, head, &request.compressed());
    assert_eq!(status, 204, "{text}");
}

#[track_caller]
fn check_count(address: SocketAddr, want: &str) {
    let head = format!("GET /api/v1/query?query=count_over_time(kept[1h]) HTTP/1.1\r\n{STRONG}\r\n");
    let (status, text) = ask(address, &head, b"");
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(&format!(",\"{want}\"]")), "{want} is expected: {text}");
}

#[test]
fn samples_outlive_stops_and_a_second_server_is_refused() {
    Topology::ALL.into_iter().for_each(check_restarts);
}

fn check_restarts(topology: Topology) {
    let dir = tempfile::tempdir().expect("directory");
    let now_ms = SystemClock::new().now_ms();
    let start = || topology.start(dir.path(), |_| {});
    let servers = start();
    write(servers.writer(), 1.0, now_ms - 2000);
    check_count(servers.reader(), "1");

    let second = topology.try_start(dir.path(), |_| {});
    let refused = second.err().expect("the directory is in use");
    assert!(refused.contains("another process"), "{topology:?}: {refused}");

    servers.stop();
    let servers = start();
    check_count(servers.reader(), "1");
    write(servers.writer(), 2.0, now_ms - 1000);
    check_count(servers.reader(), "2");
    servers.stop();
    let servers = start();
    check_count(servers.reader(), "2");
    servers.stop();
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().expect("directory");
    let server = start(dir.path());
    let mut options = ServerOptions::new(dir.path().join("other"));
    options.listen = server.address().to_string();
    let error = Server::start(Env::real(), options, None).err().expect("the port is taken").to_string();
    assert!(error.starts_with(&format!("cannot listen on {}", server.address())), "{error}");
}

/// Reads one answer of known length from a connection that stays open.
fn read_answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("head");
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).expect("text");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("status");
    (status, String::from_utf8(body).expect("text"))
}

/// Sends a request on a connection of its own; returns status, headers and body until the server closes it.
fn raw_answer(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(ANSWER_WAIT)).expect("timeout");
    stream.write_all(request).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8(answer).expect("text")
}

/// Raw quotes in a URL were escaped in front of the HTTP parser, by a second reader of lengths and chunks.
/// Two readers that disagree about the end of a request let one client's bytes become another's request.
#[test]
fn bytes_that_a_url_cannot_have_are_refused_with_advice() {
    let dir = tempfile::tempdir().expect("directory");
    let server = start(dir.path());
    for illegal in [
        &b"up{job=\"x\"}"[..],
        b"up<1",
        b"up>1",
        b"up 1",
        b"up\t1",
        b"up\x001",
        b"up\x7f1",
        b"up\x1f1",
        b"count(up{a=\"<b>\"})",
        b"\"",
        b"<",
        b">",
    ] {
        let request =
            [b"GET /api/v1/query?query=", illegal, b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"]
                .concat();
        let answer = raw_answer(server.address(), &request);
        let shown = String::from_utf8_lossy(illegal);
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{shown:?}: {answer}");
        assert!(answer.contains("percent-encoded: %22, %3C, %3E, %20"), "{shown:?}: {answer}");
    }
    server.stop().expect("stops");
}

/// The bytes after a refused request are no request: the connection ends with the refusal.
#[test]
fn nothing_after_a_refused_request_is_carried_out() {
    let dir = tempfile::tempdir().expect("directory");
    let server = start(dir.path());
    let next = "GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for first in [
        "GET /api/v1/query?query=\"a\" HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /api/v1/query?query=\"a\" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde",
        "POST /write?q=\" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "GET /<a> HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let answer = raw_answer(server.address(), format!("{first}{next}").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{first}: {answer}");
        assert!(!answer.contains("200 OK"), "{first}: {answer}");
    }
    server.stop().expect("stops");
}

/// Quotes are data in a form, and escaped ones in a URL, in each request of a connection.
#[test]
fn escaped_quotes_and_quotes_of_forms_arrive() {
    let dir = tempfile::tempdir().expect("directory");
    let server = start(dir.path());
    let mut stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(ANSWER_WAIT)).expect("timeout");
    let get = "GET /api/v1/query?query=up{job=%22%3Cx%3E%22} HTTP/1.1\r\nHost: x\r\n\r\n";
    let form = "query=count(up{job=\"x\"})or%20vector(1)";
    let length = form.len();
    let post = format!(
        "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {length}\r\n\r\n{form}"
    );
    for request in [get, get, &post, get] {
        stream.write_all(request.as_bytes()).expect("sent");
        let (status, text) = read_answer(&mut stream);
        assert_eq!(status, 200, "{request}: {text}");
    }
    drop(stream);
    server.stop().expect("stops");
}

/// A hundred headers were refused, and a request without `Host` was not.
#[test]
fn headers_of_proxies_are_taken_and_a_missing_host_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let server = start(dir.path());
    let with =
        |count: usize| format!("GET /-/healthy HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(count));
    let requests = [
        (with(50), 200),
        (with(100), 200),
        (with(250), 200),
        ("GET /-/healthy HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /-/healthy HTTP/1.1\r\nA: b\r\n\r\n".to_owned(), 400),
        ("GET /-/healthy HTTP/1.0\r\n\r\n".to_owned(), 200),
    ];
    for (request, want) in requests {
        let mut stream = TcpStream::connect(server.address()).expect("connects");
        stream.set_read_timeout(Some(ANSWER_WAIT)).expect("timeout");
        stream.write_all(request.as_bytes()).expect("sent");
        let (status, text) = read_answer(&mut stream);
        assert_eq!(status, want, "{text}");
    }
    server.stop().expect("stops");
}

/// Requests that the HTTP parser refused had an empty body, no line in the log and no count.
#[test]
fn what_is_no_http_is_refused_with_a_reason_and_counted() {
    let dir = tempfile::tempdir().expect("directory");
    let server = start(dir.path());
    let long = format!("GET /api/v1/query?query={} HTTP/1.1\r\nHost: x\r\n\r\n", "1".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(300));
    for (request, want) in [("GET /a b HTTP/1.1\r\n\r\n", 400), (&*long, 414), (&*many, 431)] {
        let mut stream = TcpStream::connect(server.address()).expect("connects");
        stream.set_read_timeout(Some(ANSWER_WAIT)).expect("timeout");
        stream.write_all(request.as_bytes()).expect("sent");
        let (status, text) = read_answer(&mut stream);
        assert_eq!(status, want, "{text}");
        assert!(text.starts_with(r#"{"status":"error","errorType":"bad_data","error":""#), "{text}");
    }
    let (_, metrics) = ask(server.address(), "GET /metrics HTTP/1.1\r\n", b"");
    for code in [400, 414, 431] {
        let line =
            format!("chronolith_http_request_duration_seconds_count{{route=\"invalid\",code=\"{code}\"}} 1");
        assert!(metrics.contains(&line), "{line}");
    }
    server.stop().expect("stops");
}
