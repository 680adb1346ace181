//! Lints of the build: clippy's driver is the compiler of this workspace, so that no crate is read twice.
//!
//! `cargo clippy` checks all crates once more, third parties included, which is a tenth of the time of a run.
//! Invariant: a warning is an error, as with `cargo clippy -- -D warnings`.

use std::path::PathBuf;
use std::process::Command;

/// Path of clippy's driver.
///
/// # Errors
/// The reason why there is none.
pub(super) fn driver() -> Result<String, String> {
    let out = Command::new("rustc").args(["--print", "sysroot"]).output();
    let out = out.map_err(|error| format!("rustc: {error}"))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
    let driver = sysroot.join("bin").join(format!("clippy-driver{}", std::env::consts::EXE_SUFFIX));
    if driver.is_file() {
        return Ok(driver.display().to_string());
    }
    Err(format!("there is no {}; rustup component add clippy", driver.display()))
}

/// Variables that make it the compiler of the workspace, and warnings errors; `cargo clippy` sets the same.
pub(super) fn environment(driver: &str) -> [(&'static str, &str); 2] {
    [("RUSTC_WORKSPACE_WRAPPER", driver), ("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__")]
}
