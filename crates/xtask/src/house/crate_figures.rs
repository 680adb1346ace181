//! All figures of one crate, from the texts of its files.
//!
//! Invariants: production code is all modules that `lib.rs` and `main.rs` declare, without test items; all
//! other files below `src/` are tests.

use std::collections::BTreeSet;

use anyhow::Result;

use super::cycles::{self, Cycle};
use super::declarations::Declarations;
use super::docs::DocSites;
use super::folders::{self, FolderCycle};
use super::imports::{self, Edges};
use super::modules::ModuleTree;
use super::rust_file::{CodeLines, RustFile};

const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// A text file; the path is relative to the crate, with `/`.
#[derive(Debug, Clone)]
pub(crate) struct CrateFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Sizes, in lines of code unless noted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SizeFigures {
    pub(super) file_count: usize,
    pub(super) code_lines: usize,
    /// Comments and blank lines too.
    pub(super) all_lines: usize,
    /// The lower median if the number of files is even.
    pub(super) file_lines_median: usize,
    pub(super) file_lines_max: usize,
    pub(super) largest_file: String,
    pub(super) test_lines: usize,
    /// Lines of `examples/` and `benches/`.
    pub(super) example_lines: usize,
}

#[derive(Debug)]
pub(crate) struct CrateFigures {
    /// Name of the crate's folder.
    pub(crate) name: String,
    pub(super) size: SizeFigures,
    pub(crate) cycles: Vec<Cycle>,
    pub(crate) folder_cycles: Vec<FolderCycle>,
    pub(crate) declarations: Declarations,
    pub(crate) docs: DocSites,
}

/// Measures the crate `name`, which has the Rust files `files`.
pub(crate) fn measure(name: &str, files: &[CrateFile]) -> Result<CrateFigures> {
    let mut sources = Vec::new();
    let mut size = SizeFigures::default();
    for file in files {
        match file.path.split_once('/') {
            Some(("src", path)) => sources.push(RustFile::parse(path, &file.text)?),
            Some(("tests", _)) => size.test_lines += CodeLines::parse(&file.text)?.code_line_count(),
            Some(("examples" | "benches", _)) => {
                size.example_lines += CodeLines::parse(&file.text)?.code_line_count();
            }
            _ => {}
        }
    }
    let mut edges = Edges::new();
    let mut declarations = Declarations::default();
    let mut docs = DocSites::default();
    let mut production = BTreeSet::new();
    for root in ROOTS.into_iter().filter(|root| sources.iter().any(|source| source.path == *root)) {
        let tree = ModuleTree::build(&sources, root)?;
        production.extend(tree.file_idxs());
        imports::add_edges(&tree, &mut edges);
        declarations.add(&sources, &tree);
        docs.add(&sources, &tree);
    }
    size.add_sources(&sources, &production);
    let paths: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    Ok(CrateFigures {
        name: name.to_owned(),
        size,
        cycles: cycles::find(&paths, &edges),
        folder_cycles: folders::find(&paths, &edges),
        declarations,
        docs,
    })
}

impl CrateFigures {
    /// Number of modules in the largest cycle of sibling modules; 0 without one.
    pub(crate) fn folder_cycle_max(&self) -> usize {
        self.folder_cycles.iter().map(|cycle| cycle.modules.len()).max().unwrap_or(0)
    }

    /// Methods of the type with the most of them.
    pub(crate) fn methods_max(&self) -> usize {
        self.declarations.types.iter().map(|found| found.method_count).max().unwrap_or(0)
    }

    /// Assertions per 1,000 lines of production code, rounded down to a tenth, in tenths.
    pub(crate) fn assertion_tenths(&self) -> usize {
        self.declarations.assertion_count * 10_000 / self.size.code_lines.max(1)
    }
}

impl SizeFigures {
    fn add_sources(&mut self, sources: &[RustFile], production: &BTreeSet<usize>) {
        let mut by_lines = Vec::new();
        for (idx, source) in sources.iter().enumerate() {
            if !production.contains(&idx) {
                self.test_lines += source.lines.code_line_count();
                continue;
            }
            self.all_lines += source.line_count();
            self.code_lines += source.code_line_count();
            self.test_lines += source.test_code_line_count();
            by_lines.push((source.code_line_count(), source.path.as_str()));
        }
        by_lines.sort_unstable();
        self.file_count = by_lines.len();
        self.file_lines_median =
            by_lines.get(by_lines.len().saturating_sub(1) / 2).map_or(0, |(lines, _)| *lines);
        if let Some((lines, path)) = by_lines.last() {
            self.file_lines_max = *lines;
            self.largest_file = (*path).to_owned();
        }
    }
}
