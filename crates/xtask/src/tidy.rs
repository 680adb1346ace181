//! `cargo xtask tidy`: the rules of STYLE that no compiler checks. Reads text only; takes a few seconds.
//!
//! Invariants: every rule is a pure function from text to findings, so each has tests with bad examples.
//! Not here: function length and bans of single functions, which clippy refuses (`clippy.toml` and the
//! workspace lints; `ci` runs it with `-D warnings`).

mod adr;
mod changelog;
mod commits;
mod edges;
mod exceptions;
mod finding;
mod format_docs;
mod function_docs;
mod glossary;
mod house_limits;
mod language;
mod lexer;
mod links;
mod openers;
mod ratchet;
mod rendering;
mod sentences;
mod source;
mod structure;
#[cfg(test)]
mod tests;
mod text_file;
mod web;

use std::path::Path;

use anyhow::{Context, Result, bail};

use exceptions::Exceptions;
use finding::{Finding, Rule};
use text_file::{TextFile, find, read_tree};

const USAGE: &str =
    "usage: cargo xtask tidy [--bless-docs | --record-exceptions | --record-house-limits | --list RULE]";

/// The command: prints findings; returns true if there are none.
pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    match flags {
        [] => {}
        ["--bless-docs"] => {
            for doc in format_docs::bless(&read_tree(root)?) {
                std::fs::write(root.join(&doc.path), &doc.text).with_context(|| doc.path.clone())?;
                println!("blessed {}", doc.path);
            }
        }
        ["--record-exceptions"] => record_exceptions(root)?,
        ["--record-house-limits"] => record_house_limits(root)?,
        ["--list", name] => return list(root, name),
        _ => bail!("{USAGE}"),
    }
    let files = read_tree(root)?;
    let exceptions = Exceptions::parse(find(&files, exceptions::LIST_PATH));
    let mut findings = exceptions.0.apply(check(root, &files)?);
    findings.extend(exceptions.1);
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} findings", findings.len());
    Ok(findings.is_empty())
}

fn record_exceptions(root: &Path) -> Result<()> {
    let files = read_tree(root)?;
    let recorded = Exceptions::parse(find(&files, exceptions::LIST_PATH)).0;
    let lowered = recorded.lowered(&check(root, &files)?);
    std::fs::write(root.join(exceptions::LIST_PATH), lowered.render()).context(exceptions::LIST_PATH)?;
    println!("wrote {}", exceptions::LIST_PATH);
    Ok(())
}

fn record_house_limits(root: &Path) -> Result<()> {
    let files = read_tree(root)?;
    let crates = crate::house::measure_crates(root, &[])?;
    let text = house_limits::render(&crates, find(&files, house_limits::LIST_PATH));
    std::fs::write(root.join(house_limits::LIST_PATH), text).context(house_limits::LIST_PATH)?;
    println!("wrote {}", house_limits::LIST_PATH);
    Ok(())
}

/// Prints all findings of one rule, accepted ones too.
fn list(root: &Path, name: &str) -> Result<bool> {
    let names = || Rule::ALL.map(Rule::name).join(", ");
    let rule = Rule::from_name(name).with_context(|| format!("no rule {name}; there are: {}", names()))?;
    let findings = check(root, &read_tree(root)?)?;
    for finding in findings.iter().filter(|finding| finding.rule() == Some(rule)) {
        println!("{finding}");
    }
    Ok(true)
}

/// All findings of the checkout at `root`, accepted ones too.
fn check(root: &Path, files: &[TextFile]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in files {
        if file.path.ends_with(".rs") {
            findings.extend(source::check(file));
            findings.extend(language::check_source(file));
            findings.extend(openers::check(file));
            findings.extend(function_docs::check(file));
        } else if file.path.ends_with(".md") {
            findings.extend(language::check_document(file));
            findings.extend(rendering::check(file));
            findings.extend(sentences::check(file));
        } else {
            findings.extend(web::check(file));
        }
    }
    let crates = crate::house::measure_crates(root, &[])?;
    findings.extend(crates.iter().flat_map(structure::check));
    findings.extend(house_limits::check(&crates, files));
    findings.extend(source::check_unsafe_list(files));
    findings.extend(ratchet::check(files));
    findings.extend(format_docs::check(files));
    findings.extend(adr::check(files));
    findings.extend(changelog::check(find(files, "CHANGELOG.md")));
    findings.extend(glossary::check(find(files, "docs/GLOSSARY.md")));
    findings.extend(links::check(files, |path| root.join(path).exists()));
    match commits::read_log(root, find(files, commits::BASE_PATH))? {
        commits::Log::Lines(lines) => findings.extend(commits::check(&lines)),
        commits::Log::Unknown(why) => println!("tidy: commit subjects are not checked: {why}"),
    }
    let used = edges::from_metadata(&crate::process::cargo_metadata(root)?)?;
    findings.extend(edges::check(&used, find(files, "ARCHITECTURE.md")));
    Ok(findings)
}
