//! The newest Prometheus and VictoriaMetrics, the newest InfluxDB 1.x and an S3 server (versitygw), built
//! from the Go modules that the `go.mod` files below `tools/peers` name.
//!
//! Invariants: built once for each content of `go.mod` and `go.sum`, into the user's cache; a build that was
//! cut off is not taken for a finished one.
//! Not here: the servers of Debian, which benchmarks fall back to.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::find_program;

/// Folders with a `go.mod`. InfluxDB has its own: its dependencies are of 2020. The S3 server has one so that
/// its versions do not change the versions of the servers that benchmarks compare with.
const MODULE_DIR: &str = "tools/peers";
const INFLUXDB_MODULE_DIR: &str = "tools/peers/influxdb";
const VERSITYGW_MODULE_DIR: &str = "tools/peers/versitygw";
/// Environment variable by which benchmarks learn where the programs are.
pub(crate) const PEERS_ENV: &str = "CHRONOLITH_PEERS";

/// A server that is built from a Go module.
struct Peer {
    /// Name of the file that is built.
    program: &'static str,
    module_dir: &'static str,
    module: &'static str,
    /// Package of the program within its module, as `go.mod` lists it under `tool`.
    package: &'static str,
    /// Tags of the build, separated by commas.
    tags: &'static str,
    /// Variable of the linker by which the program knows its version.
    version_variable: &'static str,
    /// Prefix of the version in that variable.
    version_prefix: &'static str,
}

const PEERS: [Peer; 4] = [
    Peer {
        program: "prometheus",
        module_dir: MODULE_DIR,
        module: "github.com/prometheus/prometheus",
        package: "cmd/prometheus",
        tags: "",
        version_variable: "github.com/prometheus/common/version.Version",
        version_prefix: "",
    },
    Peer {
        program: "victoria-metrics",
        module_dir: MODULE_DIR,
        module: "github.com/VictoriaMetrics/VictoriaMetrics",
        package: "app/victoria-metrics",
        tags: "",
        version_variable: "github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version",
        version_prefix: "victoria-metrics-",
    },
    // Not `influxd`: benchmarks compare with Debian's `influxd`.
    Peer {
        program: "influxd-1.8",
        module_dir: INFLUXDB_MODULE_DIR,
        module: "github.com/influxdata/influxdb",
        package: "cmd/influxd",
        // Unsigned integers.
        tags: "uint64",
        version_variable: "main.version",
        version_prefix: "",
    },
    Peer {
        program: "versitygw",
        module_dir: VERSITYGW_MODULE_DIR,
        module: "github.com/versity/versitygw",
        package: "cmd/versitygw",
        tags: "",
        version_variable: "main.Version",
        version_prefix: "",
    },
];

/// The command: builds missing servers and prints their directory.
pub(crate) fn run(root: &Path) -> Result<bool> {
    println!("{}", build(root)?.display());
    Ok(true)
}

/// Folder with the programs, built first if they are not there.
///
/// Cost: minutes and a few hundred MB of downloads the first time, nothing later.
///
/// # Errors
/// No Go on this machine, or a build that failed.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    for peer in &PEERS {
        build_peer(root, peer)?;
    }
    cache_dir(root)
}

/// Path of one of the programs, built first if it is not there.
///
/// Cost: a minute and some downloads the first time, nothing later.
///
/// # Errors
/// As [`build`].
pub(crate) fn build_one(root: &Path, program: &str) -> Result<PathBuf> {
    let Some(peer) = PEERS.iter().find(|peer| peer.program == program) else { bail!("no peer {program}") };
    build_peer(root, peer)
}

fn build_peer(root: &Path, peer: &Peer) -> Result<PathBuf> {
    let dir = cache_dir(root)?;
    let program = dir.join(peer.program);
    if program.is_file() {
        return Ok(program);
    }
    if find_program("go").is_none() {
        bail!(
            "{} is missing, and so is Go to build it: install Go 1.26 or newer (https://go.dev/dl)",
            peer.program
        );
    }
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let module_dir = root.join(peer.module_dir);
    let version = module_version(&module_dir, peer)?;
    println!("building {} {version} (once)", peer.program);
    let unfinished = dir.join(format!("{}.unfinished", peer.program));
    let built = go(&module_dir)
        .args(["build", "-o"])
        .arg(&unfinished)
        .arg("-ldflags")
        .arg(format!("-s -w -X {}={}{version}", peer.version_variable, peer.version_prefix))
        .args(["-tags", peer.tags])
        .arg(format!("{}/{}", peer.module, peer.package))
        .status()
        .context("go build")?;
    if !built.success() {
        bail!("go build of {} failed", peer.program);
    }
    std::fs::rename(&unfinished, &program)?;
    Ok(program)
}

/// Version for people: modules of Prometheus call 3.16.0 `v0.316.0`.
fn module_version(module_dir: &Path, peer: &Peer) -> Result<String> {
    let out =
        go(module_dir).args(["list", "-m", "-f", "{{.Version}}", peer.module]).output().context("go list")?;
    if !out.status.success() {
        bail!("go list: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let version = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    Ok(match peer.program {
        "prometheus" => release_of_module(&version),
        "influxd-1.8" => version.trim_start_matches('v').to_owned(),
        _ => version,
    })
}

fn release_of_module(version: &str) -> String {
    let release = || {
        let (minor, patch) = version.strip_prefix("v0.")?.split_once('.')?;
        let (major, minor) = minor.split_at_checked(1)?;
        Some(format!("{major}.{}.{patch}", minor.parse::<u32>().ok()?))
    };
    release().unwrap_or_else(|| version.to_owned())
}

fn go(module_dir: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(module_dir).env("GOFLAGS", "-mod=readonly -buildvcs=false");
    command
}

/// One folder for each set of versions.
fn cache_dir(root: &Path) -> Result<PathBuf> {
    let mut content = Vec::new();
    let folders = [MODULE_DIR, INFLUXDB_MODULE_DIR, VERSITYGW_MODULE_DIR].map(|folder| root.join(folder));
    for path in folders.iter().flat_map(|folder| ["go.mod", "go.sum"].map(|file| folder.join(file))) {
        content.extend(std::fs::read(&path).with_context(|| path.display().to_string())?);
    }
    Ok(base_dir()?.join(key_of(&content)))
}

/// Folder of a Python environment, one for each content of `requirements`.
pub(crate) fn python_dir(name: &str, requirements: &Path) -> Result<PathBuf> {
    let content = std::fs::read(requirements).with_context(|| requirements.display().to_string())?;
    Ok(base_dir()?.join(format!("{name}-{}", key_of(&content))))
}

fn key_of(content: &[u8]) -> String {
    crate::sha256::hex(content).chars().take(16).collect()
}

fn base_dir() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = base.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("chronolith-peers"))
}

#[cfg(test)]
mod tests {
    use super::release_of_module;

    #[test]
    fn releases_of_prometheus_are_told_from_versions_of_its_module() {
        assert_eq!(release_of_module("v0.316.0"), "3.16.0");
        assert_eq!(release_of_module("v0.305.2"), "3.5.2");
        assert_eq!(release_of_module("v0.300.0"), "3.0.0");
        assert_eq!(release_of_module("v1.2.3"), "v1.2.3");
    }
}
