//! Driver of the benchmarks: directories, servers, rounds, failures and the report. A benchmark is a value of
//! its options; the load and the figures are its own.
//!
//! Invariants: every measurement has a fresh process over an empty directory; a measurement that fails does
//! not end the others, but the benchmark fails in the end; the report is written once, after the last
//! measurement, also if some failed.
//! Not here: loads and figures (each benchmark), layout of the report (`report`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::latency::median;
use crate::report::{Bound, Figure, OwnPart, Report, Table, Target};
use crate::server::{Kind, Server, Setup};

/// Options of every benchmark.
#[derive(clap::Args)]
pub(crate) struct CommonOptions {
    /// Directory of the report.
    #[arg(long, global = true, default_value = "bench/results")]
    out: PathBuf,
    /// Parent of the data directories. Its disk affects the results.
    #[arg(long, global = true, default_value_os_t = std::env::temp_dir())]
    data: PathBuf,
    /// Prints the names of the servers that the benchmark would start, for `cargo xtask bench`.
    #[arg(long, global = true, hide = true)]
    list_servers: bool,
}

/// A benchmark, which holds its options.
pub(crate) trait Benchmark {
    /// Variant of the benchmark that has reports of its own.
    fn variant(&self) -> Option<&str> {
        None
    }

    /// Servers to measure; none if the code under test runs in this process.
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(Vec::new())
    }

    /// Applies the load and adds notes, tables and targets to the report of `run`.
    fn measure(&self, run: &mut Run) -> Result<()>;
}

/// Runs the benchmark of the command `name` and writes its report.
pub(crate) fn run(name: &str, benchmark: &dyn Benchmark, common: &CommonOptions) -> Result<()> {
    if common.list_servers {
        benchmark.servers()?.iter().for_each(|kind| println!("{}", kind.name()));
        return Ok(());
    }
    let mut run = Run::new(name, benchmark, common)?;
    let measured = benchmark.measure(&mut run);
    if run.report.has_figures() {
        run.report.write(&common.out)?;
    }
    measured?;
    ensure!(run.failed.is_empty(), "not measured: {}", run.failed.join("; "));
    Ok(())
}

/// Removes `dir`, if it is there.
pub(crate) fn clear(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// One run of a benchmark.
pub(crate) struct Run<'a> {
    report: Report,
    common: &'a CommonOptions,
    /// Titles of the measurements that failed.
    failed: Vec<String>,
}

impl<'a> Run<'a> {
    /// Looks for the servers of `benchmark` and prints their versions.
    pub(crate) fn new(name: &str, benchmark: &dyn Benchmark, common: &'a CommonOptions) -> Result<Run<'a>> {
        let kinds = benchmark.servers()?;
        for kind in &kinds {
            println!("{}: {}", kind.name(), kind.version()?);
        }
        let name = benchmark.variant().map_or(name.to_owned(), |variant| format!("{name}-{variant}"));
        let report = Report { name, kinds, ..Report::default() };
        Ok(Run { report, common, failed: Vec::new() })
    }

    /// Servers to measure, in the order of the report.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.report.kinds.clone()
    }

    /// Directory of the report.
    pub(crate) fn out(&self) -> &Path {
        &self.common.out
    }

    /// Parent of the data directories.
    pub(crate) fn data(&self) -> &Path {
        &self.common.data
    }

    /// Starts a server over an empty directory and waits until it is ready.
    pub(crate) fn start(&self, kind: Kind, setup: Setup) -> Result<Server> {
        Server::start(kind, self.data(), setup)
    }

    /// Starts a server, measures it and ends it; an error holds the end of its log.
    pub(crate) fn measure_server<M>(
        &self,
        kind: Kind,
        setup: Setup,
        measure: impl FnOnce(&mut Server) -> Result<M>,
    ) -> Result<M> {
        let mut server = self.start(kind, setup)?;
        let measured = measure(&mut server);
        measured.with_context(|| format!("{}; its log ends with:\n{}", kind.name(), server.log_tail()))
    }

    /// Measures all servers in turns, once per round; `setup` returns `None` for a server that takes no part.
    /// Prints a summary of each measurement.
    pub(crate) fn measure_servers<M: Summary>(
        &mut self,
        case: &str,
        rounds: usize,
        setup: impl Fn(Kind) -> Option<Setup>,
        mut measure: impl FnMut(&mut Server) -> Result<M>,
    ) -> Measurements<M> {
        let mut measurements = Measurements(Vec::new());
        for round in 1..=rounds {
            for kind in self.kinds() {
                let Some(setup) = setup(kind) else { continue };
                let of_rounds = if rounds > 1 { format!(", round {round}") } else { String::new() };
                let title = format!("{case} {}{of_rounds}", kind.name());
                let measured = self.measure_server(kind, setup, &mut measure);
                if let Some(one) = self.keep(&title, measured) {
                    println!("{title}: {}", one.summary());
                    measurements.0.push((kind, one));
                }
            }
        }
        measurements
    }

    /// Returns the result of a measurement; on an error prints it, records the failure and returns `None`.
    pub(crate) fn keep<M>(&mut self, title: &str, done: Result<M>) -> Option<M> {
        done.inspect_err(|error| {
            eprintln!("failed: {title}: {error:#}");
            self.failed.push(title.to_owned());
        })
        .ok()
    }

