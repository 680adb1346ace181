//! Rules about SHOW, and the names that a deletion leaves.

use std::collections::BTreeSet;
use std::io::Result;

use super::{Evidence, Rule, asked, shown};
use crate::cells;
use crate::compare::print;
use crate::dataset::DATABASES;
use crate::json::Json;
use crate::runner::{Answers, Runner};
use crate::schema::MEASUREMENTS;
use crate::steps::Step;
use crate::text;

pub(super) const RULES: [Rule; 15] = [
    asked(
        "series that a deletion leaves",
        |e| e.steps.iter().any(deletes),
        |e, runner| {
            let answers = e.answers();
            Ok(cells::lists_all(&answers.theirs, &answers.ours)
                && runner.agree_throughout(&steps_without_deletions(e))?)
        },
    ),
    asked(
        "series that a deletion hides",
        |e| e.steps.iter().any(deletes),
        |e, runner| {
            let answers = e.answers();
            Ok(cells::lists_all(&answers.ours, &answers.theirs)
                && runner.agree_throughout(&steps_without_deletions(e))?)
        },
    ),
    asked(
        "conditions of field keys with the index tsi1",
        |e| e.text.starts_with("SHOW FIELD KEY") && e.text.contains(" WHERE "),
        |e, runner| Ok(runner.has_tsi && e.agree_about(&text::without_clause(&e.text, " WHERE "), runner)?),
    ),
    asked(
        "GROUP BY of cardinalities",
        |e| e.text.contains("CARDINALITY") && e.text.contains(" GROUP BY "),
        |e, runner| e.agree_about(&text::without_clause(&e.text, " GROUP BY "), runner),
    ),
    asked(
        "cardinality of several shards",
        |e| e.text.contains(" CARDINALITY") && !e.is_error(),
        counts_its_list,
    ),
    asked(
        "fields in WHERE of SHOW",
        |e| e.text.contains("SHOW ") && !fields_compared(&e.text).is_empty(),
        differs_where_fields_are,
    ),
    asked(
        "time in WHERE of SHOW SERIES",
        |e| e.text.starts_with("SHOW SERIES") && e.text.contains("time > 0"),
        |e, runner| e.agree_about(&e.text.replace("time > 0", "zzz = ''"), runner),
    ),
    asked("series of all policies", |e| e.text.starts_with("SHOW SERIES"), adds_other_policies),
    asked(
        "series of a policy that is not the default one",
        |e| {
            e.text.starts_with("SHOW ") && e.steps.iter().any(|step| sets_default(step) || names_policy(step))
        },
        with_one_default,
    ),
    asked(
        "SLIMIT of SHOW",
        |e| e.text.contains("SHOW ") && (e.text.contains(" SLIMIT ") || e.text.contains(" SOFFSET ")),
        |e, runner| {
            let text = text::without_clause(&text::without_clause(&e.text, " SLIMIT "), " SOFFSET ");
            e.agree_about(&text, runner)
        },
    ),
    asked(
        "types after a deletion",
        |e| e.steps.iter().any(deletes) && e.text.contains("FROM /./"),
        |e, runner| runner.agree_throughout(&steps_without_deletions(e)),
    ),
    asked(
        "fields that a deletion leaves",
        |e| e.steps.iter().any(deletes) && e.text.contains("FIELD KEY"),
        |e, runner| runner.agree_throughout(&steps_without_deletions(e)),
    ),
    asked(
        "retention policies in FROM of SHOW",
        |e| e.text.starts_with("SHOW") && POLICIES.iter().any(|policy| e.text.contains(policy)),
        |e, runner| {
            let text = POLICIES.iter().fold(e.text.clone(), |text, policy| text.replace(policy, ""));
            e.agree_about(&text, runner)
        },
    ),
    asked(
        "tag keys of other retention policies",
        |e| (e.kind_has("members") || e.difference().kind == "columns") && !e.is_error(),
        with_their_tags,
    ),
    shown("windows up to the present", |e| {
        let texts = [&e.difference().ours, &e.difference().theirs];
        texts.iter().all(|text| text.contains("max-select-buckets limit exceeded"))
    }),
];

/// Policies as FROM writes them.
const POLICIES: [&str; 2] = ["autogen.", "norp."];

fn deletes(step: &Step) -> bool {
    let Step::Query { text, .. } = step else { return false };
    let text = text.to_string();
    ["DELETE", "DROP SERIES", "DROP MEASUREMENT"].iter().any(|word| text.starts_with(word))
}

fn steps_without_deletions(e: &Evidence<'_>) -> Vec<Step> {
    e.steps.iter().filter(|step| !deletes(step)).cloned().collect()
}

