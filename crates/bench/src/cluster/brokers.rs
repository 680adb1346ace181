//! Brokers of Apache Kafka, which `kits/kafka/broker.py` fetches, starts, and kills.
//!
//! Invariant: brokers end with this process: the harness ends with its standard input.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::proc::{self, CpuSeconds};

/// Running brokers, which end with this value.
pub(super) struct Brokers {
    harness: Child,
    /// Ends the brokers with its end.
    stdin: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    settings: BTreeMap<String, String>,
}

impl Brokers {
    /// Starts `count` brokers and waits until they answer. The first start fetches Kafka from Maven Central.
    pub(super) fn start(harness: &Path, count: usize) -> Result<Brokers> {
        let mut child = Command::new("python3")
            .arg(harness)
            .args(["serve", "--count", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("python3 {}", harness.display()))?;
        let stdin = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().context("no output of the harness")?);
        let mut settings = BTreeMap::new();
        loop {
            let mut line = String::new();
            ensure!(answers.read_line(&mut line)? > 0, "the harness of the brokers ended");
            let line = line.trim_end();
            match line.split_once('=') {
                Some((name, value)) => drop(settings.insert(name.to_owned(), value.to_owned())),
                None if line.starts_with("ready") => {
                    return Ok(Brokers { harness: child, stdin, answers, settings });
                }
                None => bail!("brokers do not start: {line}"),
            }
        }
    }

    /// Sends a line to the harness (`kill 1`, `start 1`) and waits until it has obeyed.
    pub(super) fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the harness has ended")?;
        writeln!(stdin, "{line}")?;
        stdin.flush()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.trim_end() == "ok", "{line}: {answer}");
        Ok(())
    }

    /// Addresses of the listener without encryption and login, as they stand in the address of a log.
    pub(super) fn addresses(&self) -> Result<&str> {
        Ok(self.settings.get("plain").context("no plain listener")?)
    }

    /// CPU time of all brokers.
    pub(super) fn cpu(&self) -> Result<CpuSeconds> {
        let pids = self.settings.get("pids").context("no pids")?;
        let mut all = CpuSeconds::default();
        for pid in pids.split(',') {
            all = all.plus(proc::cpu_seconds(pid.parse()?)?);
        }
        Ok(all)
    }

    /// Bytes of the segments of `topic` on the disks of all brokers; files are preallocated in part, so that
    /// their lengths count, not their blocks.
    pub(super) fn topic_bytes(&self, topic: &str) -> Result<u64> {
        let folder = PathBuf::from(self.settings.get("files").context("no folder")?);
        let mut bytes = 0;
        for broker in std::fs::read_dir(folder)?.flatten() {
            let Ok(partitions) = std::fs::read_dir(broker.path().join("data")) else { continue };
            for partition in partitions.flatten() {
                let name = partition.file_name();
                let is_of_topic = name.to_string_lossy().rsplit_once('-').is_some_and(|(of, _)| of == topic);
                if !is_of_topic {
                    continue;
                }
                for file in std::fs::read_dir(partition.path())?.flatten() {
                    if file.path().extension().is_some_and(|extension| extension == "log") {
                        bytes += file.metadata()?.len();
                    }
                }
            }
        }
        Ok(bytes)
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        drop(self.stdin.take());
        drop(self.harness.wait());
    }
}
