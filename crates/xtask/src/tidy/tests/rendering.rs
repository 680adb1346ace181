//! Tables, fences and headings of documents.

use super::super::rendering;
use super::{check_findings, file};

#[track_caller]
fn check(text: &str, want: &[&str]) {
    check_findings(&rendering::check(&file("docs/migrate.md", text)), want);
}

/// docs/migrate.md lost a fence, the head of a table and all blank lines of a section, and rendered as one
/// paragraph. Each loss alone is a finding.
#[test]
fn a_table_has_blank_lines_around_it_a_header_and_a_separator() {
    let good = "Text.\n\n| flag | meaning |\n|---|---|\n| `--a` | b |\n\nText.\n";
    check(good, &[]);
    check("| a |\n|:-:|\n| b |", &[]);
    check("- item\n\n  | a | b |\n  | --- | ---: |\n  | c | d |\n", &[]);
    check("| | |\n|---|---|\n| a | b |\n", &[]);
    check("Text.\n| a | b |\n|---|---|\n", &["migrate.md:2: a table without a blank line before it"]);
    check("# H\n| a |\n|---|\n", &["migrate.md:2: a table without a blank line"]);
    check("```\nx\n```\n| a |\n|---|\n", &["migrate.md:4: a table without a blank line"]);
    check("| a |\n|---|\nText.\n", &["migrate.md:3: text directly after a table"]);
    check("| a |\n|---|\n## H\n", &["migrate.md:3: a heading without", "migrate.md:3: text directly after"]);
    check("| `--a` | b |\n| `--c` | d |\n", &["migrate.md:1: a table without a header and a separator row"]);
    check("| a | b |\n", &["without a header"]);
    check("|---|---|\n| a | b |\n", &["without a header"]);
    check("| a | b |\n|---|\n| c | d |\n", &["migrate.md:2: a row of 1 cells in a table of 2"]);
    check(
        "| a | b |\n|---|---|\n| c |\n| c | d | e |\n",
        &["migrate.md:3: a row of 1", "migrate.md:4: a row of 3"],
    );
    check("| a | b |\n|---|---|\n| c | d |\n|---|---|\n", &["migrate.md:4: a second separator row"]);
}

#[test]
fn a_bar_within_a_cell_is_escaped() {
    check("| a | b |\n|---|---|\n| `x\\|y` | d |\n", &[]);
    check("| a | b |\n|---|---|\n| `x|y` | d |\n", &["a row of 3 cells in a table of 2; write \\|"]);
    check("| a | b |\n|---|---|\n| x | y \\| |\n", &[]);
}

#[test]
fn rows_do_not_hide_in_a_paragraph() {
    check("Text | a | b | |---|---| | c | d |\n", &["rows of a table within a paragraph"]);
    check("a | b\n---|---\nc | d\n", &["a separator row whose table does not begin its rows with |"]);
    check("`a | b |---| c` and a | b\n", &[]);
    check("---\n\nText --- more\n", &[]);
}

#[test]
fn a_code_block_is_closed_and_commands_are_within_one() {
    check("```\n| a\n# b\nchronolith x\n```\n", &[]);
    check("~~~ sh\n```\n~~~\n", &[]);
    check("````\n```\n````\n", &[]);
    check("Text.\n\n```\nchronolith serve\n", &["migrate.md:3: a code block that is never closed"]);
    check("```\na\n``` b\n", &["migrate.md:1: a code block that is never closed"]);
    check(
        "Text. ```\na\n```\n",
        &["migrate.md:1: a fence within a line", "migrate.md:3: a code block that is never"],
    );
    check("chronolith import influx --data D\n", &["a command outside of a code block"]);
    check("curl -s http://h\n", &["a command outside of a code block"]);
    check("`chronolith serve` starts; Chronolith runs.\n", &[]);
    check("  chronolith serve\n", &["a command outside"]);
    check("Text:\n\n    chronolith serve\n", &[]);
}

#[test]
fn a_heading_stands_alone() {
    check("# A\n\n## B\nText.\n", &[]);
    check("Text.\n## B\n", &["migrate.md:2: a heading without a blank line before it"]);
    check("Text\n#1 and #hash\n", &[]);
}

#[test]
fn lines_of_the_readme_have_at_most_160_columns() {
    let line = "ä".repeat(161);
    let what = ["README.md:1: a line of 161 columns, at most 160"];
    check_findings(&rendering::check(&file("README.md", &line)), &what);
    check_findings(&rendering::check(&file("README.md", &"ä".repeat(160))), &[]);
    check(&line, &[]);
}
