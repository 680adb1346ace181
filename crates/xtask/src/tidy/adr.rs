//! Architecture decision records: one template, and an index that has all of them.

use super::finding::Finding;
use super::text_file::{TextFile, find};

const FOLDER: &str = "docs/adr/";
const INDEX_PATH: &str = "docs/adr/README.md";
const STATES: [&str; 2] = ["accepted", "replaced by ["];

/// Parts of every record, in this order.
const PARTS: [&str; 2] = ["\n**Context.**", "\n**Decision.**"];

/// Findings of all records and of the index.
pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let index = find(files, INDEX_PATH);
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path.starts_with(FOLDER) && f.path != INDEX_PATH) {
        let mut add = |line, what: String| findings.push(Finding::new(&file.path, line, what));
        let name = &file.path[FOLDER.len()..];
        let Some(number) = number_of(name) else {
            add(0, "is not called NNNN-words-of-the-title.md".to_owned());
            continue;
        };
        let title = file.text.lines().next().and_then(|line| line.strip_prefix(&format!("# {number}: ")));
        match title {
            None => add(1, format!("expected `# {number}: TITLE`")),
            Some(title) if !has_row(index, &format!("| [{number}]({name}) | {title} | ")) => {
                add(1, format!("has no row `| [{number}]({name}) | {title} | ...` in {INDEX_PATH}"));
            }
            Some(_) => {}
        }
        let status = file.text.lines().nth(2).and_then(|line| line.strip_prefix("Status: "));
        if !status.is_some_and(|status| STATES.iter().any(|state| status.starts_with(state))) {
            add(3, "expected `Status: accepted` or `Status: replaced by [NNNN](FILE)`".to_owned());
        }
        let mut rest = file.text.as_str();
        for part in PARTS {
            match rest.find(part) {
                Some(at) => rest = &rest[at..],
                None => add(0, format!("has no `{}` after what precedes it in the template", part.trim())),
            }
        }
    }
    let is_gone = |name: &&str| !files.iter().any(|f| f.path == format!("{FOLDER}{name}"));
    let gone = linked_names(index).filter(is_gone);
    findings
        .extend(gone.map(|name| Finding::new(INDEX_PATH, 0, format!("names {name}, which does not exist"))));
    findings
}

/// The four digits that begin the file name of a record.
fn number_of(name: &str) -> Option<&str> {
    let number = name.split('-').next().filter(|n| n.len() == 4 && n.bytes().all(|b| b.is_ascii_digit()))?;
    name.ends_with(".md").then_some(number)
}

fn has_row(index: &str, start: &str) -> bool {
    index.lines().any(|line| line.starts_with(start))
}

/// File names in the first column of the index.
fn linked_names(index: &str) -> impl Iterator<Item = &str> {
    index.lines().filter_map(|line| line.strip_prefix("| [")?.split_once("](")?.1.split(')').next())
}
