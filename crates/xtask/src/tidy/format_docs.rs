//! Documents of on-disk formats name the sources they describe and a hash of them: code that changes without
//! its document is a finding until a person has read the document and run `cargo xtask tidy --bless-docs`.
//!
//! Invariants: the hash covers the sources without their tests, module after module, files in the order of
//! their paths.

use super::finding::Finding;
use super::text_file::{TextFile, find, is_test_file, without_tests};
use crate::sha256;

const CRATE_DIR: &str = "crates/format";
const SOURCE_KEY: &str = "source:";
const HASH_KEY: &str = "source-sha256:";

/// Findings of all documents, and of modules without one.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in formats(files) {
        let path = format!("{CRATE_DIR}/docs/{name}.md");
        if !files.iter().any(|f| f.path == path) {
            findings.push(Finding::new(&path, 0, format!("is missing: module `{name}` has no document")));
        }
    }
    for doc in documents(files) {
        findings.extend(check_one(doc, files).err().map(|what| Finding::new(&doc.path, 0, what)));
    }
    findings
}

/// Documents whose hash is missing or differs from the sources, with the right hash written in.
pub(super) fn bless(files: &[TextFile]) -> Vec<TextFile> {
    let stale = documents(files).filter(|doc| check_one(doc, files).is_err());
    let blessed = stale.filter_map(|doc| {
        let right = format!("{HASH_KEY} {}", hash_of_sources(doc, files).ok()?);
        let mut lines: Vec<&str> = doc.text.lines().collect();
        let source_idx = lines.iter().position(|line| line.starts_with(SOURCE_KEY))?;
        match lines.iter().position(|line| line.starts_with(HASH_KEY)) {
            Some(idx) => lines[idx] = &right,
            None => lines.insert(source_idx + 1, &right),
        }
        Some(TextFile { path: doc.path.clone(), text: lines.join("\n") + "\n" })
    });
    blessed.collect()
}

fn check_one(doc: &TextFile, files: &[TextFile]) -> Result<(), String> {
    let found = hash_of_sources(doc, files)?;
    let said = value_of(&doc.text, HASH_KEY).ok_or("has no line `source-sha256: HEX`")?;
    if said == found {
        return Ok(());
    }
    Err("describes sources that have changed; bring it up to date, then run cargo xtask tidy --bless-docs"
        .to_owned())
}

fn hash_of_sources(doc: &TextFile, files: &[TextFile]) -> Result<String, String> {
    let sources = value_of(&doc.text, SOURCE_KEY).ok_or("has no line `source: src/NAME.rs`")?;
    let mut bytes = Vec::new();
    for source in sources.split(',').map(str::trim) {
        let stem = format!("{CRATE_DIR}/{}", source.trim_end_matches('/').trim_end_matches(".rs"));
        let file = format!("{stem}.rs");
        let below = format!("{stem}/");
        let mut seen = false;
        for f in files.iter().filter(|f| f.path == file || f.path.starts_with(&below)) {
            if f.path.ends_with(".rs") && !is_test_file(&f.path) {
                bytes.extend_from_slice(without_tests(&f.text).as_bytes());
                seen = true;
            }
        }
        if !seen {
            return Err(format!("names `{source}`, which does not exist"));
        }
    }
    Ok(sha256::hex(&bytes))
}

fn documents(files: &[TextFile]) -> impl Iterator<Item = &TextFile> {
    let dir = format!("{CRATE_DIR}/docs/");
    files.iter().filter(move |f| {
        f.path.starts_with(&dir) && f.path.ends_with(".md") && !f.path.ends_with("/README.md")
    })
}

/// Public modules of the crate that no document describes as a whole: below a folder, `folder/module`.
fn formats(files: &[TextFile]) -> Vec<String> {
    let mut formats = Vec::new();
    for folder in public_modules(find(files, &format!("{CRATE_DIR}/src/lib.rs"))) {
        let whole = format!("{CRATE_DIR}/docs/{folder}.md");
        let modules: Vec<&str> =
            public_modules(find(files, &format!("{CRATE_DIR}/src/{folder}.rs"))).collect();
        if modules.is_empty() || files.iter().any(|f| f.path == whole) {
            formats.push(folder.to_owned());
        } else {
            formats.extend(modules.iter().map(|module| format!("{folder}/{module}")));
        }
    }
    formats
}

fn public_modules(lib: &str) -> impl Iterator<Item = &str> {
    lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
}

fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}
