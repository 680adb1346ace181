//! Text files of the checkout, with paths relative to its root, and the part of a source that is no test.

use std::path::Path;

use anyhow::{Context, Result};

/// Documents of the root that rules read; one that is missing is reported by the rule that needs it.
const ROOT_DOCUMENTS: [&str; 6] =
    ["ARCHITECTURE.md", "BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];
const FOLDERS: [&str; 4] = ["crates", "docs", "examples", "fuzz"];
const SUFFIXES: [&str; 6] = [".rs", ".md", ".txt", ".js", ".css", ".html"];
/// Folders of packages and of built files.
const FOLDERS_SKIPPED: [&str; 3] = ["target", "node_modules", "crates/ui/build"];

#[derive(Debug, Clone)]
pub(super) struct TextFile {
    /// Relative to the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// All files that rules read, sorted by path.
pub(super) fn read_tree(root: &Path) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    for name in ROOT_DOCUMENTS {
        if root.join(name).is_file() {
            read_file(root, name, &mut files)?;
        }
    }
    for folder in FOLDERS {
        read_dir(root, folder, &mut files)?;
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read_dir(root: &Path, dir: &str, files: &mut Vec<TextFile>) -> Result<()> {
    for entry in std::fs::read_dir(root.join(dir)).with_context(|| dir.to_owned())? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{dir}/{name}");
        let kind = entry.file_type()?;
        let is_skipped =
            || FOLDERS_SKIPPED.iter().any(|skipped| [name.as_str(), path.as_str()].contains(skipped));
        if kind.is_dir() && !is_skipped() && !name.starts_with('.') {
            read_dir(root, &path, files)?;
        } else if kind.is_file() && SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
            read_file(root, &path, files)?;
        }
    }
    Ok(())
}

fn read_file(root: &Path, path: &str, files: &mut Vec<TextFile>) -> Result<()> {
    let text = std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
    files.push(TextFile { path: path.to_owned(), text });
    Ok(())
}

/// Text of the file at `path`; empty if there is none.
pub(super) fn find<'a>(files: &'a [TextFile], path: &str) -> &'a str {
    files.iter().find(|f| f.path == path).map_or("", |f| &f.text)
}

/// Returns true if the file consists of tests only.
pub(super) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The part of a source text before its test module.
pub(super) fn without_tests(text: &str) -> &str {
    let mut offset = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let opens_tests = line.trim_end() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.trim_end().ends_with('{'));
        if opens_tests {
            return text.get(..offset).unwrap_or(text);
        }
        offset += line.len();
    }
    text
}
