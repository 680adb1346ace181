//! A report as Markdown and JSON: the runs and their machine, tables, and the targets with the measured
//! figures.
//! Invariants: a target that could not be measured is shown as missed, never left out.
//! Not here: measurement (each benchmark), interpretation (BENCHMARKS.md).

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::latency::median;
use crate::machine;
use crate::server::Kind;

pub(crate) const MIB: f64 = 1_048_576.0;

/// Label of a row, decimals, and the figure of a measurement.
pub(crate) type Figure<M> = (&'static str, usize, fn(&M) -> f64);

/// Figures of one kind of run, a column each.
pub(crate) struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    label: String,
    cells: Vec<Cell>,
}

struct Cell {
    /// Figures of the rounds, of which the median is shown; none if nothing was measured.
    rounds: Vec<f64>,
    decimals: usize,
}

impl Cell {
    fn value(&self) -> f64 {
        median(&self.rounds)
    }

    fn text(&self) -> String {
        let value = self.value();
        if value.is_nan() { "-".to_owned() } else { grouped(value, self.decimals) }
    }
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
        self.mixed_row(label, cells.into_iter().map(|cell| (decimals, cell)));
    }

    /// Adds a row of which each cell has its own number of decimals.
    pub(crate) fn mixed_row(
        &mut self,
        label: impl Into<String>,
        cells: impl IntoIterator<Item = (usize, f64)>,
    ) {
        let cell = |(decimals, value)| Cell { rounds: vec![value], decimals };
        self.rows.push(Row { label: label.into(), cells: cells.into_iter().map(cell).collect() });
    }

    /// Adds the rounds of which a cell of the last row is the median.
    pub(crate) fn keep_rounds(&mut self, column: usize, rounds: Vec<f64>) {
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.cells.get_mut(column)) {
            cell.rounds = rounds;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row of medians; the JSON of the report keeps every round.
    pub(crate) fn rounds(&mut self, label: impl Into<String>, decimals: usize, cells: Vec<Vec<f64>>) {
        let cell = |rounds| Cell { rounds, decimals };
        self.rows.push(Row { label: label.into(), cells: cells.into_iter().map(cell).collect() });
    }

    /// Adds a row for each figure, with a column for each measurement.
    pub(crate) fn figures<'a, M: 'a>(
        &mut self,
        figures: &[Figure<M>],
        measured: impl Iterator<Item = &'a M> + Clone,
    ) {
        for (label, decimals, figure) in figures {
            self.row(*label, *decimals, measured.clone().map(figure));
        }
    }

    fn markdown(&self) -> String {
        let mut out = format!(
            "## {}\n\n| | {} |\n|---|{}\n",
            self.title,
            self.columns.join(" | "),
            "---:|".repeat(self.columns.len()),
        );
        for row in &self.rows {
            let cells: Vec<String> = row.cells.iter().map(Cell::text).collect();
            out.push_str(&format!("| {} | {} |\n", row.label, cells.join(" | ")));
        }
        out.push('\n');
        out
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            let values: Vec<f64> = row.cells.iter().map(Cell::value).collect();
            let rounds: Vec<&[f64]> = row.cells.iter().map(|cell| &*cell.rounds).collect();
            match rounds.iter().any(|rounds| rounds.len() > 1) {
                true => json!({"label": row.label, "values": values, "rounds": rounds}),
                false => json!({"label": row.label, "values": values}),
            }
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        json!({"title": self.title, "columns": self.columns, "rows": rows})
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

/// Figures of a benchmark.
#[derive(Default)]
pub(crate) struct Report {
    /// The files of the report are `NAME-DATE.md` and `NAME-DATE.json`.
    pub(super) name: String,
    /// Servers that took part; empty for what runs in this process.
    pub(super) kinds: Vec<Kind>,
    /// Load and setup, one line each.
    pub(super) notes: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) targets: Vec<Target>,
    pub(super) own: Vec<OwnPart>,
}

/// Figures in a form of their own.
pub(crate) struct OwnPart {
    pub(super) markdown: String,
    /// Name in the JSON of the report.
    pub(super) key: &'static str,
    pub(super) json: Value,
}

impl Report {
    /// Returns true if something was measured.
    pub(crate) fn has_figures(&self) -> bool {
        !self.tables.is_empty() || !self.own.is_empty()
    }

    /// Prints the tables and writes both files to `dir`.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let machine = machine::describe();
        let date = machine::date();
        let load = machine::first_line("cat", &["/proc/loadavg"]);
        let versions = self.kinds.iter().map(|kind| Ok((kind.name(), kind.version()?)));
        let versions = versions.collect::<Result<Vec<(&str, String)>>>()?;
        let mut figures: String = self.tables.iter().map(Table::markdown).collect();
        figures.extend(self.own.iter().map(|part| part.markdown.as_str()));
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
        let mut report = json!({
            "bench": self.name,
            "date": date,
            "machine": machine,
            "load_average": load,
            "servers": versions.iter().map(|(n, v)| json!({"name": n, "version": v})).collect::<Vec<Value>>(),
            "notes": self.notes,
            "tables": self.tables.iter().map(Table::json).collect::<Vec<Value>>(),
            "targets": self.targets.iter().map(Target::json).collect::<Vec<Value>>(),
        });
        for part in &self.own {
            report[part.key] = part.json.clone();
        }
        write_file(dir, &format!("{name}.json"), &(serde_json::to_string_pretty(&report)? + "\n"))
    }
}

/// Writes `text` to `dir/name`.
fn write_file(dir: &Path, name: &str, text: &str) -> Result<()> {
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
