//! SELECT statements by the grammar, weighted by what dashboards send.

use crate::call::{CallKind, Calls};
use crate::chooser::Chooser;
use crate::dataset::DATABASES;
use crate::piece::Piece;
use crate::schema::{MEASUREMENTS, Measurement};

/// Depth of subqueries.
const DEPTH_MAX: usize = 3;
const ZONES: [&str; 5] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata"];
const WIDTHS: [&str; 8] = ["1m", "30s", "5m", "90s", "1h", "17s", "10m", "1d"];

/// Result of a statement that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Raw,
    /// Aggregates, or one selector.
    Calls {
        windows: bool,
    },
    /// Transformation of points.
    PointWise,
}

/// Writes one SELECT.
pub(crate) fn select(chooser: Chooser<'_>) -> Piece {
    select_from(chooser, 0)
}

fn select_from(chooser: Chooser<'_>, depth: usize) -> Piece {
    let measurement = *chooser.pick(&MEASUREMENTS);
    let shape = match chooser.below(100) {
        0..28 => Shape::Raw,
        28..42 => Shape::PointWise,
        42..60 => Shape::Calls { windows: false },
        _ => Shape::Calls { windows: true },
    };
    let writer = Writer { chooser, calls: Calls { chooser, measurement }, measurement };
    if depth < DEPTH_MAX && chooser.percent(14) {
        return writer.over_subquery(shape, depth);
    }
    let source = writer.source();
    Piece::Sequence(vec![
        Piece::text("SELECT "),
        writer.columns(shape),
        Piece::text(" FROM "),
        source,
        writer.condition(shape),
        writer.grouping(shape),
        writer.tail(),
    ])
}

#[derive(Clone, Copy)]
struct Writer<'r> {
    chooser: Chooser<'r>,
    calls: Calls<'r>,
    measurement: Measurement,
}

