//! Words and width of comments and documents (STYLE §1): the terms of the field instead of home-made ones.
//!
//! Not here: identifiers, texts of the program (log lines, errors), and whatever stands between backticks.

use super::finding::{Finding, Rule};
use super::lexer;
use super::text_file::TextFile;

/// A comment ends at this column. rustfmt cuts code there, and does not wrap comments.
const COLUMNS_MAX: usize = 110;

/// Documents about the words themselves, and generated reports, which name files of earlier commits.
const EXEMPT: [&str; 4] = ["docs/STYLE.md", "docs/DESIGN.md", "docs/GLOSSARY.md", "docs/house/"];

/// Attributes of a code block in documentation that leave it to rustdoc as Rust.
const RUSTDOC_ATTRIBUTES: [&str; 6] = ["", "compile_fail", "ignore", "no_run", "rust", "should_panic"];

/// Home-made terms, and what to write instead.
const WORDS_BANNED: [(&str, &str); 31] = [
    ("anew", "again"),
    ("anybody", "any caller, any client"),
    ("behind", "after; out-of-order"),
    ("beside", "next to"),
    ("definitions file", "series file"),
    ("doomed", "pending deletion"),
    ("free times", "timestamp cache"),
    ("hot record", "series record"),
    ("kept results", "result cache"),
    ("lane", "worker"),
    ("lanes", "workers"),
    ("late chunk", "out-of-order chunk"),
    ("late chunks", "out-of-order chunks"),
    ("late ones", "out-of-order samples"),
    ("late sample", "out-of-order sample"),
    ("late samples", "out-of-order samples"),
    ("merge blocks", "compact"),
    ("nobody", "no caller, no client"),
    ("pulse", "maintenance"),
    ("pump", "reader"),
    ("raw keys", "wire keys"),
    ("said", "emitted, recorded, reported"),
    ("see the module", "say it, or link the item"),
    ("somebody", "a caller, a client"),
    ("speaker", "source expression"),
    ("survey", "CSE pass"),
    ("told", "recorded, reported"),
    ("truth", "bool modifier"),
    ("upkeep", "maintenance"),
    ("upstream", "Prometheus"),
    ("what is to be", "a noun"),
];

/// Units and things that are counted *per* something, not *a* something.
const PER_BEFORE: [&str; 22] = [
    "b",
    "bit",
    "bits",
    "byte",
    "bytes",
    "chunks",
    "entries",
    "instructions",
    "kb",
    "lines",
    "links",
    "mb",
    "mib",
    "misses",
    "ms",
    "ns",
    "requests",
    "s",
    "samples",
    "series",
    "us",
    "times",
];
const PER_AFTER: [&str; 24] = [
    "batch", "block", "bucket", "call", "chunk", "core", "day", "group", "hour", "label", "line", "minute",
    "page", "query", "request", "row", "sample", "second", "series", "step", "stripe", "tenant", "value",
    "window",
];

/// Findings of one Rust source: its comments.
pub(super) fn check_source(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_fenced = false;
    for (idx, (line, raw)) in lexer::split(&file.text).iter().zip(file.text.lines()).enumerate() {
        if let Some(language) = line.comment.trim_start_matches(['/', '!']).trim().strip_prefix("```") {
            let is_rust = |word: &str| RUSTDOC_ATTRIBUTES.contains(&word) || word.starts_with("edition");
            if !is_fenced && language.split(',').map(str::trim).all(is_rust) {
                let what = "an example that no step of CI runs: write a test, or name its language";
                findings.push(Finding::new(&file.path, idx + 1, what));
            }
            is_fenced = !is_fenced;
        }
        let columns = raw.chars().count();
        // A link is one word, which nothing can wrap.
        if columns > COLUMNS_MAX && line.comment.trim().contains(' ') {
            let what = format!("a comment of {columns} columns, at most {COLUMNS_MAX}");
            findings.push(Finding::of(Rule::CommentColumns, &file.path, idx + 1, what));
        }
        findings.extend(check_words(&file.path, idx, &line.comment));
    }
    findings
}

/// Findings of one Markdown document, without its code blocks.
pub(super) fn check_document(file: &TextFile) -> Vec<Finding> {
    if EXEMPT.iter().any(|path| file.path.starts_with(path)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut is_code = false;
    for (idx, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            findings.extend(check_words(&file.path, idx, line));
        }
    }
    findings
}

/// Findings of one line of prose; `line_idx` is counted from 0.
fn check_words(path: &str, line_idx: usize, prose: &str) -> Vec<Finding> {
    let text = words_of(prose);
    let mut what: Vec<String> = WORDS_BANNED
        .iter()
        .filter(|(banned, _)| text.contains(&format!(" {banned} ")))
        .map(|(banned, instead)| format!("\"{banned}\" is not a term of the field; write: {instead}"))
        .collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    for window in words.windows(3) {
        if let [before, "a", after] = window
            && PER_BEFORE.contains(before)
            && PER_AFTER.contains(after)
        {
            what.push(format!("\"{before} a {after}\" is a rate; write: {before} per {after}"));
        }
    }
    what.into_iter().map(|what| Finding::of(Rule::Words, path, line_idx + 1, what)).collect()
}

/// The words outside of backticks, in lower case, each between two spaces. Links keep their text, not their
/// target.
fn words_of(prose: &str) -> String {
    let outside = prose.split('`').step_by(2).collect::<Vec<_>>().join(" . ");
    let mut text = " ".to_owned();
    for word in outside.split_whitespace() {
        // `](path/with-words.md)` and URLs name files.
        let word = word.split("](").next().unwrap_or_default();
        if word.contains("://") {
            continue;
        }
        let mut letters = String::new();
        for c in word.chars() {
            letters.push(if c.is_alphanumeric() || c == '-' || c == '\'' {
                c.to_ascii_lowercase()
            } else {
                ' '
            });
        }
        let has_stop = word.ends_with(['.', ',', ';', ':', ')']);
        let letters = letters.trim();
        text.push_str(letters.strip_suffix("'s").unwrap_or(letters));
        text.push_str(if has_stop { " . " } else { " " });
    }
    text
}
