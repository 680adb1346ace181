//! Published benchmarks, one file each; every peer is a process that the benchmark starts and ends.
//! Parts of this repository that are measured alone run in this process.
//!
//! Invariants: a figure is printed only after its answer was checked.
//! Not here: interpretation of the figures (BENCHMARKS.md).

// A benchmark measures the real machine; nothing here is replayed from a seed.
#![allow(clippy::disallowed_methods, reason = "not part of the server")]

mod all_storage;
mod allocations;
mod alternation;
mod block_series;
mod body;
mod bucket;
mod carbon;
mod carbon_cache;
mod cluster;
mod departed_series;
mod disk;
mod driver;
mod families;
mod fleet;
mod hostile_order;
mod http;
mod influx;
mod influx_scale;
mod label_endpoints;
mod late;
mod latency;
mod line_protocol;
mod load_wal;
mod load_wal_large;
mod machine;
mod many_blocks;
mod many_tenants;
mod memory;
mod neighbours;
mod observed_disk;
mod options;
mod pairs;
mod proc;
mod queries;
mod remote_write;
mod reorder;
mod report;
mod restart;
mod rollups;
mod server;
mod sizes;
mod tls;
mod traffic;
mod workers;
mod write_path;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use driver::{Benchmark, CommonOptions};

#[derive(Parser)]
#[command(name = "cargo xtask bench", about = "Benchmarks against other servers on this machine")]
struct Args {
    #[command(subcommand)]
    name: Name,
    #[command(flatten)]
    common: CommonOptions,
}

#[derive(Subcommand)]
enum Name {
    /// disk, memory, restart, late and write-path one after another: about half an hour.
    AllStorage(all_storage::Options),
    /// Series from a block in a bucket, as Mimir publishes it: time, allocations and bytes of an operation.
    BlockSeries(block_series::Options),
    /// Queries over blocks in an S3 server that is 30 ms away, scans, many tenants, neighbours.
    Bucket(bucket::Options),
    /// A gateway, owners and a query node over a topic of Kafka, next to one server: CPU, time of answers,
    /// bytes of the log, start of an owner.
    Cluster(cluster::Options),
    /// Processes of a cluster and brokers are killed at random; answers are compared with a ledger.
    ClusterCampaign(cluster::campaign::Options),
    /// Partitions are added, drained and removed, processes moved and restarted, during writes and reads.
    ClusterElasticity(cluster::elasticity::Options),
    /// Acknowledgements of quiet tenants of a cluster, alone and next to a flood.
    ClusterNeighbours(cluster::neighbours::Options),
    /// Resident memory after all series have left the head, for many tenants and for one large one.
    DepartedSeries(departed_series::Options),
    /// Bytes per sample after compaction, by family of values.
    Disk(disk::Options),
    /// One request with a million samples of one series in hostile orders, and another tenant meanwhile.
    HostileOrder(hostile_order::Options),
    /// Large numbers of databases, series, rows and windows by InfluxDB's API: memory, time, disk.
    InfluxScale(influx_scale::Options),
    /// Label names, label values, series and counts of series: time of each request.
    LabelEndpoints(label_endpoints::Options),
    /// Samples that come up to a day late: ingest rate, and query time before and after they are in blocks.
    Late(late::Options),
    /// Line protocol: values per second and per CPU second, latency, memory, disk, kill and restart.
    LineProtocol(line_protocol::Options),
    /// Carbon lines over TCP: points per second and CPU, memory, loss after a kill.
    Carbon(carbon::Options),
    /// Flushing the windows of 10,000 small tenants: CPU, syncs and blocks a day.
    ManyTenants(many_tenants::Options),
    /// A server over a directory with many blocks: start, maps, memory, and whether it goes on.
    ManyBlocks(many_blocks::Options),
    /// Resident memory an active series, with and without series that come and go.
    Memory(memory::Options),
    /// A tenant with a dashboard and a writer, alone and next to tenants with 300 clients of heavy queries
    /// and 50 writers.
    Neighbours(neighbours::Options),
    /// A benchmark of this binary and of another one in alternation: every figure of both, and their ratio.
    Pairs(pairs::Options),
    /// Ten slow shapes of query: time and memory of each, answers compared.
    Queries(queries::Options),
    /// A query far beyond the limits is refused at once while dashboards keep their latency.
    QueryLimits(queries::limits::Options),
    /// sum(rate(x[5m])) over dense chunks in memory, samples per second and core.
    RateKernel(queries::kernel::Options),
    /// Answers of graphs of 0.1, 1 and 10 MB over head and blocks, with gzip and plain: time, CPU, bytes.
    GraphAnswers(queries::graph_answers::Options),
    /// Remote write 1.0: samples per second and per CPU second, memory, disk, ack latency.
    RemoteWrite(remote_write::Options),
    /// Reorder buffer: the 24 published adds of Metrictank, time and allocations of each.
    Reorder(reorder::Options),
    /// A year of carbon points: panels with and without roll-ups, and the size of these.
    Rollups(rollups::Options),
    /// Load of a Prometheus log and replay of our own: the four published cases.
    LoadWal(load_wal::Options),
    /// The same for 100 million samples, and for a million series: time, CPU, memory.
    LoadWalLarge(load_wal_large::Options),
    /// Kill and restart: time to the first correct answer, acknowledged samples lost, memory.
    Restart(restart::Options),
    /// TLS: CPU of writes and small queries next to plain HTTP, half-open handshakes, new certificates.
    Tls(tls::Options),
    /// The store without a server: 1 to 200 writers, with and without fsync.
    WritePath(write_path::Options),
}

impl Name {
    fn benchmark(&self) -> &dyn Benchmark {
        match self {
            Name::AllStorage(options) => options,
            Name::BlockSeries(options) => options,
            Name::Bucket(options) => options,
            Name::DepartedSeries(options) => options,
            Name::Disk(options) => options,
            Name::HostileOrder(options) => options,
            Name::InfluxScale(options) => options,
            Name::LabelEndpoints(options) => options,
            Name::Late(options) => options,
            Name::LineProtocol(options) => options,
            Name::Carbon(options) => options,
            Name::ManyTenants(options) => options,
            Name::ManyBlocks(options) => options,
            Name::Memory(options) => options,
            Name::Neighbours(options) => options,
            Name::Pairs(options) => options,
            Name::Queries(options) => options,
            Name::QueryLimits(options) => options,
            Name::RateKernel(options) => options,
            Name::GraphAnswers(options) => options,
            Name::Cluster(options) => options,
            Name::ClusterCampaign(options) => options,
            Name::ClusterElasticity(options) => options,
            Name::ClusterNeighbours(options) => options,
            Name::RemoteWrite(options) => options,
            Name::Reorder(options) => options,
            Name::Rollups(options) => options,
            Name::LoadWal(options) => options,
            Name::LoadWalLarge(options) => options,
            Name::Restart(options) => options,
            Name::Tls(options) => options,
            Name::WritePath(options) => options,
        }
    }
}

fn main() -> ExitCode {
    let matches = Args::command().get_matches();
    let command = matches.subcommand_name().unwrap_or_default();
    let Args { name, common } = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match driver::run(command, name.benchmark(), &common) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
