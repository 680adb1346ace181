//! Rules of scripts, styles and documents of the web interface (`crates/ui`).
//! Invariants: nothing that the server's policy refuses or that turns text of users into markup.

use super::finding::Finding;
use super::text_file::TextFile;

const FOLDER: &str = "crates/ui/";
const LINES_MAX: usize = 300;

/// Code that must not be written, and why.
const CODE_BANNED: [(&str, &str); 9] = [
    ("innerHTML", "text of users would be markup"),
    ("outerHTML", "text of users would be markup"),
    ("insertAdjacentHTML", "text of users would be markup"),
    ("document.write", "text of users would be markup"),
    ("eval(", "the policy refuses it"),
    ("new Function(", "the policy refuses it"),
    ("style=\"", "the policy refuses inline styles; use a class, or an object of properties"),
    ("<style", "the policy refuses inline styles"),
    ("<script>", "the policy refuses inline scripts"),
];

/// Findings of one file.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let is_document = file.path.ends_with(".html");
    let is_web = is_document || [".js", ".css"].iter().any(|ending| file.path.ends_with(ending));
    if !is_web || !file.path.starts_with(FOLDER) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if !is_document && !["// ", "/* ", "/** "].iter().any(|open| file.text.starts_with(open)) {
        findings.push(Finding::new(&file.path, 1, "opens without a comment (what it is, what is not here)"));
    }
    let line_count = file.text.lines().count();
    if line_count > LINES_MAX {
        findings.push(Finding::new(&file.path, 0, format!("has {line_count} lines, at most {LINES_MAX}")));
    }
    for (idx, line) in file.text.lines().enumerate() {
        for (banned, why) in CODE_BANNED.iter().filter(|(banned, _)| line.contains(banned)) {
            findings.push(Finding::new(&file.path, idx + 1, format!("`{banned}`: {why}")));
        }
    }
    findings
}
