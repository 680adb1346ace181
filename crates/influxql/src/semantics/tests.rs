//! Tests of the checks: a table of SELECTs with fields, dimensions, columns and types after expansion, or the
//! error, as InfluxDB 1.8.10's own code gives them.

use crate::ast::{DataType, Expr, Measurement, MeasurementName, OrderBy, Statement};
use crate::condition::TimeBounds;
use crate::error::SemanticError;
use crate::parse_statement;

use super::{CheckedSelect, CheckedSource, Schema, check_select, expand_select, type_of};

const NOW_NS: i64 = 1_600_000_000_123_456_789;

/// Measurements `cpu` and `mem`.
pub(crate) struct TwoMeasurements;

impl Schema for TwoMeasurements {
    type Error = SemanticError;

    fn measurements(&self, pattern: &Measurement) -> Result<Vec<String>, SemanticError> {
        Ok(match &pattern.name {
            MeasurementName::Name(name) => vec![name.clone()],
            MeasurementName::Regex(regex) => {
                let regex = regex.compile().unwrap();
                ["cpu", "mem"].into_iter().filter(|name| regex.is_match(name)).map(str::to_owned).collect()
            }
        })
    }

    fn fields(&self, pattern: &Measurement) -> Result<Vec<(String, DataType)>, SemanticError> {
        use DataType as T;
        let mut fields = Vec::new();
        for name in self.measurements(pattern)? {
            let own: &[(&str, T)] = match name.as_str() {
                "cpu" => &[
                    ("f", T::Float),
                    ("i", T::Integer),
                    ("u", T::Unsigned),
                    ("s", T::String),
                    ("b", T::Boolean),
                    ("both", T::Float),
                ],
                "mem" => &[("free", T::Integer), ("i", T::Float)],
                _ => &[],
            };
            fields.extend(own.iter().map(|(name, kind)| ((*name).to_owned(), *kind)));
        }
        Ok(fields)
    }

    fn has_values_of(
        &self,
        pattern: &Measurement,
        field: &str,
        kind: DataType,
    ) -> Result<bool, SemanticError> {
        Ok(self.fields(pattern)?.iter().any(|(name, own)| name == field && *own == kind))
    }

    fn tag_keys(&self, pattern: &Measurement) -> Result<Vec<String>, SemanticError> {
        let mut tags = Vec::new();
        for name in self.measurements(pattern)? {
            tags.extend(match name.as_str() {
                "cpu" => ["host", "region", "both"].as_slice(),
                "mem" => ["host", "dc"].as_slice(),
                _ => &[],
            });
        }
        Ok(tags.into_iter().map(str::to_owned).collect())
    }
}

fn checked(text: &str) -> Result<CheckedSelect, String> {
    match parse_statement(text) {
        Ok(Statement::Select(select)) => check_select(*select, NOW_NS).map_err(|error| error.to_string()),
        Ok(other) => panic!("{other} is no SELECT"),
        Err(error) => Err(format!("PARSE {error}")),
    }
}

fn render(text: &str) -> Result<String, String> {
    let expanded = expand_select(checked(text)?, &TwoMeasurements).map_err(|error| error.to_string())?;
    let fields: Vec<String> = expanded.fields.iter().map(ToString::to_string).collect();
    let dimensions: Vec<String> = expanded.dimensions.iter().map(ToString::to_string).collect();
    let types: Vec<&str> = expanded.fields.iter().map(|field| type_of(&field.expr).unwrap().name()).collect();
    Ok(format!("{fields:?} {dimensions:?} {:?} {types:?}", expanded.column_names()))
}

#[test]
fn selects_of_the_table() {
    let lines: Vec<&str> = include_str!("tests/selects.txt").lines().collect();
    let mut different = Vec::new();
    for pair in lines.chunks(2) {
        let got = render(pair[0]).unwrap_or_else(|error| format!("error: {error}"));
        if got != pair[1].trim_start() {
            different.push(format!("{}\n  want {}\n  got  {got}", pair[0], pair[1]));
        }
    }
    assert!(different.is_empty(), "{} of {}\n{}", different.len(), lines.len() / 2, different.join("\n"));
    assert!(lines.len() > 600, "{} lines", lines.len());
}

