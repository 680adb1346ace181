//! CHANGELOG.md: an Unreleased section; each entry says its kind first.

use super::Finding;

const PATH: &str = "CHANGELOG.md";
const KINDS: [&str; 4] = ["[FEATURE] ", "[PERF] ", "[FIX] ", "[CHANGE] "];

/// Findings of the changelog's text.
pub(super) fn check(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_section = false;
    for (idx, line) in text.lines().enumerate() {
        in_section |= line.starts_with("## ");
        let is_entry = in_section && !line.is_empty() && !line.starts_with('#') && !line.starts_with("  ");
        if is_entry && !KINDS.iter().any(|kind| line.trim_start_matches("- ").starts_with(kind)) {
            findings.push(Finding::new(
                PATH,
                idx + 1,
                "an entry starts with [FEATURE], [PERF], [FIX] or [CHANGE]",
            ));
        }
    }
    if !text.lines().any(|line| line.trim() == "## Unreleased") {
        findings.push(Finding::new(PATH, 0, "has no section `## Unreleased`"));
    }
    findings
}
