//! `cargo xtask bench NAME [flags]`: builds what the benchmark measures and hands the flags on.
//! Not here: the benchmarks themselves (`crates/bench`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::peers::{self, PEERS_ENV};

/// Servers that `cargo xtask peers` builds, by their names in `--only`.
const PEERS: [&str; 2] = ["prometheus", "victoria-metrics"];

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
    if needs_peers(&binary, flags)? {
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

/// Returns true if the benchmark starts a peer with these flags.
fn needs_peers(binary: &Path, flags: &[&str]) -> Result<bool> {
    let mut bench = Command::new(binary);
    bench.args(&flags[..1]).arg("--list-servers").args(&flags[1..]);
    let listed = bench.output().with_context(|| format!("cannot start {}", binary.display()))?;
    // Flags that the benchmark refuses are reported when it runs.
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(listed.status.success() && names.lines().any(|name| PEERS.contains(&name)))
}
