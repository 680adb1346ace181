//! Rules about the form of answers and the texts of errors.

use super::{Evidence, Rule, asked, shown};
use crate::compare::{ORDER_OF_TIES, print};
use crate::runner::apart;
use crate::script::DATABASE;
use crate::steps::Step;

pub(super) const RULES: [Rule; 19] = [
    asked(
        "InfluxDB contradicts itself",
        |_| true,
        |e, runner| {
            // A case that changes something is run again.
            let changes = e.steps.iter().any(Step::changes);
            Ok(e.finding.contradicts_itself || changes && runner.agree_throughout(e.steps)?)
        },
    ),
    shown("order of points of one time", |e| e.difference().kind == ORDER_OF_TIES),
    asked(
        "results that depend on the order of points of one time",
        |e| !e.is_error() && apart(e.steps).is_some(),
        |e, runner| match apart(e.steps) {
            Some(steps) => Ok(runner.answers(&steps)?.agree()),
            None => Ok(false),
        },
    ),
    shown("infinite values", |e| {
        e.difference().theirs.contains("unsupported value: ")
            || e.kind_has("csv") && e.difference().ours.contains("Inf")
    }),
    shown("InfluxDB panics", |e| e.difference().theirs.contains("[panic:")),
    shown("errors of statements in CSV", |e| {
        e.kind_has("csv")
            && e.difference().ours.starts_with("error")
            && !e.difference().theirs.starts_with("error")
    }),
    shown("decimals of numbers in texts", |e| {
        e.difference().ours != e.difference().theirs
            && with_three_decimals(&e.difference().ours) == with_three_decimals(&e.difference().theirs)
    }),
    shown("not executed in place of an error", |e| {
        e.difference().theirs == "not executed" && e.kind_has("error")
    }),
    asked(
        "time in WHERE of one of several statements",
        |e| {
            let is_refused = |text: &str| text.contains("doesn't support time in WHERE clause");
            // The error of a later statement has the number of the first one.
            let is_misnumbered = e.kind_has("statement_id") && is_refused(&print(&e.answers().theirs));
            e.text.contains("; ") && (is_refused(&e.difference().theirs) || is_misnumbered)
        },
        |e, runner| {
            // InfluxDB rewrites a statement before it has a number; each has the same answer by itself.
            e.text.split("; ").try_fold(true, |agreed, text| {
                let answers = e.ask(text, runner)?;
                Ok(agreed && answers.difference.is_none())
            })
        },
    ),
    shown("two databases that do not exist", |e| {
        let texts = [&e.difference().ours, &e.difference().theirs];
        let is_named = |text: &&String| {
            text.strip_prefix("database not found: ")
                .is_some_and(|name| e.text.contains(name) || name == DATABASE)
        };
        texts.iter().all(is_named)
    }),
    asked(
        "one of two errors",
        |e| absent_database(e).is_some(),
        |e, runner| {
            // With a database that exists both have the error that is ours.
            let Some(name) = absent_database(e) else { return Ok(false) };
            let answers = e.ask(&e.text.replace(name, "d0"), runner)?;
            let has_ours = print(&answers.theirs).contains(&e.difference().ours);
            Ok(answers.difference.is_none() && has_ours)
        },
    ),
    shown("error of a shard", |e| {
        let theirs = &e.difference().theirs;
        let without = theirs.strip_prefix("shard ").and_then(|rest| rest.split_once(": "));
        without.is_some_and(|(number, error)| number.parse::<u64>().is_ok() && error == e.difference().ours)
    }),
    shown("text without a statement", |e| {
        e.difference().ours == "{\"results\":[]}" && e.difference().theirs == "{}"
    }),
    shown("DROP SHARD", |e| {
        let has_error = |text: &str| text.contains("\"error\"");
        e.text.starts_with("DROP SHARD")
            && has_error(&e.difference().ours)
            && !has_error(&e.difference().theirs)
            && e.is_error()
    }),
    asked("chunks of SHOW", |e| e.text.contains("SHOW ") && e.kind_has("partial /"), agree_as_json),
    asked("partial after the last chunk", |e| e.difference().kind.ends_with("series,partial"), agree_as_json),
    asked(
        "replicaN in CSV",
        |e| e.kind_has("csv") && e.difference().theirs.contains(",replicaN,"),
        agree_as_json,
    ),
    shown("the same user again", |e| e.difference().ours.contains("user already exists")),
    shown("bound parameter of no type", |e| {
        let theirs = e.difference().theirs.replace("missing parameter: ", "").replace("<nil>", "nil");
        theirs == e.difference().ours && theirs != e.difference().theirs
    }),
];

/// The database of the statement that InfluxDB does not find, where ours is another error.
fn absent_database<'e>(e: &'e Evidence<'_>) -> Option<&'e str> {
    let (_, name) = e.difference().theirs.split_once("database not found: ")?;
    let name = name.split('"').next().filter(|name| !name.is_empty())?;
    (e.is_error() && e.text.contains(name)).then_some(name)
}

/// Returns true if both have the same rows in one document of JSON.
fn agree_as_json(e: &Evidence<'_>, runner: &mut crate::runner::Runner) -> std::io::Result<bool> {
    runner.agree(e.steps)
}

/// The text with at most three digits after each point between digits.
fn with_three_decimals(text: &str) -> String {
    const DECIMALS: usize = 3;
    let mut out = String::new();
    let mut decimals: Option<usize> = None;
    for letter in text.chars() {
        decimals = match (decimals, letter) {
            (Some(count), '0'..='9') => Some(count + 1),
            (None, '.') if out.ends_with(|last: char| last.is_ascii_digit()) => Some(0),
            _ => None,
        };
        if decimals.is_none_or(|count| count <= DECIMALS) {
            out.push(letter);
        }
    }
    out
}
