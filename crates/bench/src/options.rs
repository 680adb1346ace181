//! Options that benchmarks share, flattened into their own: where reports and data go, and the servers.
//!
//! Invariants: a flag of the same name means the same in each benchmark.
//! Not here: loads, whose sizes and defaults belong to their benchmark.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::server::Kind;

#[derive(clap::Args)]
pub(crate) struct ReportDirectory {
    /// Directory of the report.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
}

impl Deref for ReportDirectory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.out
    }
}

#[derive(clap::Args)]
pub(crate) struct DataDirectory {
    /// Parent of the data directories. Its disk affects the results.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    data: PathBuf,
}

impl Deref for DataDirectory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.data
    }
}

#[derive(clap::Args)]
pub(crate) struct Servers {
    /// Servers to measure (default: all that the benchmark knows).
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Kind>,
}

impl Servers {
    /// Returns the servers to measure, by default all of `default`, and prints the version of each.
    ///
    /// # Errors
    /// A program is missing, and where it comes from.
    pub(crate) fn chosen(&self, default: &[Kind]) -> Result<Vec<Kind>> {
        let kinds = if self.only.is_empty() { default } else { &self.only };
        for kind in kinds {
            println!("{}: {}", kind.name(), kind.version()?);
        }
        Ok(kinds.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use crate::Args;

    /// Covers a mistake that shows only when a benchmark starts: two options of one name.
    #[test]
    fn no_benchmark_has_a_flag_twice() {
        Args::command().debug_assert();
    }

    #[test]
    fn shared_flags_reach_the_benchmarks_that_document_them() {
        for line in [
            "bench restart --only chronolith,prometheus --out /tmp/reports --data /tmp/data --quick",
            "bench neighbours --data /tmp/data --server-flag=--head-memory-limit=1GiB",
            "bench load-wal --only 1,2 --out /tmp/reports",
            "bench queries --only chronolith --head",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        assert!(Args::try_parse_from(["bench", "restart", "--only", "influxdb"]).is_err());
    }
}
