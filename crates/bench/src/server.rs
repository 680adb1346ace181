//! The servers that are compared, as processes on a free loopback port over an empty directory.
//!
//! Invariants: a server ends with this process, however it ends (`Drop`, or the kernel's parent-death
//! signal). Each runs as its operators run it: no setting is there to slow it down, those that are there make
//! it accept the load (named in BENCHMARKS.md).

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::carbon_cache;
use crate::machine::first_line;
use crate::proc::{self, CpuSeconds, Memory};
use crate::{http, influx};

const READY_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(120);
const FLUSH_WAIT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);
/// Between two looks at a server whose start is timed.
const START_POLL: Duration = Duration::from_millis(2);

/// Counts the servers of this process: each has a directory of its own, also when they run side by side.
static STARTED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Options of a server in addition to the options of every run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Series that it has to take and to read back.
    series_count: usize,
    /// Further flags of each program.
    flags: Vec<(Kind, String)>,
    /// Prometheus: the sections of its configuration after `global`; InfluxDB: lines of its section `data`;
    /// carbon: its archive.
    config: String,
    /// The port speaks TLS, so that none of this module's requests by HTTP can be sent.
    speaks_tls: bool,
}

impl Setup {
    /// Options of a server that has to take and to read back `series_count` series.
    pub(crate) fn new(series_count: usize) -> Setup {
        Setup { series_count, ..Setup::default() }
    }

    /// Adds flags of the program of `kind`; other servers run without them.
    pub(crate) fn flags<F: Into<String>>(mut self, kind: Kind, flags: impl IntoIterator<Item = F>) -> Setup {
        self.flags.extend(flags.into_iter().map(|flag| (kind, flag.into())));
        self
    }

    /// Adds flags of this repository's server.
    pub(crate) fn own_flags<F: Into<String>>(self, flags: impl IntoIterator<Item = F>) -> Setup {
        self.flags(Kind::Chronolith, flags)
    }

    /// Expects TLS on the port: the server counts as ready when it accepts connections.
    pub(crate) fn speaks_tls(self) -> Setup {
        Setup { speaks_tls: true, ..self }
    }

    /// Sets the configuration of a server that has a file for it.
    pub(crate) fn config(self, config: impl Into<String>) -> Setup {
        Setup { config: config.into(), ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// This repository's release build.
    Chronolith,
    /// Prometheus with its remote write receiver on.
    Prometheus,
    /// VictoriaMetrics, single node.
    VictoriaMetrics,
    /// InfluxDB 1.x with the index in memory; it speaks no remote write.
    InfluxInmem,
    /// InfluxDB 1.x with the index on disk.
    InfluxTsi1,
    /// carbon-cache, which writes whisper files and has no HTTP. The port is its line receiver's.
    Carbon,
}

impl Kind {
    /// Servers with remote write, in the order of reports.
    pub(crate) const ALL: [Kind; 3] = [Kind::Chronolith, Kind::Prometheus, Kind::VictoriaMetrics];

    /// Name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Chronolith => "chronolith",
            Kind::Prometheus => "prometheus",
            Kind::VictoriaMetrics => "victoria-metrics",
            Kind::InfluxInmem => "influxdb-inmem",
            Kind::InfluxTsi1 => "influxdb-tsi1",
            Kind::Carbon => "carbon-cache",
        }
    }

    /// The program, or what to do to get it.
    pub(crate) fn program(self) -> Result<PathBuf> {
        let (found, advice) = match self {
            Kind::Chronolith => {
                let beside = std::env::current_exe()?.with_file_name("chronolith");
                (Some(beside).filter(|path| path.is_file()), "cargo build --release -p chronolith")
            }
            Kind::Prometheus | Kind::VictoriaMetrics => (
                newest(self.name()).or_else(|| in_path(self.name())),
                "cargo xtask peers, or Debian's package of that name",
            ),
            Kind::InfluxInmem | Kind::InfluxTsi1 => (in_path("influxd"), "Debian's package influxdb"),
            Kind::Carbon => (in_path("carbon-cache"), "Debian's package graphite-carbon"),
        };
        found.with_context(|| format!("{} is not there; {advice} (or leave it out with --only)", self.name()))
    }

