//! Instructions and data cache misses per sample of the append path, counted by a simulator of the processor
//! and held against the figures in `bench/append-path.json`: times on a shared machine cannot resolve one
//! percent.
//!
//! Invariants: the work is the same in each run (`crates/head/examples/append_path.rs`), and so are caches,
//! environment and the instructions that libraries may choose; the cost of a start is subtracted.
//! Not here: time that a change costs (`cargo xtask bench write-path --against`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::process::{find_program, run_within};

/// The C library selects its routines by the processor (one of them makes 0.7 % of the count): these are left
/// out, so that each machine runs those for SSE2.
const LIBC_ROUTINES: &str =
    "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,-SSSE3,-AVX_Fast_Unaligned_Load";
/// Instructions may differ from the recorded ones by this part.
const INSTRUCTION_TOLERANCE: f64 = 0.01;
/// Misses depend on the addresses that the allocator and the kernel give as well.
const D1_TOLERANCE: f64 = 0.03;
const RECORD: &str = "bench/append-path.json";
const WRITERS: [usize; 2] = [1, 10];
/// Batches of the longer and the shorter run: their difference is the cost of appends alone.
const BATCHES: [usize; 2] = [90, 30];
const SERIES_PER_WRITER: usize = 500;
const BUILD_WITHIN: Duration = Duration::from_secs(1500);
/// 32 KiB, 8 ways; a last level of 8 MiB: figures do not depend on the caches of this machine.
const CACHES: [&str; 3] = ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64"];

/// Cost of one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    instructions: f64,
    d1_misses: f64,
}

/// The command: compares with the recorded figures, or records them.
pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<bool> {
    match flags {
        [] => Ok(check(root)?.is_within),
        ["--record"] => record(root).map(|()| true),
        _ => bail!("usage: cargo xtask append-path [--record]"),
    }
}

/// Returns true if figures are recorded at all.
pub(crate) fn is_recorded(root: &Path) -> bool {
    root.join(RECORD).is_file()
}

/// The comparison with the recorded figures.
pub(crate) struct Comparison {
    pub(crate) is_within: bool,
    /// One sentence per figure, or why there is none.
    pub(crate) lines: Vec<String>,
}

/// Measures and compares with the recorded figures; prints each line of the comparison.
pub(crate) fn check(root: &Path) -> Result<Comparison> {
    let path = root.join(RECORD);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let recorded: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let compiler = compiler()?;
    if recorded["compiler"] != compiler.as_str() {
        let line = format!(
            "{RECORD} is of {}, this is {compiler}: `cargo xtask append-path --record`",
            recorded["compiler"]
        );
        println!("{line}");
        return Ok(Comparison { is_within: false, lines: vec![line] });
    }
    let mut comparison = Comparison { is_within: true, lines: Vec::new() };
    for (writers, cost) in measure(root)? {
        let of = &recorded["writers"][writers.to_string()];
        for (what, name, found, tolerance) in [
            ("instructions", "instructions_per_sample", cost.instructions, INSTRUCTION_TOLERANCE),
            ("D1 misses", "d1_misses_per_sample", cost.d1_misses, D1_TOLERANCE),
        ] {
            let before =
                of[name].as_f64().with_context(|| format!("{RECORD}: {name} of {writers} writers"))?;
            let verdict = verdict(before, found, tolerance);
            comparison.is_within &= verdict == "ok";
            let percent = 100.0 * (found / before - 1.0);
            let line = format!(
                "{writers:>2} writers: {found:.3} {what} per sample, recorded {before:.3} ({percent:+.2} %): {verdict}"
            );
            println!("{line}");
            comparison.lines.push(line);
        }
    }
    if !comparison.is_within {
        println!("where that is meant: `cargo xtask append-path --record`, and say why in the commit");
    }
    Ok(comparison)
}

/// An improvement is recorded as well: otherwise the next change may take it back unseen.
fn verdict(before: f64, found: f64, tolerance: f64) -> &'static str {
    let change = found / before - 1.0;
    if change > tolerance {
        "MORE than recorded"
    } else if change < -tolerance {
        "less than recorded: record it"
    } else {
        "ok"
    }
}

