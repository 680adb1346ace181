//! Verbs at the start of the documentation of functions.

use super::super::function_docs::check;
use super::{ANY, check_findings, file};

#[track_caller]
fn check_function(doc: &str, function: &str, want: &[&str]) {
    check_findings(&check(&file(ANY, &format!("{doc}\n{function}\n"))), want);
}

const REFUSED: [&str; 1] = ["seal.rs:1: a function without a value opens its documentation with a verb"];

#[test]
fn a_function_without_a_value_opens_with_a_verb() {
    for function in [
        "fn f() {}",
        "pub(crate) async fn f(&mut self, idx: usize) {",
        "pub const fn f(a: u8) -> bool {",
        "unsafe fn f();",
        "fn f() -> Result<()> {",
        "fn f() -> Result<(), Error> {",
        "pub fn f() -> io::Result<()>;",
        "fn f<F: Fn(usize) -> u8>(f: F) {",
        "fn f(f: impl Fn(usize) -> u8) {",
        "fn f<T>(\n    a: T,\n    b: T,\n) -> bool\nwhere\n    T: Eq,\n{",
        "#[must_use]\nfn f() -> bool {",
        "#[expect(\n    clippy::too_many_arguments,\n    reason = \"x\"\n)]\nfn f() {",
    ] {
        check_function("/// The next sample.", function, &REFUSED);
        check_function("/// As fast as `g`.", function, &REFUSED);
        check_function("/// Samples in order.", function, &REFUSED);
        check_function("/// `a` is added.", function, &REFUSED);
        check_function("/// Adds the next sample.", function, &[]);
        check_function("/// Returns true if it is sealed.", function, &[]);
        check_function("/// As [`g`], for words.", function, &[]);
        check_function("/// # Errors", function, &[]);
    }
}

#[test]
fn other_items_may_open_with_a_noun() {
    for item in [
        "fn f() -> usize {",
        "fn f() -> Result<usize> {",
        "fn f() -> Result<Option<()>, Error> {",
        "fn f() -> impl Fn(u8) -> bool + use<> {",
        "fn f() -> Vec<bool> {",
        "struct Sample;",
        "const F: fn(u8) -> bool = f;",
        "type Visit = dyn Fn(u8) -> bool;",
        "#[test]\nfn f() {",
        "let is_first = true;",
    ] {
        check_function("/// The next sample.", item, &[]);
    }
    check_function("// The next sample.", "fn f() {", &[]);
    check_function("/// Adds\n/// the next sample.\n///\n/// A second paragraph.", "fn f() {", &[]);
    check_function("let text = \"/// The\";", "fn f() {", &[]);
}
