//! Figures of the run as a table, as Markdown and as JSON.
//! Invariants: the median of the rounds is shown; JSON keeps every round.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::load::Phase;
use crate::machine;
use crate::proc::{CpuSeconds, Memory};
use crate::report::{grouped, write_file};
use crate::server::Kind;

/// One size of load.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) series_count: usize,
    pub(super) step_count: usize,
    pub(super) measured: Vec<(Kind, Measured)>,
}

impl Scenario {
    pub(super) fn new(name: &'static str, series_count: usize, step_count: usize) -> Scenario {
        Scenario { name, series_count, step_count, measured: Vec::new() }
    }
}

/// One run against one server.
pub(super) struct Measured {
    pub(super) create: Phase,
    pub(super) steady: Phase,
    /// CPU of the server from the first request until the background work had its time.
    pub(super) settled_cpu: CpuSeconds,
    /// Resident memory before the load.
    pub(super) empty_bytes: u64,
    /// Resident memory after the last answer, and the most so far.
    pub(super) loaded: Memory,
    /// Resident memory after the background work had its time.
    pub(super) settled_bytes: u64,
    pub(super) settled_disk_bytes: u64,
    /// After an orderly stop.
    pub(super) stopped_disk_bytes: u64,
}

/// A line of the report.
struct Figure {
    key: &'static str,
    title: &'static str,
    decimals: usize,
    of: fn(&Measured, &Scenario) -> f64,
}

const MIB: f64 = 1_048_576.0;

const FIGURES: [Figure; 19] = [
    figure("samples_per_second", "samples/s, known series", 0, |m, _| m.steady.per_wall_second()),
    figure("samples_per_cpu_second", "samples per server CPU second, known series", 0, |m, _| {
        m.steady.per_cpu_second()
    }),
    figure("create_samples_per_second", "samples/s, every series new", 0, |m, _| m.create.per_wall_second()),
    figure("create_samples_per_cpu_second", "samples per server CPU second, every series new", 0, |m, _| {
        m.create.per_cpu_second()
    }),
    figure(
        "all_samples_per_cpu_second_settled",
        "samples per server CPU second, whole run and 5 s after",
        0,
        |m, s| (s.series_count * s.step_count) as f64 / m.settled_cpu.total(),
    ),
    figure("server_cpu_user_seconds", "server CPU, user, s", 2, |m, _| {
        m.steady.server_cpu.user + m.create.server_cpu.user
    }),
    figure("server_cpu_system_seconds", "server CPU, system, s", 2, |m, _| {
        m.steady.server_cpu.system + m.create.server_cpu.system
    }),
    figure("client_cpu_seconds", "client CPU, s", 2, |m, _| {
        m.steady.client_cpu.total() + m.create.client_cpu.total()
    }),
    figure("wall_seconds", "wall time, s", 2, |m, _| m.steady.wall_seconds + m.create.wall_seconds),
    figure("ack_p50_ms", "ack latency p50, ms", 2, |m, _| m.steady.ack_ms(0.5)),
    figure("ack_p99_ms", "ack latency p99, ms", 2, |m, _| m.steady.ack_ms(0.99)),
    figure("rss_empty_mib", "RSS before the load, MiB", 1, |m, _| m.empty_bytes as f64 / MIB),
    figure("rss_loaded_mib", "RSS after the load, MiB", 1, |m, _| m.loaded.now_bytes as f64 / MIB),
    figure("rss_settled_mib", "RSS 5 s later, MiB", 1, |m, _| m.settled_bytes as f64 / MIB),
    figure("rss_peak_mib", "peak RSS, MiB", 1, |m, _| m.loaded.peak_bytes as f64 / MIB),
    figure("rss_bytes_per_series", "RSS after the load per series, bytes", 0, |m, s| {
        m.loaded.now_bytes as f64 / s.series_count as f64
    }),
    figure("disk_mib", "disk 5 s after the load, MiB", 1, |m, _| m.settled_disk_bytes as f64 / MIB),
    figure("disk_stopped_mib", "disk after stopping, MiB", 1, |m, _| m.stopped_disk_bytes as f64 / MIB),
    figure("disk_stopped_bytes_per_sample", "disk after stopping per sample, bytes", 2, |m, s| {
        m.stopped_disk_bytes as f64 / (s.series_count * s.step_count) as f64
    }),
];

const fn figure(
    key: &'static str,
    title: &'static str,
    decimals: usize,
    of: fn(&Measured, &Scenario) -> f64,
) -> Figure {
    Figure { key, title, decimals, of }
}

impl Phase {
    fn per_wall_second(&self) -> f64 {
        self.sample_count as f64 / self.wall_seconds
    }

