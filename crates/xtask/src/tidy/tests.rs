//! Each rule of tidy with an example that it must refuse and one that it must let pass.

mod adr;
mod commits;
mod exceptions;
mod function_docs;
mod house_limits;
mod language;
mod links;
mod openers;
mod rendering;
mod sentences;
mod structure;
mod web;

use super::finding::Finding;
use super::text_file::{TextFile, without_tests};
use super::{changelog, edges, format_docs, glossary, ratchet, source};
use crate::sha256;

fn file(path: &str, text: &str) -> TextFile {
    TextFile { path: path.to_owned(), text: text.to_owned() }
}

/// Checks the findings of one Rust file: a part of each expected message, in order.
#[track_caller]
fn check_source(path: &str, body: &str, want: &[&str]) {
    let text = format!("//! A file.\n{body}\n");
    check_findings(&source::check(&file(path, &text)), want);
}

#[track_caller]
fn check_findings(found: &[Finding], want: &[&str]) {
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), want.len(), "{lines:#?}");
    for (line, part) in lines.iter().zip(want) {
        assert!(line.contains(part), "{line:?} does not contain {part:?}");
    }
}

const ANY: &str = "crates/head/src/seal.rs";

#[test]
fn a_file_opens_with_its_purpose() {
    check_findings(&source::check(&file(ANY, "use std::io;\n")), &["seal.rs:1: opens without //!"]);
    check_source(ANY, "use std::io;", &[]);
}

#[test]
fn file_and_folder_names_say_something() {
    for path in ["crates/head/src/util.rs", "crates/head/src/common/mod.rs", "crates/head/src/helpers.rs"] {
        check_source(path, "", &["says nothing"]);
    }
    check_source("crates/model/src/metadata.rs", "", &[]);
}

#[test]
fn type_names_say_something() {
    check_source(ANY, "pub struct Manager;", &["type `Manager`"]);
    check_source(ANY, "type Data = u8;", &["type `Data`"]);
    check_source(ANY, "impl Body for Answer {\n    type Data = u8;\n}", &[]);
    check_source(ANY, "struct BlockMeta { data: u8 }", &[]);
}

#[test]
fn a_todo_names_its_issue() {
    check_source(ANY, "// TODO: later", &["seal.rs:2: a TODO names its issue"]);
    check_source(ANY, "/* FIXME */", &["TODO names"]);
    check_source(ANY, "// TODO(#12) and TODO(me)", &["TODO names"]);
    check_source(ANY, "// TODO(#12): wait for the disk", &[]);
    check_source(ANY, "let x = \"TODO\";", &[]);
}

#[test]
fn unfinished_code_is_refused() {
    check_source(ANY, "fn f() { todo!() }", &["`todo!`"]);
    check_source(ANY, "fn f() { unimplemented !(\"x\") }", &["`unimplemented!`"]);
    check_source(ANY, "// todo! in prose\nlet s = r#\"todo!() \"quoted\" \"#;", &[]);
}

#[test]
fn unsafe_stays_where_it_is_listed() {
    check_source(ANY, "unsafe { f() }", &["unsafe outside"]);
    check_source("crates/base/src/disk/real.rs", "unsafe { f() }", &[]);
    check_source(
        ANY,
        "#![deny(unsafe_code)] // unsafe\nlet s = \"unsafe\"; let c = '\"'; let t = \"unsafe\";",
        &[],
    );
    let idle = [
        file("crates/base/src/disk/real.rs", "//! Safe.\n"),
        file("crates/chronolith/src/allocator.rs", "unsafe { f() }\n"),
        file("crates/replicated_log/src/kafka/librdkafka_client/native.rs", "unsafe { f() }\n"),
    ];
    check_findings(&source::check_unsafe_list(&idle), &["does not"]);
}

#[test]
fn an_ignored_test_says_why() {
    check_source(ANY, "#[ignore]\nfn f() {}", &["#[ignore]"]);
    check_source(ANY, "#[ignore = \"takes an hour\"]\nfn f() {}", &[]);
}

#[test]
fn queues_have_a_limit() {
    check_source(ANY, "let (a, b) = mpsc::channel();", &["mpsc::channel("]);
    check_source(ANY, "let (a, b) = tokio::sync::mpsc::unbounded_channel();", &["unbounded_channel"]);
    check_source(ANY, "let (a, b) = mpsc::sync_channel(4); let c = mpsc::channel::<u8>;", &[]);
}

