//! A report as Markdown and JSON: the runs and their machine, tables, and the targets with the measured
//! figures.
//! Invariants: a target that could not be measured is shown as missed, never left out.
//! Not here: measurement (each benchmark), interpretation (BENCHMARKS.md).

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::machine;
use crate::server::Kind;

/// Figures of one kind of run, a column each.
pub(crate) struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    label: String,
    decimals: usize,
    /// One a column; NaN where there is none.
    cells: Vec<f64>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Table {
        Table {
            title: title.into(),
            columns: columns.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(
        &mut self,
        label: impl Into<String>,
        decimals: usize,
        cells: impl IntoIterator<Item = f64>,
    ) {
        self.rows.push(Row { label: label.into(), decimals, cells: cells.into_iter().collect() });
    }

    fn markdown(&self) -> String {
        let mut out = format!(
            "## {}\n\n| | {} |\n|---|{}\n",
            self.title,
            self.columns.join(" | "),
            "---:|".repeat(self.columns.len()),
        );
        for row in &self.rows {
            let cells = row.cells.iter().map(|cell| match cell.is_nan() {
                true => "-".to_owned(),
                false => grouped(*cell, row.decimals),
            });
            // Writing to a String does not fail.
            let _ = writeln!(out, "| {} | {} |", row.label, cells.collect::<Vec<String>>().join(" | "));
        }
        out.push('\n');
        out
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| json!({"label": row.label, "values": row.cells}));
        json!({"title": self.title, "columns": self.columns, "rows": rows.collect::<Vec<Value>>()})
    }
}

/// A promised figure and the measured one.
pub(crate) struct Target {
    what: String,
    found: f64,
    bound: Bound,
}

/// The side on which a figure has to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    /// The figure is met by this value or less.
    AtMost(f64),
    /// The figure is met by this value or more.
    AtLeast(f64),
}

impl Target {
    /// A target; `found` is NaN if it could not be measured.
    pub(crate) fn new(what: impl Into<String>, found: f64, bound: Bound) -> Target {
        Target { what: what.into(), found, bound }
    }

    fn met(&self) -> bool {
        match self.bound {
            Bound::AtMost(most) => self.found <= most,
            Bound::AtLeast(least) => self.found >= least,
        }
    }

    fn line(&self) -> String {
        let bound = match self.bound {
            Bound::AtMost(most) => format!("at most {most}"),
            Bound::AtLeast(least) => format!("at least {least}"),
        };
        let verdict = if self.met() { "met" } else { "**missed**" };
        let found =
            if self.found.is_nan() { "not measured".to_owned() } else { format!("{:.4}", self.found) };
        format!("- {}: {bound}, found {found}: {verdict}\n", self.what)
    }

    fn json(&self) -> Value {
        let (side, bound) = match self.bound {
            Bound::AtMost(most) => ("at most", most),
            Bound::AtLeast(least) => ("at least", least),
        };
        json!({"what": self.what, "side": side, "bound": bound, "found": self.found, "met": self.met()})
    }
}

/// A finished benchmark.
pub(crate) struct Report {
    /// Name of the benchmark.
    pub(super) name: String,
    /// Servers that took part; empty for what runs in this process.
    pub(super) kinds: Vec<Kind>,
    /// Load and setup, one line each.
    pub(super) notes: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) targets: Vec<Target>,
}

impl Report {
    /// Prints the tables and writes `NAME-DATE.md` and `NAME-DATE.json` to `dir`.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let machine = machine::describe();
        let date = machine::date();
        let load = machine::first_line("cat", &["/proc/loadavg"]);
        let versions = self.kinds.iter().map(|kind| Ok((kind.name(), kind.version()?)));
        let versions = versions.collect::<Result<Vec<(&str, String)>>>()?;
        let mut figures: String = self.tables.iter().map(Table::markdown).collect();
        if !self.targets.is_empty() {
            figures.push_str("## Targets\n\n");
            figures.extend(self.targets.iter().map(Target::line));
        }
        println!("\n{figures}");
        let mut head = format!("# {}, {date}\n\n", self.name);
        for key in ["cpu", "core_count", "memory_mib", "kernel", "commit", "command"] {
            let text = machine[key].as_str().map_or_else(|| machine[key].to_string(), str::to_owned);
            head.push_str(&format!("- {key}: {text}\n"));
        }
        head.push_str(&format!("- load average at the end: {load}\n"));
        head.extend(versions.iter().map(|(name, version)| format!("- {name}: {version}\n")));
        head.extend(self.notes.iter().map(|note| format!("- {note}\n")));
        let name = format!("{}-{date}", self.name);
        write_file(dir, &format!("{name}.md"), &format!("{head}\n{}\n", figures.trim_end()))?;
        let report = json!({
            "bench": self.name,
            "date": date,
            "machine": machine,
            "load_average": load,
            "servers": versions.iter().map(|(n, v)| json!({"name": n, "version": v})).collect::<Vec<Value>>(),
            "notes": self.notes,
            "tables": self.tables.iter().map(Table::json).collect::<Vec<Value>>(),
            "targets": self.targets.iter().map(Target::json).collect::<Vec<Value>>(),
        });
        write_file(dir, &format!("{name}.json"), &(serde_json::to_string_pretty(&report)? + "\n"))
    }
}

/// Measurements that failed: the others go on and are reported, and the benchmark fails in the end.
#[derive(Default)]
pub(crate) struct Failures {
    titles: Vec<String>,
}

impl Failures {
    /// Returns the result; on an error prints it, counts the failure and returns `None`.
    pub(crate) fn keep<T>(&mut self, title: String, done: Result<T>) -> Option<T> {
        done.inspect_err(|error| {
            eprintln!("failed: {title}: {error:#}");
            self.titles.push(title);
        })
        .ok()
    }

    /// Returns the result of the benchmark.
    pub(crate) fn end(self) -> Result<()> {
        ensure!(self.titles.is_empty(), "not measured: {}", self.titles.join("; "));
        Ok(())
    }
}

/// Writes `text` to `dir/name`.
pub(crate) fn write_file(dir: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join(name);
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    Ok(())
}

/// A number with a space between thousands.
pub(crate) fn grouped(number: f64, decimals: usize) -> String {
    let plain = format!("{number:.decimals$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut out = String::new();
    for (idx, digit) in whole.chars().enumerate() {
        if idx > 0 && (whole.len() - idx).is_multiple_of(3) && whole.chars().all(|c| c.is_ascii_digit()) {
            out.push(' ');
        }
        out.push(digit);
    }
    out + rest
}

/// The value in the middle; NaN of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::{Bound, Target, grouped};

    #[test]
    fn thousands_are_set_apart() {
        let cases = [
            (0.0, 0, "0"),
            (999.0, 0, "999"),
            (1234.5, 1, "1 234.5"),
            (1e6, 0, "1 000 000"),
            (f64::NAN, 0, "NaN"),
        ];
        for (number, decimals, want) in cases {
            assert_eq!(grouped(number, decimals), want);
        }
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        for bound in [Bound::AtMost(1.0), Bound::AtLeast(1.0)] {
            assert!(Target::new("x", 1.0, bound).met());
            assert!(!Target::new("x", f64::NAN, bound).met());
        }
    }
}
