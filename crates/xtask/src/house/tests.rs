//! Each figure of a crate, on small sources that have it and small sources that lack it.

use super::crate_figures::{CrateFigures, CrateFile, measure};
use super::report::{self, Layout};
use super::site::Site;
use super::{Flags, parse_flags};

/// Measures a crate that consists of `files`: paths relative to the crate, and texts.
fn figures(files: &[(&str, &str)]) -> CrateFigures {
    let file = |(path, text): &(&str, &str)| CrateFile { path: (*path).to_owned(), text: (*text).to_owned() };
    measure("head", &files.iter().map(file).collect::<Vec<_>>()).unwrap()
}

/// Measures a crate of one file.
fn figures_of(text: &str) -> CrateFigures {
    figures(&[("src/lib.rs", text)])
}

/// Checks all import cycles: `within` or `between` modules, then the files.
#[track_caller]
fn check_cycles(files: &[(&str, &str)], want: &[&str]) {
    let cycles = figures(files).cycles;
    let kind = |is_within_module| if is_within_module { "within" } else { "between" };
    let found: Vec<String> = cycles
        .iter()
        .map(|cycle| format!("{}: {}", kind(cycle.is_within_module), cycle.files.join(" ")))
        .collect();
    assert_eq!(found, want);
}

/// Checks the paths of the files with inherent impls and with trait impls of the type `name`.
#[track_caller]
fn check_impls(files: &[(&str, &str)], name: &str, want_inherent: &[&str], want_trait: &[&str]) {
    let types = figures(files).declarations.types;
    let found = types.iter().find(|found| found.name == name).unwrap();
    assert_eq!(found.inherent_files.iter().collect::<Vec<_>>(), want_inherent);
    assert_eq!(found.trait_files.iter().collect::<Vec<_>>(), want_trait);
}

const TWO_MODULES: (&str, &str) = ("src/lib.rs", "mod a; mod b;");

#[test]
fn files_that_import_each_other_are_a_cycle() {
    let a = "src/a.rs";
    let b = "src/b.rs";
    check_cycles(&[TWO_MODULES, (a, "use crate::b::B; struct A;"), (b, "struct B;")], &[]);
    let want = ["between: a.rs b.rs"];
    check_cycles(&[TWO_MODULES, (a, "use crate::b::B; struct A;"), (b, "use super::a::A; struct B;")], &want);
    check_cycles(&[TWO_MODULES, (a, "fn f() { crate::b::g() }"), (b, "fn g(a: &crate::a::A) {}")], &want);
    check_cycles(
        &[TWO_MODULES, (a, "use super::{b}; fn f() {}"), (b, "fn g() { vec![super::a::f()] }")],
        &want,
    );
}

#[test]
fn a_cycle_may_lead_through_other_files() {
    let root = ("src/lib.rs", "mod a; mod b; mod c; mod d;");
    let a = ("src/a.rs", "use crate::b::B;");
    let b = ("src/b.rs", "use crate::c::C;");
    let d = ("src/d.rs", "use crate::a::A;");
    check_cycles(&[root, a, b, ("src/c.rs", "use crate::a::A;"), d], &["between: a.rs b.rs c.rs"]);
    check_cycles(&[root, a, b, ("src/c.rs", ""), d], &[]);
}

#[test]
fn names_that_are_not_of_the_crate_are_no_edges() {
    let b = ("src/b.rs", "use crate::a::A;");
    check_cycles(&[TWO_MODULES, ("src/a.rs", "use std::b::B; use ::b::C; fn f() { c::b::g() }"), b], &[]);
    check_cycles(&[TWO_MODULES, ("src/a.rs", "pub(in crate::b) struct A; // crate::b::B"), b], &[]);
}