#[test]
fn comments_and_strings_of_all_kinds_are_no_code() {
    check_source(ANY, "/* a /* unsafe */ unsafe */ fn f<'a>(x: &'a str) {}", &[]);
    check_source(ANY, "let a = \"\\\" unsafe\"; let b = b\"unsafe\"; let c = '\\''; let d = '\\u{1f}';", &[]);
    check_source(ANY, "let a = '\\''; unsafe {}", &["unsafe outside"]);
    check_source(ANY, "let a = \"x\\\n unsafe\";\nunsafe {}", &["seal.rs:4: unsafe"]);
}

fn long_file(line_count: usize) -> TextFile {
    file("crates/head/src/long.rs", &"x\n".repeat(line_count))
}

#[test]
fn a_long_file_is_refused_unless_listed() {
    let list = |text: &str| file("crates/xtask/tidy-ratchet.txt", text);
    check_findings(&ratchet::check(&[long_file(800)]), &[]);
    check_findings(&ratchet::check(&[long_file(801)]), &["at most 800"]);
    check_findings(&ratchet::check(&[long_file(900), list("# why\n900 crates/head/src/long.rs\n")]), &[]);
    check_findings(&ratchet::check(&[long_file(901), list("900 crates/head/src/long.rs\n")]), &["has grown"]);
    check_findings(
        &ratchet::check(&[long_file(899), list("900 crates/head/src/long.rs\n")]),
        &["has shrunk"],
    );
    check_findings(
        &ratchet::check(&[long_file(8), list("900 crates/head/src/long.rs\n")]),
        &["short enough"],
    );
    check_findings(&ratchet::check(&[list("900 crates/head/src/long.rs\nx\n")]), &["LINES PATH", "is gone"]);
}

#[test]
fn tests_do_not_count_as_length() {
    let text = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", "x\n".repeat(900));
    assert_eq!(without_tests(&text), "fn f() {}\n");
    check_findings(&ratchet::check(&[file("crates/head/src/long.rs", &text)]), &[]);
    check_findings(&ratchet::check(&[file("crates/head/src/long/tests.rs", &"x\n".repeat(900))]), &[]);
    assert_eq!(
        without_tests("#[cfg(test)]\nmod tests;\nfn f() {}\n"),
        "#[cfg(test)]\nmod tests;\nfn f() {}\n"
    );
}

#[test]
fn changelog_entries_say_their_kind() {
    check_findings(
        &changelog::check("# Changelog\nAll of it.\n\n## Unreleased\n- [FIX] head: x\n  more of it\n"),
        &[],
    );
    check_findings(&changelog::check("## Unreleased\n- faster\n"), &["CHANGELOG.md:2: an entry"]);
    check_findings(&changelog::check("## 1.0\n[FIX] head: x\n"), &["no section"]);
    let summary = "## Unreleased\n## 1.0\n\nIn short.\n\n- [FIX] head: x\n\nfaster\n";
    check_findings(&changelog::check(summary), &["CHANGELOG.md:8: an entry"]);
    check_findings(&changelog::check("## Unreleased\nfaster\n"), &["CHANGELOG.md:2: an entry"]);
}

#[test]
fn a_change_is_listed_once() {
    let line = "- [FIX] head: a WAL that was cut at its end is named at start";
    let same = format!("## Unreleased\n{line}\n## 0.1\n- [PERF] block: faster\n{line}, with the file\n");
    check_findings(&changelog::check(&same), &["CHANGELOG.md:5: lists a change again that line 2 has"]);
    let wrapped = "## Unreleased\n- [FIX] a b c\n  d e f\n- [FIX] F e d c b; a\n- [FIX] a b c\n  g h i\n";
    check_findings(&changelog::check(wrapped), &["CHANGELOG.md:4: lists a change again that line 2 has"]);
}

#[test]
fn the_glossary_is_sorted_and_has_each_word_once() {
    let rows = |words: &[&str]| {
        let rows: String = words.iter().map(|word| format!("| {word} | x |\n")).collect();
        format!("# Glossary\n\n| word | meaning |\n|---|---|\n{rows}")
    };
    check_findings(&glossary::check(&rows(&["block", "Queryable", "WAL, log", "window"])), &[]);
    check_findings(
        &glossary::check(&rows(&["chunk", "block"])),
        &["GLOSSARY.md:6: `block` stands after `chunk`"],
    );
    check_findings(&glossary::check(&rows(&["block", "block"])), &["GLOSSARY.md:6: explains `block` twice"]);
    check_findings(&glossary::check(&rows(&[])), &["has no rows"]);
}

const TABLE: &str = "\
| crate | one sentence | may depend on | tests also |
|---|---|---|---|
| `base` | seams | - | - |
| `head` | accepts | `base` | `bench` |

