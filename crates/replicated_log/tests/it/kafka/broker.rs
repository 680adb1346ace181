//! The broker of the tests: a process of the harness, which obeys lines.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const HARNESS: &str = "../../kits/kafka/broker.py";

/// Process of the harness. The broker ends with its standard input.
pub(super) struct Broker {
    _harness: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Addresses of listeners, and folder of files.
    settings: BTreeMap<String, String>,
}

impl Broker {
    /// Returns the broker of all tests, one test at a time; `None` (and a line that reports it) without one.
    ///
    /// # Panics
    /// In CI, where there has to be one.
    pub(super) fn shared() -> Option<MutexGuard<'static, Broker>> {
        static SHARED: OnceLock<Result<Mutex<Broker>, String>> = OnceLock::new();
        match SHARED.get_or_init(|| Broker::start().map(Mutex::new)) {
            Ok(broker) => Some(broker.lock().unwrap_or_else(PoisonError::into_inner)),
            Err(why) => {
                println!("NOT RUN: {why}");
                assert!(std::env::var_os("CI").is_none(), "{why}");
                None
            }
        }
    }

    fn start() -> Result<Broker, String> {
        let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join(HARNESS);
        let mut child = Command::new("python3")
            .arg(harness)
            .arg("serve")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("python3: {error}"))?;
        let commands = child.stdin.take().expect("is piped");
        let mut answers = BufReader::new(child.stdout.take().expect("is piped"));
        let mut settings = BTreeMap::new();
        loop {
            let mut line = String::new();
            let len = answers.read_line(&mut line).map_err(|error| error.to_string())?;
            match line.trim_end().split_once('=') {
                Some((name, value)) => drop(settings.insert(name.to_owned(), value.to_owned())),
                None if line.starts_with("ready") => break,
                None if line.starts_with("not run: ") => return Err(line.trim_end().to_owned()),
                None => panic!("the harness ended after {len} bytes: {line}"),
            }
        }
        Ok(Broker { _harness: child, commands, answers, settings })
    }

    /// Returns the address of a listener.
    pub(super) fn listener(&self, name: &str) -> &str {
        &self.settings[name]
    }

    /// Returns the path of a file with a certificate or secret.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.settings["files"]).join(name)
    }

    /// Kills the broker as a power cut of its process.
    pub(super) fn kill(&mut self) {
        self.command("kill 1");
    }

    /// Starts the broker and waits until it answers.
    pub(super) fn start_again(&mut self) {
        self.command("start 1");
    }

    /// Stops the broker's threads until `resume`.
    pub(super) fn pause(&mut self) {
        self.command("pause 1");
    }

    /// Lets the threads go on.
    pub(super) fn resume(&mut self) {
        self.command("resume 1");
    }

    fn command(&mut self, line: &str) {
        writeln!(self.commands, "{line}").expect("the harness runs");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the harness runs");
        assert_eq!(answer.trim_end(), "ok", "{line}");
    }
}
