//! The server of `run`: a process with its data in a directory, started and stopped by this one.
//!
//! Invariants: it ends with this process; a temporary directory is removed after it has ended.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::client::Client;
use crate::stop::Stop;

const READY_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
const LOG_TAIL_LINES: usize = 20;
/// Windows become blocks after a minute instead of an hour, so that the page of the storage has some.
const FLAGS: [&str; 5] = [
    "--multitenancy",
    "--flush-delay=1m",
    "--flush-small-window=0",
    "--influx.prometheus-database",
    "prometheus",
];

/// A running server.
pub(crate) struct Process {
    child: Child,
    http: String,
    log: PathBuf,
    is_data_kept: bool,
    /// Has the log, and the data unless another directory was named.
    dir: Option<TempDir>,
}

impl Process {
    /// Starts `program` with `--http http`.
    ///
    /// # Errors
    /// The address is taken, or the program cannot be started.
    pub(crate) fn start(program: &Path, http: &str, data_dir: Option<PathBuf>) -> Result<Process> {
        check_free(http)?;
        let dir = tempfile::Builder::new().prefix("chronolith-demo-").tempdir();
        let dir = dir.context("cannot create a temporary directory")?;
        let is_data_kept = data_dir.is_some();
        let data_dir = data_dir.unwrap_or_else(|| dir.path().join("data"));
        let log = dir.path().join("server.log");
        let out = std::fs::File::create(&log).with_context(|| log.display().to_string())?;
        println!("Starting {} on http://{http}/, data in {}", program.display(), data_dir.display());
        let child = guarded(program)
            .arg("serve")
            .arg("--data-dir")
            .arg(&data_dir)
            .args(["--http", http])
            .args(FLAGS)
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("cannot share the log file")?)
            .stderr(out)
            // Ctrl-C reaches this process alone, which then stops the server.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Process { child, http: http.to_owned(), log, is_data_kept, dir: Some(dir) })
    }

    /// Waits until it answers, or a signal comes.
    pub(crate) fn wait_ready(&mut self, stop: &Stop) -> Result<()> {
        let client = Client::new(&format!("http://{}", self.http))?;
        let start = Instant::now();
        while start.elapsed() < READY_WAIT {
            self.check_alive()?;
            if client.is_ready() || stop.wait(POLL) {
                return self.check_alive();
            }
        }
        bail!("the server is not ready after {} s\n{}", READY_WAIT.as_secs(), self.log_tail())
    }

    /// # Errors
    /// The process has ended; the error has the end of its log.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the server ended: {status}\n{}", self.log_tail()),
            None => Ok(()),
        }
    }

    /// End of the message about a stop: whether the data directory stays.
    pub(crate) fn epilogue(&self) -> &'static str {
        if self.is_data_kept { "; the data directory stays" } else { " and removes its data" }
    }

    /// Ends it as an operator does, then removes the temporary directory.
    pub(crate) fn stop(mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            println!("\nStopping the server.");
            let pid = Pid::from_child(&self.child);
            rustix::process::kill_process(pid, Signal::TERM).context("cannot stop the server")?;
            self.wait_ended()?;
        }
        self.dir.take().map_or(Ok(()), TempDir::close).context("cannot remove the temporary directory")
    }

    fn wait_ended(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < STOP_WAIT {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        bail!("the server does not end; its process is {}", self.child.id())
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process has ended already, unless an error ends this one.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// # Errors
/// A program listens at `http`, which must not get the samples.
fn check_free(http: &str) -> Result<()> {
    match TcpListener::bind(http) {
        Ok(_) => Ok(()),
        Err(error) => bail!(
            "{http} cannot be used: {error}; stop the program that listens there, or choose another address: make demo HTTP=127.0.0.1:9600"
        ),
    }
}

/// `setpriv` replaces itself by the program, which then ends with this process, however that ends.
fn guarded(program: &Path) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|dir| dir.join("setpriv")).find(|file| file.is_file()) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}
