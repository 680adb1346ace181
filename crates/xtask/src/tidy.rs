//! `cargo xtask tidy`: the rules of STYLE that no compiler checks. Reads text only; takes under a second.
//!
//! Holds: every rule is a pure function from text to findings, so each has tests with bad examples.
//! Not here: function length, bans of single functions, missing docs: clippy refuses those (`clippy.toml` and
//! the workspace lints; `ci` runs it with `-D warnings`).

mod changelog;
mod edges;
mod format_docs;
mod lexer;
mod ratchet;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A text file of the checkout; the path is relative to the root, with `/`.
#[derive(Debug, Clone)]
pub(crate) struct TextFile {
    path: String,
    text: String,
}

/// The command: prints findings, says whether there are none.
pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    match flags {
        [] => {}
        ["--bless-docs"] => {
            for doc in format_docs::bless(&read_tree(root)?) {
                std::fs::write(root.join(&doc.path), &doc.text).with_context(|| doc.path.clone())?;
                println!("blessed {}", doc.path);
            }
        }
        _ => bail!("usage: cargo xtask tidy [--bless-docs]"),
    }
    let findings = check(root)?;
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} findings", findings.len());
    Ok(findings.is_empty())
}

/// All findings of the checkout at `root`.
fn check(root: &Path) -> Result<Vec<Finding>> {
    let files = read_tree(root)?;
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path.ends_with(".rs")) {
        findings.extend(source::check(file));
    }
    findings.extend(source::check_unsafe_list(&files));
    findings.extend(ratchet::check(&files));
    findings.extend(format_docs::check(&files));
    findings.extend(changelog::check(find(&files, "CHANGELOG.md")));
    let used = edges::from_metadata(&crate::process::cargo_metadata(root)?)?;
    findings.extend(edges::check(&used, find(&files, "ARCHITECTURE.md")));
    Ok(findings)
}

/// Text of the file at `path`; empty when there is none, which the rule that wants it reports.
fn find<'a>(files: &'a [TextFile], path: &str) -> &'a str {
    files.iter().find(|f| f.path == path).map_or("", |f| &f.text)
}

fn read_tree(root: &Path) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    for name in ["ARCHITECTURE.md", "CHANGELOG.md"] {
        if root.join(name).is_file() {
            read_file(root, name, &mut files)?;
        }
    }
    read_dir(root, "crates", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read_dir(root: &Path, dir: &str, files: &mut Vec<TextFile>) -> Result<()> {
    for entry in std::fs::read_dir(root.join(dir)).with_context(|| dir.to_owned())? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{dir}/{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() && name != "target" && !name.starts_with('.') {
            read_dir(root, &path, files)?;
        } else if kind.is_file() && [".rs", ".md", ".txt"].iter().any(|end| name.ends_with(end)) {
            read_file(root, &path, files)?;
        }
    }
    Ok(())
}

fn read_file(root: &Path, path: &str, files: &mut Vec<TextFile>) -> Result<()> {
    let text = std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
    files.push(TextFile { path: path.to_owned(), text });
    Ok(())
}

/// Whether the file holds tests only.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The part of a source text before its test module.
fn without_tests(text: &str) -> &str {
    let mut offset = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let opens_tests = line.trim_end() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.trim_end().ends_with('{'));
        if opens_tests {
            return text.get(..offset).unwrap_or(text);
        }
        offset += line.len();
    }
    text
}
