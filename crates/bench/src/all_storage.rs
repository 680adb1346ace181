//! `all-storage`: the five benchmarks of the storage engine one after another, each in a process of its own,
//! with parameters under which all of them take about half an hour.
//! Invariants: one that fails does not keep the others from running, but the whole fails.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use crate::driver::{Benchmark, Run};

/// Name and flags of each. The order puts those that need a quiet machine last: others may still be winding
/// down.
const BENCHES: [(&str, &[&str]); 5] = [
    ("disk", &[]),
    ("memory", &[]),
    ("restart", &["--load-seconds", "150"]),
    ("late", &[]),
    ("write-path", &[]),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Hand `--quick` to each: shows that they work, in about eight minutes.
    #[arg(long)]
    quick: bool,
}

impl Benchmark for Options {
    fn measure(&self, run: &mut Run) -> Result<()> {
        let program = std::env::current_exe()?;
        for (name, flags) in BENCHES {
            println!("\n=== {name} {}", flags.join(" "));
            let start = Instant::now();
            let mut command = Command::new(&program);
            command.arg(name).args(flags).arg("--out").arg(run.out()).arg("--data").arg(run.data());
            if self.quick {
                command.arg("--quick");
            }
            let status = command.status().with_context(|| program.display().to_string())?;
            println!("=== {name}: {status} after {:.0} s", start.elapsed().as_secs_f64());
            run.keep(name, if status.success() { Ok(()) } else { Err(anyhow!("{status}")) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::BENCHES;
    use crate::Args;

    #[test]
    fn all_flags_exist() {
        for (name, flags) in BENCHES {
            let line = ["bench", name].into_iter().chain(flags.iter().copied()).chain(["--quick"]);
            assert!(Args::try_parse_from(line).is_ok(), "{name}");
        }
    }
}
