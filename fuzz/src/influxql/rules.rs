//! Rules that explain a difference: what InfluxDB 1.6.7 does, what happens here, why, and the evidence.
//!
//! Invariants: each rule is documented in docs/influxql-differences.md. A rule about the meaning of a
//! statement never rests on the names in it: it asks a variant of the statement without the cause, about
//! which both servers have to agree, or looks at all cells that differ. A rule that explains nothing in a
//! long run fails it, unless it is rare.

mod forms;
mod lists;
mod select;
mod subqueries;
#[cfg(test)]
mod tests;
mod writes;

use std::io::Result;

use crate::compare::Difference;
use crate::runner::{Answers, Finding, Runner};
use crate::steps::Step;

/// A difference and the case that it is in.
pub(crate) struct Evidence<'e> {
    /// Steps up to the differing one.
    steps: &'e [Step],
    /// Statement of the step that differs.
    text: String,
    finding: &'e Finding,
}

impl<'e> Evidence<'e> {
    fn new(steps: &'e [Step], finding: &'e Finding) -> Evidence<'e> {
        let steps = &steps[..=finding.step];
        let text = match steps.last() {
            Some(Step::Query { text, .. }) => text.to_string(),
            _ => String::new(),
        };
        Evidence { steps, text, finding }
    }

    fn difference(&self) -> &Difference {
        &self.finding.difference
    }

    fn answers(&self) -> &Answers {
        &self.finding.answers
    }

    fn kind_has(&self, part: &str) -> bool {
        self.difference().kind.contains(part)
    }

    fn is_error(&self) -> bool {
        self.kind_has("error") || self.kind_has("status")
    }

    /// The case with another last statement.
    fn steps_with(&self, text: &str) -> Vec<Step> {
        let (last, before) = self.steps.split_last().expect("a case has steps");
        before.iter().cloned().chain([last.with_text(text)]).collect()
    }

    /// Returns true if the statement has another text as variant, and both servers agree about its rows.
    fn agree_about(&self, variant: &str, runner: &mut Runner) -> Result<bool> {
        Ok(variant != self.text && runner.agree(&self.steps_with(variant))?)
    }

    /// Answers to a variant of the statement.
    fn ask(&self, variant: &str, runner: &mut Runner) -> Result<Answers> {
        runner.answers(&self.steps_with(variant))
    }
}

/// Test of a rule; it may ask the servers.
type Proof = fn(&Evidence<'_>, &mut Runner) -> Result<bool>;

/// Explanation of a kind of difference.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// Returns true if the rule may explain the difference.
    applies: fn(&Evidence<'_>) -> bool,
    proof: Proof,
}

/// A rule whose evidence is the difference itself.
const fn shown(name: &'static str, applies: fn(&Evidence<'_>) -> bool) -> Rule {
    Rule { name, applies, proof: |_, _| Ok(true) }
}

/// A rule whose evidence is what the servers answer to other requests.
const fn asked(name: &'static str, applies: fn(&Evidence<'_>) -> bool, proof: Proof) -> Rule {
    Rule { name, applies, proof }
}

/// Rules about causes that are so rare, or belong to one index, that a long run may have none.
const RARE: [&str; 53] = [
    "a new field twice in a line, of two types",
    "GROUP BY of cardinalities",
    "InfluxDB panics",
    "LIMIT of groups in a subquery",
    "SLIMIT in a subquery",
    "SLIMIT of SHOW",
    "a measurement that is read twice",
    "abs of negative integers",
    "calculation as condition",
    "cast of a column of a subquery",
    "calls of a subquery that are not joined",
    "conditions of field keys with the index tsi1",
    "decimals of numbers in texts",
    "equals signs in names with the index tsi1",
    "fields that a deletion leaves",
    "floats beyond the range of a calculation",
    "functions that enlarge a difference in last digits",
    "groups of other policies that SLIMIT counts",
    "linear fill around 1970",
    "mode among equally frequent values",
    "number of fill() in operators of booleans",
    "optimizer of holt_winters",
    "partial after the last chunk",
    "points with names that are not UTF-8",
    "replicaN in CSV",
    "retention policies in FROM of SHOW",
    "series of a policy that is not the default one",
    "series of all policies",
    "series that a deletion hides",
    "series that a deletion leaves",
    "tag keys of other retention policies",
    "text without a statement",
    "the same user again",
    "time in WHERE of SHOW SERIES",
    "type errors where no series is selected",
    "two casts of a field in one condition",
    "time in WHERE of one of several statements",
    "row of a subquery twice",
    "row that INTO keeps of several at one time",
    "rows of several integrals",
    "two databases that do not exist",
    "windows up to the present",
    "integrals of groups in a subquery",
    "names of a NUL byte",
    "names of white space alone",
    "one of two errors",
    "order of groups of a subquery",
    "tag twice in GROUP BY",
    "types after a deletion",
    "unsigned integers",
    "windows after one without a percentile",
    "windows before an empty range",
    "windows of a subquery before the range",
];

impl Rule {
    /// Returns true if a long run may not need the rule.
    pub(crate) fn is_rare(&self) -> bool {
        RARE.contains(&self.name)
    }
}

/// All rules; the first one that applies and is proved explains.
pub(crate) fn rules() -> impl Iterator<Item = &'static Rule> {
    let themes: [&[Rule]; 5] =
        [&forms::RULES, &writes::RULES, &lists::RULES, &select::RULES, &subqueries::RULES];
    themes.into_iter().flatten()
}

/// Returns the name of the rule that explains a difference.
pub(crate) fn explain(
    steps: &[Step],
    finding: &Finding,
    runner: &mut Runner,
) -> Result<Option<&'static str>> {
    let evidence = Evidence::new(steps, finding);
    for rule in rules() {
        if (rule.applies)(&evidence) && (rule.proof)(&evidence, runner)? {
            return Ok(Some(rule.name));
        }
    }
    Ok(None)
}