#[test]
fn a_module_and_its_children_are_a_cycle_within_one_module() {
    let root = TWO_MODULES;
    let child = ("src/a/c.rs", "use super::A; struct C;");
    let parent = ("src/a.rs", "mod c; use c::C; struct A;");
    check_cycles(&[root, parent, child, ("src/b.rs", "")], &["within: a.rs a/c.rs"]);
    check_cycles(
        &[root, ("src/a.rs", "mod c; fn f() { c::C::new() }"), child, ("src/b.rs", "")],
        &["within: a.rs a/c.rs"],
    );
    let variable = ("src/a.rs", "mod c; struct A; fn f(c: u8) -> bool { assert!(c > 0); c == 1 }");
    check_cycles(&[root, variable, child, ("src/b.rs", "")], &[]);
    check_cycles(
        &[root, parent, ("src/a/c.rs", "use super::A; use crate::b::B;"), ("src/b.rs", "use crate::a::A;")],
        &["between: a.rs a/c.rs b.rs"],
    );
}

#[test]
fn a_cycle_with_the_crate_root_is_within_one_module_only_as_a_pair() {
    let root = ("src/lib.rs", "mod a; mod b; use a::A; struct Root;");
    check_cycles(&[root, ("src/a.rs", "use crate::Root;"), ("src/b.rs", "")], &["within: a.rs lib.rs"]);
    check_cycles(
        &[root, ("src/a.rs", "use crate::b::B;"), ("src/b.rs", "use crate::Root;")],
        &["between: a.rs b.rs lib.rs"],
    );
}

#[test]
fn a_reexported_item_counts_for_the_file_that_defines_it() {
    let root = ("src/lib.rs", "mod a; mod b; pub(crate) use b::B;");
    let inner = ("src/b/inner.rs", "pub struct Inner;");
    let a = ("src/a.rs", "use crate::b::Inner as Other; use crate::B; pub struct A;");
    // `a` needs `b/inner.rs` and `b.rs`; only the second one needs `a`.
    check_cycles(
        &[root, a, ("src/b.rs", "mod inner; pub use inner::*; use crate::a::A; pub struct B;"), inner],
        &["between: a.rs b.rs"],
    );
    let only_inner = ("src/a.rs", "use crate::b::Inner; pub struct A;");
    check_cycles(
        &[root, only_inner, ("src/b.rs", "mod inner; pub use self::inner::Inner; use crate::a::A;"), inner],
        &[],
    );
}

#[test]
fn resolution_of_cyclic_imports_ends() {
    let found = figures(&[
        TWO_MODULES,
        ("src/a.rs", "pub use crate::b::X; pub use crate::b::*;"),
        ("src/b.rs", "pub use crate::a::X; pub use crate::a::*; use super::b::Y;"),
    ]);
    assert_eq!(found.size.file_count, 3);
    check_cycles(
        &[TWO_MODULES, ("src/a.rs", "use c::c; fn f() { c::b::g() }"), ("src/b.rs", "use crate::a::f;")],
        &[],
    );
}

#[test]
fn tests_have_no_edges_and_no_declarations() {
    let a =
        "use crate::b::B;\n#[cfg(test)]\nmod tests {\n    struct T { pub(crate) x: u8 }\n    fn t() {}\n}\n";
    let b = "struct B;\n#[cfg(all(test, not(loom)))]\nmod tests;\n#[cfg(test)]\nuse crate::a::A;\n\
             impl B {\n    #[cfg(test)]\n    fn g(&self) {}\n}\n#[cfg(not(test))]\nfn h() {}\n";
    let found = figures(&[
        TWO_MODULES,
        ("src/a.rs", a),
        ("src/b.rs", b),
        ("src/b/tests.rs", "use crate::a::A;\n"),
        ("tests/all.rs", "fn t() {\n    // Nothing.\n}\n"),
        ("examples/shift.rs", "fn main() {}\n"),
    ]);
    assert_eq!(found.cycles, []);
    assert_eq!((found.declarations.types.len(), found.declarations.functions.all), (1, 1));
    assert_eq!(found.declarations.fields.crate_wide, 0);
    assert_eq!((found.size.file_count, found.size.code_lines), (3, 1 + 1 + 5));
    assert_eq!((found.size.test_lines, found.size.example_lines), (5 + 2 + 2 + 2 + 1 + 2, 1));
}