| `nobody` | in another table | `base` | - |
";

fn metadata(head_deps: &str) -> edges::Edges {
    let json = format!(
        r#"{{"packages": [{{"name": "chronolith-base", "dependencies": [{{"name": "libc", "kind": null}}]}},
        {{"name": "chronolith-head", "dependencies": [{head_deps}]}}]}}"#
    );
    edges::from_metadata(&serde_json::from_str(&json).expect("JSON")).expect("metadata")
}

const BASE_EDGE: &str = r#"{"name": "chronolith-base", "kind": null, "path": "x"}"#;
const BENCH_EDGE: &str = r#"{"name": "chronolith-bench", "kind": "dev", "path": "x"}"#;

#[test]
fn crate_edges_equal_the_table() {
    check_findings(&edges::check(&metadata(&format!("{BASE_EDGE}, {BENCH_EDGE}")), TABLE), &[]);
    check_findings(&edges::check(&metadata(BENCH_EDGE), TABLE), &["`head` depends on `base`; it does not"]);
    check_findings(&edges::check(&metadata(BASE_EDGE), TABLE), &["tests depends on `bench`; it does not"]);
    let extra = BASE_EDGE.replace("base", "block");
    let used = metadata(&format!("{BASE_EDGE}, {BENCH_EDGE}, {extra}"));
    check_findings(
        &edges::check(&used, TABLE),
        &["depends on `block`, which the crate table does not allow"],
    );
}

#[test]
fn crates_and_rows_of_the_table_are_the_same() {
    check_findings(&edges::check(&metadata(BASE_EDGE), ""), &["`base` has no row", "`head` has no row"]);
    let more =
        format!("{}| `sim` | fake | - | - |\n", TABLE.split("\n\n").next().expect("table").to_owned() + "\n");
    let used = metadata(&format!("{BASE_EDGE}, {BENCH_EDGE}"));
    check_findings(&edges::check(&used, &more), &["the crate table has `sim`"]);
}

fn format_tree(source_text: &str, doc: Option<&str>) -> Vec<TextFile> {
    let mut files = vec![
        file("crates/format/src/lib.rs", "pub mod head;\nmod inner;\n"),
        file("crates/format/src/head.rs", "pub mod wal;\n"),
        file("crates/format/src/head/wal.rs", source_text),
        file("crates/format/src/head/wal/frame.rs", "frame"),
        file("crates/format/src/head/wal/tests.rs", "tests"),
    ];
    files.extend(doc.map(|text| file("crates/format/docs/head/wal.md", text)));
    files
}

#[test]
fn a_format_has_a_document_that_knows_its_sources() {
    check_findings(&format_docs::check(&format_tree("a", None)), &["module `head/wal` has no document"]);
    check_findings(&format_docs::check(&format_tree("a", Some("# WAL\n"))), &["no line `source:"]);
    let unknown = "source: src/gone.rs\nsource-sha256: 00\n";
    check_findings(
        &format_docs::check(&format_tree("a", Some(unknown))),
        &["`src/gone.rs`, which does not exist"],
    );
    check_findings(
        &format_docs::check(&format_tree("a", Some("source: src/head/wal.rs\n"))),
        &["no line `source-sha256"],
    );
}

#[test]
fn a_changed_format_needs_its_document_blessed() {
    let good = format!("source: src/head/wal.rs\nsource-sha256: {}\n", sha256::hex(b"aframe"));
    check_findings(&format_docs::check(&format_tree("a", Some(&good))), &[]);
    let stale = format_tree("b", Some(&good));
    check_findings(&format_docs::check(&stale), &["docs/head/wal.md: describes sources that have changed"]);
    let blessed = format_docs::bless(&stale);
    assert_eq!(blessed.len(), 1);
    check_findings(&format_docs::check(&format_tree("b", Some(&blessed[0].text))), &[]);
    let without_hash =
        format_docs::bless(&format_tree("b", Some("# WAL\nsource: src/head/wal.rs\n\nText.\n")));
    let want =
        format!("# WAL\nsource: src/head/wal.rs\nsource-sha256: {}\n\nText.\n", sha256::hex(b"bframe"));
    assert_eq!(without_hash[0].text, want);
}

/// Examples of FIPS 180-4.
#[test]
fn sha256_equals_the_standard() {
    let check = |bytes: &[u8], want: &str| assert_eq!(sha256::hex(bytes), want);
    check(b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check(b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let million = vec![b'a'; 1_000_000];
    check(&million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
