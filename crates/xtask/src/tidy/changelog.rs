//! CHANGELOG.md: an Unreleased section; each entry begins with its kind; no change is listed twice.

use std::collections::BTreeSet;

use super::finding::Finding;

const PATH: &str = "CHANGELOG.md";
const KINDS: [&str; 4] = ["[FEATURE] ", "[PERF] ", "[FIX] ", "[CHANGE] "];

/// Two entries are doubles if they share at least this percentage of their words.
const SHARED_WORDS_PERCENT: usize = 80;

struct Entry {
    /// Counted from 1.
    line: usize,
    words: BTreeSet<String>,
}

/// Findings of the changelog's text. A section may begin with a summary before its first entry.
pub(super) fn check(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut entries: Vec<Entry> = Vec::new();
    let mut may_summarise = true;
    for (idx, line) in text.lines().enumerate() {
        let entry_text = line.trim_start_matches("- ");
        if line.starts_with('#') {
            may_summarise = !line.contains("Unreleased");
        } else if line.starts_with("  ") {
            if let Some(entry) = entries.last_mut() {
                entry.words.extend(words(line));
            }
        } else if line.starts_with("- ") || (!may_summarise && !line.is_empty()) {
            if !KINDS.iter().any(|kind| entry_text.starts_with(kind)) {
                let what = "an entry starts with [FEATURE], [PERF], [FIX] or [CHANGE]";
                findings.push(Finding::new(PATH, idx + 1, what));
            }
            may_summarise = false;
            entries.push(Entry { line: idx + 1, words: words(entry_text).collect() });
        }
    }
    findings.extend(doubles(&entries));
    if !text.lines().any(|line| line.trim() == "## Unreleased") {
        findings.push(Finding::new(PATH, 0, "has no section `## Unreleased`"));
    }
    findings
}

fn doubles(entries: &[Entry]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (idx, entry) in entries.iter().enumerate() {
        let is_double = |other: &&Entry| {
            let shared = entry.words.intersection(&other.words).count();
            shared * 100 >= SHARED_WORDS_PERCENT * entry.words.len().max(other.words.len())
        };
        if let Some(first) = entries[..idx].iter().find(is_double) {
            let what = format!("lists a change again that line {} has", first.line);
            findings.push(Finding::new(PATH, entry.line, what));
        }
    }
    findings
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase)
}
