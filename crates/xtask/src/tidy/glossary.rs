//! `docs/GLOSSARY.md`: one row per word, in alphabetical order.

use super::finding::Finding;

const PATH: &str = "docs/GLOSSARY.md";
const HEADER: [&str; 2] = ["| word |", "|---"];

/// Findings of the glossary's text.
pub(super) fn check(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut previous = String::new();
    for (idx, line) in text.lines().enumerate() {
        if !line.starts_with("| ") || HEADER.iter().any(|header| line.starts_with(header)) {
            continue;
        }
        let word = line.split('|').nth(1).unwrap_or_default().trim();
        let key = word.to_lowercase();
        if key == previous {
            findings.push(Finding::new(PATH, idx + 1, format!("explains `{word}` twice")));
        } else if key < previous {
            findings.push(Finding::new(PATH, idx + 1, format!("`{word}` stands after `{previous}`")));
        }
        previous = key;
    }
    if previous.is_empty() {
        findings.push(Finding::new(PATH, 0, "has no rows"));
    }
    findings
}
