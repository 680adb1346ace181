//! Links between documents: the file that a relative link names exists, and so does the heading of its
//! anchor.
//!
//! Not here: links to other sites, and links within code blocks.

use super::finding::Finding;
use super::text_file::{TextFile, find};

/// Pages that are generated from the code; a test of their generator checks that they are there.
const GENERATED: [&str; 2] = ["docs/reference/metrics.md", "docs/reference/settings.md"];

/// Findings of all Markdown files. `exists` is asked for paths relative to the root, folders included.
pub(super) fn check(files: &[TextFile], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        for (line_idx, line) in prose(&file.text) {
            for target in targets(line).filter(|target| !is_elsewhere(target)) {
                let (name, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if name.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, name) };
                let what = match &path {
                    Some(path) if GENERATED.contains(&path.as_str()) => continue,
                    Some(path) if !exists(path) => format!("links to {target}, which does not exist"),
                    Some(path) if !has_heading(files, path, anchor) => {
                        format!("links to {target}, and {path} has no such heading")
                    }
                    Some(_) => continue,
                    None => format!("links to {target}, outside of the repository"),
                };
                findings.push(Finding::new(&file.path, line_idx + 1, what));
            }
        }
    }
    findings
}

/// Lines outside of code blocks, with their index.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Targets of the links `[text](target)` and of definitions `[name]: target` in a line, without code spans.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
    let inline = line.split('`').step_by(2).flat_map(|text| text.split("](").skip(1));
    // The code span of a link's text ends before `](`, so the target is in the part after it.
    definition.into_iter().chain(inline.filter_map(|rest| rest.split(')').next())).map(str::trim)
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Path of `name`, relative to the root, as seen from the file `from`; none if it leaves the root.
fn resolve(from: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in name.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// Returns true if there is no anchor, or the document `path` has a heading for it.
fn has_heading(files: &[TextFile], path: &str, anchor: &str) -> bool {
    let headings = prose(find(files, path)).filter(|(_, line)| line.starts_with('#'));
    anchor.is_empty() || headings.map(|(_, line)| slug(line)).any(|slug| slug == anchor)
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