impl Writer<'_> {
    /// The columns of a subquery have names by alias, so that the outer statement can refer to them.
    fn over_subquery(self, shape: Shape, depth: usize) -> Piece {
        let c = self.chooser;
        if c.percent(25) {
            // The inner statement is any statement; the outer one takes what it gives.
            let inner = select_from(c, depth + 1);
            let columns =
                *c.pick(&["*", "*::field", "count(*)", "max(/./)", "mean(x)", "v, usage", "last(*)"]);
            return Piece::Sequence(vec![
                Piece::text(format!("SELECT {columns} FROM (")),
                inner,
                Piece::text(")"),
                self.condition(shape),
                self.grouping(shape),
                self.tail(),
            ]);
        }
        let inner_shape =
            *c.pick(&[Shape::Raw, Shape::Calls { windows: true }, Shape::Calls { windows: false }, shape]);
        let inner_column = match inner_shape {
            Shape::Raw => Piece::text(self.calls.number()),
            _ => self.one_call(inner_shape),
        };
        let alias = self.measurement.numbers().first().map_or("v", |field| field.name);
        let mut inner = vec![
            Piece::text("SELECT "),
            inner_column,
            Piece::text(format!(" AS {alias} FROM {}", self.measurement.name)),
            self.condition(inner_shape),
            self.grouping(inner_shape),
        ];
        if c.percent(15) {
            inner.push(self.tail());
        }
        Piece::Sequence(vec![
            Piece::text("SELECT "),
            self.columns(shape),
            Piece::text(" FROM "),
            Piece::wrapped("(", Piece::Sequence(inner), ")"),
            self.condition(shape),
            self.grouping(shape),
            self.tail(),
        ])
    }

    fn columns(self, shape: Shape) -> Piece {
        let c = self.chooser;
        let count = c.weighted(&[(6, 1), (3, 2), (1, 3)]);
        let mut items = Vec::new();
        match shape {
            Shape::Raw => {
                for _ in 0..count {
                    items.push(self.raw_column());
                }
            }
            Shape::Calls { .. } if c.percent(12) => items.push(self.calls.many_points()),
            Shape::Calls { .. } if c.percent(15) => {
                items.push(self.aliased(self.calls.call(CallKind::Selector)));
                items.push(Piece::text(self.calls.field()));
            }
            _ => {
                for _ in 0..count {
                    items.push(self.aliased(self.computed(self.one_call(shape), shape)));
                }
            }
        }
        Piece::List(items, ", ")
    }

    fn one_call(self, shape: Shape) -> Piece {
        let c = self.chooser;
        let kind = match shape {
            Shape::PointWise => CallKind::Transformation { windows: false },
            Shape::Calls { windows } => c.weighted(&[
                (50, CallKind::Aggregate),
                (30, CallKind::Selector),
                (if windows { 25 } else { 3 }, CallKind::Transformation { windows: true }),
                (1, CallKind::Any),
            ]),
            Shape::Raw => CallKind::Any,
        };
        self.calls.call(kind)
    }

    /// Arithmetic or a mathematical function around a call, at times.
    fn computed(self, call: Piece, shape: Shape) -> Piece {
        let c = self.chooser;
        match c.below(20) {
            0 => self.calls.math(call),
            1 | 2 => {
                let operator = c.pick(&["+", "-", "*", "/", "%"]);
                let constant = c.pick(&["2", "100", "0", "1.5", "-3", "0.0"]);
                Piece::wrapped("", call, format!(" {operator} {constant}"))
            }
            3 => {
                let operator = c.pick(&["+", "-", "*", "/"]);
                let other = self.one_call(shape);
                Piece::wrapped("", call, format!(" {operator} {other}"))
            }
            _ => call,
        }
    }

    fn raw_column(self) -> Piece {
        let c = self.chooser;
        let text = match c.below(30) {
            0..3 => "*".to_owned(),
            3 => "*::field".to_owned(),
            4 => "*::tag".to_owned(),
            5 => format!("/{}/", c.pick(&["^u", "v", ".", "t", "nothing", "^(x|y)$"])),
            6 | 7 => match self.measurement.tags {
                [] => self.calls.field(),
                tags => format!("{}{}", c.pick(tags).name, c.pick(&["", "::tag", "::field"])),
            },
            8 => format!("{}::{}", self.calls.field(), c.pick(&["float", "integer", "string", "boolean"])),
            9..14 => return self.aliased(self.arithmetic(2)),
            14 => return self.aliased(self.calls.math(Piece::text(self.calls.number()))),
            15 => format!("-{}", self.calls.number()),
            16 => return self.aliased(Piece::text(self.calls.field())),
            _ => self.calls.field(),
        };
        Piece::text(text)
    }

    fn arithmetic(self, depth: usize) -> Piece {
        let c = self.chooser;
        if depth == 0 || c.percent(20) {
            return Piece::text(match c.below(4) {
                0 => (*c.pick(&["2", "3.5", "0", "-1", "9223372036854775807", "1e3", "10"])).to_owned(),
                _ => self.calls.number(),
            });
        }
        let operator =
            c.weighted(&[(5, "+"), (5, "-"), (5, "*"), (6, "/"), (3, "%"), (2, "&"), (2, "|"), (2, "^")]);
        let left = self.arithmetic(depth - 1);
        let right = self.arithmetic(depth - 1);
        if c.percent(40) {
            return Piece::wrapped("(", left, format!(" {operator} {right})"));
        }
        Piece::wrapped("", left, format!(" {operator} {right}"))
    }

    fn aliased(self, piece: Piece) -> Piece {
        let c = self.chooser;
        if c.percent(80) {
            return piece;
        }
        let alias = c.pick(&["x", "\"a b\"", "mean", "time", "v", "value_1"]);
        Piece::Sequence(vec![piece, Piece::optional_text(format!(" AS {alias}"))])
    }

    fn source(self) -> Piece {
        let c = self.chooser;
        let name = self.measurement.name;
        let (database, policies) = c.pick(&DATABASES);
        let policy = c.pick(policies);
        Piece::text(match c.below(40) {
            0 => format!("{name}, {}", c.pick(&MEASUREMENTS).name),
            1 => format!("/{}/", c.pick(&["^c", "i", ".", "^(cpu|old)$", "zzz"])),
            2 => format!("\"{database}\".\"{policy}\".{name}"),
            3 => format!("\"{database}\"..{name}"),
            4 => format!("\"{policy}\".{name}"),
            5 => (*c.pick(&["absent", "absent, cpu", "nodb..cpu", "norp.cpu"])).to_owned(),
            _ => name.to_owned(),
        })
    }

    fn condition(self, shape: Shape) -> Piece {
        let c = self.chooser;
        let mut parts = Vec::new();
        let needs_range = shape == Shape::Calls { windows: true };
        if needs_range || c.percent(40) {
            let range = self.range();
            // A range of windows has to stay as it is, or a reduced statement counts windows up to the
            // present.
            parts.push(if needs_range { Piece::text(range.to_string()) } else { range });
        }
        if c.percent(35) {
            parts.push(self.predicate(2));
        }
        if parts.is_empty() {
            return Piece::empty();
        }
        if needs_range {
            let range = parts.remove(0);
            let rest = parts.into_iter().map(|part| Piece::optional(Piece::wrapped(" AND ", part, "")));
            let rest = rest.collect();
            return Piece::Sequence(vec![Piece::text(" WHERE "), range, Piece::Sequence(rest)]);
        }
        Piece::optional(Piece::wrapped(" WHERE ", Piece::List(parts, " AND "), ""))
    }

    /// Conditions on time with an end.
    fn range(self) -> Piece {
        let c = self.chooser;
        let m = self.measurement;
        let span = (m.end() - m.start).max(1);
        let (low, high) =
            (m.start + c.between(-span / 3, span / 2), m.end() + c.between(-span / 3, span / 3));
        let (low, high) = (low.min(high), low.max(high));
        let lower = format!("time {} {}", c.pick(&[">=", ">", ">="]), self.time(low));
        let upper = format!("time {} {}", c.pick(&["<", "<=", "<"]), self.time(high));
        if c.percent(5) {
            return Piece::text(format!("time = {}", self.time(low)));
        }
        Piece::List(vec![Piece::text(lower), Piece::text(upper)], " AND ")
    }

    /// A time in one of its forms.
    fn time(self, seconds: i64) -> String {
        let c = self.chooser;
        match c.below(8) {
            0 => format!("{seconds}s"),
            1 => format!("{}", seconds * 1_000_000_000 + c.between(0, 2)),
            2 => format!("{}ms", seconds * 1000),
            3 => format!("'{}'", rfc3339(seconds, "T", "Z")),
            4 => format!("'{}'", rfc3339(seconds, " ", "")),
            5 => format!("'{}'", rfc3339(seconds, "T", ".500Z")),
            6 => format!("'{}' {} 1m", rfc3339(seconds, "T", "Z"), c.pick(&["+", "-"])),
            _ => format!("{}u", seconds * 1_000_000),
        }
    }

    fn predicate(self, depth: usize) -> Piece {
        let c = self.chooser;
        if depth > 0 && c.percent(35) {
            let (left, right) = (self.predicate(depth - 1), self.predicate(depth - 1));
            let operator = c.pick(&[" AND ", " OR "]);
            return Piece::wrapped("(", Piece::List(vec![left, right], operator), ")");
        }
        let tags = self.measurement.tags;
        let text = match c.below(12) {
            0..5 if !tags.is_empty() => {
                let tag = c.pick(tags);
                let value = tag.values[c.below(tag.values.len())].replace('\\', "").replace('\'', "\\'");
                match c.below(6) {
                    0 => format!("{} =~ /{}/", tag.name, c.pick(&["a", "^$", "^[ab]$", "."])),
                    1 => format!("{} !~ /{}/", tag.name, c.pick(&["a", "^$", "^[ab]$"])),
                    2 => format!("{}::tag = '{value}'", tag.name),
                    3 => format!("{} != '{value}'", tag.name),
                    _ => format!("{} = '{value}'", tag.name),
                }
            }
            5 => format!("absent {} 'x'", c.pick(&["=", "!="])),
            6 => {
                format!("{} {} {}", self.calls.number(), c.pick(&["=", "!="]), c.pick(&["'a'", "true", "10"]))
            }
            7 => format!("{} = {}", self.calls.field(), c.pick(&["'on'", "true", "''", "10"])),
            8 => format!("{} + {} > 10", self.calls.number(), self.calls.number()),
            9 => format!("{} / 7 {} 3", self.calls.number(), c.pick(&[">", "=", "<"])),
            10 => format!("{} =~ /o/", self.calls.field()),
            _ => format!(
                "{} {} {}",
                self.calls.number(),
                c.pick(&[">", "<", ">=", "<="]),
                c.pick(&["0", "10", "50.5", "1000", "-3", "1e3"])
            ),
        };
        Piece::text(text)
    }

    fn grouping(self, shape: Shape) -> Piece {
        let c = self.chooser;
        let mut dimensions = Vec::new();
        if shape == (Shape::Calls { windows: true }) {
            let offset = match c.below(8) {
                0 => ", 7s",
                1 => ", -1m",
                _ => "",
            };
            dimensions.push(Piece::text(format!("time({}{offset})", c.pick(&WIDTHS))));
        }
        if c.percent(45) && !self.measurement.tags.is_empty() {
            dimensions.push(Piece::text(c.pick(self.measurement.tags).name));
        }
        match c.below(25) {
            0 => dimensions.push(Piece::text("*")),
            1 => dimensions.push(Piece::text("/./")),
            2 => dimensions.push(Piece::text("absent")),
            _ => {}
        }
        if dimensions.is_empty() {
            return Piece::empty();
        }
        let grouping = Piece::wrapped(" GROUP BY ", Piece::List(dimensions, ", "), "");
        let fill = match c.below(12) {
            0 => " fill(none)",
            1 => " fill(0)",
            2 => " fill(previous)",
            3 => " fill(linear)",
            4 => " fill(null)",
            5 => " fill(-1.5)",
            _ => return Piece::optional(grouping),
        };
        Piece::optional(Piece::Sequence(vec![grouping, Piece::optional_text(fill)]))
    }

    fn tail(self) -> Piece {
        let c = self.chooser;
        let mut parts = Vec::new();
        match c.below(10) {
            0 | 1 => parts.push(Piece::optional_text(" ORDER BY time DESC")),
            2 => parts.push(Piece::optional_text(" ORDER BY time ASC")),
            _ => {}
        }
        if c.percent(15) {
            parts.push(Piece::optional_text(format!(" LIMIT {}", c.between(0, 6))));
        }
        if c.percent(8) {
            parts.push(Piece::optional_text(format!(" OFFSET {}", c.between(0, 5))));
        }
        if c.percent(6) {
            parts.push(Piece::optional_text(format!(" SLIMIT {}", c.between(0, 3))));
        }
        if c.percent(4) {
            parts.push(Piece::optional_text(format!(" SOFFSET {}", c.between(0, 3))));
        }
        if c.percent(10) {
            parts.push(Piece::optional_text(format!(" tz('{}')", c.pick(&ZONES))));
        }
        Piece::Sequence(parts)
    }
}

/// Time of a day as InfluxQL reads it.
fn rfc3339(seconds: i64, separator: &str, end: &str) -> String {
    let text = chronolith_base::utc::rfc3339_seconds(seconds * 1000);
    let text = text.trim_end_matches('Z').replace('T', separator);
    format!("{text}{end}")
}
