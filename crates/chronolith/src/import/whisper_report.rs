//! Report of an import of whisper files for people: losses, files by layout, differences from the rules,
//! points, points left out and the reasons.
//!
//! Not here: counting (`chronolith-import`).

use std::fmt::Write as _;

use chronolith_import::whisper::{FilePoints, Header, RuleReport, WhisperReport};

/// Returns the line of a file: path, layout, points per archive.
pub(super) fn file_line(path: &str, header: &Header, points: &FilePoints) -> String {
    let counts: Vec<String> = points.archives.iter().map(|counts| counts.taken.to_string()).collect();
    format!("{path}: {}: {} points ({})\n", header.describe(), points.times.len(), counts.join(" + "))
}

/// The whole report.
pub(super) fn show(source: &str, report: &WhisperReport) -> String {
    let mut out = String::new();
    for damage in &report.damages {
        let path = damage.path.display();
        let _ = writeln!(out, "lost: {path}: offset {}: {}", damage.offset, damage.what);
    }
    if report.damages_unnamed > 0 {
        let _ = writeln!(out, "lost: {} further damages", report.damages_unnamed);
    }
    show_rules(&report.rules, &mut out);
    for (layout, counts) in &report.layouts {
        let _ = writeln!(out, "{} files, {} points: {layout}", counts.files, counts.points);
    }
    let WhisperReport { files, bytes, blocks, slots, .. } = report;
    let points = slots.taken;
    let _ = write!(out, "{source}: {points} points of {files} files with {bytes} bytes");
    if *blocks > 0 {
        let _ = write!(out, " in {blocks} blocks");
    }
    if report.files_present > 0 {
        let _ = write!(out, " ({} files were imported already)", report.files_present);
    }
    out.push('\n');
    for (reject, files) in &report.rejected {
        let reason = reject.text();
        let _ = writeln!(out, "left out: {} files: {reason}: {:?}", files.files, files.example);
    }
    for (count, what) in left_out(report).into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(out, "left out: {count} {what}");
    }
    if report.files_compared > 0 {
        let differences = report.differences.len() as u64 + report.differences_unnamed;
        let compared = report.files_compared;
        let _ = writeln!(out, "compared: {compared} files with the target, {differences} differ");
    }
    for difference in &report.differences {
        let _ = writeln!(out, "differs: {difference}");
    }
    out
}

fn show_rules(rules: &RuleReport, out: &mut String) {
    for difference in &rules.named {
        let _ = writeln!(out, "rule: {difference}");
    }
    if rules.unnamed > 0 {
        let _ = writeln!(out, "rule: {} further differences", rules.unnamed);
    }
    let counts = [
        (rules.other_archives, "other archives than their rule"),
        (rules.other_method, "another method than their rule"),
        (rules.other_factor, "another xFilesFactor than their rule"),
        (rules.without_schema, "no rule in the schemas file"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(out, "rules: {count} files have {what}");
    }
}

fn left_out(report: &WhisperReport) -> [(u64, &'static str); 6] {
    let slots = &report.slots;
    [
        (slots.covered, "points of coarser archives whose time a finer one covers"),
        (slots.outdated, "points that their archive does not keep any more"),
        (slots.unselected, "points before --start or after --end"),
        (slots.nan, "values that are NaN"),
        (slots.future, "points after the present"),
        (slots.misplaced, "slots with a time of another slot: damage"),
    ]
}