/// Returns true if both have the same list of counted names, and our number is the length of the list.
fn counts_its_list(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    Ok(counts_list(e, &e.text, runner)? || counts_measurements(e, runner)?)
}

/// Returns true if both list the same series for a condition, and our numbers count their
/// measurements: lists of names have no condition, or one of another meaning.
fn counts_measurements(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let statement = text::without_clause(&e.text, " GROUP BY ").replace(" EXACT", "");
    let counts_fields = statement.starts_with(FIELD_KEY_COUNT);
    let Some(rest) =
        [MEASUREMENT_COUNT, FIELD_KEY_COUNT].iter().find_map(|start| statement.strip_prefix(start))
    else {
        return Ok(false);
    };
    if !rest.contains(" WHERE ") {
        return Ok(false);
    }
    let listed = e.ask(&format!("SHOW SERIES{rest}"), runner)?;
    let series = cells::all_rows(&listed.ours);
    let keys = series.iter().filter_map(|row| row.items().first().and_then(Json::as_text));
    let wanted: BTreeSet<String> = keys.map(measurement_of).collect();
    if listed.difference.is_some() {
        return Ok(false);
    }
    let counted = e.ask(&statement, runner)?;
    if !counts_fields {
        return Ok(sum(&counted) == wanted.len() as u64);
    }
    let all = e.ask(&text::without_clause(&statement, " WHERE "), runner)?;
    let of_wanted = |series: &&Json| {
        cells::member(series, "name").and_then(Json::as_text).is_some_and(|name| wanted.contains(name))
    };
    let expected: Vec<&Json> = cells::series(&all.ours).into_iter().filter(of_wanted).collect();
    Ok(expected.len() == wanted.len() && cells::series(&counted.ours) == expected)
}

const MEASUREMENT_COUNT: &str = "SHOW MEASUREMENT CARDINALITY";
const FIELD_KEY_COUNT: &str = "SHOW FIELD KEY CARDINALITY";

/// Measurement of the key of a series; its commas and spaces have a backslash.
fn measurement_of(key: &str) -> String {
    let mut out = String::new();
    let mut is_escaped = false;
    for letter in key.chars() {
        match letter {
            ',' if !is_escaped => break,
            ',' | ' ' | '=' if is_escaped => {
                out.pop();
                out.push(letter);
            }
            _ => out.push(letter),
        }
        is_escaped = letter == '\\';
    }
    out
}

fn counts_list(e: &Evidence<'_>, statement: &str, runner: &mut Runner) -> Result<bool> {
    let list = list_of(statement);
    let listed = e.ask(&list, runner)?;
    let counted = e.ask(&text::without_clause(statement, " GROUP BY "), runner)?;
    let is_same = listed.difference.is_none() || is_union(e, &list, runner)?;
    Ok(is_same && sum(&counted) == cells::all_rows(&listed.ours).len() as u64)
}

/// The statement that lists what a statement counts.
fn list_of(statement: &str) -> String {
    let list =
        text::without_clause(statement, " GROUP BY ").replace(" EXACT", "").replace(" CARDINALITY", "");
    let names = [(" MEASUREMENT", " MEASUREMENTS"), (" TAG KEY", " TAG KEYS"), (" FIELD KEY", " FIELD KEYS")];
    names.iter().fold(list, |list, (one, all)| list.replacen(one, all, 1))
}

/// Sum of the counts that we answer.
fn sum(answers: &Answers) -> u64 {
    let count = |row: &&Json| match row.items().first() {
        Some(Json::Number(text)) => text.parse::<u64>().unwrap_or(0),
        _ => 0,
    };
    // A list of numbers that are no counts may exceed 64 bits.
    cells::all_rows(&answers.ours).iter().map(count).fold(0, u64::saturating_add)
}

/// Fields of the shared measurements that the conditions of a statement name.
fn fields_compared(statement: &str) -> Vec<&'static str> {
    let Some(at) = statement.find(" WHERE ") else { return Vec::new() };
    let conditions = &statement[at..];
    let fields = MEASUREMENTS.iter().flat_map(|measurement| measurement.fields).map(|field| field.name);
    let compared = |name: &&str| {
        OPERATORS.iter().any(|operator| {
            ["(", " "].iter().any(|before| conditions.contains(&format!("{before}{name}{operator}")))
        })
    };
    fields.filter(compared).collect()
}

const OPERATORS: [&str; 5] = [" = ", " != ", " =~ ", " !~ ", " > "];

