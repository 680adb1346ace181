//! `cargo xtask ci | tidy | house | bench | peers`: the automation of this repository, in Rust instead of
//! shell.
//!
//! Invariants: depends on no crate of the workspace, so that it builds when they do not; every process it
//! starts ends with it.
//! Not here: benchmarks (`crates/bench`), tests (the crates and the black-box kits).

// A development tool acts on the real machine only; nothing here is replayed from a seed.
#![allow(clippy::disallowed_methods, reason = "not part of the server")]

mod append_path;
mod bench;
mod ci;
mod cpu;
mod house;
mod peers;
mod process;
mod sha256;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  tidy [--bless-docs | --record-exceptions | --list RULE]
                                rules of docs and sources that no compiler checks
  ci [--all] [--only A,B] [--skip A,B] [--record-cost]
                                everything `make test` runs; --all: everything `make test-all` runs;
                                --record-cost: writes the CPU time of each step to docs/house/ci-cost.md
  house [--crate NAME]... [--markdown FILE]
                                structure of each crate in figures: sizes, import cycles, types, functions
  append-path [--record]        instructions and cache misses of appends against those recorded
  bench NAME [flags]            one benchmark of crates/bench, in a release build
  peers                         builds the newest Prometheus, VictoriaMetrics, InfluxDB 1.8 and versitygw (Go) to compare and test with";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.split_first() {
        Some((&"tidy", flags)) => tidy::run(&checkout_dir(), flags),
        Some((&"ci", flags)) => ci::run(&checkout_dir(), flags),
        Some((&"house", flags)) => house::run(&checkout_dir(), flags),
        Some((&"peers", _)) => peers::run(&checkout_dir()),
        Some((&"append-path", flags)) => append_path::run(&checkout_dir(), flags),
        Some((&"bench", flags)) => bench::run(&checkout_dir(), flags),
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Root of the checkout: two folders above this crate.
fn checkout_dir() -> PathBuf {
    let mut dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    dir.pop();
    dir.pop();
    dir
}
