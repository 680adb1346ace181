//! CPU time of each step, in seconds and in units of a fixed piece of work, and the comparison with the
//! figures in `docs/house/ci-cost.md`.
//!
//! Invariants: only a run of all steps that began without anything built is compared or recorded, and only if
//! nothing else used the machine and no step had to install a package; any other run prints why it is not.
//! Figures of different kinds of machines are not compared.
//! Not here: measurement of a process (`cpu`), the speed of the machine (`speed`).

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::checkout::Checkout;
use super::speed::Speed;
use super::tally::Tally;
use crate::cpu;

/// File with the recorded figures.
const RECORD: &str = "docs/house/ci-cost.md";
/// Part by which a step may cost more than recorded.
const TOLERANCE: f64 = 0.1;
/// Steps below this many units are compared by their sum: the noise of one alone may exceed the tolerance.
const ALONE_UNITS_MIN: f64 = 10.0;
/// CPU time of other processes, as a part of the CPU time of the run.
const OTHERS_MAX: f64 = 0.1;
/// Variables that change what the compiler does.
const VARIABLES: [&str; 3] = ["CARGO_INCREMENTAL", "CARGO_PROFILE_DEV_DEBUG", "RUSTFLAGS"];

/// Cost of a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepCost {
    pub(super) name: String,
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
    /// CPU time divided by the mean unit while the step ran; 0 in a run that is not compared.
    pub(super) units: f64,
}

/// A run that may be compared: CPU time of the machine before its first step, and the speed since then.
pub(super) struct Start {
    machine: Duration,
    speed: Speed,
}

impl Start {
    /// Measures the machine before the first step.
    ///
    /// # Errors
    /// The reason why the run cannot be compared.
    pub(super) fn of_run(ci: &Checkout, is_whole: bool) -> Result<Start, String> {
        if !is_whole {
            return Err("only some of the steps run".to_owned());
        }
        if let Some(built) = built_before(&ci.target_dir) {
            return Err(format!("the target directory is not empty: there is {built}"));
        }
        let machine = cpu::used_by_machine().ok_or("there is no /proc/stat")?;
        Ok(Start { machine, speed: Speed::start() })
    }

    /// CPU time of a step in units.
    pub(super) fn units(&self, cpu_s: f64, from: Instant, until: Instant) -> f64 {
        cpu_s / self.speed.unit_s(from, until)
    }

    /// Checks that the run can be compared.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(super) fn end(self, steps: &[StepCost]) -> Result<(), String> {
        let machine = cpu::used_by_machine().ok_or("there is no /proc/stat")?;
        let own_s: f64 = steps.iter().map(|step| step.cpu_s).sum();
        let others_s = (machine.saturating_sub(self.machine).as_secs_f64() - own_s).max(0.0);
        let (shortest, longest) = self.speed.extremes_s();
        println!(
            "a unit took {shortest:.3} to {longest:.3} s of CPU; processes outside of the steps: {others_s:.0} s"
        );
        if others_s > OTHERS_MAX * own_s {
            return Err(format!("other processes used {others_s:.0} s of CPU, the steps {own_s:.0} s"));
        }
        let installed = super::peers::installed();
        if !installed.is_empty() {
            return Err(format!("the steps installed {}", installed.join(", ")));
        }
        Ok(())
    }
}

/// Returns what an earlier run has left: compiled crates, the build for loom, the Python environment.
fn built_before(target_dir: &Path) -> Option<String> {
    let fingerprints = std::fs::read_dir(target_dir.join("debug/.fingerprint")).ok();
    let mut names = fingerprints.into_iter().flatten().flatten();
    let crates = names.find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("chronolith").then_some(name)
    });
    let other = ["loom", "ci-venv"].into_iter().find(|name| target_dir.join(name).exists());
    crates.or(other.map(str::to_owned))
}

/// Compares a run with the recorded figures; a step that costs too much is a failure.
pub(super) fn check(root: &Path, steps: &[StepCost]) -> Result<Tally> {
    let path = root.join(RECORD);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("CPU time is not compared: there is no {RECORD}; cargo xtask ci --record-cost writes it");
        return Ok(Tally::default());
    };
    let setting = setting()?;
    if !text.contains(&setting) {
        println!(
            "CPU time is not compared: {RECORD} is of another machine, compiler or other variables than\n{setting}"
        );
        return Ok(Tally::default());
    }
    let comparison = compare(&parse(&text).with_context(|| path.display().to_string())?, steps);
    comparison.notes.iter().for_each(|note| println!("CPU time: {note}"));
    let mut tally = Tally::of_step(comparison.failures.is_empty());
    tally.notes = comparison.failures;
    Ok(tally)
}

