//! Campaign `cluster-campaign`: processes of a cluster are killed at random while senders write and readers
//! compare answers with a ledger of acknowledged samples.
//!
//! Invariants: an answer that is neither the ledger's nor an error ends the campaign with a failure; at its
//! end each record of the log is in a live block or with an owner.
//! Not here: senders and readers (`checked_load`), figures of speed (`cluster`).

mod options;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::brokers::Brokers;
use super::checked_load::CheckedLoad;
use super::nodes::{Nodes, Published};
use crate::driver::{Benchmark, Run};
use crate::report::Table;
use crate::server::Kind;
use crate::traffic::mix;
pub(crate) use options::Options;
use options::Size;

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        Ok(vec![Kind::Chronolith])
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        self.load.check()?;
        let brokers = Mutex::new(Brokers::start(&self.kafka, self.size.brokers)?);
        let addresses = brokers.lock().expect("no panic").addresses()?.to_owned();
        let nodes = Nodes::start(run.data(), self.node_setup(&addresses))?;
        let campaign = Campaign {
            options: self,
            load: CheckedLoad::new(&self.load, &nodes),
            nodes: &nodes,
            brokers,
            kills: AtomicUsize::new(0),
            broker_kills: AtomicUsize::new(0),
            published_before_kills: Mutex::default(),
        };
        let result = campaign.run(run);
        campaign.report(run);
        result.map_err(|error| error.context(nodes.log_tails()))
    }
}

/// A running campaign.
struct Campaign<'a> {
    options: &'a Options,
    load: CheckedLoad<'a>,
    nodes: &'a Nodes,
    brokers: Mutex<Brokers>,
    kills: AtomicUsize,
    broker_kills: AtomicUsize,
    /// Counts of processes that were killed.
    published_before_kills: Mutex<Published>,
}

impl Campaign<'_> {
    fn run(&self, run: &mut Run) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.options.seconds);
        std::thread::scope(|scope| {
            self.load.run(|| {
                scope.spawn(|| self.kill_brokers());
                // On this thread: processes end with the thread that has started them.
                self.kill_nodes(end);
                Ok(())
            })
        })?;
        for line in self.nodes.site.tool(&["verify"])?.lines() {
            run.note(format!("cluster verify: {line}"));
        }
        self.load.check_faults()
    }

    /// Kills a node every 3 to 6 seconds and starts it at once, until `end`, until samples and blocks are
    /// there, or until a fault was found.
    fn kill_nodes(&self, end: Instant) {
        let mut random = mix(self.options.load.seed);
        while (Instant::now() < end || self.is_short()) && self.load.fault_count() == 0 {
            random = mix(random);
            self.load.pause(Duration::from_millis(3_000 + random % 3_000));
            random = mix(random);
            if self.options.no_kills {
                continue;
            }
            match self.nodes.kill_and_start(random as usize) {
                Ok(published) => {
                    self.published_before_kills.lock().expect("no panic").add(published);
                    self.kills.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.load.fault(format!("a node does not start: {error:#}")),
            }
        }
    }

    /// Returns true if samples or blocks are missing.
    fn is_short(&self) -> bool {
        self.load.acked_samples() < self.options.samples || self.published().cut_blocks < self.options.blocks
    }

    fn published(&self) -> Published {
        let mut all = *self.published_before_kills.lock().expect("no panic");
        all.add(self.nodes.published());
        all
    }

    /// Kills a broker every 15 seconds, if there are others, and starts it five seconds later.
    fn kill_brokers(&self) {
        let count = self.options.size.brokers;
        let mut number = 0;
        while count > 1 && !self.options.no_kills && !self.load.is_over() {
            self.load.pause(Duration::from_secs(10));
            number = number % count + 1;
            let told = self.tell_broker("kill", number).and_then(|()| {
                self.load.pause(Duration::from_secs(5));
                self.tell_broker("start", number)
            });
            match told {
                Ok(()) => drop(self.broker_kills.fetch_add(1, Ordering::Relaxed)),
                Err(error) => self.load.fault(format!("broker {number}: {error:#}")),
            }
        }
    }

    fn tell_broker(&self, word: &str, number: usize) -> Result<()> {
        self.brokers.lock().expect("no panic").tell(&format!("{word} {number}"))
    }

    fn report(&self, run: &mut Run) {
        let Size { brokers, partitions, owners, gateways, queries, stores } = self.options.size;
        run.note(format!(
            "{brokers} brokers, {partitions} partitions, {owners} owners each, {gateways} gateways, {queries} \
             query nodes, {stores} stores, seed {}",
            self.options.load.seed
        ));
        let published = self.published();
        let mut table = Table::new("A cluster under kills", ["count"]);
        let of = |count: &AtomicUsize| count.load(Ordering::Acquire) as f64;
        let own = [
            ("processes killed", of(&self.kills)),
            ("brokers killed", of(&self.broker_kills)),
            ("blocks of cuts published", published.cut_blocks as f64),
            ("compactions in the bucket", published.compactions as f64),
        ];
        for (label, figure) in own.into_iter().chain(self.load.figures()) {
            table.row(label, 0, [figure]);
        }
        run.table(table);
        self.load.report_errors(run);
        let acked = self.load.acked_samples() as f64;
        run.at_most("faults", self.load.fault_count() as f64, 0.0);
        run.at_least("samples acknowledged", acked, self.options.samples as f64);
        run.at_least("blocks of cuts published", published.cut_blocks as f64, self.options.blocks as f64);
    }
}