    /// First line of what the program says about its version.
    pub(crate) fn version(self) -> Result<String> {
        let program = self.program()?.display().to_string();
        let of_package =
            |name: &str| first_line("dpkg-query", &["-W", "-f", "${Package} ${Version}\n", name]);
        Ok(match self {
            Kind::VictoriaMetrics if newest(self.name()).is_some() => first_line(&program, &["-version"]),
            // Debian's build does not know its version.
            Kind::VictoriaMetrics => of_package("victoria-metrics"),
            Kind::Chronolith | Kind::Prometheus => first_line(&program, &["--version"]),
            Kind::InfluxInmem | Kind::InfluxTsi1 => first_line(&program, &["version"]),
            Kind::Carbon => of_package("graphite-carbon"),
        })
    }

    fn args(self, dir: &Path, port: u16, setup: &Setup) -> Result<Vec<String>> {
        let address = format!("127.0.0.1:{port}");
        let dir_text = dir.join("data").display().to_string();
        let series_count = setup.series_count;
        let mut args = match self {
            Kind::Chronolith => vec!["serve".into(), "--data-dir".into(), dir_text, "--http".into(), address],
            Kind::Prometheus => {
                let config = dir.join("prometheus.yml");
                std::fs::write(&config, format!("global: {{}}\n{}", setup.config))?;
                vec![
                    format!("--config.file={}", config.display()),
                    format!("--storage.tsdb.path={dir_text}"),
                    format!("--web.listen-address={address}"),
                    "--web.enable-remote-write-receiver".into(),
                    "--storage.tsdb.retention.time=30d".into(),
                    "--log.level=warn".into(),
                ]
            }
            Kind::VictoriaMetrics => vec![
                format!("-storageDataPath={dir_text}"),
                format!("-httpListenAddr={address}"),
                "-retentionPeriod=1".into(),
                "-search.latencyOffset=0s".into(),
                format!("-search.maxUniqueTimeseries={}", series_count * 2),
                format!("-search.maxSeries={}", series_count * 2),
                "-search.maxQueryDuration=120s".into(),
                "-loggerLevel=WARN".into(),
            ],
            Kind::InfluxInmem => influx::args("inmem", dir, &address, &setup.config)?,
            Kind::InfluxTsi1 => influx::args("tsi1", dir, &address, &setup.config)?,
            Kind::Carbon => carbon_cache::args(dir, port, &setup.config)?,
        };
        args.extend(setup.flags.iter().filter(|(kind, _)| *kind == self).map(|(_, flag)| flag.clone()));
        Ok(args)
    }

    fn ready_path(self) -> &'static str {
        match self {
            Kind::VictoriaMetrics => "/health",
            Kind::InfluxInmem | Kind::InfluxTsi1 => "/ping",
            Kind::Chronolith | Kind::Prometheus => "/-/ready",
            Kind::Carbon => "",
        }
    }
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    dir: PathBuf,
    /// Port on which it listens.
    pub(super) port: u16,
    kind: Kind,
    setup: Setup,
}

impl Server {
    /// Starts it over an empty directory below `parent` and waits until it answers.
    pub(crate) fn start(kind: Kind, parent: &Path, setup: Setup) -> Result<Server> {
        let number = STARTED_COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("chronolith-bench-{}-{number}-{}", std::process::id(), kind.name());
        let dir = parent.join(name);
        std::fs::create_dir_all(dir.join("data"))?;
        let port = http::free_port()?;
        let child = spawn(kind, &dir, port, &setup)?;
        let mut server = Server { child, dir, port, kind, setup };
        server.wait_ready(POLL, READY_WAIT)?;
        Ok(server)
    }

    /// Starts it again over its directory, and does not wait for it. Gives the moment before that.
    /// It must have been killed or stopped.
    pub(crate) fn exec_again(&mut self) -> Result<Instant> {
        let start = Instant::now();
        self.child = spawn(self.kind, &self.dir, self.port, &self.setup)?;
        Ok(start)
    }

