//! Servers over sockets.

mod query_node;
mod read_your_writes;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use chronolith_base::{Clock as _, Env, SystemClock};

use super::Server;
use crate::options::ServerOptions;

/// Longer than any answer takes, so that a hang fails instead of hanging the run.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Answer of a server.
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    /// Value of a header, whose name is in small letters.
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Sends one request.
fn send(address: SocketAddr, head: &str, body: &[u8]) -> Response {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(ANSWER_WAIT)).expect("timeout");
    let length = body.len();
    write!(stream, "{head}Host: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n").expect("head");
    stream.write_all(body).expect("body");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answer");
    let answer = String::from_utf8(answer).expect("text");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("status");
    let (head, body) = answer.split_once("\r\n\r\n").expect("body");
    Response { status, head: head.to_owned(), body: body.to_owned() }
}

/// Sends one request; returns status and body.
fn ask(address: SocketAddr, head: &str, body: &[u8]) -> (u16, String) {
    let Response { status, body, .. } = send(address, head, body);
    (status, body)
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\n"), b"")
}

/// Waits until `is_reached`; `what` is for the failure.
fn wait_until(what: &str, is_reached: impl Fn() -> bool) {
    let clock = SystemClock::new();
    let deadline_ns = clock.mono_ns() + ANSWER_WAIT.as_nanos() as u64;
    while !is_reached() {
        assert!(clock.mono_ns() < deadline_ns, "{what}");
        std::thread::yield_now();
    }
}

fn options(dir: &Path, listen: &str) -> ServerOptions {
    let mut options = ServerOptions::new(dir.to_owned());
    options.listen = listen.to_owned();
    options.self_scrape_interval_ms = 0;
    options
}

fn start(options: ServerOptions) -> Server {
    let server = Server::start(Env::real(), options, None).expect("starts");
    server.wait_ready().expect("opens");
    server
}

/// Writes the token of the nodes below `dir`.
fn write_token(dir: &Path) {
    let token = Env::real().disk.create(&dir.join("token")).expect("a file");
    token.write_at(b"token-of-the-nodes-1\n", 0).expect("written");
}
