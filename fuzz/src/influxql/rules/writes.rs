//! Rules about line protocol and the stored points.

use std::io::Result;

use super::{Evidence, Rule, asked, shown};
use crate::compare::ORDER_OF_TIES;
use crate::runner::Runner;
use crate::steps::Step;

pub(super) const RULES: [Rule; 11] = [
    shown("unsigned integers", |e| {
        // 1.6.7 reads them only if it is built for them.
        let theirs = &e.difference().theirs;
        theirs.contains("invalid number") && e.steps.last().is_some_and(has_unsigned)
    }),
    asked(
        "points refused in several shard groups of one write",
        |e| is_conflict(&e.difference().ours) && is_conflict(&e.difference().theirs),
        // The answer comes from one shard, by chance; both agree about each point by itself.
        |e, runner| runner.agree_throughout(&e.steps.iter().flat_map(Step::by_line).collect::<Vec<_>>()),
    ),
    shown("a new field twice in a line, of two types", |e| {
        // 1.6.7 stores the first type and refuses the point by the second one; 1.8 refuses both at once.
        let is_plain = e.difference().ours == "field type conflict";
        is_plain && is_conflict(&e.difference().theirs) && e.steps.last().is_some_and(has_field_twice)
    }),
    shown("names that are not UTF-8", |e| {
        let texts = [&e.difference().ours, &e.difference().theirs];
        texts.iter().any(|text| text.contains("invalid UTF-8"))
    }),
    asked(
        "points with names that are not UTF-8",
        |e| has_line(e, is_invalid_text),
        |e, runner| without_lines(e, runner, is_invalid_text),
    ),
    asked(
        "names of a NUL byte",
        |e| e.steps.iter().any(|step| matches!(step, Step::Write { body, .. } if has_nul(body))),
        |e, runner| without_lines(e, runner, has_nul),
    ),
    asked(
        "names of white space alone",
        |e| {
            let has_name = |body: &[u8]| body.split(|byte| *byte == b'\n').any(has_blank_name);
            e.steps.iter().any(|step| matches!(step, Step::Write { body, .. } if has_name(body)))
        },
        |e, runner| without_lines(e, runner, has_blank_name),
    ),
    asked(
        "series of points without a field",
        |e| has_line(e, has_time_as_field),
        |e, runner| without_lines(e, runner, has_time_as_field),
    ),
    asked("equals signs in names with the index tsi1", |e| has_line(e, has_equals), without_equals),
    asked(
        "row that INTO keeps of several at one time",
        |e| e.steps.iter().any(|step| with_all_tags(step).is_some()),
        |e, runner| {
            let steps = e.steps.iter().map(|step| with_all_tags(step).unwrap_or_else(|| step.clone()));
            let found = runner.find_uncounted(&steps.collect::<Vec<_>>())?;
            // The points of one time that remain are in the order of a heap when they are read.
            Ok(found.is_none_or(|found| {
                found.step + 1 == e.steps.len() && found.difference.kind == ORDER_OF_TIES
            }))
        },
    ),
    asked("series of refused points", |e| e.steps.iter().any(is_write), without_refused_points),
];

/// Returns true for the answers to a write of which points are refused for the type of a field.
fn is_conflict(text: &str) -> bool {
    let is_partial = text.contains("partial write: ") && !text.contains("dropped=0");
    is_partial || text == "field type conflict" || text.contains("\"error\":\"field type conflict\"")
}

fn is_write(step: &Step) -> bool {
    matches!(step, Step::Write { .. })
}

/// A statement with INTO and without GROUP BY, with the tags of its points. Other clauses would follow these.
fn with_all_tags(step: &Step) -> Option<Step> {
    let Step::Query { text, .. } = step else { return None };
    let text = text.to_string();
    let has_clause = [" GROUP BY ", " ORDER BY ", "LIMIT ", "OFFSET ", " fill(", " tz("]
        .iter()
        .any(|clause| text.contains(clause));
    (text.contains(" INTO ") && text.starts_with("SELECT ") && !has_clause)
        .then(|| step.with_text(&format!("{text} GROUP BY *")))
}

