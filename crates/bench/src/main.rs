//! Published benchmarks, one file each; every peer is a process that the benchmark starts and ends.
//! Parts of this repository that are measured alone run in this process.
//!
//! Holds: a figure is printed only after the answer behind it was checked.
//! Not here: how to read the figures (BENCHMARKS.md).

// A benchmark measures the real machine; nothing here is replayed from a seed.
#![allow(clippy::disallowed_methods, reason = "not part of the server")]

mod http;
mod machine;
mod proc;
mod remote_write;
mod reorder;
mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask bench", about = "Benchmarks against other servers on this machine")]
struct Args {
    #[command(subcommand)]
    name: Name,
}

#[derive(Subcommand)]
enum Name {
    /// Remote write 1.0: samples per second and per CPU second, memory, disk, ack latency.
    RemoteWrite(remote_write::Options),
    /// Reorder buffer: the 24 published adds of Metrictank, time and allocations of each.
    Reorder(reorder::Options),
}

fn main() -> ExitCode {
    let done = match Args::parse().name {
        Name::RemoteWrite(options) => remote_write::run(&options),
        Name::Reorder(options) => reorder::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
