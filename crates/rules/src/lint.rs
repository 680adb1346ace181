//! Lint of rule files: valid files that are likely mistakes.

use std::collections::BTreeMap;

use crate::file::GroupEntry;

/// Name and labels that several rules of a file have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateRule {
    /// Name of the recorded metric, or of the alert.
    pub name: String,
    /// Labels of the group and of the rule.
    pub labels: BTreeMap<String, String>,
}

/// Returns names and labels that more than one rule has, in their order; as in promtool, a recording and an
/// alerting rule may be equal, too. Cost: linear, and sorting of the rules.
#[must_use]
pub fn duplicate_rules(groups: &[GroupEntry]) -> Vec<DuplicateRule> {
    let mut counts: BTreeMap<(&str, &BTreeMap<String, String>), usize> = BTreeMap::new();
    for rule in groups.iter().flat_map(|group| &group.rules) {
        *counts.entry((&rule.name, &rule.labels)).or_default() += 1;
    }
    let duplicates = counts.into_iter().filter(|(_, count)| *count > 1);
    duplicates
        .map(|((name, labels), _)| DuplicateRule { name: name.to_owned(), labels: labels.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplicates(rules: &str) -> Vec<String> {
        let parsed = crate::file::parse("f", rules.as_bytes(), &crate::testing::file_options());
        let found = duplicate_rules(&parsed.expect("a good file").groups);
        found.into_iter().map(|rule| format!("{} {:?}", rule.name, rule.labels)).collect()
    }

    #[test]
    fn equal_names_and_labels_are_found_once() {
        let text = "groups:\n- name: a\n  labels: {team: x}\n  rules:\n  - {record: r, expr: up}\n  - {record: r, expr: b}\n  \
                    - {record: s, expr: up}\n- name: b\n  rules:\n  - {record: r, expr: c, labels: {team: x}}\n  \
                    - {alert: s, expr: up, labels: {team: x}}\n  - {record: r, expr: up}\n";
        assert_eq!(duplicates(text), ["r {\"team\": \"x\"}", "s {\"team\": \"x\"}"]);
        assert!(duplicates("groups:\n- name: a\n  rules:\n  - {record: r, expr: up}\n").is_empty());
    }
}
