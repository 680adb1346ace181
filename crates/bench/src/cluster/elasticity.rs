//! Benchmark `cluster-elasticity`: while senders write and readers compare answers with a ledger, partitions
//! are added, one is drained and removed, an owner moves to another directory, another one loses its own, and
//! all processes are restarted one after the other.
//!
//! Invariants: no write needs more than one repeat; an answer that is neither the ledger's nor an error is a
//! failure; each step runs only while writes go on.
//! Not here: senders and readers (`checked_load`), kills (`campaign`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::brokers::Brokers;
use super::checked_load::{CheckedLoad, LoadOptions, SETTLE_LIMIT};
use super::nodes::{NodeSetup, Nodes, OwnerEnd};
use crate::driver::{Benchmark, Run};
use crate::report::Table;
use crate::server::Kind;

const TOPIC: &str = "elasticity";
/// Partitions before and after the addition.
const FIRST_PARTITIONS: usize = 3;
const LAST_PARTITIONS: usize = 5;
/// Partition that is drained and removed.
const DRAINED: usize = 0;
/// Pause between two attempts to remove a partition, whose last cut has to be published.
const REMOVE_PAUSE: Duration = Duration::from_secs(5);
/// Limit for its last cut.
const REMOVE_LIMIT: Duration = Duration::from_secs(300);

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    load: LoadOptions,
    /// Owners of each partition.
    #[arg(long, default_value_t = 2)]
    owners: usize,
    /// Brokers; each partition has copies on up to three.
    #[arg(long, default_value_t = 1)]
    brokers: usize,
    /// Seconds of writes between two steps.
    #[arg(long, default_value_t = 10)]
    step_seconds: u64,
    /// Seconds after which the samples of a window become a block.
    #[arg(long, default_value_t = 10)]
    cut_seconds: u64,
    /// Program that starts brokers of Kafka.
    #[arg(long, default_value = "kits/kafka/broker.py")]
    kafka: PathBuf,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        self.load.check()?;
        let mut brokers = Brokers::start(&self.kafka, self.brokers)?;
        let nodes = Nodes::start(run.data(), self.node_setup(brokers.addresses()?))?;
        let load = CheckedLoad::new(&self.load, &nodes);
        let mut steps = Vec::new();
        let result = load.run(|| {
            Operator { options: self, nodes: &nodes, load: &load, steps: &mut steps }.act(&mut brokers)
        });
        let result = result.and_then(|()| nodes.site.tool(&["verify"])).and_then(|verified| {
            verified.lines().for_each(|line| run.note(format!("cluster verify: {line}")));
            load.check_faults()
        });
        report(run, &load, &steps);
        result.map_err(|error| error.context(nodes.log_tails()))
    }
}

impl Options {
    fn node_setup(&self, addresses: &str) -> NodeSetup {
        let poll = "--bucket.poll=2s".to_owned();
        let log = format!("kafka://{addresses}/{TOPIC}");
        // Query nodes keep their default poll, so that a list of blocks is older than a removal.
        NodeSetup {
            tenant_partitions: LAST_PARTITIONS,
            replication_factor: self.brokers.min(3),
            owners_per_partition: self.owners,
            gateway_count: 2,
            query_count: 2,
            store_count: 1,
            owner_flags: vec![format!("--flush-delay={}s", self.cut_seconds), poll.clone()],
            store_flags: vec![poll],
            ..NodeSetup::new(log, FIRST_PARTITIONS, self.load.series_count())
        }
    }
}

/// A step of an operator.
struct Step {
    name: &'static str,
    seconds: f64,
    /// Samples that were acknowledged meanwhile.
    samples: u64,
    answers: usize,
    refused: usize,
}

/// An operator who changes a cluster that is written and read.
struct Operator<'a> {
    options: &'a Options,
    nodes: &'a Nodes,
    load: &'a CheckedLoad<'a>,
    steps: &'a mut Vec<Step>,
}

impl Operator<'_> {
    fn act(&mut self, brokers: &mut Brokers) -> Result<()> {
        self.step("none", |_| Ok(()))?;
        self.step("partitions 3 to 5", |nodes| {
            brokers.tell(&format!("partitions {TOPIC} {LAST_PARTITIONS}"))?;
            for partition in FIRST_PARTITIONS..LAST_PARTITIONS {
                for _ in 0..self.options.owners {
                    nodes.add_owner(partition)?;
                }
            }
            nodes.site.tool(&["partitions", "add", "3", "4"]).map(drop)
        })?;
        let drained = DRAINED.to_string();
        self.step("a partition drained", |nodes| {
            nodes.site.tool(&["partitions", "drain", &drained]).map(drop)
        })?;
        let load = self.load;
        self.step("... and removed, its owners stopped", |nodes| {
            let start = Instant::now();
            while let Err(error) = nodes.site.tool(&["partitions", "remove", &drained]) {
                ensure!(start.elapsed() < REMOVE_LIMIT && load.fault_count() == 0, "{error:#}");
                load.pause(REMOVE_PAUSE);
            }
            // Query nodes read the map every 5 s.
            load.pause(Duration::from_secs(10));
            nodes.remove_owners(DRAINED)
        })?;
        self.step("an owner in another directory", |nodes| {
            nodes.restart_owner(0, OwnerEnd::MoveDirectory, SETTLE_LIMIT).map(drop)
        })?;
        self.step("an owner without its directory", |nodes| {
            nodes.restart_owner(1, OwnerEnd::LoseDirectory, SETTLE_LIMIT).map(drop)
        })?;
        self.step("all restarted, one by one", |nodes| nodes.restart_all(SETTLE_LIMIT).map(drop))?;
        self.step("none", |_| Ok(()))
    }

    /// Acts, and goes on with writes for some seconds.
    fn step(&mut self, name: &'static str, act: impl FnOnce(&Nodes) -> Result<()>) -> Result<()> {
        let load = self.load;
        let start = Instant::now();
        let samples = load.acked_samples();
        let answers = load.answers_equal();
        let refused = load.answers_refused();
        act(self.nodes).map_err(|error| error.context(name))?;
        load.pause(Duration::from_secs(self.options.step_seconds));
        if load.fault_count() > 0 {
            bail!("faults in the step: {name}");
        }
        self.steps.push(Step {
            name,
            seconds: start.elapsed().as_secs_f64(),
            samples: load.acked_samples() - samples,
            answers: load.answers_equal() - answers,
            refused: load.answers_refused() - refused,
        });
        Ok(())
    }
}

fn report(run: &mut Run, load: &CheckedLoad<'_>, steps: &[Step]) {
    let columns = ["seconds", "samples acknowledged", "answers equal to the ledger", "errors"];
    let mut table = Table::new("Changes of a cluster while it is written and read", columns);
    for Step { name, seconds, samples, answers, refused } in steps {
        table.row(*name, 0, [*seconds, *samples as f64, *answers as f64, *refused as f64]);
    }
    run.table(table);
    let mut table = Table::new("All steps", ["count"]);
    for (label, figure) in load.figures() {
        table.row(label, 0, [figure]);
    }
    run.table(table);
    load.report_errors(run);
    run.at_most("faults", load.fault_count() as f64, 0.0);
    run.at_most("most attempts of a request", load.attempts_max() as f64, 2.0);
    run.at_most("answers that were an error", load.answers_refused() as f64, 0.0);
    let idle = steps.iter().filter(|step| step.samples == 0 || step.answers == 0).count();
    run.at_most("steps without samples or answers", idle as f64, 0.0);
    run.at_least("steps", steps.len() as f64, 8.0);
}
