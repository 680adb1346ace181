//! Subjects of commits, and the commits that are judged.

use super::super::commits::{Log, check, read_log};
use super::check_findings;

#[test]
fn a_subject_is_short_and_the_work_finished() {
    check_findings(&check(&format!("ab12 head: {}\n", "x".repeat(64))), &[]);
    let long = check(&format!("ab12 head: {}\n", "x".repeat(65)));
    check_findings(&long, &["commit ab12: a subject of 71 characters, at most 70: head: x"]);
    check_findings(
        &check("ab12 head: é\ncd34 WIP: head\nef56 head: swipe\n"),
        &["commit cd34: work in progress"],
    );
}

#[test]
fn the_base_is_a_commit_of_the_checkout() {
    let root = crate::checkout_dir();
    if let Log::Unknown(why) = read_log(&root, "# Base.\nHEAD\n").unwrap() {
        println!("not judged: {why}");
        return;
    }
    assert_eq!(read_log(&root, "# Base.\nHEAD\n").unwrap(), Log::Lines(String::new()));
    assert!(read_log(&root, "# Base.\n").is_err());
    let elsewhere = read_log(std::path::Path::new("/"), "HEAD").unwrap();
    assert_eq!(elsewhere, Log::Unknown("this is no git checkout"));
}
