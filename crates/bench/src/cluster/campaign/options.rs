//! Options of the campaign.

use std::path::PathBuf;
use std::time::Duration;

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
    pub(super) reads: Reads,
    /// Kills no process, to see the seam between owners and blocks alone.
    #[arg(long)]
    pub(super) no_kills: bool,
    /// Seed of the kills.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
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
    /// Threads that write, each to all series of its own.
    #[arg(long, default_value_t = 4)]
    pub(super) senders: usize,
    /// Series of a sender, a multiple of 500.
    #[arg(long, default_value_t = 5_000)]
    pub(super) series: usize,
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

/// Answers that are compared.
#[derive(clap::Args)]
pub(crate) struct Reads {
    /// Waits for the ends of the log, so that an answer has to have each acknowledged sample.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub(super) strong: bool,
    /// Age of an acknowledgement from which an answer has to have its samples without that.
    #[arg(long, default_value_t = 10)]
    pub(super) lag_seconds: u64,
    /// Milliseconds between two answers.
    #[arg(long, default_value_t = 200)]
    pub(super) read_pause_ms: u64,
}

impl Options {
    /// Age from which the query node with this number, from 1, reads the catalogue again.
    pub(super) fn query_poll(&self, number: usize) -> Duration {
        let is_old = number == self.size.queries && number > 1;
        Duration::from_secs(if is_old { self.cuts.old_poll_seconds } else { self.cuts.poll_seconds })
    }
}

impl Reads {
    /// Age of acknowledgements that answers have to have.
    pub(super) fn lag(&self) -> Duration {
        Duration::from_secs(if self.strong { 0 } else { self.lag_seconds })
    }
}
