//! `cargo xtask house`: structure of each crate in figures, to compare the code before and after a redesign.
//!
//! Invariants: reads text only; figures count production code. Not here: limits, which are rules of `tidy`
//! (`structure` and `house_limits`).

mod crate_figures;
mod cycles;
mod declarations;
mod docs;
mod folders;
mod imports;
mod modules;
mod report;
mod rust_file;
mod site;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use report::Layout;

#[cfg(test)]
pub(crate) use crate_figures::measure;
pub(crate) use crate_figures::{CrateFigures, CrateFile};
pub(crate) use declarations::{FIELDS_MAX, INHERENT_FILES_MAX};
pub(crate) use site::Site;

const USAGE: &str = "usage: cargo xtask house [--crate NAME]... [--markdown FILE]";

/// Parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flags<'a> {
    /// Folders below `crates/`; all if empty.
    crates: Vec<&'a str>,
    markdown_path: Option<&'a str>,
}

/// The command: prints the figures, and writes them to a file if the flags name one.
pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    let parsed = parse_flags(flags)?;
    let crates = measure_crates(root, &parsed.crates)?;
    print!("{}", report::render(&crates, Layout::Text).trim_start());
    if let Some(path) = parsed.markdown_path {
        let command = [&["cargo xtask house"], flags].concat().join(" ");
        let head = format!("# Structure of the crates\n\nCommit {}, by `{command}`.\n", commit(root)?);
        let text = head + &report::render(&crates, Layout::Markdown);
        if let Some(dir) = root.join(path).parent() {
            std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        std::fs::write(root.join(path), text).with_context(|| path.to_owned())?;
        println!("\nwrote {path}");
    }
    Ok(true)
}

fn parse_flags<'a>(flags: &[&'a str]) -> Result<Flags<'a>> {
    let mut parsed = Flags::default();
    let mut rest = flags.iter();
    while let Some(flag) = rest.next() {
        match (*flag, rest.next()) {
            ("--crate", Some(name)) => parsed.crates.push(name),
            ("--markdown", Some(path)) => parsed.markdown_path = Some(path),
            _ => bail!("{USAGE}"),
        }
    }
    Ok(parsed)
}

/// Measures the crates `names`, or all of them if there are none.
pub(crate) fn measure_crates(root: &Path, names: &[&str]) -> Result<Vec<CrateFigures>> {
    let all = entry_names(&root.join("crates"))?;
    for name in names {
        ensure!(
            all.iter().any(|existing| existing == name),
            "no crate {name}; there are: {}",
            all.join(", ")
        );
    }
    let mut crates = Vec::new();
    for name in all.iter().filter(|name| names.is_empty() || names.contains(&name.as_str())) {
        let dir = root.join("crates").join(name);
        let mut files = Vec::new();
        for folder in ["src", "tests", "examples", "benches"].into_iter().filter(|f| dir.join(f).is_dir()) {
            read_dir(&dir, folder, &mut files)?;
        }
        crates.push(crate_figures::measure(name, &files).with_context(|| format!("crate {name}"))?);
    }
    Ok(crates)
}

/// Reads all Rust files below the folder `path` of the crate `dir`.
fn read_dir(dir: &Path, path: &str, files: &mut Vec<CrateFile>) -> Result<()> {
    for name in entry_names(&dir.join(path))? {
        let path = format!("{path}/{name}");
        let full_path = dir.join(&path);
        if full_path.is_dir() {
            read_dir(dir, &path, files)?;
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&full_path).with_context(|| path.clone())?;
            files.push(CrateFile { path, text });
        }
    }
    Ok(())
}

/// Names of the entries of a folder, sorted.
fn entry_names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

fn commit(root: &Path) -> Result<String> {
    let out = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(root)
        .output()
        .context("git rev-parse")?;
    ensure!(out.status.success(), "git rev-parse: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
