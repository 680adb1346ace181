//! Benchmark `cluster`: the same load to one server of its own, and to a gateway, owners and a query node
//! over a topic of Kafka, in turns on this machine.
//!
//! Invariants: a round counts once each sample of it was read back through the query node; CPU time of
//! brokers is shown apart and never added to ours; figures are of one machine, not of a cluster.
//! Not here: processes (`cluster/nodes`), brokers (`cluster/brokers`).

mod brokers;
pub(crate) mod campaign;
mod checked_load;
pub(crate) mod elasticity;
pub(crate) mod neighbours;
mod nodes;
mod own_writes;
mod queries;
mod report;

use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::driver::{Benchmark, Run};
use crate::fleet::{Content, Fleet, Shape};
use crate::latency;
use crate::proc::Stopwatch;
use crate::server::{Kind, Server, Setup};
use crate::traffic::{SELECTOR, STEP_MS};
use brokers::Brokers;
use nodes::{NodeSetup, Nodes, OwnerEnd};
use report::{Measured, Single};

/// Steps by which a connection may be ahead of the slowest: five minutes of samples.
const LEAD_STEPS_MAX: usize = 20;
/// Limit for owners that apply what the log has.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);
/// Bounds of the issue that asked for the figures.
const CPU_RATIO_MAX: f64 = 3.0;
const LOG_BYTES_MAX: f64 = 30.0;
const ACK_P50_MS_MAX: f64 = 25.0;
const ACK_P99_MS_MAX: f64 = 100.0;
const OWNER_RESTART_S_MAX: f64 = 6.0;
const APPLIED_PER_CPU_S_MIN: f64 = 1.5e6;
const SECONDS_OF_100_MILLION_MAX: f64 = 90.0;
const QUERIES_CPU_RATIO_MAX: f64 = 1.5;
const SELECT_GB_PER_CPU_S_MIN: f64 = 0.5;
const OWN_WRITE_P99_MS_MAX: f64 = 100.0;
/// Times that all samples are asked for.
const SELECT_RUNS: usize = 5;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Series, one sample each per step.
    #[arg(long, default_value_t = 100_000)]
    series: usize,
    /// Samples per series, 15 s apart.
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// Samples per request.
    #[arg(long, default_value_t = 5_000)]
    batch: usize,
    /// Connections, each with a thread and its own part of the series.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Partitions of the topic, each with an owner.
    #[arg(long, default_value_t = 3)]
    partitions: usize,
    /// Samples per second while the time of answers is measured.
    #[arg(long, default_value_t = 50_000)]
    paced_rate: usize,
    /// Codec of the batches of the log.
    #[arg(long, default_value = "lz4")]
    compression: String,
    /// Writes that are read at once on the query node.
    #[arg(long, default_value_t = 10_000)]
    own_writes: usize,
    /// Rounds; the single server and the nodes take turns.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Program that starts brokers of Kafka.
    #[arg(long, default_value = "kits/kafka/broker.py")]
    kafka: PathBuf,
}

/// Answers of owners for all samples.
struct Select {
    cpu_s: f64,
    bytes: f64,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.steps > 1 && self.batch > 0 && self.connections > 0, "all counts must be above 0");
        ensure!(self.partitions > 0 && self.rounds > 0, "all counts must be above 0");
        let brokers = Brokers::start(&self.kafka, 1)?;
        run.note(format!(
            "{} samples per request, {} connections, {} partitions with an owner each, one broker, codec {}; \
             client, nodes and broker on the same machine",
            self.batch, self.connections, self.partitions, self.compression
        ));
        let mut singles = Vec::new();
        let mut clusters = Vec::new();
        for round in 1..=self.rounds {
            let single = run.measure_server(Kind::Chronolith, Setup::new(self.series), |server| {
                self.measure_single(server)
            });
            if let Some(single) = run.keep(&format!("single server, round {round}"), single) {
                singles.push(single);
            }
            let data = run.data().to_owned();
            let cluster = self.measure_nodes(&brokers, &data, round);
            if let Some(cluster) = run.keep(&format!("nodes, round {round}"), cluster) {
                clusters.push(cluster);
            }
        }
        self.report(run, &singles, &clusters);
        Ok(())
    }
}

impl Options {
    fn shape(&self) -> Shape {
        let content = Content::Noisy;
        let shape = Shape::up_to_now(self.series, self.batch, self.connections, content, self.steps * 2);
        Shape { lead_steps_max: LEAD_STEPS_MAX, ..shape }
    }

