//! Rules of one Rust file: opening comment, names, loose ends, unfinished code, unsafe, ignored tests,
//! channels.

use super::finding::Finding;
use super::lexer::{self, Line};
use super::text_file::TextFile;

/// Names that say nothing about what they name.
const NAMES_BANNED: [&str; 10] =
    ["data", "info", "manager", "helper", "helpers", "util", "utils", "common", "misc", "stuff"];

/// Files that may use `unsafe`; a new one needs an ADR.
const UNSAFE_FILES: [&str; 3] = [
    "crates/base/src/disk/real.rs",
    "crates/chronolith/src/allocator.rs",
    "crates/replicated_log/src/kafka/librdkafka_client/native.rs",
];

/// Code that must not be written, and why.
const CODE_BANNED: [(&str, &str); 6] = [
    ("todo!", "unfinished code; finish it or leave it out"),
    ("unimplemented!", "unfinished code; finish it or leave it out"),
    ("#[ignore]", "an ignored test says why: #[ignore = \"reason\"]"),
    ("unbounded_channel", "a queue without a limit"),
    ("mpsc::channel(", "a queue without a limit; use sync_channel"),
    ("channel::unbounded", "a queue without a limit"),
];

/// Findings of one file.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !file.text.starts_with("//!") {
        findings.push(Finding::new(
            &file.path,
            1,
            "opens without //! (what it is, what holds, what is not here)",
        ));
    }
    findings.extend(check_path(&file.path));
    for (idx, line) in lexer::split(&file.text).iter().enumerate() {
        findings.extend(
            check_line(&file.path, line).into_iter().map(|what| Finding::new(&file.path, idx + 1, what)),
        );
    }
    findings
}

/// Findings about the list of files that may use `unsafe`: an entry that is not needed any more.
pub(super) fn check_unsafe_list(files: &[TextFile]) -> Vec<Finding> {
    let uses = |path: &str| {
        let file = files.iter().find(|f| f.path == path);
        file.is_some_and(|f| lexer::split(&f.text).iter().any(has_unsafe))
    };
    let idle = UNSAFE_FILES.into_iter().filter(|path| !uses(path));
    idle.map(|path| Finding::new(path, 0, "is listed as using unsafe and does not")).collect()
}

fn check_path(path: &str) -> Option<Finding> {
    let mut named = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let banned = named.rfind(|name| NAMES_BANNED.contains(name))?;
    Some(Finding::new(path, 0, format!("`{banned}` says nothing; name what it holds")))
}

fn check_line(path: &str, line: &Line) -> Vec<String> {
    let mut found = Vec::new();
    let code: String = line.code.split_whitespace().collect();
    for (banned, why) in CODE_BANNED {
        if code.contains(banned) {
            found.push(format!("`{banned}`: {why}"));
        }
    }
    if has_unsafe(line) && !UNSAFE_FILES.contains(&path) {
        found.push("unsafe outside the listed files; a new one needs an ADR".to_owned());
    }
    if let Some(name) = declared_type(&line.code).filter(|name| is_vague_type(name)) {
        found.push(format!("type `{name}` says nothing; name what it holds"));
    }
    if has_loose_todo(&line.comment) {
        found.push("a TODO names its issue: TODO(#123)".to_owned());
    }
    found
}

fn has_unsafe(line: &Line) -> bool {
    lexer::words(&line.code).any(|word| word == "unsafe")
}

/// The name that a line declares as a type.
fn declared_type(code: &str) -> Option<&str> {
    // Inside an impl the name of an associated type is the trait's choice (`http_body::Body::Data`).
    if code.starts_with(' ') && code.trim_start().starts_with("type ") {
        return None;
    }
    let mut words = lexer::words(code);
    words.find(|word| ["struct", "enum", "trait", "type", "union"].contains(word))?;
    words.next()
}

/// Returns true if a banned word is the whole name of the type.
fn is_vague_type(name: &str) -> bool {
    NAMES_BANNED.contains(&name.to_lowercase().as_str())
}

fn has_loose_todo(comment: &str) -> bool {
    let mut rest = comment;
    while let Some(at) = ["TODO", "FIXME", "XXX"].iter().filter_map(|mark| rest.find(mark)).min() {
        rest = &rest[at..];
        let issue = rest.strip_prefix("TODO(#").unwrap_or_default();
        let digits = issue.chars().take_while(char::is_ascii_digit).count();
        if digits == 0 || !issue[digits..].starts_with(')') {
            return true;
        }
        rest = issue;
    }
    false
}
