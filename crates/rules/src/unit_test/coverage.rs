//! Coverage: rules that tests brought to a result, and alerts that they made fire.
//!
//! Invariant: a recording rule is covered once it has recorded a sample in a round of any test, an alerting
//! rule once one of its alerts has fired.

use std::collections::BTreeMap;

use super::test_file::TestedGroup;
use crate::yaml::Position;

/// Rules by file, group and index.
type RuleKey = (String, String, usize);

/// A rule of a rule file that tests have loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredRule {
    /// Name of the recorded metric, or of the alert.
    pub name: String,
    /// True for an alerting rule.
    pub is_alerting: bool,
    /// Start of the rule in its file.
    pub position: Position,
    /// True if some test covers it.
    pub is_covered: bool,
}

/// Rules of all rule files of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    rules: BTreeMap<RuleKey, CoveredRule>,
}

impl Coverage {
    /// Adds the rules of rule files; those that are known keep what covers them.
    pub fn add_groups(&mut self, groups: &[TestedGroup]) {
        for TestedGroup { file, entry } in groups {
            for (rule_idx, rule) in entry.rules.iter().enumerate() {
                let key = (file.clone(), entry.name.clone(), rule_idx);
                self.rules.entry(key).or_insert_with(|| CoveredRule {
                    name: rule.name.clone(),
                    is_alerting: rule.alerting().is_some(),
                    position: rule.position,
                    is_covered: false,
                });
            }
        }
    }

    pub(super) fn cover(&mut self, file: &str, group: &str, rule_idx: usize) {
        if let Some(rule) = self.rules.get_mut(&(file.to_owned(), group.to_owned(), rule_idx)) {
            rule.is_covered = true;
        }
    }

    /// File, group and rule, in order of files and groups by name, and of rules in their group.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &str, &CoveredRule)> {
        self.rules.iter().map(|((file, group, _), rule)| (file.as_str(), group.as_str(), rule))
    }

    /// Number of rules.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Number of rules that are covered.
    #[must_use]
    pub fn covered_count(&self) -> usize {
        self.rules.values().filter(|rule| rule.is_covered).count()
    }

    /// Share of covered rules in percent; 100 without rules.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.rules.is_empty() {
            return 100.0;
        }
        self.covered_count() as f64 * 100.0 / self.rule_count() as f64
    }
}
