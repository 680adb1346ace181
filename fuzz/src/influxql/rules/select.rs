//! Rules about functions and clauses of SELECT.

use std::io::Result;

use super::{Evidence, Rule, asked};
use crate::cells::{self, Cell};
use crate::dataset::DATABASES;
use crate::json::Json;
use crate::runner::{Answers, Runner, apart};
use crate::schema::{APART, MEASUREMENTS, Measurement, TIED};
use crate::text;

/// Functions of which a small difference of the argument is a large one of the result.
const ENLARGING: [&str; 7] = ["sin", "cos", "tan", "exp", "ceil", "floor", "round"];
/// Functions of which the result is an integer next to the argument.
const ROUNDING: [&str; 3] = ["ceil", "floor", "round"];

pub(super) const RULES: [Rule; 22] = [
    asked(
        "OFFSET without LIMIT, SOFFSET without SLIMIT",
        |e| text::with_limits(&e.text) != e.text,
        |e, runner| {
            let answers = e.ask(&text::with_limits(&e.text), runner)?;
            Ok(e.agree_about(&text::with_limits(&e.text), runner)?
                || answers.difference.is_none() && !e.is_error())
        },
    ),
    asked(
        "groups of other policies that SLIMIT counts",
        |e| e.text.contains(" SLIMIT ") || e.text.contains(" SOFFSET "),
        counts_other_groups,
    ),
    asked("windows before an empty range", |e| e.text.contains("time("), reads_before_empty_range),
    asked(
        "two casts of a field in one condition",
        |e| e.text.contains(" WHERE ") && text::has_two_casts(&e.text),
        |e, runner| e.agree_about(&text::without_casts(&e.text), runner),
    ),
    asked(
        "calculation as condition",
        |e| text::without_calculations(&e.text) != e.text,
        |e, runner| {
            let uncalculated = text::without_calculations(&e.text);
            let is_ignored = e.ask(&uncalculated, runner)?.theirs == e.answers().theirs;
            Ok(is_ignored && e.agree_about(&uncalculated, runner)?)
        },
    ),
    asked("linear fill around 1970", |e| e.text.contains("fill(linear)"), is_linear_around_1970),
    asked(
        "number for nulls of texts and booleans in a subquery",
        |e| text::subqueries(&e.text).iter().any(|text| text.contains("fill(")),
        has_fill_numbers,
    ),
    asked(
        "number of fill() in operators of booleans",
        |e| text::with_fractions_in_fill(&e.text) != e.text,
        |e, runner| {
            Ok(differs_in_bitwise_columns(e)
                && e.agree_about(&text::with_fractions_in_fill(&e.text), runner)?)
        },
    ),
    asked(
        "mode among equally frequent values",
        |e| e.text.contains("mode("),
        |e, runner| {
            // Operands and subqueries hide the values of `mode()`; `first()` in its place shows whether the
            // rest agrees.
            let is_operand = text::columns(&e.text).iter().any(|text| text.rfind("mode(") > Some(0));
            let is_inner = is_operand || text::subqueries(&e.text).iter().any(|text| text.contains("mode("));
            Ok(is_among(e, "mode", runner, is_as_frequent)?
                || is_inner && e.agree_about(&e.text.replace("mode(", "first("), runner)?)
        },
    ),
    asked(
        "point of a percentile among equal values",
        |e| e.text.contains("percentile("),
        |e, runner| is_among(e, "percentile", runner, is_stored),
    ),
    asked(
        "windows after one without a percentile",
        |e| e.text.contains("percentile("),
        |e, runner| e.agree_about(&with_rank_100(&e.text), runner),
    ),
    asked(
        "time of an integral without windows",
        |e| e.text.contains("integral("),
        differs_in_times_of_integrals,
    ),
    asked(
        "integral of integers at borders of windows",
        |e| e.text.contains("integral(") && e.text.contains("time("),
        |e, runner| e.agree_about(&text::as_floats(&written_out(e, "integral"), "integral"), runner),
    ),
    asked("rows of several integrals", |e| e.text.contains("integral("), agree_about_each_integral),
    asked(
        "abs of negative integers",
        |e| e.text.contains("abs("),
        |e, runner| {
            Ok(e.agree_about(&text::as_floats(&e.text, "abs"), runner)?
                && e.agree_about(&text::with_calls(&e.text, "abs", str::to_owned), runner)?)
        },
    ),
    asked("mean of integers whose sum exceeds 64 bits", |e| e.text.contains("mean("), sum_exceeds_integers),
    asked(
        "points of top, bottom and distinct in descending order",
        |e| {
            let has_many = ["top(", "bottom(", "distinct("].iter().any(|name| e.text.contains(name));
            has_many && e.text.contains(" ORDER BY time DESC")
        },
        |e, runner| e.agree_about(&text::without_clause(&e.text, " ORDER BY "), runner),
    ),
    asked(
        "top and bottom with LIMIT",
        |e| e.text.contains("top(") || e.text.contains("bottom("),
        |e, runner| {
            let text = text::without_clause(&text::without_clause(&e.text, " LIMIT "), " OFFSET ");
            e.agree_about(&text, runner)
        },
    ),
    asked("optimizer of holt_winters", |e| e.text.contains("holt_winters"), differs_in_forecasts),
    asked(
        "functions that enlarge a difference in last digits",
        |e| ENLARGING.iter().any(|name| e.text.contains(&format!("{name}("))) && e.kind_has("another number"),
        |e, runner| {
            let replaced = ENLARGING
                .iter()
                .fold(e.text.clone(), |text, name| text::with_calls(&text, name, str::to_owned));
            let rounds = ROUNDING.iter().any(|name| e.text.contains(&format!("{name}(")));
            let is_small = are_near(e.answers(), 1e-6) || rounds && differ_by_at_most_one(e.answers());
            Ok(is_small && e.agree_about(&replaced, runner)?)
        },
    ),
    asked("type errors where no series is selected", is_type_error_or_nothing, have_a_type_error),
    asked(
        "floats beyond the range of a calculation",
        |e| e.text.contains("nums"),
        |e, runner| {
            for fields in [["f"].as_slice(), &["i"], &["f", "i"]] {
                let is_named = |field: &&str| text::names(&e.text).contains(field);
                if fields.iter().all(is_named) && e.agree_about(&bounded(&e.text, fields), runner)? {
                    return Ok(true);
                }
            }
            Ok(false)
        },
    ),
];

