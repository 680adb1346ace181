//! Names the commit of a release build: revision, branch and date for `src/version.rs`.
//!
//! Invariants: the same commit gives the same values whenever it is built: the date is the date of the
//! commit, or `SOURCE_DATE_EPOCH`. Builds of other profiles, and builds without git, have no values, so a
//! commit does not compile this crate again for its tests.

use std::path::Path;
use std::process::Command;

#[path = "src/version/date.rs"]
mod date;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/version/date.rs");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    fold_identical_code();
    // A sources archive within the repository of something else has no revision.
    let Some(top) = git(&["rev-parse", "--show-toplevel"]) else { return };
    let Some(own_top) = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2) else { return };
    if std::fs::canonicalize(top).ok() != std::fs::canonicalize(own_top).ok() {
        return;
    }
    watch_head();
    let seconds = std::env::var("SOURCE_DATE_EPOCH").ok().or_else(|| git(&["log", "-1", "--format=%ct"]));
    let date = seconds.and_then(|seconds| seconds.trim().parse().ok()).map(date::utc);
    for (name, value) in [
        ("CHRONOLITH_REVISION", git(&["rev-parse", "HEAD"])),
        ("CHRONOLITH_BRANCH", git(&["rev-parse", "--abbrev-ref", "HEAD"])),
        ("CHRONOLITH_BUILD_DATE", date),
    ] {
        if let Some(value) = value {
            println!("cargo::rustc-env={name}={value}");
        }
    }
}

/// Has the linker keep one copy of functions with the same code: 1.3 MB less. The default linker of this
/// target is lld, which can; one that the builder chose may be another.
fn fold_identical_code() {
    let of_target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_lld_default =
        of_target("ARCH") == "x86_64" && of_target("OS") == "linux" && of_target("ENV") == "gnu";
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let has_own_linker = flags.contains("link") || std::env::var_os("RUSTC_LINKER").is_some();
    if is_lld_default && !has_own_linker {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Runs this script again after a commit or a checkout. Files that are missing are not watched: cargo would
/// run it for every build.
fn watch_head() {
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let files = ["HEAD", "packed-refs"].into_iter().map(str::to_owned).chain(branch);
    for file in files.filter_map(|file| git(&["rev-parse", "--git-path", &file])) {
        // Relative to this directory, as are the paths of cargo.
        if Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
}

/// Output of a git command in the directory of this crate; `None` if it fails or prints nothing.
fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?.trim().to_owned();
    Some(text).filter(|text| out.status.success() && !text.is_empty())
}
