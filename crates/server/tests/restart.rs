//! A server on real sockets and real files: write, ask, stop or crash, start again, ask again.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use chronolith_base::{Clock as _, Env, SystemClock};
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_server::{Server, ServerOptions};

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
    let head = "GET /api/v1/query?query=count_over_time(kept[1h]) HTTP/1.1\r\n";
    let (status, text) = ask(address, head, b"");
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(&format!(",\"{want}\"]")), "{want} is expected: {text}");
}

#[test]
fn samples_outlive_stops_and_a_second_server_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let now_ms = SystemClock::new().now_ms();
    let server = start(dir.path());
    write(server.address(), 1.0, now_ms - 2000);
    check_count(server.address(), "1");

    let mut options = ServerOptions::new(dir.path().to_owned());
    options.listen = "127.0.0.1:0".to_owned();
    let second = Server::start(Env::real(), options, None).expect("listens");
    let refused = second.wait_ready().expect_err("the directory is in use");
    assert!(refused.to_string().contains("another process"), "{refused}");
    second.stop().expect("stops without a store");

    server.stop().expect("stops");
    let server = start(dir.path());
    check_count(server.address(), "1");
    write(server.address(), 2.0, now_ms - 1000);
    check_count(server.address(), "2");
    server.stop().expect("stops");
    let server = start(dir.path());
    check_count(server.address(), "2");
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