    fn measure_single(&self, server: &mut Server) -> Result<Single> {
        let shape = self.shape();
        let mut fleet = Fleet::new(&shape);
        let watch = Stopwatch::start(server.pid())?;
        fleet.send_all(server.port, 0..self.steps)?;
        let spent = watch.spent()?;
        let paced_ack_ms = self.send_paced(&mut fleet, server.port)?;
        self.verify(server.port, &fleet, &shape)?;
        let sample_count = (self.series * self.steps) as f64;
        let before = server.cpu()?;
        queries::ask_all(server.port, self.last_ms(&shape), self.steps)?;
        let queries_cpu_s = server.cpu()?.since(before).total();
        let cpu_s = spent.cpu.total();
        Ok(Single { sample_count, cpu_s, wall_s: spent.wall_seconds, paced_ack_ms, queries_cpu_s })
    }

    fn measure_nodes(&self, brokers: &Brokers, data: &std::path::Path, round: usize) -> Result<Measured> {
        let topic = format!("bench-{}-{round}", std::process::id());
        let log = format!("kafka://{}/{topic}", brokers.addresses()?);
        let mut setup = NodeSetup::new(log, self.partitions, self.series);
        setup.compression.clone_from(&self.compression);
        let nodes = Nodes::start(data, setup)?;
        let measured = self.measure_running(&nodes, brokers, &topic);
        measured.map_err(|error| error.context(nodes.log_tails()))
    }

    fn measure_running(&self, nodes: &Nodes, brokers: &Brokers, topic: &str) -> Result<Measured> {
        let shape = self.shape();
        let mut fleet = Fleet::new(&shape);
        let start = Instant::now();
        let gateway_start = nodes.gateways_cpu()?;
        let owners_start = nodes.owners_cpu()?;
        let brokers_start = brokers.cpu()?;
        let port = nodes.gateway_ports[0];
        fleet.send_all(port, 0..self.steps)?;
        let sample_count = self.series * self.steps;
        nodes.wait_applied(sample_count, CATCH_UP_LIMIT)?;
        let wall_s = start.elapsed().as_secs_f64();
        let gateway_cpu_s = nodes.gateways_cpu()?.since(gateway_start).total();
        let owners_cpu_s = nodes.owners_cpu()?.since(owners_start).total();
        let brokers_cpu_s = brokers.cpu()?.since(brokers_start).total();
        let log_bytes = brokers.topic_bytes(topic)? as f64;
        let paced_ack_ms = self.send_paced(&mut fleet, port)?;
        nodes.wait_applied(sample_count + self.paced_steps() * self.series, CATCH_UP_LIMIT)?;
        let answering = |nodes: &Nodes| anyhow::Ok(nodes.queries_cpu()?.plus(nodes.owners_cpu()?));
        let before = answering(nodes)?;
        queries::ask_all(nodes.query_ports[0], self.last_ms(&shape), self.steps)?;
        let queries_cpu_s = answering(nodes)?.since(before).total();
        let select = self.select_all(nodes, &shape)?;
        let own_writes = own_writes::measure(nodes, self.own_writes)?;
        let owner_restart_s = nodes.restart_owner(0, OwnerEnd::Kill, CATCH_UP_LIMIT)?.wall_s;
        let caught_up = nodes.restart_owner(0, OwnerEnd::LoseDirectory, CATCH_UP_LIMIT)?;
        nodes.wait_asked(CATCH_UP_LIMIT)?;
        self.verify(nodes.query_ports[0], &fleet, &shape)?;
        Ok(Measured {
            sample_count: sample_count as f64,
            gateway_cpu_s,
            owners_cpu_s,
            brokers_cpu_s,
            wall_s,
            log_bytes,
            paced_ack_ms,
            owner_restart_s,
            caught_up,
            queries_cpu_s,
            select_cpu_s: select.cpu_s,
            select_bytes: select.bytes,
            own_writes,
            gateway_peak_bytes: nodes.gateways_peak_bytes()?,
            owners_peak_bytes: nodes.owners_peak_bytes()?,
        })
    }

    /// Asks for all samples of all series, so that owners send each chunk.
    fn select_all(&self, nodes: &Nodes, shape: &Shape) -> Result<Select> {
        let cpu = nodes.owners_cpu()?;
        let bytes = nodes.received_bytes()?;
        let last_ms = self.last_ms(shape);
        let range_s = (self.steps + self.paced_steps()) as i64 * STEP_MS / 1000;
        let query = format!("sum(count_over_time({SELECTOR}[{range_s}s]))");
        for _ in 0..SELECT_RUNS {
            crate::http::query_number(nodes.query_ports[0], &query, last_ms)?;
        }
        let cpu_s = nodes.owners_cpu()?.since(cpu).total();
        Ok(Select { cpu_s, bytes: nodes.received_bytes()? - bytes })
    }