#[test]
fn lines_of_code_are_those_with_tokens() {
    let text = "//! Doc.\n\n/// Doc.\n/** Doc,\nmore. */\nconst A: &str = \"x\n\ny\"; // end\n/* no\n code */\n\
                #[doc = \"code\"]\nstruct B;\n";
    let size = figures_of(text).size;
    assert_eq!((size.code_lines, size.all_lines), (5, 12));
}

#[test]
fn sizes_of_files() {
    let size = figures(&[TWO_MODULES, ("src/a.rs", "fn f() {\n}\n"), ("src/b.rs", "fn g() {\n1\n}\n")]).size;
    assert_eq!((size.file_lines_median, size.file_lines_max, size.largest_file.as_str()), (2, 3, "b.rs"));
}

#[test]
fn impls_of_a_type_are_found_in_all_files() {
    let files = [
        ("src/lib.rs", "mod a; mod b; mod c; pub use a::A; impl A {} impl Clone for Vec<A> {}"),
        ("src/a.rs", "pub struct A; impl A {} impl A {} impl Copy for A {}"),
        ("src/b.rs", "use super::A; impl<T> Drop for A {} mod inner { impl super::A {} }"),
        ("src/c.rs", "struct A; impl A {}"),
    ];
    check_impls(&files, "A", &["a.rs", "b.rs", "lib.rs"], &["a.rs", "b.rs"]);
    assert_eq!(figures(&files).declarations.types.len(), 2, "types of one name in two modules");
}

#[test]
fn impls_of_an_alias_count_for_the_aliased_type() {
    let files = [
        ("src/lib.rs", "mod a; mod b; mod c; pub use a::A; pub type Long = A<u64>; impl A<u8> {}"),
        ("src/a.rs", "pub struct A<T>(T); pub type Short = A<u8>; impl Short { fn f() {} fn g() {} }"),
        (
            "src/b.rs",
            "use crate::Long; impl Long { fn h() {} const X: u8 = 1; } type Words = Vec<u8>; impl Words {}",
        ),
        ("src/c.rs", "type Other = crate::Long; impl Clone for Other {} type Loop = Loop; impl Loop {}"),
    ];
    check_impls(&files, "A", &["a.rs", "b.rs", "lib.rs"], &["c.rs"]);
    let types = figures(&files).declarations.types;
    assert_eq!(types.len(), 1, "aliases are no types");
    assert_eq!(types[0].method_count, 3);
}

/// Checks all cycles of sibling modules: the parent, then the modules.
#[track_caller]
fn check_folder_cycles(files: &[(&str, &str)], want: &[&str]) {
    let cycles = figures(files).folder_cycles;
    let found: Vec<String> =
        cycles.iter().map(|cycle| format!("{}: {}", cycle.parent, cycle.modules.join(" "))).collect();
    assert_eq!(found, want);
}

#[test]
fn folders_that_import_each_other_are_a_cycle_without_one_of_files() {
    let root = ("src/lib.rs", "mod http; mod app;");
    let http = ("src/http.rs", "mod write; mod error; pub struct H;");
    let write = ("src/http/write.rs", "use crate::app::App;");
    let error = ("src/http/error.rs", "pub struct E;");
    let app = |text| ("src/app.rs", text);
    let one_way = [root, http, write, error, app("pub struct App;")];
    check_folder_cycles(&one_way, &[]);
    let both_ways = [root, http, write, error, app("use crate::http::error::E; pub struct App;")];
    check_cycles(&both_ways, &[]);
    check_folder_cycles(&both_ways, &[": app http"]);
}

#[test]
fn the_modules_of_a_folder_are_checked_too_but_not_its_own_file() {
    let root = ("src/lib.rs", "mod http; use http::write::W; pub struct Root;");
    let http = ("src/http.rs", "pub mod write; mod error; mod json; use write::W; pub struct H;");
    let deep = ("src/http/write/deep.rs", "use super::W; use crate::http::json::J; use crate::Root;");
    let write = ("src/http/write.rs", "mod deep; use super::H; pub struct W;");
    let error = ("src/http/error.rs", "use super::write::W; pub struct E;");
    let json = |text| ("src/http/json.rs", text);
    check_folder_cycles(&[root, http, write, deep, error, json("pub struct J;")], &[]);
    let cyclic = json("use super::error::E; pub struct J;");
    check_folder_cycles(&[root, http, write, deep, error, cyclic], &["http: error json write"]);
}