/// Returns true if all cells that differ are null here and a number of `fill` in InfluxDB, in columns without
/// a number here.
fn has_fill_numbers(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    if differs_in_fill_numbers(e, e.answers()) {
        return Ok(true);
    }
    match apart(e.steps) {
        Some(steps) => Ok(differs_in_fill_numbers(e, &runner.answers(&steps)?)),
        None => Ok(false),
    }
}

fn differs_in_fill_numbers(e: &Evidence<'_>, answers: &Answers) -> bool {
    let numbers = text::fill_numbers(&e.text);
    let is_number = |json: &Json| matches!(json, Json::Number(text) if numbers.contains(text));
    let Some(differing) = cells::differing(&answers.ours, &answers.theirs) else { return false };
    let rows = cells::all_rows(&answers.ours);
    let has_numbers =
        |column: usize| rows.iter().any(|row| matches!(row.items().get(column), Some(Json::Number(_))));
    !differing.is_empty()
        && differing
            .iter()
            .all(|cell| cell.ours == Json::Null && is_number(&cell.theirs) && !has_numbers(cell.column))
}

/// Returns true if only columns with `&`, `|` or `^` differ, or a subquery has one of these operators.
fn differs_in_bitwise_columns(e: &Evidence<'_>) -> bool {
    let is_bitwise = |text: &str| [" & ", " | ", " ^ "].iter().any(|operator| text.contains(operator));
    let Some(differing) = cells::differing(&e.answers().ours, &e.answers().theirs) else { return false };
    let columns = text::columns(&e.text);
    let is_inner = text::subqueries(&e.text).into_iter().any(is_bitwise);
    let is_own = |cell: &Cell| {
        let column = cell.column.checked_sub(1).and_then(|idx| columns.get(idx));
        cell.column > 0 && (is_inner || column.is_some_and(|column| is_bitwise(column)))
    };
    !differing.is_empty() && differing.iter().all(is_own)
}

