//! Structure of each crate, from the figures of `cargo xtask house`: types over files, wide structs, tuples
//! in place of names, import cycles, docs.

use super::finding::{Finding, Rule};
use crate::house::{CrateFigures, FIELDS_MAX, INHERENT_FILES_MAX, Site};

/// Findings of one crate.
pub(super) fn check(figures: &CrateFigures) -> Vec<Finding> {
    let source = |file: &str| format!("crates/{}/src/{file}", figures.name);
    let mut findings = Vec::new();
    for found in &figures.declarations.types {
        let mut add = |rule, what: String| {
            let what = format!("`{}` {what}", found.name);
            findings.push(Finding::of(rule, &source(&found.file), found.line, what));
        };
        let files = found.inherent_files.len();
        if files > INHERENT_FILES_MAX {
            add(Rule::TypeFiles, format!("has methods in {files} files, at most {INHERENT_FILES_MAX}"));
        }
        if found.field_count > FIELDS_MAX {
            add(Rule::StructFields, format!("has {} fields, at most {FIELDS_MAX}", found.field_count));
        }
    }
    for cycle in &figures.cycles {
        for file in &cycle.files {
            let others: Vec<&str> = cycle.files.iter().filter(|f| *f != file).map(String::as_str).collect();
            let what = format!("is in an import cycle with {}", others.join(", "));
            findings.push(Finding::of(Rule::ImportCycles, &source(file), 0, what));
        }
    }
    let mut add_all = |rule, sites: &[Site], what: &str| {
        findings.extend(sites.iter().map(|site| Finding::of(rule, &source(&site.file), site.line, what)));
    };
    let parameter = "a tuple as a parameter; give each part a name, or make it a struct";
    add_all(Rule::TupleParameters, &figures.declarations.tuple_parameters, parameter);
    add_all(Rule::TupleLets, &figures.declarations.tuple_lets, "several lets in one; write one per line");
    add_all(Rule::PublicDocs, &figures.docs.undocumented, "a public item without a doc comment");
    let short = "a doc comment of at most two words; say the unit, range or invariant, or remove it";
    add_all(Rule::ShortDocs, &figures.docs.short, short);
    findings
}