fn record(root: &Path) -> Result<()> {
    let mut writers = serde_json::Map::new();
    for (count, cost) in measure(root)? {
        let rounded = |figure: f64| (figure * 1000.0).round() / 1000.0;
        let figures = json!({
            "instructions_per_sample": rounded(cost.instructions),
            "d1_misses_per_sample": rounded(cost.d1_misses),
        });
        println!("{count:>2} writers: {figures}");
        writers.insert(count.to_string(), figures);
    }
    let record = json!({
        "command": "cargo xtask append-path --record",
        "compiler": compiler()?,
        "writers": writers,
    });
    let path = root.join(RECORD);
    std::fs::write(&path, serde_json::to_string_pretty(&record)? + "\n")?;
    println!("wrote {}", path.display());
    Ok(())
}

fn compiler() -> Result<String> {
    let out = Command::new("rustc").arg("--version").output().context("rustc --version")?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn measure(root: &Path) -> Result<Vec<(usize, Cost)>> {
    let build = "cargo build --release --quiet --package chronolith-head --example append_path";
    println!("$ {build}");
    let command: Vec<String> = build.split(' ').map(str::to_owned).collect();
    ensure!(run_within(BUILD_WITHIN, &command, root, &[])?.success, "the release build failed");
    let program = crate::process::target_dir(root)?.join("release/examples/append_path");
    let measured = WRITERS.map(|writers| -> Result<(usize, Cost)> {
        let [long, short] = BATCHES.map(|batches| simulate(&program, writers, batches));
        let (long_ir, long_d1) = long?;
        let (short_ir, short_d1) = short?;
        let sample_count = (writers * SERIES_PER_WRITER * (BATCHES[0] - BATCHES[1])) as f64;
        let instructions = long_ir.saturating_sub(short_ir) as f64 / sample_count;
        let d1_misses = long_d1.saturating_sub(short_d1) as f64 / sample_count;
        Ok((writers, Cost { instructions, d1_misses }))
    });
    measured.into_iter().collect()
}

/// Instructions and D1 misses of a whole run.
fn simulate(program: &Path, writers: usize, batches: usize) -> Result<(u64, u64)> {
    // Environment and path of the program lie on its stack: their lengths decide which variables share a
    // cache line.
    let copy = fixed_length_path();
    std::fs::copy(program, &copy).with_context(|| copy.display().to_string())?;
    let valgrind = find_program("valgrind").context("valgrind is missing")?;
    let mut command = Command::new(valgrind);
    command.env_clear().env("GLIBC_TUNABLES", LIBC_ROUTINES);
    command.args(["--tool=callgrind", "--cache-sim=yes", "--callgrind-out-file=/dev/null"]).args(CACHES);
    command.arg(&copy).args([writers.to_string(), batches.to_string()]);
    let out = command.output().context("valgrind");
    std::fs::remove_file(&copy).with_context(|| copy.display().to_string())?;
    let out = out?;
    let text = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "valgrind: {}\n{text}", out.status);
    events(&text).with_context(|| format!("valgrind has printed no counts:\n{text}"))
}

/// `TMPDIR` is of any length: a fixed directory comes first.
fn fixed_length_path() -> PathBuf {
    let tmp = Path::new("/tmp");
    let dir = if tmp.is_dir() { tmp.to_owned() } else { std::env::temp_dir() };
    dir.join(format!("append-path-{:010}", std::process::id()))
}

/// `Ir` and the sum of `D1mr` and `D1mw` of callgrind's summary.
fn events(text: &str) -> Option<(u64, u64)> {
    let words = |name: &str| {
        let rest = text.lines().find_map(|line| line.split_once(name).map(|(_, rest)| rest))?;
        Some(rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let names = words("Events    :")?;
    let counts = words("Collected :")?;
    let count = |name: &str| counts.get(names.iter().position(|n| n == name)?)?.parse::<u64>().ok();
    Some((count("Ir")?, count("D1mr")? + count("D1mw")?))
}

#[cfg(test)]
mod tests {
    use super::{INSTRUCTION_TOLERANCE, events, verdict};

    #[test]
    fn counts_are_read_by_the_names_of_their_events() {
        let text = "==7== Events    : Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n\
                    ==7== Collected : 1000 300 200 5 40 2 1 7 8\n==7== I   refs: 1,000\n";
        assert_eq!(events(text), Some((1000, 42)));
        assert_eq!(events("==7== Collected : 1000"), None);
    }

    #[test]
    fn one_percent_is_held_in_both_directions() {
        let verdict = |found| verdict(100.0, found, INSTRUCTION_TOLERANCE);
        assert_eq!([100.9, 99.1].map(verdict), ["ok"; 2]);
        assert!(verdict(101.1) != "ok" && verdict(98.9) != "ok");
    }
}
