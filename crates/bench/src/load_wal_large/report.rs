//! Figures of `load-wal-large` as a table, as Markdown and as JSON.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Measured, Options};
use crate::machine;
use crate::report::write_file;
use crate::server::Kind;

/// Prints the tables and writes both files.
pub(super) fn write(options: &Options, measured: &[Measured]) -> Result<()> {
    let machine = machine::describe();
    let date = machine::date();
    let tables: String = measured.iter().map(|one| table(options, one)).collect();
    println!("{tables}");
    let mut head = format!("# load-wal-large, {date}\n\n");
    for key in ["cpu", "core_count", "memory_mib", "kernel", "commit", "command"] {
        let text = machine[key].as_str().map_or_else(|| machine[key].to_string(), str::to_owned);
        head.push_str(&format!("- {key}: {text}\n"));
    }
    if let Ok(version) = Kind::Prometheus.version() {
        head.push_str(&format!("- prometheus: {version}\n"));
    }
    head.push_str(&format!(
        "- load average at the end: {}\n\n",
        machine::first_line("cat", &["/proc/loadavg"])
    ));
    let name = format!("load-wal-large-{date}");
    write_file(&options.out, &format!("{name}.md"), &format!("{head}{tables}"))?;
    let shapes: Vec<Value> = measured.iter().map(shape_json).collect();
    let report = json!({ "bench": "load-wal-large", "date": date, "machine": machine, "shapes": shapes });
    write_file(&options.out, &format!("{name}.json"), &(serde_json::to_string_pretty(&report)? + "\n"))
}

fn table(options: &Options, one: &Measured) -> String {
    let shape = &one.shape;
    let mut out = format!(
        "{}: {} series x {} samples, {:.0} MB of log, count and checksum verified\n\n\
         | | wall s | CPU s | ns CPU a sample | peak RSS MB |\n|---|---:|---:|---:|---:|\n",
        shape.name,
        shape.series,
        shape.samples_per_series,
        one.log_bytes as f64 / 1e6,
    );
    let mut row = |name: &str, wall: f64, cpu: f64, peak: f64| {
        let ns = cpu * 1e9 / shape.samples() as f64;
        out.push_str(&format!("| {name} | {wall:.2} | {cpu:.2} | {ns:.1} | {:.0} |\n", peak / 1e6));
    };
    for (name, used) in &one.rows {
        row(name, used.wall_seconds, used.cpu_seconds, used.peak_bytes as f64);
    }
    if !options.full && options.divide <= 1 {
        let (wall, cpu, peak) = shape.prometheus;
        row("Prometheus 3.14, quoted", wall, cpu, peak);
    }
    out.push('\n');
    out
}

fn shape_json(one: &Measured) -> Value {
    let rows: Vec<Value> = one
        .rows
        .iter()
        .map(|(name, used)| {
            json!({
                "name": name,
                "wall_seconds": used.wall_seconds,
                "cpu_seconds": used.cpu_seconds,
                "peak_bytes": used.peak_bytes,
            })
        })
        .collect();
    json!({
        "shape": one.shape.name,
        "series": one.shape.series,
        "samples": one.shape.samples(),
        "log_bytes": one.log_bytes,
        "checksum": format!("{:016x}", one.checksum.sum),
        "rows": rows,
    })
}