#[test]
fn assertions_are_counted_in_production_code() {
    let found = figures_of(
        "const _: () = assert!(1 < 2);\nfn f() { debug_assert_eq!(1, 1); core::assert_ne!(1, 2); g!(assert); }\n\
         #[cfg(test)]\nmod tests {\n    fn t() {\n        assert!(true);\n    }\n}\n",
    );
    assert_eq!(found.declarations.assertion_count, 3);
    assert_eq!(found.assertion_tenths(), 3 * 10_000 / 2);
}

#[test]
fn fields_are_counted_by_visibility() {
    let fields = figures_of(
        "struct A { pub a: u8, pub(crate) b: u8, pub(super) c: u8, pub(in crate::x) d: u8, e: u8 }\n\
         struct B(pub(crate) u8, pub u8, pub(self) u8); enum C { D { x: u8 }, E(u8) }\n\
         union F { pub(crate) g: u8 }",
    )
    .declarations
    .fields;
    assert_eq!((fields.public, fields.crate_wide, fields.ancestor_wide, fields.private), (2, 3, 2, 2));
}

#[test]
fn functions_are_measured_between_their_braces() {
    let long = |lines: usize| format!("fn f(\n) {{\n{}    // No code.\n\n}}\n", "    g();\n".repeat(lines));
    let functions = figures_of(&(long(70) + &long(71))).declarations.functions;
    assert_eq!((functions.all, functions.long, functions.lines_max), (2, 1, 71));
}

#[test]
fn parameters_and_tuples() {
    let declarations = figures_of(
        "trait T { fn a(&self); fn b(&self, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {} }\n\
         fn six(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}\n\
         fn pair((a, b): (u8, u8), &(c, d): &(u8, u8)) { fn inner(pair: (u8, u8)) {} }\n\
         fn lets() { let (a, b) = (1, 2); let (c, d): (u8, u8) = (1, 2); let (e, f) = g(); let h = (1, 2);\n\
         let (Some(i), j) = (k, l) else { return }; let m = |(n, o)| n; }",
    )
    .declarations;
    assert_eq!((declarations.functions.all, declarations.functions.many_parameters), (5, 1));
    let lines = |sites: &[Site]| sites.iter().map(|site| site.line).collect::<Vec<_>>();
    assert_eq!(
        (lines(&declarations.tuple_parameters), lines(&declarations.tuple_lets)),
        (vec![3], vec![4, 4])
    );
}

/// Checks the lines of undocumented public items and of short docs on private ones.
#[track_caller]
fn check_docs(text: &str, want_undocumented: &[usize], want_short: &[usize]) {
    let docs = figures_of(text).docs;
    let lines = |sites: &[Site]| sites.iter().map(|site| site.line).collect::<Vec<_>>();
    assert_eq!(
        (lines(&docs.undocumented), lines(&docs.short)),
        (want_undocumented.into(), want_short.into())
    );
}

#[test]
fn public_types_traits_and_functions_have_docs() {
    check_docs("pub struct A;\npub enum B {}\npub type C = u8;\npub union D { x: u8 }", &[1, 2, 3, 4], &[]);
    check_docs("/// Trait of all.\npub trait T {\n    fn f();\n    type X;\n}", &[3], &[]);
    check_docs("struct A;\nimpl A {\n    pub fn f() {}\n    fn g() {}\n}", &[3], &[]);
    check_docs("pub fn f() {}\npub(crate) fn g() {}\npub const X: u8 = 1;", &[1], &[]);
    check_docs("/// A type with fields.\npub struct A { pub x: u8, y: u8 }", &[], &[]);
    check_docs("/// Some.\npub enum B { X }\nimpl Clone for B { fn clone(&self) -> B { B::X } }", &[], &[]);
    check_docs("#[doc(hidden)]\npub fn f() {}\n#[cfg(test)]\npub fn g() {}", &[], &[]);
}