    fn per_cpu_second(&self) -> f64 {
        self.sample_count as f64 / self.server_cpu.total()
    }

    fn ack_ms(&self, quantile: f64) -> f64 {
        let rank = (self.ack_us.len().saturating_sub(1) as f64 * quantile).round();
        self.ack_us.get(rank as usize).map_or(f64::NAN, |us| f64::from(*us) / 1000.0)
    }
}

impl Measured {
    /// One line for the impatient.
    pub(super) fn summary(&self, scenario: &Scenario) -> String {
        format!(
            "{} samples/s, {} per CPU second, {} MiB after the load, {:.0} bytes per series",
            grouped(self.steady.per_wall_second(), 0),
            grouped(self.steady.per_cpu_second(), 0),
            grouped(self.loaded.now_bytes as f64 / MIB, 0),
            self.loaded.now_bytes as f64 / scenario.series_count as f64,
        )
    }
}

/// Prints the tables and writes both files.
pub(super) fn write(
    dir: &Path,
    batch_len: usize,
    connection_count: usize,
    kinds: &[Kind],
    scenarios: &[Scenario],
) -> Result<()> {
    let machine = machine::describe();
    let versions = kinds.iter().map(|kind| Ok(json!({"name": kind.name(), "version": kind.version()?})));
    let versions = versions.collect::<Result<Vec<Value>>>()?;
    let tables: String = scenarios.iter().map(|scenario| table(kinds, scenario)).collect();
    println!("\n{tables}");
    let date = machine::date();
    let name = format!("remote-write-{date}");
    let head = markdown_head(&date, &machine, &versions, batch_len, connection_count);
    write_file(dir, &format!("{name}.md"), &format!("{head}\n{tables}"))?;
    let report = json!({
        "bench": "remote-write",
        "date": date,
        "machine": machine,
        "servers": versions,
        "batch_samples": batch_len,
        "connections": connection_count,
        "scenarios": scenarios.iter().map(scenario_json).collect::<Vec<Value>>(),
    });
    write_file(dir, &format!("{name}.json"), &(serde_json::to_string_pretty(&report)? + "\n"))
}

fn markdown_head(
    date: &str,
    machine: &Value,
    versions: &[Value],
    batch_len: usize,
    connection_count: usize,
) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut out = format!("# remote-write, {date}\n\n");
    for key in ["cpu", "core_count", "memory_mib", "kernel", "commit", "command"] {
        out.push_str(&format!("- {key}: {}\n", text(&machine[key])));
    }
    for server in versions {
        out.push_str(&format!("- {}: {}\n", text(&server["name"]), text(&server["version"])));
    }
    out.push_str(&format!(
        "- {batch_len} samples per request, {connection_count} connections, client on the same machine\n"
    ));
    out
}

fn table(kinds: &[Kind], scenario: &Scenario) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let mut out = format!(
        "## {}: {} series, {} samples each\n\n| | {} |\n|---|{}\n",
        scenario.name,
        grouped(scenario.series_count as f64, 0),
        scenario.step_count,
        names.join(" | "),
        "---:|".repeat(names.len()),
    );
    for figure in &FIGURES {
        let cells = kinds.iter().map(|kind| grouped(median(figure, *kind, scenario), figure.decimals));
        // Writing to a String does not fail.
        let _ = writeln!(out, "| {} | {} |", figure.title, cells.collect::<Vec<String>>().join(" | "));
    }
    out.push('\n');
    out
}

fn median(figure: &Figure, kind: Kind, scenario: &Scenario) -> f64 {
    let of_kind = scenario.measured.iter().filter(|(measured_kind, _)| *measured_kind == kind);
    let mut values: Vec<f64> = of_kind.map(|(_, measured)| (figure.of)(measured, scenario)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn scenario_json(scenario: &Scenario) -> Value {
    let rounds = scenario.measured.iter().map(|(kind, measured)| {
        let figures =
            FIGURES.iter().map(|figure| (figure.key.to_owned(), json!((figure.of)(measured, scenario))));
        json!({"server": kind.name(), "figures": figures.collect::<serde_json::Map<String, Value>>()})
    });
    json!({
        "name": scenario.name,
        "series": scenario.series_count,
        "samples_per_series": scenario.step_count,
        "rounds": rounds.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::Phase;

    #[test]
    fn quantiles_are_of_the_sorted_requests() {
        let phase = Phase { ack_us: (1..=101).map(|n| n * 1000).collect(), ..Phase::default() };
        assert_eq!((phase.ack_ms(0.5), phase.ack_ms(0.99), phase.ack_ms(1.0)), (51.0, 100.0, 101.0));
        assert!(Phase::default().ack_ms(0.5).is_nan());
    }
}
