//! Links between documents: files, headings, and text that is no link.

use super::super::links::check;
use super::{check_findings, file};

/// Checks the findings of `docs/operate.md` with the text `text`, next to a glossary and a licence.
#[track_caller]
fn check_links(text: &str, want: &[&str]) {
    let files = [file("docs/operate.md", text), file("docs/GLOSSARY.md", "# Glossary\n\n## Words: `a`, b\n")];
    let exists = |path: &str| ["docs/operate.md", "docs/GLOSSARY.md", "LICENSE", "docs"].contains(&path);
    check_findings(&check(&files, exists), want);
}

#[test]
fn a_link_names_a_file_that_exists() {
    check_links("[a](GLOSSARY.md), [b](../LICENSE) and [c](../docs/), [d](https://a.example/b.md)", &[]);
    check_links(
        "x\n[a](gone.md) [b](LICENSE)",
        &["operate.md:2: links to gone.md", "links to LICENSE, which"],
    );
    check_links("[1]: ../gone.md\n", &["operate.md:1: links to ../gone.md, which does not exist"]);
    check_links("[a](../../etc/passwd)", &["outside of the repository"]);
    check_links("[`code`](gone.md)", &["links to gone.md"]);
    check_links("[settings](reference/settings.md)", &[]);
}

#[test]
fn an_anchor_is_a_heading() {
    check_links("[a](GLOSSARY.md#words-a-b) [b](#start-up)\n\n## Start up\n", &[]);
    check_links(
        "[a](GLOSSARY.md#letters)",
        &["links to GLOSSARY.md#letters, and docs/GLOSSARY.md has no such"],
    );
    check_links("[b](#start)\n```\n# start\n```\n", &["operate.md:1: links to #start, and docs/operate.md"]);
}

#[test]
fn code_has_no_links() {
    check_links("`[a](gone.md)`\n```\n[a](gone.md)\n```\n", &[]);
}
