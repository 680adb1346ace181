//! Options of the campaign.

use std::path::PathBuf;
use std::time::Duration;

use super::super::checked_load::LoadOptions;
use super::super::nodes::NodeSetup;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds of writes and kills.
    #[arg(long, default_value_t = 600)]
    pub(super) seconds: u64,
    /// Samples to send at least; the writes go on until they are there.
    #[arg(long, default_value_t = 50_000_000)]
    pub(super) samples: u64,
    /// Blocks of cuts that are published at least; the writes go on until they are there.
    #[arg(long, default_value_t = 0)]
    pub(super) blocks: usize,
    #[command(flatten)]
    pub(super) size: Size,
    #[command(flatten)]
    pub(super) cuts: Cuts,
    #[command(flatten)]
    pub(super) load: LoadOptions,
    /// Kills no process, to see the seam between owners and blocks alone.
    #[arg(long)]
    pub(super) no_kills: bool,
    /// Program that starts brokers of Kafka.
    #[arg(long, default_value = "kits/kafka/broker.py")]
    pub(super) kafka: PathBuf,
}

/// Processes and load.
#[derive(clap::Args)]
pub(crate) struct Size {
    /// Brokers; each partition has copies on up to three.
    #[arg(long, default_value_t = 3)]
    pub(super) brokers: usize,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 3)]
    pub(super) partitions: usize,
    /// Owners of each partition.
    #[arg(long, default_value_t = 2)]
    pub(super) owners: usize,
    /// Gateways, which senders use in turn.
    #[arg(long, default_value_t = 2)]
    pub(super) gateways: usize,
    /// Query nodes, which readers use in turn.
    #[arg(long, default_value_t = 2)]
    pub(super) queries: usize,
    /// Processes that maintain the bucket.
    #[arg(long, default_value_t = 1)]
    pub(super) stores: usize,
}

/// Times of cuts and catalogues.
#[derive(clap::Args)]
pub(crate) struct Cuts {
    /// Seconds after which the samples of a window become a block.
    #[arg(long, default_value_t = 20)]
    pub(super) cut_seconds: u64,
    /// Seconds after which nodes read the catalogue of the bucket again; samples leave owners after twice
    /// this time.
    #[arg(long, default_value_t = 2)]
    pub(super) poll_seconds: u64,
    /// Seconds for the last query node, whose catalogue is older than owners expect.
    #[arg(long, default_value_t = 60)]
    pub(super) old_poll_seconds: u64,
}

impl Options {
    /// Options of the nodes over a log of these brokers.
    pub(super) fn node_setup(&self, addresses: &str) -> NodeSetup {
        let poll = format!("--bucket.poll={}s", self.cuts.poll_seconds);
        let log = format!("kafka://{addresses}/campaign");
        NodeSetup {
            replication_factor: self.size.brokers.min(3),
            owners_per_partition: self.size.owners,
            gateway_count: self.size.gateways,
            query_count: self.size.queries,
            store_count: self.size.stores,
            owner_flags: vec![format!("--flush-delay={}s", self.cuts.cut_seconds), poll.clone()],
            store_flags: vec![poll, "--store.compaction-delay=1h".to_owned()],
            query_polls: (1..=self.size.queries).map(|number| self.query_poll(number)).collect(),
            ..NodeSetup::new(log, self.size.partitions, self.load.series_count())
        }
    }

    /// Age from which the query node with this number, from 1, reads the catalogue again.
    fn query_poll(&self, number: usize) -> Duration {
        let is_old = number == self.size.queries && number > 1;
        Duration::from_secs(if is_old { self.cuts.old_poll_seconds } else { self.cuts.poll_seconds })
    }
}
