//! Benchmark `cluster-neighbours`: acknowledgements of quiet tenants, alone and next to a tenant that floods
//! its only partition, in turns.
//!
//! Invariants: each tenant has one partition, which answers name; a request of a quiet tenant that is refused
//! fails the run; time in which a client waited for a core itself does not count.
//! Not here: neighbours on one server (`neighbours`).

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use chronolith_base::{Clock, SystemClock};

use super::brokers::Brokers;
use super::nodes::{NodeSetup, Nodes};
use crate::driver::{Benchmark, Run};
use crate::http::WriteConnection;
use crate::latency::at;
use crate::neighbours::{ClientPriority, Latencies, is_refusal};
use crate::proc::RunQueue;
use crate::report::{MIB, Table};
use crate::server::Kind;
use crate::traffic::{STEP_MS, SeriesBody};

const LOUD: &str = "loud";
/// Limit of a tenant: above the series of the flood, and below the series of one partition.
const SERIES_LIMIT: usize = 500_000;
/// Time for a flood to get going.
const WARM_UP: Duration = Duration::from_secs(2);
/// Bounds of the issue that asked for the figures.
const P99_RATIO_MAX: f64 = 1.1;
const GATEWAY_MIB_MAX: f64 = 256.0 + 64.0;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Quiet tenants, each with a connection.
    #[arg(long, default_value_t = 6)]
    tenants: usize,
    /// Series of a quiet tenant, all in one request.
    #[arg(long, default_value_t = 500)]
    series: usize,
    /// Milliseconds between two requests of a quiet tenant.
    #[arg(long, default_value_t = 50)]
    pause_ms: u64,
    /// Connections of the tenant that floods.
    #[arg(long, default_value_t = 16)]
    floods: usize,
    /// Series of one request of it.
    #[arg(long, default_value_t = 2_000)]
    flood_series: usize,
    /// Samples per second that it sends at most; 0 = as fast as they are acknowledged.
    #[arg(long, default_value_t = 0)]
    flood_rate: u64,
    /// Samples per second that a gateway takes of a tenant; 0 = no limit.
    #[arg(long, default_value_t = 0)]
    ingestion_rate: u64,
    /// Priority of its connections.
    #[arg(long, value_enum, default_value_t = ClientPriority::Low)]
    client_priority: ClientPriority,
    /// Rounds of both.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each part of a round.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Partitions, each with an owner.
    #[arg(long, default_value_t = 3)]
    partitions: usize,
    /// Program that starts brokers of Kafka.
    #[arg(long, default_value = "kits/kafka/broker.py")]
    kafka: PathBuf,
}

/// Tenant whose acknowledgements are measured.
struct Quiet {
    name: String,
    body: SeriesBody,
    time_ms: i64,
    /// Number of its partition, as answers name it.
    partition: String,
    alone_ms: Vec<f64>,
    flooded_ms: Vec<f64>,
}

/// Counts of the flood.
#[derive(Default)]
struct Flood {
    acked_samples: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.tenants > 0 && self.rounds > 0 && self.floods > 0, "all counts must be above 0");
        let brokers = Brokers::start(&self.kafka, 1)?;
        let nodes = Nodes::start(run.data(), self.node_setup(brokers.addresses()?))?;
        let flood = Flood::default();
        let measured = self.measure_rounds(&nodes, &flood);
        let (quiet, flooded) = measured.map_err(|error| error.context(nodes.log_tails()))?;
        self.report(run, &nodes, &quiet, &flood, &flooded)
    }
}

impl Options {
    fn node_setup(&self, addresses: &str) -> NodeSetup {
        let series_count = self.floods * self.flood_series + self.tenants * self.series;
        NodeSetup {
            tenant_partitions: 1,
            node_flags: vec![
                "--multitenancy=true".to_owned(),
                // Few enough series for one partition.
                format!("--series-limit={SERIES_LIMIT}"),
                format!("--ingestion-rate={}", self.ingestion_rate),
            ],
            ..NodeSetup::new(format!("kafka://{addresses}/neighbours"), self.partitions, series_count)
        }
    }

    /// Returns the quiet tenants and the number of the partition that was flooded.
    fn measure_rounds(&self, nodes: &Nodes, flood: &Flood) -> Result<(Vec<Quiet>, String)> {
        let start_ms = SystemClock::new().now_ms() / STEP_MS * STEP_MS - 3_600_000;
        let mut quiet = Vec::new();
        for idx in 0..self.tenants {
            let body = SeriesBody::new(idx * self.series..(idx + 1) * self.series);
            let mut tenant = Quiet {
                name: format!("quiet-{idx}"),
                body,
                time_ms: start_ms,
                partition: String::new(),
                alone_ms: Vec::new(),
                flooded_ms: Vec::new(),
            };
            let mut connection = WriteConnection::open_as(nodes.gateway_ports[0], &tenant.name)?;
            tenant.send(&mut connection)?;
            tenant.partition = partition_of(&connection)?;
            quiet.push(tenant);
        }
        let mut loud: Vec<SeriesBody> = (0..self.floods)
            .map(|idx| SeriesBody::new(idx * self.flood_series..(idx + 1) * self.flood_series))
            .collect();
        let mut connection = WriteConnection::open_as(nodes.gateway_ports[0], LOUD)?;
        connection.post(loud[0].step(start_ms))?;
        let flooded = partition_of(&connection)?;
        let mut flood_ms = start_ms;
        for _ in 0..self.rounds {
            self.measure_quiet(nodes, &mut quiet, |quiet| &mut quiet.alone_ms)?;
            flood.is_over.store(false, Ordering::Release);
            flood_ms = std::thread::scope(|scope| {
                let senders: Vec<_> = loud
                    .iter_mut()
                    .map(|body| scope.spawn(move || self.flood(nodes, body, flood_ms, flood)))
                    .collect();
                std::thread::sleep(WARM_UP);
                let measured = self.measure_quiet(nodes, &mut quiet, |quiet| &mut quiet.flooded_ms);
                flood.is_over.store(true, Ordering::Release);
                let mut last_ms = flood_ms;
                for sender in senders {
                    last_ms = last_ms.max(sender.join().expect("a sender does not panic")?);
                }
                measured.map(|()| last_ms)
            })?;
            // Owners apply the rest of the flood.
            nodes.wait_ready(Duration::from_secs(120))?;
        }
        Ok((quiet, flooded))
    }

