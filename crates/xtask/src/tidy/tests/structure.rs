//! Structure of a crate: each rule with a source that breaks it.

use super::super::structure::check;
use super::check_findings;
use crate::house::{CrateFile, measure};

/// Checks the findings of a crate that consists of `files`: paths relative to the crate, and texts.
#[track_caller]
fn check_crate(files: &[(&str, &str)], want: &[&str]) {
    let file = |(path, text): &(&str, &str)| CrateFile { path: (*path).to_owned(), text: (*text).to_owned() };
    let figures = measure("head", &files.iter().map(file).collect::<Vec<_>>()).unwrap();
    check_findings(&check(&figures), want);
}

#[test]
fn methods_of_a_type_lie_in_at_most_three_files() {
    let lib = ("src/lib.rs", "mod a; mod b; mod c;\nstruct Wide; impl Wide {}");
    let rest = [("src/a.rs", "impl super::Wide {}"), ("src/b.rs", "impl super::Wide {}")];
    check_crate(&[&[lib], rest.as_slice(), &[("src/c.rs", "")]].concat(), &[]);
    check_crate(
        &[&[lib], rest.as_slice(), &[("src/c.rs", "impl super::Wide {}")]].concat(),
        &["crates/head/src/lib.rs:2: `Wide` has methods in 4 files, at most 3"],
    );
}

#[test]
fn a_struct_has_at_most_15_fields() {
    let with_fields = |count: usize| {
        let fields: String = (0..count).map(|idx| format!("x{idx}: u8, ")).collect();
        format!("\nstruct Wide {{ {fields} }}")
    };
    check_crate(&[("src/lib.rs", &with_fields(15))], &[]);
    check_crate(&[("src/lib.rs", &with_fields(16))], &["src/lib.rs:2: `Wide` has 16 fields, at most 15"]);
}

#[test]
fn parts_of_a_tuple_have_names() {
    check_crate(&[("src/lib.rs", "\nfn f((a, b): (u8, u8)) {}")], &["src/lib.rs:2: a tuple as a parameter"]);
    check_crate(&[("src/lib.rs", "fn f() {\n  let (a, b) = (1, 2);\n}")], &["lib.rs:2: several lets in one"]);
    check_crate(&[("src/lib.rs", "fn f(a: (u8, u8)) { let (b, c) = a; }")], &[]);
}

#[test]
fn files_of_a_crate_import_each_other_one_way() {
    let lib = ("src/lib.rs", "mod a; mod b;");
    let back = ("src/b.rs", "use crate::a::A; struct B;");
    check_crate(&[lib, ("src/a.rs", "struct A;"), back], &[]);
    check_crate(
        &[lib, ("src/a.rs", "use crate::b::B; struct A;"), back],
        &["src/a.rs: is in an import cycle with b.rs", "src/b.rs: is in an import cycle with a.rs"],
    );
}

#[test]
fn docs_are_on_public_items_and_say_something() {
    check_crate(&[("src/lib.rs", "\npub fn f() {}")], &["src/lib.rs:2: a public item without a doc comment"]);
    check_crate(
        &[("src/lib.rs", "/// Does it.\nfn f() {}")],
        &["src/lib.rs:2: a doc comment of at most two"],
    );
    check_crate(&[("src/lib.rs", "/// Seals the open chunk.\npub fn f() {}\nfn g() {}")], &[]);
}
