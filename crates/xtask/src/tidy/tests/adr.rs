//! The template of decision records and their index.

use super::super::adr::check;
use super::{check_findings, file};

const RECORD: &str =
    "# 0007: Flush old windows\n\nStatus: accepted\n\n**Context.** Why.\n\n**Decision.** What.\n";
const ROW: &str = "| [0007](0007-flush.md) | Flush old windows | accepted | Age decides. |\n";

#[track_caller]
fn check_record(text: &str, index: &str, want: &[&str]) {
    let files = [file("docs/adr/0007-flush.md", text), file("docs/adr/README.md", index)];
    check_findings(&check(&files), want);
}

#[test]
fn a_record_follows_the_template() {
    check_record(RECORD, ROW, &[]);
    check_record(&RECORD.replace("# 0007", "# 0008"), ROW, &["0007-flush.md:1: expected `# 0007: TITLE`"]);
    check_record(&RECORD.replace("accepted", "good"), ROW, &["0007-flush.md:3: expected `Status: accepted`"]);
    check_record(&RECORD.replace("accepted", "replaced by [0008](0008.md)"), ROW, &[]);
    check_record(&RECORD.replace("Context", "Question"), ROW, &["has no `**Context.**`"]);
    let swapped = RECORD.replace("Context", "X").replace("Decision", "Context").replace("X.", "Decision.");
    check_record(&swapped, ROW, &["has no `**Decision.**`"]);
    check_findings(&check(&[file("docs/adr/flush.md", RECORD)]), &["is not called NNNN-"]);
}

#[test]
fn the_index_has_every_record_and_no_other() {
    check_record(RECORD, "", &["has no row `| [0007](0007-flush.md) | Flush old windows | ...`"]);
    check_record(RECORD, &ROW.replace("old windows", "windows"), &["has no row"]);
    let more = format!("{ROW}| [0008](0008-gone.md) | Gone | accepted | Gone. |\n");
    check_record(RECORD, &more, &["README.md: names 0008-gone.md, which does not exist"]);
}
