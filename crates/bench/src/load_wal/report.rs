//! Figures of `load-wal` as a table, as Markdown and as JSON.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Figures, Measured, Options};
use crate::machine;
use crate::report::write_file;

impl Figures {
    fn median_ms(&self) -> f64 {
        let mut sorted = self.round_ms.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn json(&self) -> Value {
        json!({
            "round_ms": self.round_ms,
            "peak_bytes": self.peak_bytes,
            "allocations": self.allocations,
            "allocated_bytes": self.allocated_bytes,
        })
    }
}

/// Prints the table and writes both files.
pub(super) fn write(options: &Options, measured: &[Measured]) -> Result<()> {
    let machine = machine::describe();
    let date = machine::date();
    let table = table(measured);
    println!("{table}");
    let mut head = format!("# load-wal, {date}\n\n");
    for key in ["cpu", "core_count", "memory_mib", "kernel", "commit", "command"] {
        let text = machine[key].as_str().map_or_else(|| machine[key].to_string(), str::to_owned);
        head.push_str(&format!("- {key}: {text}\n"));
    }
    head.push_str(&format!(
        "- load average at the end: {}\n",
        machine::first_line("cat", &["/proc/loadavg"])
    ));
    head.push_str(&format!(
        "- median of {} rounds; peak and allocations of the worst and last\n\n",
        options.rounds
    ));
    let name = format!("load-wal-{date}");
    write_file(&options.out, &format!("{name}.md"), &format!("{head}{table}"))?;
    let cases: Vec<Value> = measured.iter().map(case_json).collect();
    let report = json!({ "bench": "load-wal", "date": date, "machine": machine, "cases": cases });
    write_file(&options.out, &format!("{name}.json"), &(serde_json::to_string_pretty(&report)? + "\n"))
}

fn case_json(one: &Measured) -> Value {
    json!({
        "case": one.case.name(),
        "logged_samples": one.case.logged(),
        "prometheus_log": one.prometheus_log.json(),
        "own_log": one.own_log.json(),
    })
}

fn table(measured: &[Measured]) -> String {
    let mut out = String::from(
        "| case | log | ms | ns a logged sample | resident, added at peak | allocations | allocated | Prometheus 3.14, quoted |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for one in measured {
        for (log, figures) in [("Prometheus's", &one.prometheus_log), ("our own", &one.own_log)] {
            let ms = figures.median_ms();
            let quoted = format!("{} ms, {} MB allocated", one.case.prometheus_ms, one.case.prometheus_mb);
            out.push_str(&format!(
                "| {} | {log} | {ms:.0} | {:.1} | {:.0} MB | {} | {:.0} MB | {quoted} |\n",
                one.case.name(),
                ms * 1e6 / one.case.logged() as f64,
                figures.peak_bytes as f64 / 1e6,
                figures.allocations,
                figures.allocated_bytes as f64 / 1e6,
            ));
        }
    }
    out
}
