//! Words and width of comments and documents.

use super::super::language::{check_document, check_source};
use super::{ANY, check_findings, file};

#[track_caller]
fn check_comment(text: &str, want: &[&str]) {
    check_findings(&check_source(&file(ANY, text)), want);
}

#[test]
fn a_comment_ends_at_column_110() {
    let comment = |columns: usize| format!("// {}", "ab ".repeat(columns))[..columns - 1].to_owned() + "x";
    check_comment(&comment(110), &[]);
    check_comment(
        &format!("fn f() {{}}\n{}", comment(111)),
        &["seal.rs:2: a comment of 111 columns, at most 110"],
    );
    check_comment(&format!("    let x = 1; {}", comment(110)), &["a comment of 125 columns"]);
    check_comment(&format!("// https://{}", "x".repeat(120)), &[]);
    check_comment(&format!("let x = \"// {}\";", "ab ".repeat(60)), &[]);
}

#[test]
fn comments_use_the_words_of_the_field() {
    check_comment("/// Late samples wait here.", &["\"late samples\" is not a term of the field"]);
    check_comment("let x = 1; // said again, anew", &["\"anew\"", "\"said\""]);
    check_comment("// `anew` and \"behind.md\"\nlet anew = \"said\";", &["seal.rs:1: \"behind\""]);
    check_comment("// The late-sample rate; too late. Samples follow.", &[]);
    check_comment("// a free: times", &[]);
}

#[test]
fn a_rate_is_per_something() {
    check_comment("// 16 bytes a sample", &["\"bytes a sample\" is a rate; write: bytes per sample"]);
    check_comment("// takes 12 ns a series.", &["write: ns per series"]);
    check_comment("// reads bytes. A sample follows, and of bytes a reader", &[]);
}

#[test]
fn documents_are_prose_outside_of_code_blocks() {
    let check =
        |path: &str, text: &str, want: &[&str]| check_findings(&check_document(&file(path, text)), want);
    check("docs/operate.md", "| upkeep | 1 |\n", &["docs/operate.md:1: \"upkeep\""]);
    check("docs/operate.md", "```\nupkeep\n```\nanew\n", &["docs/operate.md:4: \"anew\""]);
    check("docs/operate.md", "[why](adr/0042-behind-anew.md), https://said.example/anew\n", &[]);
    check("docs/GLOSSARY.md", "| anew |\n", &[]);
}

#[test]
fn examples_in_documentation_name_their_language() {
    let what = ["an example that no step of CI runs"];
    check_findings(&check_source(&file(ANY, "/// ```\n/// f();\n/// ```\nfn f() {}\n")), &what);
    check_findings(&check_source(&file(ANY, "//! ```rust,no_run\n//! f();\n//! ```\n")), &what);
    check_findings(
        &check_source(&file(ANY, "//! ```ini\n//! [a]\n//! ```\nconst FENCE: &str = \"```\";\n")),
        &[],
    );
}
