//! Figures of `late`. Not here: measurement (`late`).

use super::{Measured, Options, QUERIES};
use crate::driver::Run;
use crate::report::{Table, grouped};
use crate::server::Kind;

impl Measured {
    /// One line for the impatient.
    pub(super) fn summary(&self) -> String {
        format!(
            "{}: {} samples per server CPU second, {:.0} ms for all queries before, {:.0} ms after",
            self.plan.kind.name(),
            grouped(self.per_cpu_second(), 0),
            self.before.ms.iter().sum::<f64>(),
            self.after.ms.iter().sum::<f64>(),
        )
    }

    fn per_cpu_second(&self) -> f64 {
        self.plan.sample_count() as f64 / self.cpu_seconds
    }
}

/// Adds the tables, the targets and the notes to the report.
pub(super) fn add(options: &Options, measured: &[Measured], run: &mut Run) {
    for kind in run.kinds() {
        run.table(table(kind, measured));
    }
    let of = |percent: u64| {
        measured.iter().find(|one| one.plan.kind == Kind::Chronolith && one.plan.percent == percent)
    };
    let ratio = |late: u64, figure: fn(&Measured) -> f64| match (of(late), of(0)) {
        (Some(late), Some(none)) => figure(late) / figure(none),
        _ => f64::NAN,
    };
    let per_cpu_second = ratio(10, Measured::per_cpu_second);
    run.at_least("10 % late: samples per CPU second / those without late samples", per_cpu_second, 0.9);
    for percent in [10, 50] {
        let what = format!("{percent} % late: query time in blocks / that without late samples");
        run.at_most(what, ratio(percent, |one| one.after.ms.iter().sum()), 1.1);
    }
    let samples = grouped(measured.first().map_or(0.0, |one| one.plan.sample_count() as f64), 0);
    run.note(format!("{samples} samples of the mix, one per minute, {} per request", options.batch));
    run.note(
        "an out-of-order sample comes with equal chance in any step between its own and the last, up to a day later",
    );
    run.note(format!(
        "Chronolith: median of {} loads; Prometheus: `out_of_order_time_window: 25h`",
        options.rounds
    ));
    run.note("Chronolith's answers are equal whatever came out of order, before and after blocks are made");
    for (number, (text, step_s)) in (1..).zip(QUERIES) {
        run.note(format!("query {number}: `{text}` every {step_s} s, over all but the first hour"));
    }
}

fn table(kind: Kind, measured: &[Measured]) -> Table {
    let of_kind: Vec<&Measured> = measured.iter().filter(|one| one.plan.kind == kind).collect();
    let columns = of_kind.iter().map(|one| format!("{} % late", one.plan.percent));
    let mut table = Table::new(kind.name(), columns);
    let mut row = |label: String, decimals: usize, figure: &dyn Fn(&Measured) -> f64| {
        table.row(label, decimals, of_kind.iter().map(|one| figure(one)));
    };
    row("late samples".to_owned(), 0, &|one| one.plan.late_count as f64);
    row("samples/s".to_owned(), 0, &|one| one.plan.sample_count() as f64 / one.wall_seconds);
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
