//! Verbs in the documentation of functions (STYLE §1): a function that returns nothing, or a bool, does
//! something or tests something, so its first sentence opens with the verb.
//!
//! A heuristic over letters: the first word has the form of the third person ("Adds", "Returns").
//! Invariant: functions with another result may open with the noun that they return.
//! Not here: tests, whose names are sentences; functions without documentation.

use super::finding::{Finding, Rule};
use super::lexer::{self, Line};
use super::text_file::TextFile;

/// Nouns and pronouns with the last letter of a verb; words that are also verbs ("times") are accepted.
const NOT_VERBS: [&str; 11] =
    ["bytes", "chunks", "columns", "errors", "its", "letters", "plus", "samples", "series", "this", "thus"];
/// Words before `fn`.
const QUALIFIERS: [&str; 6] = ["async", "const", "default", "extern", "pub", "unsafe"];
/// Results without a value.
const WITHOUT_VALUE: [&str; 3] = ["", "()", "bool"];

/// Findings of one Rust source.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let lines = lexer::split(&file.text);
    let mut findings = Vec::new();
    let mut is_within = false;
    for (idx, line) in lines.iter().enumerate() {
        let Some(text) = doc_text(line) else {
            is_within = false;
            continue;
        };
        if !is_within
            && !opens_with_verb(text)
            && item_after(&lines, idx).is_some_and(|item| needs_verb(&item))
        {
            let what = "a function without a value opens its documentation with a verb: \"Adds ...\", \"Returns true if ...\"";
            findings.push(Finding::of(Rule::FunctionDocs, &file.path, idx + 1, what));
        }
        is_within = true;
    }
    findings
}

/// Text of a line that consists of documentation of an item.
fn doc_text(line: &Line) -> Option<&str> {
    line.code.trim().is_empty().then(|| line.comment.strip_prefix('/')).flatten().map(str::trim)
}

/// Returns true if `text` opens with a verb, with a reference to another function, or with a section.
fn opens_with_verb(text: &str) -> bool {
    if text.starts_with('#') || text.starts_with("As `") || text.starts_with("As [") {
        return true;
    }
    let word = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    word.len() > 2
        && word.starts_with(char::is_uppercase)
        && word.ends_with('s')
        && !NOT_VERBS.contains(&word.to_ascii_lowercase().as_str())
}

/// Code from the item that the documentation at `doc_idx` belongs to, up to its body; `None` for a test.
fn item_after(lines: &[Line], doc_idx: usize) -> Option<String> {
    let mut item = String::new();
    let mut is_attribute = false;
    for code in lines.get(doc_idx..)?.iter().map(|line| line.code.trim()).filter(|code| !code.is_empty()) {
        if item.is_empty() && (is_attribute || code.starts_with("#[")) {
            if code == "#[test]" {
                return None;
            }
            is_attribute = !code.ends_with(']');
            continue;
        }
        item.push_str(code);
        item.push(' ');
        if code.contains(['{', ';', '}']) {
            break;
        }
    }
    Some(item)
}

/// Returns true if `item` is a function without a value, or with a bool.
fn needs_verb(item: &str) -> bool {
    let Some((before, after)) = item.split_once("fn ") else { return false };
    let is_function = before.split_whitespace().all(|word| {
        QUALIFIERS.contains(&word.split('(').next().unwrap_or_default())
            || word.ends_with(')')
            || word == "\"\""
    });
    is_function
        && result_of(after).is_some_and(|result| {
            let result = result.trim();
            let is_unit_result = result.contains("Result<()") && !result.contains("Option<");
            WITHOUT_VALUE.contains(&result) || is_unit_result
        })
}

/// Result type of a function, empty if it has none; `signature` begins with its name.
fn result_of(signature: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut before = ' ';
    let mut saw_parameters = false;
    for (idx, c) in signature.char_indices() {
        match c {
            '(' | '[' | '<' => {
                saw_parameters |= c == '(' && depth == 0;
                depth += 1;
            }
            '>' if before == '-' => {}
            ')' | ']' | '>' => {
                depth = depth.saturating_sub(1);
                if c == ')' && depth == 0 && saw_parameters {
                    let rest = signature.get(idx + 1..).unwrap_or_default();
                    let rest = rest.split(['{', ';']).next().unwrap_or_default();
                    let rest = rest.split(" where ").next().unwrap_or_default();
                    return Some(rest.trim().trim_start_matches("->"));
                }
            }
            _ => {}
        }
        before = c;
    }
    None
}
