//! File length: at most 800 lines without tests. Longer files are listed with their length, which may only
//! shrink.

use super::finding::Finding;
use super::text_file::{TextFile, find, is_test_file, without_tests};

const LINES_MAX: usize = 800;
const LIST_PATH: &str = "crates/xtask/tidy-ratchet.txt";

/// Findings of all Rust files against the list.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed = Vec::new();
    for (idx, line) in find(files, LIST_PATH).lines().enumerate().filter(|(_, l)| !l.starts_with('#')) {
        match line.split_once(' ').and_then(|(count, path)| Some((count.parse::<usize>().ok()?, path.trim())))
        {
            Some((count, path)) => listed.push((path, count)),
            None => findings.push(Finding::new(LIST_PATH, idx + 1, "expected `LINES PATH`")),
        }
    }
    for file in files.iter().filter(|f| f.path.ends_with(".rs") && !is_test_file(&f.path)) {
        let entry =
            listed.iter().position(|(path, _)| *path == file.path).map(|idx| listed.swap_remove(idx).1);
        let line_count = without_tests(&file.text).lines().count();
        let what = judge(line_count, entry);
        findings.extend(what.map(|what| Finding::new(&file.path, line_count, what)));
    }
    let gone =
        listed.iter().map(|(path, _)| Finding::new(LIST_PATH, 0, format!("{path} is gone; remove the line")));
    findings.extend(gone);
    findings
}

fn judge(line_count: usize, entry: Option<usize>) -> Option<String> {
    match entry {
        None if line_count > LINES_MAX => Some(format!(
            "{line_count} lines without tests, at most {LINES_MAX}; split where the idea splits"
        )),
        Some(_) if line_count <= LINES_MAX => Some(format!("is short enough; remove it from {LIST_PATH}")),
        Some(most) if line_count > most => Some(format!("has grown from {most} to {line_count} lines")),
        Some(most) if line_count < most => Some(format!("has shrunk; write {line_count} in {LIST_PATH}")),
        _ => None,
    }
}
