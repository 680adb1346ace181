//! JSON of graphite-web as the source of an import: its flags, its list of entries, entries left out.
//!
//! Invariant: a bad entry costs itself alone; it is counted, and the first [`NAMED_MAX`] are named by their
//! index in the list and the reason.
//! Not here: entries (`graphite_events`, `graphite_tags`), the server (`server`).

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use chronolith_base::Env;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use super::server::TargetServer;
use crate::args::value;

/// Entries left out that are named.
const NAMED_MAX: usize = 20;
/// Bytes of the input.
const INPUT_BYTES_MAX: u64 = 256 << 20;

/// A command that reads JSON and writes to a running server.
pub(super) fn command(name: &'static str, about: &'static str) -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new(name)
        .about(about)
        .arg(Arg::new("file").required(true).value_name("FILE").help("JSON; - for standard input"))
        .arg(option("to", "URL", "Server to write to").default_value("http://127.0.0.1:9595"))
        .arg(option("tenant", "ID", "Tenant to write to; sent as X-Scope-OrgID"))
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Read the entries and write nothing"),
        )
}

/// The server that the flags name.
pub(super) fn target(env: &Env, matches: &ArgMatches) -> anyhow::Result<TargetServer> {
    let url = value(matches, "to").unwrap_or_default().to_owned();
    TargetServer::new(env, url, value(matches, "tenant").map(str::to_owned))
}

/// Reads the list of entries that the flags name.
pub(super) fn entries(env: &Env, matches: &ArgMatches) -> anyhow::Result<Vec<Value>> {
    let name = value(matches, "file").unwrap_or_default();
    let read = || -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match name {
            "-" => {
                std::io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            }
            path => {
                let file = env.disk.open_read(Path::new(path))?;
                let len = file.len()?.min(INPUT_BYTES_MAX + 1);
                bytes.resize(usize::try_from(len)?, 0);
                file.read_at(&mut bytes, 0)?;
            }
        }
        ensure!(bytes.len() as u64 <= INPUT_BYTES_MAX, "longer than {INPUT_BYTES_MAX} bytes, split the list");
        Ok(bytes)
    };
    let bytes = read().with_context(|| format!("reading {name}"))?;
    let parsed = serde_json::from_slice(&bytes);
    parsed.with_context(|| format!("{name} is no list of graphite-web as JSON"))
}

/// Entries of the source that are not in the target.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    named: Vec<String>,
    count: u64,
}

impl LeftOut {
    /// Counts an entry by its index in the list.
    pub(super) fn push(&mut self, entry_idx: usize, reason: &str) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("entry {entry_idx}: {}", reason.trim_end()));
        }
    }

    /// Lines of a report.
    pub(super) fn show(&self) -> String {
        let mut out = String::new();
        for line in &self.named {
            let _ = writeln!(out, "left out: {line}");
        }
        let unnamed = self.count - self.named.len() as u64;
        if unnamed > 0 {
            let _ = writeln!(out, "left out: {unnamed} further entries");
        }
        out
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        if self.count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
