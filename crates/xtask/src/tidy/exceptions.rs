//! Recorded exceptions: findings per rule and folder that were there before the rule. Counts may only fall.
//!
//! Invariants: a rule has a section in the list, also if it has no exceptions; only a rule without a section
//! gets its counts from the sources. So `--record-exceptions` never raises a count.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Rule};

pub(super) const LIST_PATH: &str = "crates/xtask/tidy-exceptions.txt";

const HEADER: &str = "\
# Findings that `cargo xtask tidy` accepts: a section per rule, `COUNT FOLDER` per line. A count may only fall;
# `cargo xtask tidy --list RULE` prints the findings, `cargo xtask tidy --record-exceptions` writes lower counts.
# Where code moved between crates, remove the section and record it again: the review sees which counts rose.
";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Exceptions {
    counts: BTreeMap<(Rule, String), usize>,
    /// Rules with a section.
    rules: BTreeSet<Rule>,
}

impl Exceptions {
    /// Reads the list; lines that cannot be read are findings.
    pub(super) fn parse(text: &str) -> (Exceptions, Vec<Finding>) {
        let mut list = Exceptions::default();
        let mut findings = Vec::new();
        let mut section = None;
        for (idx, line) in text.lines().enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
            let name = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let entry =
                line.split_once(' ').and_then(|(count, folder)| Some((count.parse().ok()?, folder.trim())));
            match (name.map(Rule::from_name), section, entry) {
                (Some(Some(rule)), ..) => {
                    list.rules.insert(rule);
                    section = Some(rule);
                }
                (None, Some(rule), Some((count, folder))) => {
                    list.counts.insert((rule, folder.to_owned()), count);
                }
                _ => findings.push(Finding::new(LIST_PATH, idx + 1, "expected `[RULE]` or `COUNT FOLDER`")),
            }
        }
        (list, findings)
    }

    /// Returns `findings` without the accepted ones, and a finding for each count that differs.
    pub(super) fn apply(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let found = count(&findings);
        let mut left: Vec<Finding> = findings
            .into_iter()
            .filter(|finding| finding.rule().is_none_or(|rule| self.recorded(rule, finding.folder()) == 0))
            .collect();
        let keys: BTreeSet<_> = found.keys().chain(self.counts.keys()).collect();
        for key @ (rule, folder) in keys {
            let now = found.get(key).copied().unwrap_or(0);
            let recorded = self.recorded(*rule, folder);
            let name = rule.name();
            if recorded > 0 && now > recorded {
                let what = format!(
                    "{now} findings of `{name}`, {recorded} accepted; `cargo xtask tidy --list {name}` prints them"
                );
                left.push(Finding::new(folder, 0, what));
            } else if now < recorded {
                let what = format!(
                    "{now} findings of `{name}`, {recorded} recorded; run cargo xtask tidy --record-exceptions"
                );
                left.push(Finding::new(folder, 0, what));
            }
        }
        left
    }

    /// The list after `findings`: lower counts where there are fewer, and sections for rules that had none.
    pub(super) fn lowered(&self, findings: &[Finding]) -> Exceptions {
        let found = count(findings);
        let mut counts = BTreeMap::new();
        for (key @ (rule, folder), now) in &found {
            let now = if self.rules.contains(rule) { self.recorded(*rule, folder).min(*now) } else { *now };
            if now > 0 {
                counts.insert(key.clone(), now);
            }
        }
        Exceptions { counts, rules: Rule::ALL.into() }
    }

    pub(super) fn render(&self) -> String {
        let mut text = HEADER.to_owned();
        for rule in &self.rules {
            text += &format!("\n[{}]\n", rule.name());
            for ((_, folder), count) in self.counts.iter().filter(|((of, _), _)| of == rule) {
                text += &format!("{count} {folder}\n");
            }
        }
        text
    }

    fn recorded(&self, rule: Rule, folder: &str) -> usize {
        self.counts.get(&(rule, folder.to_owned())).copied().unwrap_or(0)
    }
}

fn count(findings: &[Finding]) -> BTreeMap<(Rule, String), usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        if let Some(rule) = finding.rule() {
            *counts.entry((rule, finding.folder().to_owned())).or_default() += 1;
        }
    }
    counts
}
