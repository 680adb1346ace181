//! Limits on figures of a crate: one that got worse, one that improved, lines of another form.

use super::super::house_limits::{LIST_PATH, check, render};
use super::super::text_file::TextFile;
use super::check_findings;
use crate::house::{CrateFigures, CrateFile, measure};

/// A crate `head` with two `pub(crate)` fields, two modules in a cycle and an assertion in 200 lines.
fn figures() -> Vec<CrateFigures> {
    let file = |path: &str, text: String| CrateFile { path: path.to_owned(), text };
    let a = format!(
        "use crate::b::B;\npub struct A {{ pub(crate) x: u8, pub(crate) y: u8 }}\n{}",
        "fn f() {}\n".repeat(196)
    );
    let files = [
        file("src/lib.rs", "mod a; mod b;".to_owned()),
        file("src/a.rs", a),
        file("src/b.rs", "use crate::a::A; pub struct B; fn f() { assert!(true) }".to_owned()),
    ];
    vec![measure("head", &files).unwrap()]
}

#[track_caller]
fn check_list(list: &str, want: &[&str]) {
    let list = TextFile { path: LIST_PATH.to_owned(), text: list.to_owned() };
    check_findings(&check(&figures(), &[list]), want);
}

#[test]
fn a_figure_may_only_improve() {
    check_list("# why\nhead 2 2 20 5\n", &[]);
    check_list("head 0 2 20 5\n", &["crates/head: 2 modules in a folder cycle, at most 0"]);
    check_list("head 2 1 20 5\n", &["crates/head: 2 pub(crate) fields, at most 1"]);
    check_list("head 2 2 20 6\n", &["crates/head: 5 assertions per 1,000 lines, at least 6"]);
    for better in ["head 3 2 20 5\n", "head 2 3 20 5\n", "head 2 2 21 5\n", "head 2 2 20 4\n"] {
        check_list(better, &["figures of head are better than recorded"]);
    }
}

#[test]
fn a_crate_without_a_line_has_the_strictest_limits() {
    check_list("", &["2 modules in a folder cycle, at most 0", "2 pub(crate) fields, at most 0"]);
    check_list("head 2 2 20 5\ngone 1 1 20 0\n", &["there is no crate gone"]);
    check_list("head 2 2 20 5\nhead 2 2\n", &["expected `CRATE MODULES FIELDS METHODS ASSERTIONS`"]);
    check_list("head 2 2 20 5\nhead 2 x 20 5\n", &["four whole numbers"]);
}

#[test]
fn recording_keeps_the_limit_of_a_figure_that_got_worse() {
    let recorded = |list: &str| render(&figures(), list).lines().last().unwrap().to_owned();
    assert_eq!(recorded(""), "head 2 2 20 5");
    assert_eq!(recorded("head 1 9 30 6\ngone 1 1 1 1\n"), "head 1 2 20 6");
}
