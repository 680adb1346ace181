//! Starts a `chronolith serve` and talks HTTP/1.1 to it over plain sockets.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chronolith_ingest::remote_write::encode::RequestEncoder;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// A start, replay included, takes at most this long.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// No answer takes longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// One series of a remote write.
pub(crate) struct SeriesToSend<'a> {
    pub(crate) labels: &'a [(&'a str, &'a str)],
    pub(crate) samples: &'a [(i64, f64)],
}

/// The body of a remote write of `series`.
pub(crate) fn encode_request(series: &[SeriesToSend<'_>]) -> Vec<u8> {
    let mut encoder = RequestEncoder::new();
    for one in series {
        encoder.push_series(one.labels.iter().copied(), one.samples);
    }
    encoder.compressed()
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
    pub(crate) dir: PathBuf,
}

/// A directory that goes with the test.
pub(crate) fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

/// A port that nothing listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}

impl Server {
    /// Starts on `dir` and waits until it is ready.
    pub(crate) fn start(dir: &Path, flags: &[&str]) -> Server {
        let server = Server::launch(dir, flags);
        server.wait_ready();
        server
    }

    /// Starts without waiting.
    pub(crate) fn launch(dir: &Path, flags: &[&str]) -> Server {
        Server::launch_at(free_port(), dir, flags)
    }

    /// Starts again at the same port, after a kill, and waits until it is ready.
    pub(crate) fn start_again(&mut self, flags: &[&str]) {
        *self = Server::launch_at(self.port, &self.dir, flags);
        self.wait_ready();
    }

    fn launch_at(port: u16, dir: &Path, flags: &[&str]) -> Server {
        let child = Command::new(env!("CARGO_BIN_EXE_chronolith"))
            .args(["serve", "--http", &format!("127.0.0.1:{port}"), "--data-dir"])
            .arg(dir)
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chronolith starts");
        Server { child, port, dir: dir.to_owned() }
    }

    pub(crate) fn wait_ready(&self) {
        let end = Instant::now() + READY_WITHIN;
        while Instant::now() < end {
            if self.try_request("GET", "/-/ready", &[], b"").is_ok_and(|a| a.status == 200) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("server on {} is not ready after {READY_WITHIN:?}", self.dir.display());
    }

    /// Waits until the anonymous tenant has a block; gives the directory of its blocks.
    pub(crate) fn wait_for_block(&self) -> PathBuf {
        self.wait_for_blocks(1)
    }

    /// Waits until the anonymous tenant has `count` blocks; gives their directory.
    pub(crate) fn wait_for_blocks(&self, count: usize) -> PathBuf {
        let tenant = self.dir.join("tenants/anonymous");
        let end = Instant::now() + READY_WITHIN;
        let is_block = |path: &PathBuf| path.extension().is_none() && path.join("meta.json").exists();
        let found_count = || {
            let entries = std::fs::read_dir(&tenant).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).filter(is_block).count()
        };
        while found_count() < count {
            assert!(Instant::now() < end, "too few blocks after {READY_WITHIN:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        tenant
    }

    /// Kills with SIGKILL and waits.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Asks to stop with SIGTERM; returns the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.signal();
        self.child.wait().expect("wait").code()
    }

    /// Sends SIGTERM and does not wait.
    pub(crate) fn signal(&self) {
        let status = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill");
        assert!(status.success());
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        self.try_request(method, path, headers, body).expect("an answer")
    }

    pub(crate) fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let mut stream = self.connect()?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        stream.write_all(head.as_bytes())?;
        // A server may answer and close before it has read everything: the answer counts.
        let sent = stream.write_all(body);
        let mut bytes = Vec::new();
        let got = stream.read_to_end(&mut bytes);
        match Answer::parse(&bytes) {
            Some(answer) => Ok(answer),
            None => Err(sent
                .and(got.map(|_| ()))
                .err()
                .unwrap_or_else(|| std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    pub(crate) fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(stream)
    }

    /// Remote write of `series`; returns the answer.
    pub(crate) fn write(&self, series: &[SeriesToSend<'_>]) -> Answer {
        let body = encode_request(series);
        let headers = ["Content-Type: application/x-protobuf", "Content-Encoding: snappy"];
        self.request("POST", "/api/v1/write", &headers, &body)
    }

    /// Instant query; the `result` of the answer.
    pub(crate) fn query(&self, expr: &str, time_s: f64) -> serde_json::Value {
        let path = format!("/api/v1/query?query={}&time={time_s}", percent(expr));
        let answer = self.request("GET", &path, &[], b"");
        assert_eq!(answer.status, 200, "{expr}: {}", answer.text());
        let mut body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        body["data"]["result"].take()
    }

    /// The value of the only series of an instant query.
    pub(crate) fn query_value(&self, expr: &str, time_s: f64) -> Option<f64> {
        self.query(expr, time_s)[0]["value"][1].as_str()?.parse().ok()
    }

    /// Resident memory in MiB.
    pub(crate) fn rss_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or("VmRSS: 0 kB");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Percent-encodes everything but letters and digits.
pub(crate) fn percent(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// An HTTP answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Option<Answer> {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let rest = &bytes[end + 4..];
        let body = if chunked { unchunk(rest) } else { rest.to_vec() };
        Some(Answer { status, body })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|s| usize::from_str_radix(s, 16).ok());
        let Some(size) = size.filter(|&s| s > 0 && end + 2 + s <= rest.len()) else { break };
        out.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = rest.get(end + 2 + size + 2..).unwrap_or(&[]);
    }
    out
}