#[test]
fn subqueries_inherit_order_and_windows() {
    let text = "SELECT mean(m) FROM (SELECT max(f) AS m FROM cpu WHERE time < 90) WHERE time >= 10 AND time < 100 \
                GROUP BY time(10s) ORDER BY time DESC";
    let outer = checked(text).unwrap();
    let [CheckedSource::Select(inner)] = outer.sources.as_slice() else { panic!("no subquery") };
    assert_eq!(inner.order, OrderBy::Descending);
    // The subquery has times of its own: a call of the outer query may read windows before the outer range.
    assert_eq!(inner.bounds, TimeBounds { min_ns: None, max_ns: Some(89) });
    let interval = inner.interval.unwrap();
    assert!(interval.is_inherited);
    assert_eq!(interval.width_ns, 10_000_000_000);
}

#[test]
fn windows_without_an_end_end_now() {
    let bounds = |text: &str| checked(text).unwrap().bounds;
    assert_eq!(bounds("SELECT mean(f) FROM cpu GROUP BY time(1m)").max_ns, Some(NOW_NS));
    assert_eq!(bounds("SELECT mean(f) FROM cpu WHERE time < 5 GROUP BY time(1m)").max_ns, Some(4));
    assert_eq!(bounds("SELECT mean(f) FROM cpu").max_ns, None);
}

#[test]
fn windows_that_transformations_read_have_types() {
    let range = |calls: &str, rest: &str| {
        let text = format!("SELECT {calls} FROM cpu WHERE time >= 600s AND time < 660s {rest}");
        let range = checked(&text).unwrap().schema_range();
        (range.start / 1_000_000_000, range.end / 1_000_000_000)
    };
    assert_eq!(range("mean(f)", "GROUP BY time(1m)"), (600, 660));
    assert_eq!(range("difference(f)", ""), (600, 660));
    assert_eq!(range("difference(mean(f))", "GROUP BY time(1m)"), (540, 660));
    assert_eq!(range("derivative(mean(f), 5s)", "GROUP BY time(2m)"), (480, 660));
    assert_eq!(range("2 * abs(moving_average(mean(f), 3)), max(f)", "GROUP BY time(1m)"), (420, 660));
    assert_eq!(range("difference(moving_average(mean(f), 2))", "GROUP BY time(1m)"), (480, 660));
    assert_eq!(range("holt_winters(mean(f), 5, 0)", "GROUP BY time(1m)"), (600, 660));
    assert_eq!(range("difference(mean(f))", "GROUP BY time(1m) ORDER BY time DESC"), (600, 720));
    let ranges = |text: &str| checked(text).unwrap().schema_range();
    let empty = ranges("SELECT difference(mean(f)) FROM cpu WHERE time > 9s AND time < 1s GROUP BY time(1m)");
    assert!(empty.is_empty());
    let open = ranges("SELECT difference(mean(f)) FROM cpu WHERE time < 1s GROUP BY time(1m)");
    assert_eq!(open.start, crate::time::TIME_MIN_NS);
}

#[test]
fn windows_have_offsets() {
    let offset = |text: &str| {
        checked(&format!("SELECT mean(f) FROM cpu GROUP BY time({text})"))
            .unwrap()
            .interval
            .unwrap()
            .offset_ns
    };
    assert_eq!(offset("1m"), 0);
    assert_eq!(offset("1m, 10s"), 10_000_000_000);
    assert_eq!(offset("1m, -70s"), -10_000_000_000);
    assert_eq!(offset("1m, now()"), 40_123_456_789);
    assert_eq!(offset("1h, '2020-01-01 00:10:00'"), 600_000_000_000);
}

#[test]
fn conditions_are_typed() {
    let expanded = expand_select(
        checked("SELECT f FROM cpu WHERE host = 'a' AND i > 1 AND both = 2 AND time > 0 AND nope = 1")
            .unwrap(),
        &TwoMeasurements,
    )
    .unwrap();
    let condition = expanded.condition.as_ref().map(Expr::to_string);
    let want = "host::tag = 'a' AND i::integer > 1 AND both::float = 2 AND nope = 1";
    assert_eq!(condition.as_deref(), Some(want));
}

#[test]
fn measurements_of_a_regex_are_expanded_together() {
    let got = render("SELECT * FROM /./ WHERE f > 1").unwrap();
    assert!(
        got.contains(r#""time", "b", "both", "both_1", "dc", "f", "free", "host", "i", "region", "s", "u""#),
        "{got}"
    );
}
