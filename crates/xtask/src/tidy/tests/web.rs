//! Scripts, styles and documents of the web interface.

use super::super::web::check;
use super::{check_findings, file};

#[test]
fn scripts_and_styles_open_with_a_comment() {
    check_findings(&check(&file("crates/ui/web/a.js", "// A page.\nlet a;\n")), &[]);
    check_findings(&check(&file("crates/ui/web/a.css", "/* A look. */\n")), &[]);
    check_findings(&check(&file("crates/ui/web/a.js", "let a;\n")), &["a.js:1: opens without a comment"]);
    check_findings(&check(&file("crates/ui/web/a.css", ":root {}\n")), &["a.css:1: opens without a comment"]);
    check_findings(&check(&file("crates/ui/web/a.html", "<!doctype html>\n")), &[]);
    check_findings(&check(&file("crates/server/a.js", "let a;\n")), &[]);
    check_findings(&check(&file("crates/ui/a.txt", "text\n")), &[]);
}

#[test]
fn files_have_at_most_300_lines() {
    let lines = |count| format!("// A page.\n{}", "let a;\n".repeat(count));
    check_findings(&check(&file("crates/ui/web/a.js", &lines(299))), &[]);
    check_findings(&check(&file("crates/ui/web/a.js", &lines(300))), &["has 301 lines, at most 300"]);
}

#[test]
fn nothing_makes_markup_of_text_or_breaks_the_policy() {
    for line in [
        "a.innerHTML = b;",
        "a.outerHTML = b;",
        "a.insertAdjacentHTML('beforeend', b);",
        "document.write(a);",
        "eval(a);",
        "new Function(a)",
        "<p style=\"color: red\">",
        "<style>",
        "<script>",
    ] {
        let text = format!("// A page.\n{line}\n");
        check_findings(&check(&file("crates/ui/web/a.js", &text)), &["a.js:2: `"]);
    }
    check_findings(&check(&file("crates/ui/web/index.html", "<script type=\"module\" src=\"a.js\">")), &[]);
}