    /// Runs `measure` with an empty directory, which is removed afterwards, also after a failure: `dir`,
    /// whose files are lost, or a directory of its own below the parent of the data directories.
    pub(crate) fn with_directory<M>(
        &mut self,
        dir: Option<&Path>,
        measure: impl FnOnce(&mut Self, &Path) -> Result<M>,
    ) -> Result<M> {
        let name = format!("chronolith-bench-{}-{}", std::process::id(), self.report.name);
        let dir = dir.map_or_else(|| self.data().join(name), Path::to_owned);
        clear(&dir)?;
        std::fs::create_dir_all(&dir)?;
        let dir = dir.canonicalize()?;
        let measured = measure(self, &dir);
        clear(&dir).with_context(|| dir.display().to_string())?;
        measured
    }

    /// Adds a line about the load or the setup to the report.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.report.notes.push(note.into());
    }

    /// Adds figures in a form of their own to the report.
    pub(crate) fn own_part(&mut self, part: OwnPart) {
        self.report.own.push(part);
    }

    /// Adds a table to the report.
    pub(crate) fn table(&mut self, table: Table) {
        self.report.tables.push(table);
    }

    /// Adds a target that is met by `most` or less; `found` is NaN if it could not be measured.
    pub(crate) fn at_most(&mut self, what: impl Into<String>, found: f64, most: f64) {
        self.report.targets.push(Target::new(what, found, Bound::AtMost(most)));
    }

    /// Adds a target that is met by `least` or more; `found` is NaN if it could not be measured.
    pub(crate) fn at_least(&mut self, what: impl Into<String>, found: f64, least: f64) {
        self.report.targets.push(Target::new(what, found, Bound::AtLeast(least)));
    }
}

/// Figures of one measurement of a server.
pub(crate) trait Summary {
    /// One line of progress.
    fn summary(&self) -> String;
}

/// Measurements of one case, by server, one per round.
pub(crate) struct Measurements<M>(Vec<(Kind, M)>);

impl<M> Measurements<M> {
    /// Returns the first measurement of `kind`.
    pub(crate) fn first(&self, kind: Kind) -> Option<&M> {
        self.0.iter().find(|(found, _)| *found == kind).map(|(_, one)| one)
    }

    /// Returns a figure of `kind`: the median of the rounds, NaN without any.
    pub(crate) fn median(&self, kind: Kind, figure: impl Fn(&M) -> f64) -> f64 {
        median(&self.rounds(kind, figure))
    }

    /// Returns the table of all figures, one column per server.
    pub(crate) fn table(&self, title: impl Into<String>, kinds: &[Kind], figures: &[Figure<M>]) -> Table {
        let mut table = Table::new(title, kinds.iter().map(|kind| kind.name()));
        for (label, decimals, figure) in figures {
            table.rounds(*label, *decimals, kinds.iter().map(|kind| self.rounds(*kind, figure)).collect());
        }
        table
    }

    fn rounds(&self, kind: Kind, figure: impl Fn(&M) -> f64) -> Vec<f64> {
        self.0.iter().filter(|(found, _)| *found == kind).map(|(_, one)| figure(one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use serde_json::{Value, json};

    use super::*;

    /// Measures three rounds, then fails in a way of its own.
    struct Sample {
        is_ended: bool,
    }

    impl Benchmark for Sample {
        fn variant(&self) -> Option<&str> {
            Some("small")
        }

        fn measure(&self, run: &mut Run) -> Result<()> {
            let mut table = Table::new("times", ["a", "b"]);
            table.rounds("ms", 1, vec![vec![3.0, 1.0, 2.0], Vec::new()]);
            run.table(table);
            run.at_most("ms", 2.0, 1.0);
            run.keep("second part", Err::<(), _>(anyhow::anyhow!("refused")));
            if self.is_ended { bail!("no third part") } else { Ok(()) }
        }
    }

    fn run_in(dir: &Path, is_ended: bool) -> String {
        let common = CommonOptions { out: dir.join("out"), data: dir.to_owned(), list_servers: false };
        run("sample", &Sample { is_ended }, &common).unwrap_err().to_string()
    }

    #[test]
    fn a_failed_part_fails_the_benchmark_and_the_others_are_reported() {
        for (is_ended, want) in [(false, "not measured: second part"), (true, "no third part")] {
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(run_in(dir.path(), is_ended), want);
            let name = format!("sample-small-{}", crate::machine::date());
            let markdown = std::fs::read_to_string(dir.path().join(format!("out/{name}.md"))).unwrap();
            assert!(
                markdown.contains("\n| ms | 2.0 | - |\n") && markdown.contains("**missed**"),
                "{markdown}"
            );
            let text = std::fs::read_to_string(dir.path().join(format!("out/{name}.json"))).unwrap();
            let report: Value = serde_json::from_str(&text).unwrap();
            let row = json!({"label": "ms", "values": [2.0, null], "rounds": [[3.0, 1.0, 2.0], []]});
            assert_eq!(report["tables"][0]["rows"][0], row);
        }
    }

    #[test]
    fn a_directory_is_empty_before_and_gone_after_also_after_a_failure() {
        let parent = tempfile::tempdir().unwrap();
        let common = CommonOptions {
            out: parent.path().join("out"),
            data: parent.path().to_owned(),
            list_servers: false,
        };
        let mut run = Run::new("sample", &Sample { is_ended: false }, &common).unwrap();
        let named = parent.path().join("named");
        std::fs::create_dir(&named).unwrap();
        std::fs::write(named.join("left"), "by an interrupted run").unwrap();
        for dir in [None, Some(named.as_path())] {
            let done = run.with_directory(dir, |_, dir| -> Result<()> {
                assert_eq!(std::fs::read_dir(dir)?.count(), 0);
                std::fs::write(dir.join("file"), "")?;
                bail!("stopped")
            });
            assert_eq!(done.unwrap_err().to_string(), "stopped");
        }
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
