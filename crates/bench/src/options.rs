//! Options that several benchmarks have, flattened into their own.
//!
//! Invariants: a flag of the same name means the same in each benchmark.
//! Not here: loads, whose sizes and defaults belong to their benchmark; directories (`driver`).

use anyhow::{Result, ensure};

use crate::server::Kind;

#[derive(clap::Args)]
pub(crate) struct Servers {
    /// Servers to measure (default: all that the benchmark knows).
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Kind>,
}

impl Servers {
    /// Returns the servers to measure, by default all of `known`.
    ///
    /// # Errors
    /// One of them is not known to the benchmark.
    pub(crate) fn of(&self, known: &[Kind]) -> Result<Vec<Kind>> {
        let unknown = self.only.iter().find(|kind| !known.contains(kind));
        ensure!(unknown.is_none(), "not measured here: {}", unknown.map_or("", |kind| kind.name()));
        Ok(if self.only.is_empty() { known.to_vec() } else { self.only.clone() })
    }

    /// Returns true if `--only` chooses servers.
    pub(crate) fn is_chosen(&self) -> bool {
        !self.only.is_empty()
    }
}

/// Returns the values of a list of names that `wanted` chooses, all of them if it is empty.
///
/// # Errors
/// A wanted name that does not exist.
pub(crate) fn chosen<T>(wanted: &[String], all: Vec<T>, name: impl Fn(&T) -> &str) -> Result<Vec<T>> {
    let unknown = wanted.iter().find(|wanted| !all.iter().any(|one| name(one) == wanted.as_str()));
    let names = || all.iter().map(&name).collect::<Vec<&str>>().join(", ");
    ensure!(unknown.is_none(), "no {}; there are: {}", unknown.map_or("", |name| name), names());
    let is_wanted = |one: &T| wanted.is_empty() || wanted.iter().any(|wanted| name(one) == wanted);
    Ok(all.into_iter().filter(is_wanted).collect())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::{Kind, Servers, chosen};
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
            "bench line-protocol --only influx-inmem,influx-tsi1",
            "bench carbon --only carbon --rows untagged",
            "bench restart --list-servers --only chronolith",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        assert!(Args::try_parse_from(["bench", "restart", "--only", "influxdb"]).is_err());
    }

    #[test]
    fn a_server_that_the_benchmark_does_not_know_is_refused() {
        let only = |only: &[Kind]| Servers { only: only.to_vec() }.of(&Kind::ALL);
        assert_eq!(only(&[]).unwrap(), Kind::ALL);
        assert_eq!(only(&[Kind::Prometheus]).unwrap(), [Kind::Prometheus]);
        assert_eq!(only(&[Kind::Carbon]).unwrap_err().to_string(), "not measured here: carbon-cache");
    }

    #[test]
    fn names_choose_values_and_unknown_ones_are_refused() {
        let of = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            chosen(&wanted, vec!["a", "b", "c"], |one| one)
        };
        assert_eq!(of(&[]).unwrap(), ["a", "b", "c"]);
        assert_eq!(of(&["c", "a"]).unwrap(), ["a", "c"]);
        assert_eq!(of(&["d"]).unwrap_err().to_string(), "no d; there are: a, b, c");
    }
}