/// Returns true if both agree about a condition that no field has: in the names of the fields, or by
/// measurement, about all that have none of them.
fn differs_where_fields_are(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let fields = fields_compared(&e.text);
    let without_order = fields
        .iter()
        .fold(e.text.clone(), |text, field| text.replace(&format!("{field} > 1"), "zzz != 'zzz'"));
    if without_order != e.text {
        let is_count = e.text.contains(" CARDINALITY");
        let variant = if is_count { list_of(&without_order) } else { without_order };
        return Ok(e.ask(&variant, runner)?.difference.is_none() || is_union(e, &variant, runner)?);
    }
    let mut names = MEASUREMENTS
        .iter()
        .filter(|measurement| !measurement.fields.iter().any(|field| fields.contains(&field.name)));
    let of = |name: &str| {
        let at = e.text.find(" WITH ").or(e.text.find(" WHERE ")).unwrap_or(e.text.len());
        let (head, tail) = e.text.split_at(at);
        let head = &head[..head.find(" FROM ").unwrap_or(head.len())];
        format!("{head} FROM {name}{tail}")
    };
    names.try_fold(true, |agreed, measurement| {
        Ok(agreed && runner.answers(&e.steps_with(&of(measurement.name)))?.difference.is_none())
    })
}

/// Returns true if our list is InfluxDB's for the default policy and for the other one together.
fn adds_other_policies(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    is_union(e, &e.text, runner)
}

fn is_union(e: &Evidence<'_>, statement: &str, runner: &mut Runner) -> Result<bool> {
    let [_, other] = DATABASES[0].1 else { return Ok(false) };
    let all = text::without_clause(&text::without_clause(statement, " LIMIT "), " OFFSET ");
    let (head, tail) = all.split_at(all.find(" WHERE ").unwrap_or(all.len()));
    let (head, sources) = head.split_once(" FROM ").unwrap_or((head, "/.*/"));
    let sources: Vec<String> = sources.split(", ").map(|source| format!("\"{other}\".{source}")).collect();
    let of_other = e.ask(&format!("{head} FROM {}{tail}", sources.join(", ")), runner)?;
    let of_default = e.ask(&all, runner)?;
    let keys = |json: &Json| -> BTreeSet<String> { cells::all_rows(json).into_iter().map(print).collect() };
    let theirs: BTreeSet<String> = &keys(&of_default.theirs) | &keys(&of_other.theirs);
    Ok(keys(&of_default.ours) == theirs)
}

/// Returns true if the step may make a policy the default one.
fn sets_default(step: &Step) -> bool {
    matches!(step, Step::Query { text, .. } if text.to_string().ends_with(" DEFAULT"))
}

/// Returns true if both agree if the first policy stays the default one, and all points are written to it.
fn with_one_default(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let mut steps = Vec::new();
    for step in e.steps {
        match step {
            Step::Query { text, .. } if sets_default(step) => {
                let text = text.to_string();
                let text = text.trim_end_matches(" DEFAULT");
                if text.starts_with("CREATE") {
                    steps.push(step.with_text(text));
                }
            }
            Step::Write { database, precision, body, .. } => {
                steps.push(Step::write(database, "", precision, body.clone()));
            }
            _ => steps.push(step.clone()),
        }
    }
    runner.agree_throughout(&steps)
}

/// Returns true if the step writes to a policy that it names.
fn names_policy(step: &Step) -> bool {
    matches!(step, Step::Write { policy, .. } if !policy.is_empty())
}

/// Returns true if both agree about the tags that InfluxDB groups by, if they are written out.
fn with_their_tags(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    if e.difference().kind == "columns" {
        let theirs = cells::series(&e.answers().theirs);
        let columns =
            theirs.first().and_then(|series| cells::member(series, "columns")).map_or(&[][..], Json::items);
        let names = columns.iter().skip(1).filter_map(Json::as_text).map(|name| format!("\"{name}\""));
        return e.agree_about(&text::with_columns(&e.text, &names.collect::<Vec<_>>().join(", ")), runner);
    }
    let tags =
        cells::series(&e.answers().theirs).into_iter().find_map(|series| cells::member(series, "tags"));
    let Some(Json::Object(tags)) = tags else { return Ok(false) };
    let names: Vec<String> = tags.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let names = names.join(", ");
    let Some(at) = e.text.rfind(" GROUP BY ") else { return Ok(false) };
    let (head, tail) = e.text.split_at(at);
    e.agree_about(&format!("{head}{}", tail.replace("/./", &names).replacen('*', &names, 1)), runner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurement_of_a_series_key() {
        for (key, want) in [
            ("m", "m"),
            ("m,host=a", "m"),
            ("m,host=a\\,b", "m"),
            ("my\\ m\\,x,host=a", "my m,x"),
            ("a\\=b,t=1", "a=b"),
            ("a\\b,t=1", "a\\b"),
        ] {
            assert_eq!(measurement_of(key), want, "{key}");
        }
    }
}
