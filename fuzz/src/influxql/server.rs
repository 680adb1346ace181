//! The two servers as processes, each in a directory of its own on free ports of this machine.

use std::io::{Error, Result};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::http::{Connection, Reply, Request};

/// Attempts to reach a server that starts, 50 ms apart.
const START_ATTEMPTS: usize = 400;

/// Windows that a statement may make, so that one without a range of time ends soon.
const BUCKETS_MAX: usize = 50_000;

/// Server that answers one request after the other.
pub(crate) trait Peer {
    /// Sends a request; the answer has to be received before the next one.
    fn send(&mut self, request: &Request) -> Result<()>;

    /// Receives the answer to the request that was sent.
    fn receive(&mut self) -> Result<Reply>;

    /// Sends a request and receives its answer.
    fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.send(request)?;
        self.receive()
    }
}

/// Running server; it ends with the value.
pub(crate) struct Server {
    process: Child,
    connection: Connection,
}

impl Peer for Server {
    fn send(&mut self, request: &Request) -> Result<()> {
        self.connection.send(request)
    }

    fn receive(&mut self) -> Result<Reply> {
        self.connection.receive()
    }
}

impl Server {
    /// Starts InfluxDB, the program at `program`, with an index of series `index` (inmem, tsi1).
    pub(crate) fn influxdb(program: &str, dir: &Path, index: &str) -> Result<Server> {
        let (port, rpc) = (free_port()?, free_port()?);
        let home = dir.join("influxdb");
        let text = format!(
            "reporting-disabled = true\nbind-address = \"127.0.0.1:{rpc}\"\n\
             [meta]\ndir = \"{0}/meta\"\nlogging-enabled = false\n\
             [data]\ndir = \"{0}/data\"\nwal-dir = \"{0}/wal\"\nindex-version = \"{index}\"\n\
             max-series-per-database = 0\nmax-values-per-tag = 0\nquery-log-enabled = false\n\
             [coordinator]\nmax-select-point = 0\nmax-select-series = 0\nmax-select-buckets = {BUCKETS_MAX}\n\
             [http]\nbind-address = \"127.0.0.1:{port}\"\nlog-enabled = false\n\
             [continuous_queries]\nenabled = false\n[monitor]\nstore-enabled = false\n\
             [logging]\nlevel = \"error\"\nsuppress-logo = true\n",
            home.display()
        );
        let config = dir.join("influxdb.conf");
        write_file(&config, &text)?;
        let mut command = Command::new(program);
        command.arg("run").arg("-config").arg(&config);
        Server::start(command, port, "/ping")
    }

    /// Starts Chronolith, the program at `program`.
    pub(crate) fn chronolith(program: &str, dir: &Path) -> Result<Server> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--data-dir").arg(dir.join("chronolith"));
        command.arg("--http").arg(format!("127.0.0.1:{port}"));
        command.args(["--self-scrape", "off", "--influx.continuous-queries=false"]);
        command.arg("--influx.max-select-buckets").arg(BUCKETS_MAX.to_string());
        // The server answers `/ping` while it replays its log, too.
        Server::start(command, port, "/-/ready")
    }

    /// Starts a server, and waits until `ready_path` succeeds.
    fn start(mut command: Command, port: u16, ready_path: &str) -> Result<Server> {
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut server = Server { process, connection: Connection::new(port) };
        let ready =
            Request { method: "GET", target: ready_path.to_owned(), headers: Vec::new(), body: Vec::new() };
        for _ in 0..START_ATTEMPTS {
            if let Some(status) = server.process.try_wait()? {
                return Err(Error::other(format!("{command:?} ended: {status}")));
            }
            if server.ask(&ready).is_ok_and(|reply| matches!(reply.status, 200 | 204)) {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Error::other(format!("{command:?} does not answer")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both servers.
pub(crate) struct Pair {
    pub(crate) ours: Box<dyn Peer>,
    pub(crate) theirs: Box<dyn Peer>,
}

impl Pair {
    /// Asks both at the same time. A server that gives no answer, twice, has the status 0.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<(Reply, Reply)> {
        let sent = self.ours.send(request);
        self.theirs.send(request)?;
        let theirs = self.theirs.receive();
        let ours = sent.and_then(|()| self.ours.receive());
        let ours = ours.or_else(|_| self.ours.ask(request));
        let theirs = theirs.or_else(|_| self.theirs.ask(request));
        Ok((answer(ours), answer(theirs)))
    }
}

fn answer(result: Result<Reply>) -> Reply {
    result.unwrap_or_else(|error| Reply {
        status: 0,
        content_type: String::new(),
        body: error.to_string().into_bytes(),
    })
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[allow(clippy::disallowed_methods, reason = "the file of another program")]
fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
}
