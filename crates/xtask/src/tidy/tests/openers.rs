//! Openers of comments, and pronouns in the position of a noun.

use super::super::openers::check;
use super::{ANY, check_findings, file};

#[track_caller]
fn check_comment(text: &str, want: &[&str]) {
    check_findings(&check(&file(ANY, text)), want);
}

#[test]
fn a_comment_opens_with_a_noun_or_a_verb() {
    for opener in [
        "Of the head",
        "That sample",
        "Those samples",
        "What remains",
        "Whether it is sealed",
        "Such blocks",
        "So it waits",
        "All of the blocks",
        "None of the blocks",
        "How many wait",
        "Who waits",
        "Which one waits",
        "Where blocks lie",
        "Why it waits",
        "As many bytes",
        "It waits",
        "Its bytes",
        "Their bytes",
        "These blocks",
        "They wait",
        "When it waits",
        "By which share it waits",
    ] {
        for mark in ["//!", "///", "//"] {
            check_comment(&format!("{mark} {opener}.\n"), &["seal.rs:1: a comment opens with"]);
        }
        check_comment(&format!("let x = 1; // {opener}.\n"), &["seal.rs:1: a comment opens with"]);
    }
    check_comment("/// Office of the head: offsets, sources, whatever, thatched, whole blocks.\n", &[]);
    check_comment("/// The oneness, all samples, none left.\n", &[]);
    check_comment("/// Items by size, in order, from the first one; itself, theirs.\n", &[]);
    check_comment("let x = \"// Of it\";\n", &[]);
    check_comment("/// `of` and [`What`] are words of the language.\n", &[]);
}

#[test]
fn each_comment_has_an_opener_of_its_own() {
    check_comment("//! A file.\n\n/// Of it.\nfn f() {}\n", &["seal.rs:3: a comment opens with \"of\""]);
    check_comment("//! A file.\n/// Of it.\nfn f() {}\n", &["seal.rs:2: a comment opens with \"of\""]);
    check_comment("// A line\n// of a file.\n", &[]);
    check_comment("let x = 1; // A line\n// of a file.\n", &["seal.rs:2: a comment opens with \"of\""]);
    check_comment("/* Of it */\n", &["seal.rs:1: a comment opens with \"of\""]);
    check_comment("/// ```text\n/// of\n/// ```\nfn f() {}\n", &[]);
}

#[test]
fn a_later_sentence_opens_with_a_noun_too() {
    check_comment("/// A block. What remains.\n", &["seal.rs:1: a sentence opens with \"what\""]);
    check_comment("/// A block.\n/// Those wait.\n", &["seal.rs:2: a sentence opens with \"those\""]);
    check_comment(
        "/// A block\n///\n/// Whether it is.\n",
        &["seal.rs:3: a sentence opens with \"whether\""],
    );
    check_comment("/// Blocks:\n/// - those in use\n", &["seal.rs:2: a sentence opens with \"those\""]);
    check_comment("/// A block (of two). Of the rest, one.\n", &["a sentence opens with \"of the\""]);
    check_comment("/// A block. So it waits. Where it waits, it blocks. Of two, the first wins.\n", &[]);
    check_comment("/// A block, i.e. those parts; e.g. what remains, 0.5 of those.\n", &[]);
    check_comment("/// A block\n/// whose samples end\n/// what they began.\n", &[]);
}

#[test]
fn a_noun_is_repeated_instead_of_a_pronoun() {
    check_comment("/// A time, and that of a sample.\n", &["seal.rs:1: \"that of\" in a comment"]);
    check_comment("/// Blocks, not those\n/// of a bucket.\n", &["seal.rs:1: \"those of\""]);
    check_comment("/// Writes what is left, such a block.\n", &["\"what is\"", "\"such a\""]);
    check_comment("/// Reads so many, as far as the end.\n", &["\"so many\"", "\"as far as\""]);
    check_comment("/// Keeps the one that is older.\n", &["\"the one that\""]);
    check_comment("/// What was read.\n", &["a comment opens with \"what\"", "\"what was\""]);
    check_comment("/// The head knows that, of course; `that of`. Such. A block of those. Of it.\n", &[]);
    check_comment("/// Says so: many blocks are such.\n///\n/// A block.\n", &[]);
    check_comment("let that_of = what; // a block\n", &[]);
}
