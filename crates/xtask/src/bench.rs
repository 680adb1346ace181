//! `cargo xtask bench NAME [flags]`: builds what the benchmark measures and hands the flags on.
//! Not here: the benchmarks themselves (`crates/bench`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs one benchmark; `flags` starts with its name.
pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    if flags.is_empty() {
        bail!("which benchmark? e.g. cargo xtask bench remote-write --help");
    }
    // Both in one build: the benchmark starts the server binary that lies beside its own.
    let built = Command::new("cargo")
        .args(["build", "--release", "--package", "chronolith-bench", "--package", "chronolith"])
        .current_dir(root)
        .status()
        .context("cargo build")?;
    if !built.success() {
        bail!("the release build failed");
    }
    let binary = crate::process::target_dir(root)?.join("release/chronolith-bench");
    let ran = Command::new(&binary).args(flags).current_dir(root).status();
    let ran = ran.with_context(|| format!("cannot start {}", binary.display()))?;
    Ok(ran.success())
}
