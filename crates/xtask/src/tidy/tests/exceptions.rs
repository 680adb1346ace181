//! Recorded exceptions: accepted findings, counts that differ, and the list that is written.

use super::super::exceptions::Exceptions;
use super::super::finding::{Finding, Rule};
use super::check_findings;

const HEAD: &str = "crates/head/src/seal.rs";

fn words(path: &str, count: usize) -> Vec<Finding> {
    vec![Finding::of(Rule::Words, path, 7, "a word"); count]
}

fn list(text: &str) -> Exceptions {
    let (list, findings) = Exceptions::parse(text);
    assert_eq!(findings, []);
    list
}

#[test]
fn a_count_may_stay_and_no_more() {
    let two = list("# Why.\n[words]\n2 crates/head\n");
    check_findings(&two.apply(words(HEAD, 2)), &[]);
    check_findings(&two.apply(words(HEAD, 3)), &["crates/head: 3 findings of `words`, 2 accepted"]);
    check_findings(&two.apply(words(HEAD, 1)), &["crates/head: 1 findings of `words`, 2 recorded; run"]);
    check_findings(&two.apply(Vec::new()), &["crates/head: 0 findings of `words`, 2 recorded; run"]);
}

#[test]
fn other_folders_and_rules_are_judged() {
    let two = list("[words]\n2 crates/head\n");
    let other_crate = [words(HEAD, 2), words("crates/header/src/lib.rs", 1)].concat();
    check_findings(&two.apply(other_crate), &["crates/header/src/lib.rs:7: a word"]);
    let other_rule = [words(HEAD, 2), vec![Finding::of(Rule::TupleLets, HEAD, 1, "a tuple")]].concat();
    check_findings(&two.apply(other_rule), &["seal.rs:1: a tuple"]);
    let no_rule = [words(HEAD, 2), vec![Finding::new(HEAD, 1, "no purpose")]].concat();
    check_findings(&two.apply(no_rule), &["seal.rs:1: no purpose"]);
}

#[test]
fn folders_are_crates_folders_and_files_of_the_root() {
    let folder = |path| Finding::new(path, 0, "").folder().to_owned();
    assert_eq!(folder("crates/head/src/seal.rs"), "crates/head");
    assert_eq!(folder("docs/adr/0001-one-log.md"), "docs");
    assert_eq!(folder("README.md"), "README.md");
}

/// Checks the sections of the list that is written after `findings`.
#[track_caller]
fn check_lowered(before: &str, findings: &[Finding], rule: Rule, want: &str) {
    let text = list(before).lowered(findings).render();
    assert_eq!(list(&text).render(), text, "what is written can be read");
    let from = text.find(&format!("[{}]\n", rule.name())).expect("a section per rule");
    let section = text[from..].split("\n\n").next().expect("a section");
    assert_eq!(section.trim_end(), format!("[{}]\n{want}", rule.name()).trim_end());
}

#[test]
fn counts_are_lowered_and_never_raised() {
    check_lowered("[words]\n3 crates/head\n", &words(HEAD, 2), Rule::Words, "2 crates/head");
    check_lowered("[words]\n3 crates/head\n", &words(HEAD, 4), Rule::Words, "3 crates/head");
    check_lowered("[words]\n3 crates/head\n", &[], Rule::Words, "");
    check_lowered("[words]\n", &words(HEAD, 4), Rule::Words, "");
    check_lowered("[tuple-lets]\n", &words(HEAD, 4), Rule::Words, "4 crates/head");
}

#[test]
fn lines_that_cannot_be_read_are_named() {
    let findings = Exceptions::parse("2 crates/head\n[words]\nmany crates/head\n[colour]\n").1;
    let want = "expected `[RULE]` or `COUNT FOLDER`";
    check_findings(
        &findings,
        &[&format!("txt:1: {want}"), &format!("txt:3: {want}"), &format!("txt:4: {want}")],
    );
}