    /// Time of the last sample.
    fn last_ms(&self, shape: &Shape) -> i64 {
        shape.start_ms + ((self.steps + self.paced_steps()) as i64 - 1) * STEP_MS
    }

    /// Steps of the paced part.
    fn paced_steps(&self) -> usize {
        self.steps / 2
    }

    /// Steps of the paced part, in the order in which they are sent.
    fn paced_range(&self) -> Range<usize> {
        self.steps..self.steps + self.paced_steps()
    }

    /// Sends steps at the paced rate; returns the latency of each request in milliseconds.
    fn send_paced(&self, fleet: &mut Fleet, port: u16) -> Result<Vec<f64>> {
        let request_every =
            Duration::from_secs_f64(self.batch as f64 * self.connections as f64 / self.paced_rate as f64);
        fleet.send_paced(port, self.paced_range(), request_every)
    }

    /// Reads acknowledged samples back: series, sum of the last values, number of samples.
    fn verify(&self, port: u16, fleet: &Fleet, shape: &Shape) -> Result<()> {
        let step_count = (self.steps + self.paced_steps()) as i64;
        let last_ms = self.last_ms(shape);
        let ask = |query: &str| crate::http::query_number(port, query, last_ms);
        let range_s = step_count * STEP_MS / 1000;
        for (what, query, expected) in [
            ("series", format!("count({SELECTOR})"), self.series as f64),
            ("sum of the last values", format!("sum({SELECTOR})"), fleet.sum_of_values()),
            (
                "samples",
                format!("sum(count_over_time({SELECTOR}[{range_s}s]))"),
                self.series as f64 * step_count as f64,
            ),
        ] {
            let found = ask(&query)?;
            let is_equal = (found - expected).abs() <= expected.abs() * 1e-9;
            ensure!(is_equal, "acknowledged data is not there: {what}: expected {expected}, found {found}");
        }
        Ok(())
    }

    fn report(&self, run: &mut Run, singles: &[Single], clusters: &[Measured]) {
        let single_cpu: Vec<f64> = singles.iter().map(|one| one.cpu_s / one.sample_count * 1e6).collect();
        let cluster_cpu: Vec<f64> = clusters.iter().map(Measured::cpu_per_million).collect();
        run.table(report::table(singles, clusters));
        let ratio = latency::median(&cluster_cpu) / latency::median(&single_cpu);
        run.at_most("CPU of gateway and owners, times the single server's", ratio, CPU_RATIO_MAX);
        let acks: Vec<f64> = clusters.iter().flat_map(|one| one.paced_ack_ms.clone()).collect();
        run.at_most("ack p50 at the paced rate, ms", latency::at(&acks, 0.5), ACK_P50_MS_MAX);
        run.at_most("ack p99 at the paced rate, ms", latency::at(&acks, 0.99), ACK_P99_MS_MAX);
        let of =
            |figure: fn(&Measured) -> f64| latency::median(&clusters.iter().map(figure).collect::<Vec<_>>());
        run.at_most("bytes per sample in the log", of(Measured::log_bytes_per_sample), LOG_BYTES_MAX);
        run.at_most("owner killed, until it is ready, s", of(|one| one.owner_restart_s), OWNER_RESTART_S_MAX);
        let applied = of(Measured::applied_per_cpu_s);
        run.at_least("samples per CPU s of an owner without directory", applied, APPLIED_PER_CPU_S_MIN);
        let seconds = of(Measured::seconds_of_100_million);
        run.at_most("... seconds for 100 million samples", seconds, SECONDS_OF_100_MILLION_MAX);
        let single: Vec<f64> = singles.iter().map(|one| one.queries_cpu_s).collect();
        let ratio = of(|one| one.queries_cpu_s) / latency::median(&single);
        run.at_most("CPU of 12 queries, times the single server's", ratio, QUERIES_CPU_RATIO_MAX);
        let missing: usize = clusters.iter().map(|one| one.own_writes.missing).sum();
        run.at_most("own writes that a read did not find", missing as f64, 0.0);
        let own_ms: Vec<f64> = clusters.iter().flat_map(|one| one.own_writes.read_ms.clone()).collect();
        run.at_most("read of an own write p99, ms", latency::at(&own_ms, 0.99), OWN_WRITE_P99_MS_MAX);
        let speed = of(Measured::select_gb_per_cpu_s);
        run.at_least("answers of owners, GB per CPU s", speed, SELECT_GB_PER_CPU_S_MIN);
    }
}
