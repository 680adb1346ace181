//! `cargo xtask bench NAME [flags]`: builds what the benchmark measures and hands the flags on.
//! Not here: the benchmarks themselves (`crates/bench`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::peers::{self, PEERS_ENV};

/// Benchmarks that compare with other servers, unless `--only chronolith`.
const WITH_PEERS: [&str; 7] = [
    "remote-write",
    "line-protocol",
    "queries",
    "graph-answers",
    "label-endpoints",
    "restart",
    "load-wal-large",
];

/// Runs one benchmark; `flags` starts with its name.
pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    if flags.is_empty() {
        bail!("which benchmark? e.g. cargo xtask bench remote-write --help");
    }
    // Both in one build: the benchmark starts the server binary next to its own.
    let built = Command::new("cargo")
        .args(["build", "--release", "--package", "chronolith-bench", "--package", "chronolith"])
        .current_dir(root)
        .status()
        .context("cargo build")?;
    if !built.success() {
        bail!("the release build failed");
    }
    let binary = crate::process::target_dir(root)?.join("release/chronolith-bench");
    let mut bench = Command::new(&binary);
    bench.args(flags).current_dir(root);
    if WITH_PEERS.contains(&flags[0]) && !flags.contains(&"--help") {
        match peers::build(root) {
            Ok(dir) => {
                bench.env(PEERS_ENV, dir);
            }
            Err(error) => eprintln!("the peers are those in the path, not the newest: {error:#}"),
        }
    }
    let ran = bench.status();
    let ran = ran.with_context(|| format!("cannot start {}", binary.display()))?;
    Ok(ran.success())
}
