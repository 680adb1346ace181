//! Figures of `late`. Not here: measurement (`late`).

use anyhow::Result;

use super::{Measured, Options, QUERIES};
use crate::report::{Bound, Report, Table, Target, grouped};
use crate::server::Kind;

impl Measured {
    /// One line for the impatient.
    pub(super) fn summary(&self) -> String {
        format!(
            "{}: {} samples per server CPU second, {:.0} ms for all queries before, {:.0} ms after",
            self.kind.name(),
            grouped(self.per_cpu_second(), 0),
            self.before.ms.iter().sum::<f64>(),
            self.after.ms.iter().sum::<f64>(),
        )
    }

    fn per_cpu_second(&self) -> f64 {
        self.sample_count as f64 / self.cpu_seconds
    }
}

/// Prints the tables and writes both files.
pub(super) fn write(options: &Options, kinds: &[Kind], measured: &[Measured]) -> Result<()> {
    let tables = kinds.iter().map(|kind| table(*kind, measured)).collect();
    let of =
        |percent: u64| measured.iter().find(|one| one.kind == Kind::Chronolith && one.percent == percent);
    let ratio = |late: u64, figure: fn(&Measured) -> f64| match (of(late), of(0)) {
        (Some(late), Some(none)) => figure(late) / figure(none),
        _ => f64::NAN,
    };
    let targets = vec![
        Target::new(
            "10 % late: samples per CPU second / those without late samples",
            ratio(10, Measured::per_cpu_second),
            Bound::AtLeast(0.9),
        ),
        Target::new(
            "10 % late: query time in blocks / that without late samples",
            ratio(10, |one| one.after.ms.iter().sum()),
            Bound::AtMost(1.1),
        ),
        Target::new(
            "50 % late: query time in blocks / that without late samples",
            ratio(50, |one| one.after.ms.iter().sum()),
            Bound::AtMost(1.1),
        ),
    ];
    let samples = measured.first().map_or(0, |one| one.sample_count);
    let queries = QUERIES.iter().map(|(text, step_s)| format!("`{text}` every {step_s} s"));
    let mut notes = vec![
        format!(
            "{} samples of the mix, one per minute, {} per request",
            grouped(samples as f64, 0),
            options.batch
        ),
        "an out-of-order sample comes with equal chance in any step between its own and the last, up to a day later"
            .to_owned(),
        format!(
            "Chronolith: median of {} loads; Prometheus: `out_of_order_time_window: 25h`",
            options.rounds
        ),
        "Chronolith's answers are equal whatever came out of order, before and after blocks are made".to_owned(),
    ];
    notes.extend(
        queries
            .enumerate()
            .map(|(idx, query)| format!("query {}: {query}, over all but the first hour", idx + 1)),
    );
    Report { name: "late".to_owned(), kinds: kinds.to_vec(), notes, tables, targets }.write(&options.out)
}

fn table(kind: Kind, measured: &[Measured]) -> Table {
    let of_kind: Vec<&Measured> = measured.iter().filter(|one| one.kind == kind).collect();
    let columns = of_kind.iter().map(|one| format!("{} % late", one.percent));
    let mut table = Table::new(kind.name(), columns);
    let mut row = |label: String, decimals: usize, figure: &dyn Fn(&Measured) -> f64| {
        table.row(label, decimals, of_kind.iter().map(|one| figure(one)));
    };
    row("late samples".to_owned(), 0, &|one| one.late_count as f64);
    row("samples/s".to_owned(), 0, &|one| one.sample_count as f64 / one.wall_seconds);
    row("samples per server CPU second".to_owned(), 0, &Measured::per_cpu_second);
    row("server CPU, s".to_owned(), 2, &|one| one.cpu_seconds);
    for idx in 0..QUERIES.len() {
        row(format!("query {} before blocks, ms", idx + 1), 1, &|one| one.before.ms[idx]);
    }
    for idx in 0..QUERIES.len() {
        row(format!("query {} in blocks, ms", idx + 1), 1, &|one| one.after.ms[idx]);
    }
    let first = of_kind.first().map(|one| one.after.answers.clone());
    row("answers in blocks as in the first column".to_owned(), 0, &|one| {
        f64::from(u8::from(first.as_ref() == Some(&one.after.answers)))
    });
    table
}
