//! Rules about subqueries and sources.

use std::io::Result;

use super::{Evidence, Rule, asked, shown};
use crate::cells;
use crate::compare::print;
use crate::json::Json;
use crate::runner::Runner;
use crate::schema::{APART, MEASUREMENTS, TIED};
use crate::text;

pub(super) const RULES: [Rule; 11] = [
    asked(
        "fill in subqueries per shard",
        |e| e.text.contains("FROM (SELECT") && e.text.contains("fill(") && !e.is_error(),
        |e, runner| {
            let unfilled = text::with_calls(&e.text, "fill", |_| "fill(none)".to_owned());
            // Without fill there may be too few windows for a row.
            let answers = e.ask(&unfilled, runner)?;
            let uncast = text::without_casts(&unfilled);
            Ok(unfilled != e.text
                && (answers.difference.is_none()
                    || e.agree_about(&unfilled, runner)?
                    || e.agree_about(&uncast, runner)?))
        },
    ),
    asked(
        "integrals of groups in a subquery",
        |e| e.text.contains("FROM (SELECT") && e.text.contains("integral("),
        |e, runner| {
            for call in text::calls_of(&e.text, "integral") {
                let Some(alone) = with_outer_windows(&e.text, &call) else { return Ok(false) };
                if !e.agree_about(&text::as_floats(&alone, "integral"), runner)? {
                    return Ok(false);
                }
            }
            Ok(true)
        },
    ),
    shown("order of groups of a subquery", |e| {
        e.text.contains("FROM (SELECT")
            && !e.text.contains("time(")
            && cells::same_but_for_order(&e.answers().ours, &e.answers().theirs)
    }),
    asked(
        "row of a subquery twice",
        |e| e.text.contains("FROM (SELECT") && repeats_rows(e),
        |e, runner| {
            for subquery in text::subqueries(&e.text) {
                if !e.agree_about(subquery, runner)? {
                    return Ok(false);
                }
            }
            Ok(true)
        },
    ),
    asked(
        "tag twice in GROUP BY",
        |e| grouped_once(&e.text) != e.text,
        |e, runner| e.agree_about(&text::with_limits(&grouped_once(&e.text)), runner),
    ),
    asked(
        "a measurement that is read twice",
        |e| read_once(&e.text) != e.text,
        |e, runner| e.agree_about(&read_once(&e.text), runner),
    ),
    asked(
        "SLIMIT in a subquery",
        |e| {
            text::subqueries(&e.text)
                .iter()
                .any(|text| text.contains(" SLIMIT ") || text.contains(" SOFFSET "))
        },
        |e, runner| {
            let text = text::without_clause(&text::without_clause(&e.text, " SLIMIT "), " SOFFSET ");
            e.agree_about(&text, runner)
        },
    ),
    asked(
        "windows of a subquery before the range",
        |e| e.text.contains("FROM (SELECT") && e.text.contains("time(") && !e.is_error(),
        |e, runner| e.agree_about(&text::without_early_windows(&e.text), runner),
    ),
    asked("LIMIT of groups in a subquery", has_limit, |e, runner| {
        // InfluxDB counts from the start whenever the group of the next row is another one.
        let unlimited = text::without_clause(&text::without_clause(&e.text, " LIMIT "), " OFFSET ");
        let apart = unlimited.replace(TIED, APART);
        Ok(agree_about_subqueries(e, runner)?
            && (e.agree_about(&unlimited, runner)? || e.agree_about(&apart, runner)?))
    }),
    asked(
        "cast of a column of a subquery",
        |e| e.text.contains("FROM (SELECT"),
        |e, runner| {
            // InfluxDB answers as without the cast.
            let uncast = text::without_casts(&e.text);
            let same = e.ask(&uncast, runner)?.theirs == e.answers().theirs;
            Ok(same && e.agree_about(&uncast, runner)?)
        },
    ),
    asked("calls of a subquery that are not joined", has_calls_of_groups, agree_about_subqueries),
];

/// Returns true if InfluxDB has our rows, and some of them once more.
fn repeats_rows(e: &Evidence<'_>) -> bool {
    let sorted = |answer: &Json| {
        let mut rows: Vec<String> = cells::all_rows(answer).into_iter().map(print).collect();
        rows.sort();
        rows
    };
    let (ours, mut theirs) = (sorted(&e.answers().ours), sorted(&e.answers().theirs));
    let is_more = theirs.len() > ours.len();
    theirs.dedup();
    is_more && !ours.is_empty() && ours == theirs
}

/// The statement with each measurement once in FROM.
fn read_once(statement: &str) -> String {
    MEASUREMENTS.iter().map(|measurement| measurement.name).fold(statement.to_owned(), |text, name| {
        text.replace(&format!("FROM {name}, {name}"), &format!("FROM {name}"))
    })
}

/// The subquery around a call, of one field, with the range and the windows of the outer statement.
fn with_outer_windows(statement: &str, call: &str) -> Option<String> {
    let select = text::enclosing_select(statement, call)?;
    let (_, outer) = statement.split_once(&format!("({select})"))?;
    let (head, tags) = select.split_once(" GROUP BY ")?;
    let measurement =
        MEASUREMENTS.iter().find(|measurement| head.ends_with(&format!("FROM {}", measurement.name)))?;
    let field = measurement.numbers().first()?.name;
    let end =
        if outer.contains("time(") { format!("{outer}, {tags}") } else { format!("{outer} GROUP BY {tags}") };
    Some(text::with_columns(&format!("{head}{end}"), &format!("integral({field})")))
}

/// The statement without tags next to a wildcard in GROUP BY.
fn grouped_once(statement: &str) -> String {
    for wildcard in [", *", ", /./"] {
        if let Some((head, tail)) = statement.split_once(wildcard)
            && let Some(at) = head.rfind(" GROUP BY ")
        {
            return format!("{} GROUP BY {}{tail}", &head[..at], &wildcard[2..]);
        }
    }
    statement.to_owned()
}

/// Returns true if a subquery has LIMIT or OFFSET.
fn has_limit(e: &Evidence<'_>) -> bool {
    let is_limited = |text: &&str| text.contains(" LIMIT ") || text.contains(" OFFSET ");
    text::subqueries(&e.text).iter().any(is_limited)
}

/// Returns true if a subquery has several calls per group.
fn has_calls_of_groups(e: &Evidence<'_>) -> bool {
    let has_groups = |text: &&str| text.contains(" GROUP BY ") || e.text.contains(" GROUP BY ");
    let calls = |text: &str| text::columns(text).iter().filter(|column| column.contains('(')).count();
    text::subqueries(&e.text).iter().any(|text| has_groups(text) && calls(text) > 1) && !e.is_error()
}
/// Returns true if both agree about each subquery by itself, with a LIMIT for its OFFSET. Each series may
/// give points at other times.
fn agree_about_subqueries(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    for subquery in text::subqueries(&e.text) {
        let limited = text::with_limits(subquery);
        let apart = limited.replace(TIED, APART);
        if !e.agree_about(&limited, runner)? && !e.agree_about(&apart, runner)? {
            return Ok(false);
        }
    }
    Ok(true)
}
