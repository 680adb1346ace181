//! Processes of others: run to the end with their output seen, or kept as a server until dropped.
//!
//! Invariants: a started process ends when this one ends, however it ends: `Drop` kills on return and panic,
//! the kernel's parent-death signal (set by `setpriv`) on ctrl-c and kill.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cpu;

const READY_WAIT: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(50);
const READY_IO: Duration = Duration::from_secs(2);
const LOG_TAIL_LINES: usize = 40;
/// Below Linux's default range of ephemeral ports.
const SERVER_PORTS: Range<u16> = 11_000..31_000;

/// Outcome of a finished command.
pub(crate) struct Finished {
    /// Exit status 0.
    pub(crate) success: bool,
    pub(crate) text: String,
}

/// Runs `program` within `limit`, printing its standard output as it comes and keeping it.
///
/// After the limit the whole process group is terminated, so a kit takes its servers with it.
pub(crate) fn run_within(
    limit: Duration,
    command: &[String],
    dir: &Path,
    env: &[(&str, &str)],
) -> Result<Finished> {
    let limit = format!("{}s", limit.as_secs());
    let timed = ["timeout", "--kill-after=10s", &limit].map(str::to_owned);
    let mut child = die_with_parent("TERM", timed.into_iter().chain(command.iter().cloned()).collect())
        .current_dir(dir)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.join(" ")))?;
    let mut text = String::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.unwrap_or_else(|_| "(a line that is not UTF-8)".to_owned());
            println!("{line}");
            text.push_str(&line);
            text.push('\n');
        }
    }
    let status = cpu::wait(&mut child)?;
    if status.code() == Some(124) {
        println!("stopped after {limit}: {}", command.join(" "));
    }
    Ok(Finished { success: status.success(), text })
}

/// Returns the path of the program of this name; `None` if `PATH` has none.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Directory of cargo's build output.
pub(crate) fn target_dir(root: &Path) -> Result<PathBuf> {
    let metadata = cargo_metadata(root)?;
    let dir = metadata["target_directory"].as_str().context("cargo metadata names no target_directory")?;
    Ok(PathBuf::from(dir))
}

/// `cargo metadata --no-deps`.
pub(crate) fn cargo_metadata(root: &Path) -> Result<serde_json::Value> {
    let out = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// Lowest port of `count` consecutive ones without a listener at this moment.
///
/// They lie below the range from which the kernel takes the ports of outgoing connections: a port of that
/// range may belong to a connection by the time a server binds it.
pub(crate) fn free_ports(count: u16) -> Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let width = SERVER_PORTS.end - SERVER_PORTS.start - count;
    let offset = (std::process::id() % u32::from(width)) as u16;
    (0..width)
        .map(|step| SERVER_PORTS.start + (offset + step) % width)
        .find(|&first| (first..first + count).all(is_free))
        .context("no free ports on the loopback interface")
}

/// An empty directory, removed when dropped.
pub(crate) struct TempDir {
    /// Path of the directory.
    pub(crate) path: PathBuf,
}

impl TempDir {
    /// Creates it below the system's place for temporary files.
    pub(crate) fn new(name: &str) -> Result<TempDir> {
        let path = std::env::temp_dir().join(format!("chronolith-ci-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(TempDir { path })
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Nothing can be done about a file that will not go; the operating system clears its temporary files.
        drop(std::fs::remove_dir_all(&self.path));
    }
}

/// The server under test on a free loopback port over an empty data directory.
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
    port: u16,
    _data: TempDir,
}

impl Server {
    /// Starts `binary serve` and waits until it answers `/-/ready`.
    pub(crate) fn start(binary: &Path, log_dir: &Path, name: &str) -> Result<Server> {
        Server::start_with(binary, log_dir, name, &[])
    }

    /// The same with further flags.
    pub(crate) fn start_with(binary: &Path, log_dir: &Path, name: &str, flags: &[&str]) -> Result<Server> {
        std::fs::create_dir_all(log_dir)?;
        let log = log_dir.join(format!("{name}.log"));
        let out = std::fs::File::create(&log).with_context(|| log.display().to_string())?;
        let data = TempDir::new(name)?;
        let port = free_ports(1)?;
        let mut command = vec![
            binary.display().to_string(),
            "serve".to_owned(),
            "--data-dir".to_owned(),
            data.path.join("data").display().to_string(),
            "--http".to_owned(),
            format!("127.0.0.1:{port}"),
        ];
        command.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let child = die_with_parent("KILL", command)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut server = Server { child, log, port, _data: data };
        server.wait_ready()?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Status of `GET path`; nothing when it does not answer.
    pub(crate) fn status_of(&self, path: &str) -> Option<u16> {
        get_status(self.port, path)
    }

    /// Prints the last lines of its log.
    pub(crate) fn print_log_tail(&self) {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let start = lines.len().saturating_sub(LOG_TAIL_LINES);
        println!("--- last lines of {}", self.log.display());
        for line in lines.iter().skip(start) {
            println!("    {line}");
        }
    }

    fn wait_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < READY_WAIT {
            if let Some(status) = self.child.try_wait()? {
                self.print_log_tail();
                bail!("the server ended before it was ready: {status}");
            }
            if self.status_of("/-/ready") == Some(200) {
                return Ok(());
            }
            std::thread::sleep(READY_POLL);
        }
        self.print_log_tail();
        bail!("the server was not ready after {} s", READY_WAIT.as_secs())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself, which the test that used it reports.
        drop(self.child.kill());
        drop(cpu::wait(&mut self.child));
    }
}

/// Status of `GET path`, if a server answers.
fn get_status(port: u16, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(READY_IO)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).ok()?;
    let mut head = [0u8; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head).ok()?.split(' ').nth(1)?.parse().ok()
}

/// A command that gets `signal` when this process ends. Without `setpriv` (not Linux) it is run as it is.
fn die_with_parent(signal: &str, command: Vec<String>) -> Command {
    let mut words = command;
    if find_program("setpriv").is_some() {
        let guard = ["setpriv", "--pdeathsig", signal, "--"].map(str::to_owned);
        words.splice(0..0, guard);
    }
    let (program, args) = words.split_first().expect("a command has a program");
    let mut command = Command::new(program);
    command.args(args);
    command
}
