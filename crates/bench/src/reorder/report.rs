//! Figures of the run as a table, as Markdown and as JSON.
//! Invariants: minimum and median of the rounds are shown; JSON keeps every round.

use std::fmt::Write;

use anyhow::Result;
use serde_json::{Value, json};

use super::append::{Appended, TARGET_NS};
use super::{Measured, Options};
use crate::machine;
use crate::report::write_file;

impl Measured {
    fn sorted_ns(&self) -> Vec<f64> {
        let mut sorted = self.round_ns.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn min_ns(&self) -> f64 {
        self.sorted_ns().first().copied().unwrap_or(f64::NAN)
    }

    fn median_ns(&self) -> f64 {
        self.sorted_ns().get(self.round_ns.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn allocations_per_add(&self, options: &Options) -> f64 {
        self.allocation_count as f64 / (options.samples * options.rounds) as f64
    }

    fn refused_share(&self, options: &Options) -> f64 {
        self.tally.refused_count as f64 / options.samples as f64
    }

    fn meets_target(&self) -> bool {
        self.min_ns() <= self.case.target_ns() && self.allocation_count == 0
    }
}

/// Prints the table and writes both files.
pub(super) fn write(options: &Options, measured: &[Measured], appended: &[Appended]) -> Result<()> {
    let machine = machine::describe();
    let date = machine::date();
    let table = table(options, measured) + &appended_table(appended);
    println!("{table}");
    let mut head = format!("# reorder, {date}\n\n");
    for key in ["cpu", "core_count", "memory_mib", "kernel", "commit", "command"] {
        let text = machine[key].as_str().map_or_else(|| machine[key].to_string(), str::to_owned);
        head.push_str(&format!("- {key}: {text}\n"));
    }
    let load = machine::first_line("cat", &["/proc/loadavg"]);
    head.push_str(&format!("- load average at the end: {load}\n"));
    head.push_str(&format!(
        "- {} samples a round, {} rounds over all cases in turn, interval {} ms\n\n",
        options.samples, options.rounds, options.interval_ms
    ));
    head.push_str(
        "The minimum is the figure: whatever else runs on the machine can only add to it. The median shows how much \
         did.\n\n",
    );
    let name = format!("reorder-{date}");
    write_file(&options.out, &format!("{name}.md"), &format!("{head}{table}"))?;
    let report = json!({
        "bench": "reorder",
        "date": date,
        "machine": machine,
        "load_average": load,
        "samples": options.samples,
        "rounds": options.rounds,
        "interval_ms": options.interval_ms,
        "appended": appended.iter().map(appended_json).collect::<Vec<Value>>(),
        "cases": measured.iter().map(|one| case_json(options, one)).collect::<Vec<Value>>(),
    });
    write_file(&options.out, &format!("{name}.json"), &(serde_json::to_string_pretty(&report)? + "\n"))
}

fn table(options: &Options, measured: &[Measured]) -> String {
    let mut out = String::from(
        "| benchmark | ns/add, minimum | ns/add, median | allocations/add | refused | target | |\n\
         |---|---:|---:|---:|---:|---:|---|\n",
    );
    for one in measured {
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "| {} | {:.2} | {:.2} | {} | {:.0} % | {:.0} | {} |",
            one.case.name(),
            one.min_ns(),
            one.median_ns(),
            one.allocations_per_add(options),
            one.refused_share(options) * 100.0,
            one.case.target_ns(),
            if one.meets_target() { "met" } else { "missed" },
        );
    }
    out
}

fn appended_table(appended: &[Appended]) -> String {
    let mut out = String::from(
        "\n| through the head, with the WAL | ns/point | allocations/point | points lost | target | |\n\
         |---|---:|---:|---:|---:|---|\n",
    );
    for one in appended {
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "| {} | {:.0} | {:.4} | {} | {:.0} | {} |",
            one.name(),
            one.ns_per_point,
            one.allocations_per_point,
            one.missing_count,
            TARGET_NS,
            if one.meets_target() { "met" } else { "missed" },
        );
    }
    if appended.is_empty() { String::new() } else { out }
}

fn appended_json(one: &Appended) -> Value {
    json!({
        "name": one.name(),
        "ns_per_point": one.ns_per_point,
        "allocations_per_point": one.allocations_per_point,
        "missing_count": one.missing_count,
        "target_ns": TARGET_NS,
        "target_met": one.meets_target(),
    })
}

fn case_json(options: &Options, one: &Measured) -> Value {
    json!({
        "name": one.case.name(),
        "ns_per_add_min": one.min_ns(),
        "ns_per_add_median": one.median_ns(),
        "allocations_per_add": one.allocations_per_add(options),
        "refused_share": one.refused_share(options),
        "target_ns": one.case.target_ns(),
        "target_met": one.meets_target(),
        "rounds_ns_per_add": one.round_ns,
    })
}
