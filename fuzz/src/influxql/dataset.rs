//! Points of the shared databases, as bodies of line protocol.

use std::fmt::Write as _;

use crate::chooser::Chooser;
use crate::schema::{APART, BORDER, Field, Kind, MEASUREMENTS, Measurement, Shape, Spacing};

/// Databases with their retention policies; the first policy is the default one.
pub(crate) const DATABASES: [(&str, &[&str]); 2] = [("d0", &["autogen", "rp_1"]), ("d two", &["we ird"])];
/// Length of the shard groups of a policy that is not `autogen`.
const SHARD_DURATION: &str = "1d";
/// Nanoseconds between the points of one series and the next one.
const SERIES_DISTANCE: i64 = 1_000_003;
const INTEGERS: [i64; 12] = [
    0,
    1,
    -1,
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
    (1 << 53) - 1,
    1 << 53,
    (1 << 53) + 1,
    -(1 << 53) - 1,
    1_000_000_007,
    -42,
];
const FLOATS: [&str; 14] = [
    "-0",
    "0",
    "1.7976931348623157e308",
    "-1.7976931348623157e308",
    "5e-324",
    "0.1",
    "1e21",
    "1e20",
    "123456789012345680000",
    "1e-7",
    "0.000001",
    "-2.5",
    "9007199254740993",
    "3.5",
];
const TEXTS: [&str; 8] =
    ["", "a", "two words", "line\nbreak", "q\\\"uote", "back\\\\slash", "\u{e9}<&>\u{2028}", "a"];

/// Statements that create the shared databases.
pub(crate) fn statements() -> Vec<String> {
    let mut out = Vec::new();
    for (database, policies) in DATABASES {
        out.push(format!("CREATE DATABASE \"{database}\""));
        for (idx, policy) in policies.iter().enumerate().filter(|(_, policy)| **policy != "autogen") {
            let default = if idx == 0 { " DEFAULT" } else { "" };
            out.push(format!(
                "CREATE RETENTION POLICY \"{policy}\" ON \"{database}\" DURATION INF REPLICATION 1 \
                 SHARD DURATION {SHARD_DURATION}{default}"
            ));
        }
    }
    out
}

/// Body with all points of a policy.
pub(crate) fn body(chooser: Chooser<'_>) -> Vec<u8> {
    let mut lines = Vec::new();
    for measurement in &MEASUREMENTS {
        write_measurement(measurement, chooser, &mut lines);
    }
    // Some points are sent again with another value, and some out of order.
    for idx in 0..lines.len() {
        if chooser.percent(5) {
            let other = chooser.below(lines.len());
            lines.swap(idx, other);
        }
    }
    lines.concat().into_bytes()
}

fn write_measurement(measurement: &Measurement, chooser: Chooser<'_>, lines: &mut Vec<String>) {
    for (series_idx, tags) in series(measurement, chooser).into_iter().enumerate() {
        let later = series_idx as i64 * SERIES_DISTANCE;
        let gap = chooser.between(0, measurement.count);
        for idx in 0..measurement.count {
            // A stretch without points.
            if idx >= gap && idx < gap + 3 {
                continue;
            }
            let mut time = time_of(measurement, idx, chooser);
            if measurement.spacing == Spacing::Regular {
                time += later;
            } else if measurement.spacing == Spacing::Adjacent {
                time += idx * 10 + series_idx as i64;
            }
            let fields: Vec<String> = measurement
                .fields
                .iter()
                .filter(|field| chooser.percent(field.density))
                .map(|field| format!("{}={}", field.line, value(*field, idx, time, chooser)))
                .collect();
            if !fields.is_empty() {
                let fields = fields.join(",");
                lines.push(format!("{}{tags} {fields} {time}\n", measurement.line));
                if measurement.spacing == Spacing::Tied {
                    lines.push(format!("{APART}{tags} {fields} {}\n", time + later));
                }
            }
        }
    }
}

/// Tag sets; one combination in five is left out.
fn series(measurement: &Measurement, chooser: Chooser<'_>) -> Vec<String> {
    let mut all = vec![String::new()];
    for tag in measurement.tags {
        let mut longer = Vec::new();
        for base in &all {
            for value in tag.values {
                let mut text = base.clone();
                if !value.is_empty() {
                    let _ = write!(text, ",{}={value}", tag.line);
                }
                longer.push(text);
            }
        }
        all = longer;
    }
    let first = all.first().cloned();
    all.retain(|_| chooser.percent(80));
    if all.is_empty() {
        all.extend(first);
    }
    all
}

fn time_of(measurement: &Measurement, idx: i64, chooser: Chooser<'_>) -> i64 {
    let start = measurement.start * 1_000_000_000;
    match measurement.spacing {
        Spacing::Regular | Spacing::Tied => start + idx * measurement.step * 1_000_000_000,
        Spacing::Jittered => {
            let step = measurement.step * 1_000_000_000;
            start + idx * step + chooser.between(0, step - 1)
        }
        Spacing::Adjacent => start + idx - 3,
    }
}

fn value(field: Field, idx: i64, time: i64, chooser: Chooser<'_>) -> String {
    let kind = match field.kind {
        Kind::Changing if time < BORDER * 1_000_000_000 => Kind::Float,
        Kind::Changing => Kind::Integer,
        kind => kind,
    };
    let number = match field.shape {
        Shape::Gauge => chooser.between(-500, 1500),
        Shape::Counter if chooser.percent(8) => chooser.between(0, 20),
        Shape::Counter => idx * 1000 + chooser.between(0, 999),
        Shape::Constant => 75,
        Shape::Small => chooser.between(0, 3) * 10,
        Shape::Extreme => 0,
    };
    match (kind, field.shape) {
        (Kind::Float, Shape::Extreme) => (*chooser.pick(&FLOATS)).to_owned(),
        (Kind::Float | Kind::Changing, _) => format!("{}", number as f64 / 10.0),
        (Kind::Integer, Shape::Extreme) => format!("{}i", chooser.pick(&INTEGERS)),
        (Kind::Integer, _) => format!("{number}i"),
        (Kind::Boolean, _) => (*chooser.pick(&["true", "false"])).to_owned(),
        (Kind::Text, Shape::Extreme) => format!("\"{}\"", chooser.pick(&TEXTS)),
        (Kind::Text, _) => format!("\"{}\"", chooser.pick(&["on", "off", "idle"])),
    }
}