/// Returns true if the answers differ in rows of a call of `name` alone, and `test` holds for the first one.
fn is_among(
    e: &Evidence<'_>,
    name: &str,
    runner: &mut Runner,
    test: fn(&Evidence<'_>, &Cell, &mut Runner) -> Result<bool>,
) -> Result<bool> {
    let Some(differing) = cells::differing(&e.answers().ours, &e.answers().theirs) else { return Ok(false) };
    let columns = text::columns(&e.text);
    let calls = columns.iter().filter(|column| column.contains('(')).count();
    let is_own = |cell: &Cell| match cell.column.checked_sub(1) {
        // Time and other columns belong to the selected point, next to a single call.
        None => calls == 1,
        Some(column) if name == "percentile" => columns.get(column).is_some_and(|text| !text.contains('(')),
        Some(column) => columns.get(column).or(columns.first()).is_some_and(|text| text.starts_with("mode(")),
    };
    let Some(first) = differing.iter().find(|cell| cell.column > 0).or(differing.first()) else {
        return Ok(false);
    };
    Ok(differing.iter().all(is_own) && test(e, first, runner)?)
}

/// A value as a condition writes it.
fn literal(value: &Json) -> Option<String> {
    match value {
        Json::Number(text) => Some(text.clone()),
        Json::Bool(value) => Some(value.to_string()),
        Json::Text(text) => Some(format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))),
        _ => None,
    }
}

/// Field of the call of `mode` that a cell is of.
fn argument_of_mode(e: &Evidence<'_>, cell: &Cell) -> Option<String> {
    let columns = text::columns(&e.text);
    if let [only] = columns.as_slice()
        && (only.starts_with("mode(*") || only.starts_with("mode(/"))
    {
        let names = cells::member(cells::series(&e.answers().ours).first()?, "columns")?;
        let name = names.items().get(cell.column)?.as_text()?;
        return Some(format!("\"{}\"", name.strip_prefix("mode_")?));
    }
    let call = columns.get(cell.column.checked_sub(1)?)?;
    Some(call.strip_prefix("mode(")?.split(')').next()?.to_owned())
}

/// Returns true if both count the two values equally often in the window.
fn is_as_frequent(e: &Evidence<'_>, cell: &Cell, runner: &mut Runner) -> Result<bool> {
    let Some(field) = argument_of_mode(e, cell) else { return Ok(false) };
    let mut counts = Vec::new();
    for value in [&cell.ours, &cell.theirs] {
        let Some(value) = literal(value) else { return Ok(false) };
        let counted = text::with_columns(&e.text, &format!("count({field})"));
        let counted = text::without_clause(&text::without_clause(&counted, " LIMIT "), " OFFSET ");
        let answers = e.ask(&text::with_condition(&counted, &format!("{field} = {value}")), runner)?;
        let series = cells::series(&answers.ours);
        let mut own = series
            .iter()
            .filter(|series| tags_of(series) == cell.tags)
            .flat_map(|series| cells::rows(series));
        let row = own.find(|row| row.items().first() == cell.our_row.first()).cloned();
        counts.push((answers.difference.is_none(), row));
    }
    Ok(counts[0].0 && counts[1].0 && counts[0].1.is_some() && counts[0].1 == counts[1].1)
}

fn tags_of(series: &Json) -> Json {
    cells::member(series, "tags").cloned().unwrap_or(Json::Null)
}

/// Returns true if both rows are points that are stored: all columns but the time, and that too if there are
/// no windows.
fn is_stored(e: &Evidence<'_>, cell: &Cell, runner: &mut Runner) -> Result<bool> {
    let points = text::with_calls(&e.text, "percentile", |arguments| {
        arguments.rsplit_once(", ").map_or(arguments, |(field, _)| field).to_owned()
    });
    let has_windows = e.text.contains("time(");
    let points = [" GROUP BY ", " LIMIT ", " OFFSET ", " SLIMIT ", " SOFFSET "]
        .iter()
        .fold(points, |text, clause| text::without_clause(&text, clause));
    let answers = e.ask(&points, runner)?;
    let skipped = usize::from(has_windows);
    let is_in = |row: &[Json], json: &Json| {
        cells::all_rows(json).iter().any(|point| point.items().get(skipped..) == row.get(skipped..))
    };
    Ok(is_in(&cell.our_row, &answers.theirs) && is_in(&cell.their_row, &answers.ours))
}