    /// Starts it again and waits until it is ready, for at most `limit`; returns the seconds since exec.
    pub(crate) fn start_again(&mut self, limit: Duration) -> Result<f64> {
        let start = self.exec_again()?;
        self.wait_ready(START_POLL, limit)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Stops it and starts it again with another configuration.
    pub(crate) fn restart_with_config(&mut self, config: &str) -> Result<()> {
        self.stop()?;
        self.setup.config = config.to_owned();
        self.start_again(READY_WAIT).map(drop)
    }

    /// Stops it and starts it again with other flags.
    pub(crate) fn restart_with<F: Into<String>>(&mut self, flags: impl IntoIterator<Item = F>) -> Result<()> {
        self.stop()?;
        self.setup.flags.clear();
        self.setup = std::mem::take(&mut self.setup).flags(self.kind, flags);
        self.start_again(READY_WAIT).map(drop)
    }

    /// Returns true if the server reports that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        if self.kind == Kind::Carbon || self.setup.speaks_tls {
            return TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        }
        http::get(self.port, self.kind.ready_path()).is_ok_and(|(status, _)| status / 100 == 2)
    }

    /// Moves its directory to another name. It must have been killed or stopped.
    pub(crate) fn move_directory(&mut self) -> Result<()> {
        let mut name = self.dir.clone().into_os_string();
        name.push("-moved");
        std::fs::rename(&self.dir, &name)?;
        self.dir = name.into();
        Ok(())
    }

    /// Ends it at once, as `kill -9` does, and waits until it has gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Fails if the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended: {status}\n{}", self.kind.name(), self.log_tail()),
            None => Ok(()),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Data directory of the server.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns the value of the metric `chronolith_NAME` or `chronolith_NAME_total`, which has no labels.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let (_, body) = http::get(self.port, "/metrics")?;
        let names = [format!("chronolith_{name}"), format!("chronolith_{name}_total")];
        let line = body.lines().find_map(|line| {
            let (found, value) = line.split_once(' ')?;
            names.iter().any(|name| name == found).then_some(value)
        });
        line.with_context(|| format!("no metric {name}"))?.parse().context("not a number")
    }

    /// Makes acknowledged samples visible to queries, where the server has a delay.
    pub(crate) fn make_visible(&self) -> Result<()> {
        if self.kind == Kind::VictoriaMetrics {
            http::get(self.port, "/internal/force_flush")?;
            // The request does not wait for a flush that is under way already; the server begins one every
            // second.
            std::thread::sleep(FLUSH_WAIT);
            http::get(self.port, "/internal/force_flush")?;
        }
        Ok(())
    }

    /// Ends it as an operator does and waits until it has gone.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let terminate = format!("kill -TERM {}", self.child.id());
        Command::new("sh").args(["-c", &terminate]).status()?;
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(start.elapsed() < STOP_WAIT, "{} does not end", self.kind.name());
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Memory of the process.
    pub(crate) fn memory(&self) -> Result<Memory> {
        proc::memory(self.pid())
    }

    /// CPU time of the process since its start.
    pub(crate) fn cpu(&self) -> Result<CpuSeconds> {
        proc::cpu_seconds(self.pid())
    }

    /// The end of its log, for error messages.
    pub(crate) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn wait_ready(&mut self, poll: Duration, limit: Duration) -> Result<()> {
        self.wait_for("being ready", poll, limit, |server| Ok(server.is_ready().then_some(())))
    }

    /// Looks every `poll` until there is a result, for at most `limit`; fails if the server ends.
    pub(crate) fn wait_for<T>(
        &mut self,
        what: &str,
        poll: Duration,
        limit: Duration,
        mut look: impl FnMut(&Server) -> Result<Option<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        while start.elapsed() < limit {
            self.check_alive()?;
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            std::thread::sleep(poll);
        }
        bail!("{}: {what} takes longer than {} s\n{}", self.kind.name(), limit.as_secs(), self.log_tail())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already; a directory that will not go is left to the operating system.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

/// The newest release of a peer, where `cargo xtask peers` built it.
fn newest(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("CHRONOLITH_PEERS").map(PathBuf::from)?;
    Some(dir.join(name)).filter(|path| path.is_file())
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn spawn(kind: Kind, dir: &Path, port: u16, setup: &Setup) -> Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(dir.join("server.log"))?;
    die_with_parent(&kind.program()?, &kind.args(dir, port, setup)?)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}", kind.name()))
}

/// `setpriv` replaces itself by the program, so the process id is the server's.
pub(crate) fn die_with_parent(program: &Path, args: &[String]) -> Command {
    let mut command = match in_path("setpriv") {
        Some(setpriv) => {
            let mut guarded = Command::new(setpriv);
            guarded.args(["--pdeathsig", "KILL", "--"]).arg(program);
            guarded
        }
        None => Command::new(program),
    };
    command.args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::{Kind, Setup};

    #[test]
    fn flags_reach_only_the_program_that_they_are_for() {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new(1).own_flags(["--own"]).flags(Kind::VictoriaMetrics, ["-theirs"]);
        for (kind, own, theirs) in [
            (Kind::Chronolith, true, false),
            (Kind::VictoriaMetrics, false, true),
            (Kind::Prometheus, false, false),
        ] {
            let args = kind.args(dir.path(), 1, &setup).unwrap();
            let has = |flag: &str| args.iter().any(|arg| arg == flag);
            assert_eq!((has("--own"), has("-theirs")), (own, theirs), "{args:?}");
        }
    }
}