/// Returns true if the step writes digits with a `u`.
fn has_unsigned(step: &Step) -> bool {
    let is_unsigned = |bytes: &[u8]| bytes[0].is_ascii_digit() && bytes[1] == b'u';
    matches!(step, Step::Write { body, .. } if body.windows(2).any(is_unsigned))
}

/// Returns true if a line of the step has a field twice.
fn has_field_twice(step: &Step) -> bool {
    let is_double = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let fields = line.split(' ').nth(1).unwrap_or_default().split(',');
        let mut names: Vec<&str> = fields.filter_map(|field| Some(field.split_once('=')?.0)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        names.len() < count
    };
    matches!(step, Step::Write { body, .. } if body.split(|byte| *byte == b'\n').any(is_double))
}

fn is_invalid_text(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_err()
}

fn has_nul(line: &[u8]) -> bool {
    line.contains(&0)
}

/// Returns true if the first field of the line may have a name of tabs alone.
fn has_blank_name(line: &[u8]) -> bool {
    let is_named = |at: usize| {
        let tabs = line[at + 1..].iter().take_while(|byte| **byte == b'\t').count();
        tabs > 0 && line.get(at + 1 + tabs) == Some(&b'=')
    };
    line.iter().enumerate().any(|(at, byte)| *byte == b' ' && is_named(at))
}

/// Returns true if a field of the line is called `time`.
fn has_time_as_field(line: &[u8]) -> bool {
    [b" time=".as_slice(), b",time="].iter().any(|part| line.windows(part.len()).any(|bytes| bytes == *part))
}

/// Returns true if a name may have an equals sign.
fn has_equals(line: &[u8]) -> bool {
    line.windows(2).any(|bytes| bytes == b"\\=" || bytes == b"==")
}

/// Returns true if both agree about the case with another letter in place of such equals signs.
fn without_equals(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let mut steps = e.steps.to_vec();
    for step in &mut steps {
        if let Step::Write { body, .. } = step {
            let text = String::from_utf8_lossy(body).replace("\\=", "_").replace("==", "=_");
            *body = text.into_bytes();
        }
    }
    Ok(runner.has_tsi && runner.agree_throughout(&steps)?)
}

/// Returns true if the case writes a line of this kind and the stored points differ.
fn has_line(e: &Evidence<'_>, is_meant: fn(&[u8]) -> bool) -> bool {
    let body = |step: &Step| match step {
        Step::Write { body, .. } => body.split(|byte| *byte == b'\n').any(is_meant),
        Step::Query { .. } => false,
    };
    !e.text.is_empty() && e.steps.iter().any(body)
}

/// Returns true if all answers are the same without some lines.
fn without_lines(e: &Evidence<'_>, runner: &mut Runner, is_meant: fn(&[u8]) -> bool) -> Result<bool> {
    let mut steps = e.steps.to_vec();
    for step in &mut steps {
        if let Step::Write { body, .. } = step {
            let lines = body.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_meant(line));
            *body = lines.flatten().copied().collect();
        }
    }
    runner.agree_throughout(&without_empty_writes(steps))
}

fn without_empty_writes(mut steps: Vec<Step>) -> Vec<Step> {
    steps
        .retain(|step| !matches!(step, Step::Write { body, .. } if body.iter().all(u8::is_ascii_whitespace)));
    steps
}

/// Returns true if some lines are refused, and all answers are the same without them.
fn without_refused_points(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    if e.text.is_empty() {
        return Ok(false);
    }
    let steps: Vec<Step> = e.steps.iter().flat_map(Step::by_line).collect();
    let refused = runner.refused(&steps)?;
    if !refused.contains(&true) {
        return Ok(false);
    }
    let kept = steps.into_iter().zip(refused).filter(|(_, refused)| !refused).map(|(step, _)| step);
    runner.agree_throughout(&kept.collect::<Vec<_>>())
}
