//! Verbs in long cells of tables.

use super::super::sentences;
use super::{check_findings, file};

/// Checks a cell, filled with short sentences to more than the limit.
#[track_caller]
fn check(cell: &str, want: &[&str]) {
    let fill = "It is so. ".repeat(13);
    let text = format!("| a | b |\n|---|---|\n| c | {fill}{cell} |\n");
    check_findings(&sentences::check(&file("docs/bucket.md", &text)), want);
}

/// Reviewers named cells of several facts without a verb among the worst sentences of the documents.
#[test]
fn a_long_cell_without_a_verb_is_refused() {
    let worst = [
        "Of a block with a `chronolith.sidecar`: all of it if it arrives within a latency of the storage (about 2.7 MB), \
         else its head, once",
        "Those older than `bucket.local-retention` without a local copy, by way of `bucket-compaction` in the data \
         directory, which needs room for three times the input",
        "Lists of the names of all labels in the block.",
        "Bytes of all blocks in the bucket by tenant and layout.",
        "All samples of the series that a query reads, in order.",
        "A list of the objects, each with the time when it was written.",
        "Requests to the store at once, those of other tenants included.",
        "Time from the first byte to the last one of an answer.",
        "Blocks whose meta file is missing, after a delay of two days.",
        "Older samples only, never the newest one of the series.",
        "At most a quarter of the memory of writes and of remote reads.",
    ];
    for cell in worst {
        check(cell, &["bucket.md:3: a sentence without a verb in a long cell: "]);
    }
}

#[test]
fn a_long_cell_of_sentences_passes() {
    let good = [
        "The server reads the whole sidecar if it arrives in time, and its head otherwise.",
        "The blocks that a query reads are fetched in parallel.",
        "Lists metrics with their series and memory, and the queries that selected them.",
        "The metric `a` counts blocks of other programs, which the catalogue does not name.",
        "If the clock was set back, a new value may count as the earlier one.",
        "Compaction removes blocks whose copies are in the bucket.",
        "Set `bucket.poll` to the interval of the slowest of all writers, at most an hour.",
        "`a`, `b`, `c` and `d`, or both",
        "A version such as 3.16.0 or 1.8.10 is enough, e.g. for clients of the old API.",
        "It follows [the page of limits with many words in its name](limits.md#when-it-is-full).",
    ];
    for cell in good {
        check(cell, &[]);
    }
}

#[test]
fn short_cells_code_blocks_and_prose_are_free() {
    let noun = "Bytes of all blocks in the bucket by tenant and layout";
    let find = |text: &str| sentences::check(&file("docs/bucket.md", text));
    check_findings(&find(&format!("| a |\n|---|\n| {noun} |\n")), &[]);
    let long = [noun; 4].join(", ");
    check_findings(&find(&format!("{long}\n```\n| {long} |\n```\n")), &[]);
    check_findings(&find(&format!("| {long} |\n")), &["bucket.md:1: a sentence without a verb"]);
    check_findings(&sentences::check(&file("docs/STYLE.md", &format!("| {long} |\n"))), &[]);
}
