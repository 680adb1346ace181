//! SHOW statements.

use crate::chooser::Chooser;
use crate::piece::Piece;
use crate::schema::{MEASUREMENTS, Measurement};

const LISTS: [&str; 5] = ["SERIES", "TAG KEYS", "FIELD KEYS", "MEASUREMENTS", "TAG VALUES"];

/// One SHOW statement; `database` is the one of the script, or empty.
pub(crate) fn show(chooser: Chooser<'_>, database: &str) -> Piece {
    let c = chooser;
    let measurement = *c.pick(&MEASUREMENTS);
    match c.below(20) {
        0 => return Piece::text("SHOW DATABASES"),
        1 => return Piece::text("SHOW RETENTION POLICIES"),
        2 => return Piece::text(format!("SHOW RETENTION POLICIES ON {}", on_name(c, database))),
        3 => return cardinality(c, measurement),
        _ => {}
    }
    let list = *c.pick(&LISTS);
    let mut parts = vec![Piece::text(format!("SHOW {list}"))];
    if c.percent(20) {
        parts.push(Piece::optional_text(format!(" ON {}", on_name(c, database))));
    }
    match list {
        "MEASUREMENTS" if c.percent(50) => {
            let form = match c.below(4) {
                0 => format!("= {}", measurement.name),
                1 => format!("!= {}", measurement.name),
                2 => format!("=~ /{}/", c.pick(&["^c", ".", "u|i", "zz"])),
                _ => format!("!~ /{}/", c.pick(&["^c", ".", "zz"])),
            };
            parts.push(Piece::optional_text(format!(" WITH MEASUREMENT {form}")));
        }
        "MEASUREMENTS" => {}
        _ if c.percent(65) => parts.push(Piece::optional_text(format!(" FROM {}", source(c, measurement)))),
        _ => {}
    }
    if list == "TAG VALUES" {
        parts.push(Piece::text(format!(" WITH KEY {}", key(c, measurement))));
    }
    if list != "FIELD KEYS" && c.percent(40) {
        parts.push(Piece::optional(Piece::wrapped(" WHERE ", predicate(c, measurement, 2), "")));
    }
    if c.percent(25) {
        parts.push(Piece::optional_text(format!(" LIMIT {}", c.between(0, 4))));
    }
    if c.percent(15) {
        parts.push(Piece::optional_text(format!(" OFFSET {}", c.between(0, 3))));
    }
    if c.percent(3) {
        parts.push(Piece::optional_text(" SLIMIT 1"));
    }
    Piece::Sequence(parts)
}

fn on_name(c: Chooser<'_>, database: &str) -> String {
    if !database.is_empty() {
        return database.to_owned();
    }
    (*c.pick(&["d0", "\"d two\"", "\"d0\"", "nodb"])).to_owned()
}

fn source(c: Chooser<'_>, measurement: Measurement) -> String {
    match c.below(8) {
        0 => format!("/{}/", c.pick(&["^c", ".", "zzz", "s$"])),
        1 => format!("{}, {}", measurement.name, c.pick(&MEASUREMENTS).name),
        2 => "absent".to_owned(),
        3 => format!("autogen.{}", measurement.name),
        _ => measurement.name.to_owned(),
    }
}

fn tag(c: Chooser<'_>, measurement: Measurement) -> &'static str {
    if measurement.tags.is_empty() || c.percent(10) {
        return c.pick::<&str>(&["host", "absent", "\"select\""]);
    }
    c.pick(measurement.tags).name
}

fn key(c: Chooser<'_>, measurement: Measurement) -> String {
    match c.below(8) {
        0 => format!("!= {}", tag(c, measurement)),
        1 => format!("=~ /{}/", c.pick(&["^h", ".", "o", "zz"])),
        2 => format!("!~ /{}/", c.pick(&["^h", ".", "zz"])),
        3 => format!("IN ({}, {})", tag(c, measurement), tag(c, measurement)),
        _ => format!("= {}", tag(c, measurement)),
    }
}

fn predicate(c: Chooser<'_>, measurement: Measurement, depth: usize) -> Piece {
    if depth > 0 && c.percent(30) {
        let parts = vec![predicate(c, measurement, depth - 1), predicate(c, measurement, depth - 1)];
        return Piece::wrapped("(", Piece::List(parts, c.pick::<&str>(&[" AND ", " OR "])), ")");
    }
    let name = tag(c, measurement);
    Piece::text(match c.below(10) {
        0 => format!("{name} =~ /{}/", c.pick(&["a", "^$", "^[ab]$", "."])),
        1 => format!("{name} !~ /{}/", c.pick(&["a", "^$", "."])),
        2 => format!("{name} != 'a'"),
        3 => format!("{name} = ''"),
        4 => format!("{name} != ''"),
        5 if !measurement.fields.is_empty() => format!("{} > 1", c.pick(measurement.fields).name),
        6 => "time > 0".to_owned(),
        _ => format!("{name} = '{}'", c.pick(&["a", "b", "eu", "1", "p", "a b"])),
    })
}

fn cardinality(c: Chooser<'_>, measurement: Measurement) -> Piece {
    let exact = c.pick(&[" EXACT", " EXACT", ""]);
    let from = if c.percent(60) { format!(" FROM {}", measurement.name) } else { String::new() };
    let filter = Piece::optional(Piece::wrapped(" WHERE ", predicate(c, measurement, 1), ""));
    let filter = if c.percent(30) { filter } else { Piece::empty() };
    let grouping = if c.percent(10) { " GROUP BY host" } else { "" };
    let (list, key) = match c.below(5) {
        0 => ("SERIES", String::new()),
        1 => ("MEASUREMENT", String::new()),
        2 => ("TAG KEY", String::new()),
        3 => ("FIELD KEY", String::new()),
        _ => ("TAG VALUES", format!(" WITH KEY {}", key(c, measurement))),
    };
    Piece::Sequence(vec![
        Piece::text(format!("SHOW {list}{exact} CARDINALITY")),
        Piece::optional_text(from),
        Piece::text(key),
        filter,
        Piece::optional_text(grouping),
    ])
}
