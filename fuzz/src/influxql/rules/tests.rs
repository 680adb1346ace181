//! Each rule with a difference that it explains, and with one near it that it must not explain.
//!
//! Cases are in `tests/*.txt`: two servers that have these answers and no others. A request that a case does
//! not list fails it. Form (blank lines and lines with `#` are skipped):
//!
//! ```text
//! explains RULE         or `refuses RULE`: a case begins
//! index tsi1            InfluxDB has that index
//! database script       steps change the database of scripts, and are run from the start each time
//! step REQUEST          the next step; the last one is where the answers differ
//! also REQUEST          a request of the rule alone
//!   unless STATEMENT    the answers hold until this statement or write of the case has been sent
//!   both ANSWER         answer of both servers
//!   here ANSWER
//!   InfluxDB ANSWER
//!   InfluxDB, later ANSWER   from the second time on
//! ```
//!
//! A request is a statement, or one after `csv ` or `chunked `, or a body after `write ` or `write@POLICY `.
//! An answer is a series (`m{host=a} time,v: 10,1.5 20,"a b"`; consecutive ones belong together), `nothing`,
//! `error: TEXT`, `accepted`, `status N TEXT`, or `text TEXT` for a body.

mod scripted;

use std::cell::RefCell;
use std::rc::Rc;

use super::{Evidence, explain, rules};
use crate::runner::Runner;
use crate::server::Pair;
use scripted::{Case, Scripted, Side, cases};

const SCRIPTS: [&str; 5] = [
    include_str!("tests/forms.txt"),
    include_str!("tests/writes.txt"),
    include_str!("tests/lists.txt"),
    include_str!("tests/select.txt"),
    include_str!("tests/subqueries.txt"),
];

fn all_cases() -> Vec<Case> {
    SCRIPTS.iter().flat_map(|script| cases(script)).collect()
}

/// A runner over the answers of a case, and requests without an answer.
fn runner_of(case: &Case) -> (Runner, Rc<RefCell<Vec<String>>>) {
    let unknown = Rc::new(RefCell::new(Vec::new()));
    let peer = |side| Box::new(Scripted::new(side, Rc::clone(&case.exchanges), Rc::clone(&unknown)));
    let pair = Pair { ours: peer(Side::Here), theirs: peer(Side::InfluxDb) };
    (Runner::new(pair, case.has_tsi), unknown)
}

/// Returns a description of the failure of a case; `None` if it holds.
fn failure(case: &Case) -> Option<String> {
    let (mut runner, unknown) = runner_of(case);
    let rule = rules().find(|rule| rule.name == case.rule)?;
    let Ok(Some(found)) = runner.find(&case.steps) else { return Some("the answers are equal".to_owned()) };
    if found.step + 1 != case.steps.len() {
        return Some(format!("step {} differs: {:?}", found.step + 1, found.difference));
    }
    let evidence = Evidence::new(&case.steps, &found);
    let explains =
        (rule.applies)(&evidence) && (rule.proof)(&evidence, &mut runner).expect("answers of the case");
    let mut unknown = unknown.borrow().clone();
    unknown.dedup();
    if !unknown.is_empty() {
        return Some(format!("no answers to {unknown:#?}"));
    }
    (explains != case.is_explained).then(|| format!("explained: {explains}; {:?}", found.difference))
}

#[test]
fn rules_explain_their_cases_and_no_others() {
    let failures: Vec<String> = all_cases()
        .iter()
        .filter_map(|case| Some(format!("line {}, {}: {}", case.line, case.rule, failure(case)?)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn each_rule_has_a_case_of_both_kinds() {
    let cases = all_cases();
    for rule in rules() {
        for is_explained in [true, false] {
            let is_own = |case: &&Case| case.rule == rule.name && case.is_explained == is_explained;
            assert!(cases.iter().any(|case| is_own(&case)), "{}: explained {is_explained}", rule.name);
        }
    }
    for case in &cases {
        assert!(rules().any(|rule| rule.name == case.rule), "line {}: no rule {}", case.line, case.rule);
    }
}

/// Rules are asked in order: an earlier rule must not take the difference of a later one.
#[test]
fn a_difference_is_explained_by_its_own_rule() {
    for case in all_cases().iter().filter(|case| case.is_explained) {
        let (mut runner, _) = runner_of(case);
        let found = runner.find(&case.steps).expect("answers").expect("a difference");
        let name = explain(&case.steps, &found, &mut runner).expect("answers");
        assert_eq!(name, Some(case.rule.as_str()), "line {}", case.line);
    }
}
