//! Figures of `cluster`. Not here: measurement (`cluster`).

use super::nodes::CaughtUp;
use super::own_writes::OwnWrites;
use crate::latency;
use crate::report::{MIB, Table};

/// Figures of one round of the nodes.
pub(super) struct Measured {
    pub(super) sample_count: f64,
    pub(super) gateway_cpu_s: f64,
    pub(super) owners_cpu_s: f64,
    pub(super) brokers_cpu_s: f64,
    /// Seconds from the first request until the last sample was applied.
    pub(super) wall_s: f64,
    pub(super) log_bytes: f64,
    pub(super) paced_ack_ms: Vec<f64>,
    /// From exec of a killed owner until it is ready.
    pub(super) owner_restart_s: f64,
    /// An owner that was started without its directory.
    pub(super) caught_up: CaughtUp,
    /// CPU time of owners and query node for all queries.
    pub(super) queries_cpu_s: f64,
    /// CPU time of owners for the selects of a query of all samples, and their bytes.
    pub(super) select_cpu_s: f64,
    pub(super) select_bytes: f64,
    pub(super) own_writes: OwnWrites,
    pub(super) gateway_peak_bytes: f64,
    pub(super) owners_peak_bytes: f64,
}

/// Figures of one round of the single server.
pub(super) struct Single {
    pub(super) sample_count: f64,
    pub(super) cpu_s: f64,
    pub(super) wall_s: f64,
    pub(super) paced_ack_ms: Vec<f64>,
    /// CPU time for all queries.
    pub(super) queries_cpu_s: f64,
}

impl Measured {
    /// CPU seconds of gateway and owners per million samples.
    pub(super) fn cpu_per_million(&self) -> f64 {
        (self.gateway_cpu_s + self.owners_cpu_s) / self.sample_count * 1e6
    }

    /// Samples that an owner has applied per CPU second while it read its partition from the log.
    pub(super) fn applied_per_cpu_s(&self) -> f64 {
        self.caught_up.sample_count / self.caught_up.cpu_s
    }

    /// Seconds in which it would apply 100 million samples.
    pub(super) fn seconds_of_100_million(&self) -> f64 {
        self.caught_up.wall_s / self.caught_up.sample_count * 1e8
    }

    /// Gigabytes of answers to query nodes per CPU second of owners.
    pub(super) fn select_gb_per_cpu_s(&self) -> f64 {
        self.select_bytes / self.select_cpu_s / 1e9
    }

    /// Bytes of the log's segments per sample.
    pub(super) fn log_bytes_per_sample(&self) -> f64 {
        self.log_bytes / self.sample_count
    }
}

/// Both kinds in columns, medians of the rounds.
pub(super) fn table(singles: &[Single], clusters: &[Measured]) -> Table {
    type Row = (&'static str, usize, fn(&Single) -> f64, fn(&Measured) -> f64);
    const NONE: f64 = f64::NAN;
    let rows: [Row; 17] = [
        ("samples/s", 0, |one| one.sample_count / one.wall_s, |one| one.sample_count / one.wall_s),
        ("CPU s per million samples", 3, |one| one.cpu_s / one.sample_count * 1e6, Measured::cpu_per_million),
        ("... of the gateway", 3, |_| NONE, |one| one.gateway_cpu_s / one.sample_count * 1e6),
        ("... of the owners", 3, |_| NONE, |one| one.owners_cpu_s / one.sample_count * 1e6),
        (
            "CPU s of the broker per million samples",
            3,
            |_| NONE,
            |one| one.brokers_cpu_s / one.sample_count * 1e6,
        ),
        (
            "ack p50 at the paced rate, ms",
            1,
            |one| latency::at(&one.paced_ack_ms, 0.5),
            |one| latency::at(&one.paced_ack_ms, 0.5),
        ),
        (
            "ack p99 at the paced rate, ms",
            1,
            |one| latency::at(&one.paced_ack_ms, 0.99),
            |one| latency::at(&one.paced_ack_ms, 0.99),
        ),
        ("bytes per sample in the log", 1, |_| NONE, Measured::log_bytes_per_sample),
        ("owner killed, until it is ready, s", 2, |_| NONE, |one| one.owner_restart_s),
        ("owner without directory, samples per CPU s", 0, |_| NONE, Measured::applied_per_cpu_s),
        ("... seconds for 100 million samples", 0, |_| NONE, Measured::seconds_of_100_million),
        ("12 queries, 5 times, CPU s", 2, |one| one.queries_cpu_s, |one| one.queries_cpu_s),
        ("answers of owners, GB per CPU s of theirs", 2, |_| NONE, Measured::select_gb_per_cpu_s),
        ("read of an own write p50, ms", 1, |_| NONE, |one| latency::at(&one.own_writes.read_ms, 0.5)),
        ("read of an own write p99, ms", 1, |_| NONE, |one| latency::at(&one.own_writes.read_ms, 0.99)),
        ("peak RSS of the gateway, MiB", 0, |_| NONE, |one| one.gateway_peak_bytes / MIB),
        ("peak RSS of all owners, MiB", 0, |_| NONE, |one| one.owners_peak_bytes / MIB),
    ];
    let mut table = Table::new("One server, and nodes over a log", ["one server", "gateway and owners"]);
    for (label, decimals, of_single, of_cluster) in rows {
        let single = singles.iter().map(of_single).filter(|figure| !figure.is_nan()).collect();
        table.rounds(label, decimals, vec![single, clusters.iter().map(of_cluster).collect()]);
    }
    table
}
