//! Subjects of the commits on this branch: at most 70 characters, no `wip`.
//!
//! Invariants: commits up to the recorded base, and those that a remote main has, are exempt: they cannot
//! change.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::finding::Finding;

/// First line that is no comment: the newest commit that the rule does not judge.
pub(super) const BASE_PATH: &str = "crates/xtask/tidy-commits-base.txt";
const SUBJECT_CHARS_MAX: usize = 70;

/// Lines `HASH SUBJECT` of the commits to judge, or the reason why they are not known here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Log {
    Lines(String),
    Unknown(&'static str),
}

/// Findings of the lines `HASH SUBJECT`.
pub(super) fn check(lines: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in lines.lines() {
        let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
        let mut add = |what: String| findings.push(Finding::new(&format!("commit {hash}"), 0, what));
        let length = subject.chars().count();
        if length > SUBJECT_CHARS_MAX {
            add(format!("a subject of {length} characters, at most {SUBJECT_CHARS_MAX}: {subject}"));
        }
        let mut words = subject.split(|c: char| !c.is_alphanumeric());
        if words.any(|word| word.eq_ignore_ascii_case("wip")) {
            add(format!("work in progress; squash it: {subject}"));
        }
    }
    findings
}

/// The commits after the base, merges left out, newest first.
pub(super) fn read_log(root: &Path, base_text: &str) -> Result<Log> {
    if !root.join(".git").exists() {
        return Ok(Log::Unknown("this is no git checkout"));
    }
    let base = base_text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let base = base.with_context(|| format!("{BASE_PATH} names no commit"))?;
    if git(root, &["cat-file", "-e", &format!("{base}^{{commit}}")]).is_err() {
        let is_shallow = git(root, &["rev-parse", "--is-shallow-repository"])?.trim() == "true";
        ensure!(is_shallow, "{BASE_PATH} names {base}, which this repository does not have");
        return Ok(Log::Unknown("this is a shallow clone"));
    }
    let log =
        git(root, &["log", "--no-merges", "--format=%h %s", "HEAD", "--not", base, "--remotes=*/main"])?;
    Ok(Log::Lines(log))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let out = Command::new("git").args(arguments).current_dir(root).output().context("git")?;
    let error = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "git {}: {}", arguments.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
