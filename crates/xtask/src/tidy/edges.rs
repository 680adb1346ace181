//! Allowed dependencies between crates: the crate table of ARCHITECTURE.md against `cargo metadata`.
//! Invariants: table and manifests say the same; an edge in only one of them is a finding, either way.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::finding::Finding;

const PATH: &str = "ARCHITECTURE.md";
const PREFIX: &str = "chronolith-";

/// Edges of one crate.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct CrateEdges {
    /// Crates of the workspace it is built from, sorted.
    pub(super) normal: Vec<String>,
    /// Crates that only its tests use, sorted.
    pub(super) dev: Vec<String>,
}

/// Edges by crate.
pub(super) type Edges = BTreeMap<String, CrateEdges>;

/// The edges that the manifests have.
pub(super) fn from_metadata(metadata: &Value) -> Result<Edges> {
    let mut edges = Edges::new();
    for package in metadata["packages"].as_array().context("cargo metadata: no packages")? {
        let name = package["name"].as_str().context("cargo metadata: a package without a name")?;
        let mut own = CrateEdges::default();
        for dep in package["dependencies"].as_array().context("cargo metadata: no dependencies")? {
            // Only crates of the workspace have a path.
            let Some(dep_name) = dep["name"].as_str().filter(|_| dep["path"].is_string()) else { continue };
            let side = if dep["kind"] == "dev" { &mut own.dev } else { &mut own.normal };
            side.push(short(dep_name));
        }
        own.normal.sort();
        own.dev.sort();
        own.dev.retain(|dep| !own.normal.contains(dep));
        edges.insert(short(name), own);
    }
    Ok(edges)
}

/// The edges that the table allows: rows of `| crate | sentence | may depend on | tests also |`, in any text.
pub(super) fn from_table(text: &str) -> Edges {
    let mut edges = Edges::new();
    let mut in_table = false;
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            in_table = false;
        } else if let [first, _, third, _] = cells[..] {
            if in_table && first.starts_with('`') {
                let own = CrateEdges { normal: quoted(third), dev: quoted(cells[3]) };
                edges.insert(first.trim_matches('`').to_owned(), own);
            }
            in_table |= first == "crate" && third == "may depend on";
        }
    }
    edges
}

/// Differences, both ways.
pub(super) fn check(used: &Edges, architecture: &str) -> Vec<Finding> {
    let allowed = from_table(architecture);
    let mut found = Vec::new();
    for (name, own) in used {
        let Some(row) = allowed.get(name) else {
            found.push(format!("crate `{name}` has no row in the crate table"));
            continue;
        };
        compare(name, "depends on", &own.normal, &row.normal, &mut found);
        compare(name, "in its tests depends on", &own.dev, &row.dev, &mut found);
    }
    let gone = allowed.keys().filter(|name| !used.contains_key(*name));
    found.extend(gone.map(|name| format!("the crate table has `{name}`, the workspace has not")));
    found.into_iter().map(|what| Finding::new(PATH, 0, what)).collect()
}

fn compare(name: &str, verb: &str, used: &[String], allowed: &[String], found: &mut Vec<String>) {
    for dep in used.iter().filter(|dep| !allowed.contains(dep)) {
        found.push(format!("`{name}` {verb} `{dep}`, which the crate table does not allow"));
    }
    for dep in allowed.iter().filter(|dep| !used.contains(dep)) {
        found.push(format!("the crate table says that `{name}` {verb} `{dep}`; it does not"));
    }
}

fn quoted(cell: &str) -> Vec<String> {
    let mut names: Vec<String> = cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    names.sort();
    names
}

fn short(name: &str) -> String {
    name.strip_prefix(PREFIX).unwrap_or(name).to_owned()
}