/// The statement with a rank that every window has a value of.
fn with_rank_100(statement: &str) -> String {
    text::with_calls(statement, "percentile", |arguments| {
        let field = arguments.rsplit_once(", ").map_or(arguments, |(field, _)| field);
        format!("percentile({field}, 100)")
    })
}

/// Returns true if both agree about each call by itself, integrals but for their times. Each series may have
/// points at other times, or only points within bounds.
fn differs_in_times_of_integrals(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    for text in [e.text.clone(), e.text.replace(TIED, APART), bounded(&e.text, &["f"])] {
        if differs_in_times(e, &text, runner)? {
            return Ok(true);
        }
    }
    is_outside_of_range(e, runner)
}

/// Returns true if both agree about integrals of a subquery without ranges: the time of an integral is
/// outside of the range of the outer statement, which then has no row or another time.
fn is_outside_of_range(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let is_meant = |inner: &&str| inner.contains("integral(") && !inner.contains("time(");
    let answers = e.answers();
    let is_lost = cells::all_rows(&answers.theirs).is_empty()
        || cells::same_but_for_times(&answers.ours, &answers.theirs);
    if !is_lost || !text::subqueries(&e.text).iter().any(is_meant) {
        return Ok(false);
    }
    e.agree_about(&text::without_clause(&e.text, " WHERE "), runner)
}

