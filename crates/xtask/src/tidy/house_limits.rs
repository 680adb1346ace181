//! Limits on figures of `cargo xtask house`, per crate: they may only improve.
//!
//! Invariants: a crate without a line has no folder cycle, no `pub(crate)` field and at most
//! [`METHODS_MAX`] methods per type; a figure that improved is recorded, so that it cannot get worse again.
//! Not here: computation of the figures (`crate::house`).

use super::finding::Finding;
use super::text_file::{TextFile, find};
use crate::house::CrateFigures;

pub(super) const LIST_PATH: &str = "crates/xtask/house-limits.txt";
const HEAD: &str = "\
# Figures of `cargo xtask house` that may only improve; `cargo xtask tidy --record-house-limits` records better ones.
# CRATE, modules in the largest folder cycle, pub(crate) fields, methods of the type with the most of them,
# assertions per 1,000 lines (at least)
";

/// Methods of one type that need no line.
const METHODS_MAX: usize = 20;

/// One crate's limits, or its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Figures {
    folder_cycle_max: usize,
    crate_wide_fields: usize,
    methods_max: usize,
    /// Assertions per 1,000 lines, in tenths.
    assertion_tenths: usize,
}

impl Figures {
    const UNLISTED: Figures =
        Figures { folder_cycle_max: 0, crate_wide_fields: 0, methods_max: METHODS_MAX, assertion_tenths: 0 };

    fn of(figures: &CrateFigures) -> Figures {
        Figures {
            folder_cycle_max: figures.folder_cycle_max(),
            crate_wide_fields: figures.declarations.fields.crate_wide,
            methods_max: figures.methods_max().max(METHODS_MAX),
            // Whole ones: a line more or less is no reason to record anything.
            assertion_tenths: figures.assertion_tenths() / 10 * 10,
        }
    }

    /// Parses the words after the crate's name.
    fn parse(words: &[&str]) -> Option<Figures> {
        let [cycle, fields, methods, assertions] = words else { return None };
        Some(Figures {
            folder_cycle_max: cycle.parse().ok()?,
            crate_wide_fields: fields.parse().ok()?,
            methods_max: methods.parse().ok()?,
            assertion_tenths: assertions.parse::<usize>().ok()? * 10,
        })
    }

    /// The better one of each figure.
    fn best(self, other: Figures) -> Figures {
        Figures {
            folder_cycle_max: self.folder_cycle_max.min(other.folder_cycle_max),
            crate_wide_fields: self.crate_wide_fields.min(other.crate_wide_fields),
            methods_max: self.methods_max.min(other.methods_max),
            assertion_tenths: self.assertion_tenths.max(other.assertion_tenths),
        }
    }
}

/// Findings of all crates against the list in `files`.
pub(super) fn check(crates: &[CrateFigures], files: &[TextFile]) -> Vec<Finding> {
    let (mut listed, mut findings) = parse(find(files, LIST_PATH));
    for figures in crates {
        let entry = listed.iter().position(|(name, _)| *name == figures.name);
        let limits = entry.map_or(Figures::UNLISTED, |idx| listed.swap_remove(idx).1);
        findings.extend(judge(&figures.name, Figures::of(figures), limits));
    }
    findings.extend(
        listed.iter().map(|(name, _)| {
            Finding::new(LIST_PATH, 0, format!("there is no crate {name}; remove the line"))
        }),
    );
    findings
}

/// The list with better figures where there are any; a figure that got worse keeps its limit.
pub(super) fn render(crates: &[CrateFigures], recorded: &str) -> String {
    let listed = parse(recorded).0;
    let mut out = HEAD.to_owned();
    for figures in crates {
        let now = Figures::of(figures);
        let limits = listed.iter().find(|(name, _)| *name == figures.name);
        let best = limits.map_or(now, |(_, limits)| now.best(*limits));
        if best != Figures::UNLISTED {
            let Figures { folder_cycle_max, crate_wide_fields, methods_max, assertion_tenths } = best;
            out.push_str(&format!(
                "{} {folder_cycle_max} {crate_wide_fields} {methods_max} {}\n",
                figures.name,
                assertion_tenths / 10
            ));
        }
    }
    out
}

/// Limits by crate, and a finding for each line of another form.
fn parse(text: &str) -> (Vec<(&str, Figures)>, Vec<Finding>) {
    let mut listed = Vec::new();
    let mut findings = Vec::new();
    for (idx, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let entry = words.split_first().and_then(|(name, rest)| Some((*name, Figures::parse(rest)?)));
        match entry {
            Some(entry) => listed.push(entry),
            None => findings.push(Finding::new(
                LIST_PATH,
                idx + 1,
                "expected `CRATE MODULES FIELDS METHODS ASSERTIONS`, four whole numbers",
            )),
        }
    }
    (listed, findings)
}

fn judge(name: &str, now: Figures, limits: Figures) -> Vec<Finding> {
    let path = format!("crates/{name}");
    let mut findings = Vec::new();
    let mut add = |what: String| findings.push(Finding::new(&path, 0, what));
    let upper = [
        ("modules in a folder cycle", now.folder_cycle_max, limits.folder_cycle_max),
        ("pub(crate) fields", now.crate_wide_fields, limits.crate_wide_fields),
        ("methods of one type", now.methods_max, limits.methods_max),
    ];
    for (what, count, limit) in upper.into_iter().filter(|(_, count, limit)| count > limit) {
        add(format!("{count} {what}, at most {limit}; `cargo xtask house --crate {name}` lists them"));
    }
    let tenths = now.assertion_tenths;
    let least = limits.assertion_tenths;
    if tenths < least {
        add(format!("{} assertions per 1,000 lines, at least {}", tenths / 10, least / 10));
    }
    if findings.is_empty() && now != limits {
        findings.push(Finding::new(
            LIST_PATH,
            0,
            format!(
                "figures of {name} are better than recorded; run `cargo xtask tidy --record-house-limits`"
            ),
        ));
    }
    findings
}