    /// Sends requests of all quiet tenants at their pace.
    fn measure_quiet(
        &self,
        nodes: &Nodes,
        quiet: &mut [Quiet],
        into: fn(&mut Quiet) -> &mut Vec<f64>,
    ) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let pause = Duration::from_millis(self.pause_ms);
        std::thread::scope(|scope| {
            let senders: Vec<_> = quiet
                .iter_mut()
                .map(|tenant| {
                    scope.spawn(move || -> Result<()> {
                        let mut connection = WriteConnection::open_as(nodes.gateway_ports[0], &tenant.name)?;
                        let queue = RunQueue::of_this_thread()?;
                        let mut latencies = Latencies::default();
                        while Instant::now() < end {
                            latencies.measure(&queue, || tenant.send(&mut connection))?;
                            std::thread::sleep(pause);
                        }
                        into(tenant).append(&mut latencies.into_served_ms());
                        Ok(())
                    })
                })
                .collect();
            senders.into_iter().try_for_each(|sender| sender.join().expect("a sender does not panic"))
        })
    }

    /// Floods until it is over; returns the time of the last sample.
    fn flood(&self, nodes: &Nodes, body: &mut SeriesBody, mut time_ms: i64, flood: &Flood) -> Result<i64> {
        self.client_priority.take();
        let mut connection = WriteConnection::open_as(nodes.gateway_ports[0], LOUD)?;
        let samples = body.len() as u64;
        let every = match self.flood_rate {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64((samples * self.floods as u64) as f64 / rate as f64),
        };
        let mut next = Instant::now();
        while !flood.is_over.load(Ordering::Acquire) {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            next = Instant::now().max(next) + every;
            time_ms += 1_000;
            let (status, answer) = connection.send(body.step(time_ms))?;
            match status {
                200..300 => drop(flood.acked_samples.fetch_add(samples, Ordering::Relaxed)),
                status if is_refusal(status) => drop(flood.refused.fetch_add(1, Ordering::Relaxed)),
                status => bail!("HTTP {status}: {answer:.300}"),
            }
        }
        Ok(time_ms)
    }

    fn report(
        &self,
        run: &mut Run,
        nodes: &Nodes,
        quiet: &[Quiet],
        flood: &Flood,
        flooded: &str,
    ) -> Result<()> {
        let seconds = self.seconds as f64 * self.rounds as f64;
        run.note(format!(
            "{} quiet tenants with {} samples per request, {} ms apart; flood by {} connections of partition \
             {flooded}: {:.0} samples/s acknowledged, {} requests refused; {} partitions",
            self.tenants,
            self.series,
            self.pause_ms,
            self.floods,
            flood.acked_samples.load(Ordering::Acquire) as f64 / seconds,
            flood.refused.load(Ordering::Acquire),
            self.partitions
        ));
        let columns = ["p50 alone, ms", "p50 next to the flood", "p99 alone, ms", "p99 next to the flood"];
        let mut table = Table::new("Acknowledgements of quiet tenants", columns);
        let of = |is_wanted: &dyn Fn(&Quiet) -> bool| {
            let wanted = || quiet.iter().filter(|tenant| is_wanted(tenant));
            let alone: Vec<f64> = wanted().flat_map(|tenant| tenant.alone_ms.clone()).collect();
            let next: Vec<f64> = wanted().flat_map(|tenant| tenant.flooded_ms.clone()).collect();
            [at(&alone, 0.5), at(&next, 0.5), at(&alone, 0.99), at(&next, 0.99)]
        };
        let others = of(&|tenant| tenant.partition != flooded);
        table.row("of other partitions", 1, others);
        table.row("of the flooded partition", 1, of(&|tenant| tenant.partition == flooded));
        let all = of(&|_| true);
        table.row("all", 1, all);
        run.table(table);
        let mut table = Table::new("Memory", ["peak RSS, MiB"]);
        let gateway_mib = nodes.gateways_peak_bytes()? / MIB;
        table.row("gateway", 0, [gateway_mib]);
        table.row("all owners", 0, [nodes.owners_peak_bytes()? / MIB]);
        run.table(table);
        run.at_most("p99 of all others, times alone", all[3] / all[2], P99_RATIO_MAX);
        run.at_most("peak RSS of the gateway, MiB", gateway_mib, GATEWAY_MIB_MAX);
        Ok(())
    }
}

impl Quiet {
    fn send(&mut self, connection: &mut WriteConnection) -> Result<()> {
        self.time_ms += 100;
        connection.post(self.body.step(self.time_ms)).context("a quiet tenant")
    }
}

/// Number of the partition of the last request.
fn partition_of(connection: &WriteConnection) -> Result<String> {
    let offsets = connection.offsets();
    ensure!(!offsets.contains(','), "a tenant with several partitions: {offsets}");
    let number = offsets.split(':').nth(1).context("an answer without offsets")?;
    Ok(number.to_owned())
}