#[test]
fn docs_of_private_items_say_more_than_two_words() {
    check_docs(
        "struct A {\n    /// Its labels.\n    x: u8,\n    /// Bytes of labels.\n    y: u8,\n}",
        &[],
        &[3],
    );
    check_docs("/// What.\nfn f() {}\n/// A.\n/// And more.\nfn g() {}", &[], &[2]);
    check_docs(
        "enum E {\n    /// Other.\n    A,\n    B {\n        /// It.\n        x: u8,\n    },\n}",
        &[],
        &[3, 6],
    );
    check_docs("/// A pair of both.\npub enum E {\n    /// Other.\n    A,\n}", &[], &[]);
    check_docs("/// Flags.\npub fn f() {}\n/// Flags.\npub(crate) const X: u8 = 1;", &[], &[4]);
}

#[test]
fn a_report_has_a_table_row_per_crate_and_names_what_is_large() {
    let fields: String = (0..16).map(|idx| format!("x{idx}: u8, ")).collect();
    let lib = format!("mod a; mod b; mod c; mod d; struct Wide {{ {fields} }} impl Wide {{}}");
    let impls = ["src/a.rs", "src/b.rs", "src/c.rs", "src/d.rs"].map(|path| (path, "impl super::Wide {}"));
    let files = [&[("src/lib.rs", lib.as_str())], impls.as_slice()].concat();
    let text = report::render(&[figures(&files), figures(&files)], Layout::Text);
    assert!(text.contains("\nhead       5      5          5            1"), "{text}");
    assert!(text.contains("\ntotal     10     10         10  "), "{text}");
    assert!(text.contains("\nhead: Wide (lib.rs): 16 fields\n"), "{text}");
    assert!(text.contains("\nhead: Wide (lib.rs) in 5 files: a.rs, b.rs, c.rs, d.rs, lib.rs\n"), "{text}");
    let markdown = report::render(&[figures(&files)], Layout::Markdown);
    assert!(markdown.contains("\n| crate | files | lines | all lines |"), "{markdown}");
    assert!(markdown.contains("\n| ----- | ----: | ----: | --------: |"), "{markdown}");
    assert!(markdown.contains("\n- head: Wide (lib.rs): 16 fields\n"), "{markdown}");
}

#[test]
fn a_long_cycle_is_broken_into_lines() {
    let names: Vec<String> = (0..9).map(|idx| format!("a_rather_long_name_{idx}")).collect();
    let paths: Vec<String> = names.iter().map(|name| format!("src/{name}.rs")).collect();
    let texts: Vec<String> =
        (0..9).map(|idx| format!("fn f() {{ crate::{}::f() }}", names[(idx + 1) % 9])).collect();
    let lib: String = names.iter().map(|name| format!("mod {name};")).collect();
    let mut files = vec![("src/lib.rs", lib.as_str())];
    files.extend(paths.iter().map(String::as_str).zip(texts.iter().map(String::as_str)));
    let text = report::render(&[figures(&files)], Layout::Text);
    let list = &text[text.find("head: 9 files between modules: ").unwrap()..];
    assert!(list.lines().nth(1).unwrap().starts_with("  a_rather_long_name_"), "{text}");
    assert!(list.lines().all(|line| line.len() <= 110), "{text}");
}

#[test]
fn flags_are_parsed() {
    let want = Flags { crates: vec!["head", "tsdb"], markdown_path: Some("x.md") };
    assert_eq!(parse_flags(&["--crate", "head", "--markdown", "x.md", "--crate", "tsdb"]).unwrap(), want);
    for wrong in [["--crate"].as_slice(), &["head"], &["--text", "x"]] {
        assert!(parse_flags(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_file_that_is_missing_or_not_rust_is_named() {
    let file = |path: &str, text: &str| CrateFile { path: path.to_owned(), text: text.to_owned() };
    let error = measure("head", &[file("src/lib.rs", "mod gone;")]).unwrap_err();
    assert_eq!(format!("{error:#}"), "`mod gone`: no file gone.rs or gone/mod.rs");
    let error = measure("head", &[file("src/lib.rs", "fn f(")]).unwrap_err();
    assert!(format!("{error:#}").starts_with("lib.rs: "), "{error:#}");
}
