//! Flags of the benchmark, and the figures of one case.
//!
//! Not here: the cases.

use std::path::PathBuf;

use crate::report::{Table, Target};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cases (default: all): databases, drop, rows, mean, churn.
    #[arg(long, value_delimiter = ',')]
    pub(super) cases: Vec<String>,
    /// A hundredth of each size: shows that the benchmark works.
    #[arg(long)]
    pub(super) quick: bool,
    /// Minutes over which the case `churn` spreads its series.
    #[arg(long, default_value_t = 10)]
    pub(super) churn_minutes: u64,
    /// Directory of the report.
    #[arg(long, default_value = "bench/results")]
    pub(super) out: PathBuf,
    /// Parent of the data directories. Its disk affects the results.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub(super) data: PathBuf,
}

impl Options {
    /// Returns `count`, or a hundredth of it.
    pub(super) fn sized(&self, count: u64) -> u64 {
        if self.quick { (count / 100).max(1) } else { count }
    }
}

/// Figures of one case.
pub(super) struct Case {
    pub(super) table: Table,
    pub(super) targets: Vec<Target>,
}