fn differs_in_times(e: &Evidence<'_>, statement: &str, runner: &mut Runner) -> Result<bool> {
    let columns = text::columns(statement);
    let calls = columns.iter().flat_map(|column| text::operands(column)).filter(|text| text.contains('('));
    for call in calls {
        let answers = e.ask(&text::with_columns(statement, call), runner)?;
        let is_same = match call.contains("integral(") {
            true => cells::same_but_for_times(&answers.ours, &answers.theirs),
            // Any point among equal values has the percentile.
            false if call.contains("percentile(") => {
                answers.agree() || cells::same_but_for_times(&answers.ours, &answers.theirs)
            }
            false => answers.agree(),
        };
        if !is_same || cells::all_rows(&answers.ours).is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Values between these are far from the limits of floats and integers. InfluxQL has no exponents.
const LEAST: &str = "0.00001";
const GREATEST: &str = "1000000000000000.0";

/// The statement about points whose `fields` are far from the limits of floats and integers.
fn bounded(statement: &str, fields: &[&str]) -> String {
    fields.iter().fold(statement.to_owned(), |text, field| {
        text::with_condition(&text, &format!("{field} > {LEAST} AND {field} < {GREATEST}"))
    })
}

/// The statement with one call for each field of numbers in the place of a call of all fields.
fn written_out(e: &Evidence<'_>, name: &str) -> String {
    let calls = text::calls_of(&e.text, name);
    let wild = calls.iter().find(|call| call.contains("(*") || call.contains("(/"));
    let Some((call, select)) = wild.and_then(|call| Some((call, text::enclosing_select(&e.text, call)?)))
    else {
        return e.text.clone();
    };
    let Some(measurement) =
        MEASUREMENTS.iter().find(|measurement| select.contains(&format!("FROM {}", measurement.name)))
    else {
        return e.text.clone();
    };
    e.text.replace(call.as_str(), &calls_of_fields(name, call, measurement).join(", "))
}

/// A call of all fields as one call for each field of numbers.
fn calls_of_fields(name: &str, call: &str, measurement: &Measurement) -> Vec<String> {
    let rest = call.split_once(',').map_or(")".to_owned(), |(_, rest)| format!(",{rest}"));
    measurement.numbers().iter().map(|field| format!("{name}({}{rest}", field.name)).collect()
}

/// Returns true if both agree about the integral of each field by itself, instead of all fields together.
fn agree_about_each_integral(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let calls = text::calls_of(&e.text, "integral");
    let wild = calls.iter().find(|call| call.contains("(*") || call.contains("(/"));
    let is_read = |measurement: &&Measurement| e.text.contains(measurement.name);
    let (Some(wild), Some(measurement)) = (wild, MEASUREMENTS.iter().find(is_read)) else { return Ok(false) };
    for call in calls_of_fields("integral", wild, measurement) {
        let single = e.text.replace(wild.as_str(), &text::as_floats(&call, "integral"));
        let apart = single.replace(TIED, APART);
        // Without windows, the time is another one.
        let differs_in_times = !e.text.contains("time(") && differs_in_times(e, &apart, runner)?;
        if !differs_in_times && !e.agree_about(&single, runner)? && !e.agree_about(&apart, runner)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if both agree about the mean of floats, and a sum of these is beyond what an integer holds.
fn sum_exceeds_integers(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    const INTEGER_MAX: f64 = 9.2e18;
    let floats = text::as_floats(&written_out(e, "mean"), "mean");
    if !e.agree_about(&floats, runner)? {
        return Ok(false);
    }
    let sums = e.ask(&text::with_calls(&floats, "mean", |argument| format!("sum({argument})")), runner)?;
    let exceeds = |cell: &Json| match cell {
        Json::Number(text) => text.parse::<f64>().is_ok_and(|sum| sum.abs() >= INTEGER_MAX),
        _ => false,
    };
    Ok(cells::all_rows(&sums.ours).iter().any(|row| row.items().iter().skip(1).any(exceeds)))
}

/// Returns true if both agree without SLIMIT and SOFFSET, and the index has other series than the policy:
/// with tsi1 the series of some shards only, else the series of all policies.
fn counts_other_groups(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let text = text::without_clause(&text::without_clause(&e.text, " SLIMIT "), " SOFFSET ");
    if !e.agree_about(&text, runner)? && !e.agree_about(&text.replace(TIED, APART), runner)? {
        return Ok(false);
    }
    let is_read = |measurement: &&Measurement| e.text.contains(measurement.name);
    for measurement in MEASUREMENTS.iter().filter(is_read) {
        let mut groups = Vec::new();
        for policy in DATABASES[0].1 {
            let text = format!("SELECT count(/./) FROM \"{policy}\".{} GROUP BY *", measurement.name);
            let answers = e.ask(&text, runner)?;
            let tags = cells::series(&answers.theirs).into_iter().map(tags_of).collect::<Vec<_>>();
            groups.push(tags);
        }
        if runner.has_tsi || groups.windows(2).any(|pair| pair[0] != pair[1]) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if transformations have rows in InfluxDB alone, and what they read has none in both.
fn reads_before_empty_range(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let is_transformation = |name: &&str| e.text.contains(&format!("{name}("));
    let Some(name) = TRANSFORMATIONS.into_iter().find(is_transformation) else { return Ok(false) };
    let inner = text::with_calls(&e.text, name, |arguments| {
        let inner = format!("SELECT {arguments} FROM m");
        text::columns(&inner).swap_remove(0)
    });
    let answers = e.ask(&inner, runner)?;
    let has_rows = |json: &Json| !cells::all_rows(json).is_empty();
    Ok(!has_rows(&e.answers().ours)
        && has_rows(&e.answers().theirs)
        && answers.difference.is_none()
        && !has_rows(&answers.ours)
        && inner != e.text)
}

/// Transformations that read a window before their range.
const TRANSFORMATIONS: [&str; 14] = [
    "non_negative_difference",
    "non_negative_derivative",
    "triple_exponential_derivative",
    "difference",
    "derivative",
    "elapsed",
    "triple_exponential_moving_average",
    "double_exponential_moving_average",
    "exponential_moving_average",
    "kaufmans_adaptive_moving_average",
    "kaufmans_efficiency_ratio",
    "moving_average",
    "relative_strength_index",
    "chande_momentum_oscillator",
];

/// Returns true if both agree about other kinds of fill, and there are windows before and after 1970:
/// InfluxDB divides times by the width, rounded towards 0.
fn is_linear_around_1970(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let rows = cells::all_rows(&e.answers().ours);
    let times: Vec<i128> = rows
        .iter()
        .filter_map(|row| match row.items().first() {
            Some(Json::Number(text)) => text.parse().ok(),
            _ => None,
        })
        .collect();
    if !times.iter().any(|time| *time < 0) || !times.iter().any(|time| *time >= 0) {
        return Ok(false);
    }
    for kind in ["none", "previous"] {
        if !e.agree_about(&e.text.replace("fill(linear)", &format!("fill({kind})")), runner)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if only numbers differ, and by less than `error` of the greatest of them.
fn are_near(answers: &Answers, error: f64) -> bool {
    let number = |json: &Json| match json {
        Json::Number(text) => text.parse::<f64>().ok(),
        _ => None,
    };
    let Some(differing) = cells::differing(&answers.ours, &answers.theirs) else { return false };
    let pairs: Option<Vec<(f64, f64)>> =
        differing.iter().map(|cell| Some((number(&cell.ours)?, number(&cell.theirs)?))).collect();
    let Some(pairs) = pairs else { return false };
    let greatest = pairs.iter().map(|(ours, theirs)| ours.abs().max(theirs.abs())).fold(0.0, f64::max);
    pairs.iter().all(|(ours, theirs)| (ours - theirs).abs() <= error * greatest)
}

/// Returns true if only numbers differ, each by 1 at most: one side rounds up.
fn differ_by_at_most_one(answers: &Answers) -> bool {
    let number = |json: &Json| match json {
        Json::Number(text) => text.parse::<f64>().ok(),
        _ => None,
    };
    let Some(differing) = cells::differing(&answers.ours, &answers.theirs) else { return false };
    differing.iter().all(|cell| match (number(&cell.ours), number(&cell.theirs)) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= 1.0,
        _ => false,
    })
}

/// Returns true if both agree about what `holt_winters` reads, and only its columns differ, or numbers that
/// are near each other.
fn differs_in_forecasts(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    const ERROR: f64 = 0.01;
    let inner = ["holt_winters_with_fit", "holt_winters"].iter().fold(e.text.clone(), |text, name| {
        text::with_calls(&text, name, |arguments| {
            let mut parts = arguments.rsplitn(3, ", ");
            parts.nth(2).unwrap_or(arguments).to_owned()
        })
    });
    let columns = text::columns(&e.text);
    let is_forecast = |cell: &Cell| {
        let column = cell.column.checked_sub(1).and_then(|idx| columns.get(idx).or(columns.first()));
        column.is_some_and(|column| column.contains("holt_winters"))
    };
    let differing = cells::differing(&e.answers().ours, &e.answers().theirs);
    let is_own = differing.is_some_and(|differing| differing.iter().all(is_forecast));
    Ok((is_own || are_near(e.answers(), ERROR))
        && inner != e.text
        && e.ask(&inner, runner)?.difference.is_none())
}

/// Returns true if both have a type error without conditions, or for the subquery by itself: it does not
/// depend on the selected columns.
fn have_a_type_error(e: &Evidence<'_>, runner: &mut Runner) -> Result<bool> {
    let unlimited = text::without_clause(&text::without_clause(&e.text, " SLIMIT "), " SOFFSET ");
    let unconditional = text::without_clause(&unlimited, " WHERE ");
    let range = "time >= 1700430000s AND time < 1700445000s";
    let bounded = text::with_condition(&unconditional, range);
    let has_error = |json: &Json| crate::compare::print(json).contains("\"error\"");
    for text in [unconditional.as_str(), &bounded].into_iter().chain(text::subqueries(&e.text)) {
        let answers = e.ask(text, runner)?;
        if answers.difference.is_none() && has_error(&answers.ours) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if one answer is a type error and the other has no series.
fn is_type_error_or_nothing(e: &Evidence<'_>) -> bool {
    let texts = [&e.difference().ours, &e.difference().theirs];
    let is_error = |text: &&String| text.contains("iterator type") || text.contains("type error: ");
    let is_empty = |text: &&String| !text.contains("\"series\"") && !text.contains("\"error\"");
    texts.iter().any(is_error) && texts.iter().any(is_empty)
}
