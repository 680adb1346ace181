//! Resource usage of a step: wall time seen from outside, CPU time and peak memory as the process reports at
//! its end.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Options;
use crate::http::free_port;
use crate::proc;
use crate::server::Kind;

const PROMETHEUS_READY_WAIT: Duration = Duration::from_secs(1800);
const POLL: Duration = Duration::from_millis(20);

/// Step that runs in a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Step {
    /// Load of a Prometheus log.
    Import,
    /// Writing the same content to our own log.
    Fill,
    /// Opening a store whose process was killed.
    Replay,
}

/// Name of a value on the command line.
fn name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Resources that a process has used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(super) wall_seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) peak_bytes: f64,
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peak_mb = self.peak_bytes / 1e6;
        write!(f, "{:.2} s, {:.2} CPU s, {peak_mb:.0} MB", self.wall_seconds, self.cpu_seconds)
    }
}

impl Used {
    /// Resources of the process `pid` so far.
    fn of(pid: u32, start: Instant) -> Result<Used> {
        let cpu_seconds = proc::cpu_seconds(pid)?.total();
        let peak_bytes = proc::memory(pid)?.peak_bytes as f64;
        Ok(Used { wall_seconds: start.elapsed().as_secs_f64(), cpu_seconds, peak_bytes })
    }
}

/// Prints what this process has used, for [`step`].
pub(super) fn print_used() -> Result<()> {
    let used = Used::of(std::process::id(), Instant::now())?;
    println!("used {} {}", used.cpu_seconds, used.peak_bytes);
    Ok(())
}

/// Runs a step in a process of its own.
pub(super) fn step(options: &Options, shape: &str, step: Step) -> Result<Used> {
    let (used, mut child) = begin(options, shape, step)?;
    let status = child.wait()?;
    ensure!(status.success() || step == Step::Replay, "step {} failed: {status}", name(&step));
    Ok(used)
}

/// Fills our own log and kills the process with a signal that it cannot handle.
pub(super) fn fill_and_kill(options: &Options, shape: &str) -> Result<Used> {
    let (used, mut child) = begin(options, shape, Step::Fill)?;
    child.kill()?;
    child.wait()?;
    Ok(used)
}

fn begin(options: &Options, shape: &str, step: Step) -> Result<(Used, std::process::Child)> {
    let start = Instant::now();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["load-wal-large", "--step", &name(&step), "--only", shape]);
    command.arg("--dir").arg(&options.dir).arg(format!("--divide={}", options.divide));
    command.args(["--encoding", &name(&options.encoding)]);
    if options.full {
        command.arg("--full");
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    let wall_seconds = start.elapsed().as_secs_f64();
    let mut fields = line.split_whitespace().skip(1);
    let mut next = || fields.next().with_context(|| format!("step {} printed {line:?}", name(&step)));
    let used = Used { wall_seconds, cpu_seconds: next()?.parse()?, peak_bytes: next()?.parse()? };
    Ok((used, child))
}

/// Starts Prometheus over `dir` and waits until it is ready.
pub(super) fn prometheus(dir: &Path, series: usize) -> Result<Used> {
    let config = dir.join("empty.yml");
    std::fs::write(&config, "")?;
    let port = free_port()?;
    let mut command = Command::new(Kind::Prometheus.program()?);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", dir.display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command.args(["--storage.tsdb.retention.time=10y", "--log.level=error"]);
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let found = wait_ready(child.id(), port, start);
    let head = found.as_ref().ok().map(|_| head_series(port));
    child.kill()?;
    child.wait()?;
    let head = head.transpose()?.unwrap_or_default();
    let used = found?;
    ensure!(head == series, "Prometheus has {head} series, expected {series}");
    Ok(used)
}

fn wait_ready(pid: u32, port: u16, start: Instant) -> Result<Used> {
    loop {
        let ready = crate::http::get(port, "/-/ready").is_ok_and(|(status, _)| status == 200);
        if ready {
            return Used::of(pid, start);
        }
        ensure!(start.elapsed() < PROMETHEUS_READY_WAIT, "Prometheus is not ready");
        std::thread::sleep(POLL);
    }
}

fn head_series(port: u16) -> Result<usize> {
    let (_, body) = crate::http::get(port, "/api/v1/status/tsdb")?;
    let json: serde_json::Value = serde_json::from_str(&body)?;
    let series = json["data"]["headStats"]["numSeries"].as_u64().context("no headStats")?;
    Ok(series as usize)
}