/// Writes the figures of a run.
pub(super) fn record(root: &Path, steps: &[StepCost]) -> Result<()> {
    let path = root.join(RECORD);
    std::fs::write(&path, render(&setting()?, steps)).with_context(|| path.display().to_string())?;
    println!("wrote {RECORD}");
    Ok(())
}

/// Machine, compiler and variables on which the cost of a build depends, as lines of the record.
fn setting() -> Result<String> {
    let out = std::process::Command::new("rustc").arg("--version").output().context("rustc --version")?;
    let compiler = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    let variables: Vec<String> = VARIABLES
        .iter()
        .map(|name| format!("`{name}={}`", std::env::var(name).unwrap_or_default()))
        .collect();
    Ok(format!("- machine: {}\n- compiler: {compiler}\n- variables: {}\n", machine(), variables.join(" ")))
}

/// Model and number of the CPUs.
fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cpus} CPUs, {}", cpu::model().unwrap_or_else(|| "unknown".to_owned()))
}

const HEAD: &str = "\
# CPU time of each step of CI

Written by `cargo xtask ci --record-cost`, from an empty target directory on a machine with nothing else to do. A
later run of all steps, also from an empty target directory, names each step that takes over 10 % more units than
here, and fails with `--all`; steps below 10 units are compared by their sum. A unit is the CPU time of sorting 4
times 524,288 numbers in one thread, a mean of measurements every 30 s while the step ran. CPU time is user and system, of the process
tree of a step as far as parents have waited for their children. It depends less on other load than wall time does,
but not on nothing: two groups of steps share caches and cores. Machines differ in memory and disk by more than a
sort shows, so a run on another kind of machine is not compared; it asks for a record of its own.

";

fn render(setting: &str, steps: &[StepCost]) -> String {
    let mut out = format!("{HEAD}{setting}\n| step | wall s | CPU s | units |\n|---|---:|---:|---:|\n");
    let mut all = [0.0; 3];
    for step in steps {
        let StepCost { name, wall_s, cpu_s, units } = step;
        // Writing to a String does not fail.
        let _ = writeln!(out, "| {name} | {wall_s:.1} | {cpu_s:.1} | {units:.2} |");
        all = [all[0] + wall_s, all[1] + cpu_s, all[2] + units];
    }
    let _ =
        writeln!(out, "\nSum: {:.0} s of wall time, {:.0} s of CPU, {:.0} units.", all[0], all[1], all[2]);
    out
}

/// Reads the rows of [`render`].
fn parse(text: &str) -> Result<Vec<StepCost>> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| step |"));
    let mut steps = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, wall_s, cpu_s, units] = cells[..] else { bail!("a row without four cells: {row}") };
        let number = |cell: &str| cell.parse::<f64>().with_context(|| format!("not a number: {row}"));
        steps.push(StepCost {
            name: name.to_owned(),
            wall_s: number(wall_s)?,
            cpu_s: number(cpu_s)?,
            units: number(units)?,
        });
    }
    if steps.is_empty() {
        bail!("no row of a step");
    }
    Ok(steps)
}

/// Result of a comparison, in sentences.
struct Comparison {
    failures: Vec<String>,
    notes: Vec<String>,
}

fn compare(recorded: &[StepCost], found: &[StepCost]) -> Comparison {
    let mut comparison = Comparison { failures: Vec::new(), notes: Vec::new() };
    let mut small = [0.0; 2];
    for step in found {
        let Some(before) = recorded.iter().find(|before| before.name == step.name) else {
            comparison.notes.push(format!("{}: no figure is recorded", step.name));
            continue;
        };
        if before.units < ALONE_UNITS_MIN {
            small = [small[0] + before.units, small[1] + step.units];
        } else {
            comparison.add(&step.name, before.units, step.units);
        }
    }
    comparison.add("steps below 10 units together", small[0], small[1]);
    comparison
}

impl Comparison {
    fn add(&mut self, name: &str, recorded: f64, found: f64) {
        let percent = 100.0 * (found / recorded - 1.0);
        let line = format!("{name}: {found:.1} units of CPU, recorded {recorded:.1} ({percent:+.0} %)");
        if found > recorded * (1.0 + TOLERANCE) {
            self.failures.push(line);
        } else if found < recorded * (1.0 - TOLERANCE) {
            self.notes.push(format!("{line}; record it: cargo xtask ci --record-cost"));
        }
    }
}

#[cfg(test)]
mod tests;
