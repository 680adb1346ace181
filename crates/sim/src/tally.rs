//! Counts of what a simulation did.

use crate::batch::SeriesSamples;
use crate::cluster_tally::ClusterTally;
use crate::value::Value;

/// Counts of operations and their effects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Written samples, refused ones included.
    pub samples: u64,
    /// Native histograms among the samples.
    pub histograms: u64,
    /// Control operations: all but writes.
    pub controls: u64,
    /// Restarts of the store.
    pub starts: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Crashes of the process alone.
    pub kills: u64,
    /// Disk operations that failed by injection.
    pub refused: u64,
    /// Samples that were compared with the ledger.
    pub compared: u64,
    /// Head windows flushed to blocks.
    pub flushes: u64,
    /// Compactions.
    pub merges: u64,
    /// Written checkpoint slices.
    pub slices: u64,
    /// Blocks whose roll-ups were written.
    pub rolled_up_blocks: u64,
    /// Windows from roll-ups that were compared with the ledger.
    pub rolled_up_windows: u64,
    /// Counts of the bucket.
    pub bucket: BucketTally,
    /// Counts of a cluster.
    pub cluster: ClusterTally,
}

/// Counts of what a simulation did with its bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketTally {
    /// Requests of processes that write.
    pub requests: u64,
    /// Faults that were injected into them.
    pub faults: u64,
    /// Blocks that were uploaded.
    pub uploads: u64,
    /// Local copies that were removed.
    pub removed_copies: u64,
    /// Compactions of blocks without a local copy.
    pub compactions: u64,
    /// Blocks that left the catalogue by retention.
    pub expired: u64,
    /// Replaced and expired blocks whose objects were removed.
    pub removed: u64,
    /// Processes that ended at a request.
    pub kills: u64,
    /// Starts with an empty data directory.
    pub lost_disks: u64,
    /// Samples that were read from the bucket alone and compared with the ledger.
    pub compared: u64,
}

impl BucketTally {
    fn add(&mut self, other: &BucketTally) {
        self.requests += other.requests;
        self.faults += other.faults;
        self.uploads += other.uploads;
        self.removed_copies += other.removed_copies;
        self.compactions += other.compactions;
        self.expired += other.expired;
        self.removed += other.removed;
        self.kills += other.kills;
        self.lost_disks += other.lost_disks;
        self.compared += other.compared;
    }
}

impl Tally {
    /// Operations: written samples and control operations.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.samples + self.controls
    }

    /// Counts the samples of a batch.
    pub(crate) fn add_batch(&mut self, batch: &[SeriesSamples]) {
        for (_, value) in batch.iter().flat_map(|(_, samples)| samples) {
            self.samples += 1;
            self.histograms += u64::from(matches!(value, Value::Histogram(_)));
        }
    }

    /// Adds the counts of another simulation.
    pub fn add(&mut self, other: &Tally) {
        self.samples += other.samples;
        self.histograms += other.histograms;
        self.controls += other.controls;
        self.starts += other.starts;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.refused += other.refused;
        self.compared += other.compared;
        self.flushes += other.flushes;
        self.merges += other.merges;
        self.slices += other.slices;
        self.rolled_up_blocks += other.rolled_up_blocks;
        self.rolled_up_windows += other.rolled_up_windows;
        self.bucket.add(&other.bucket);
        self.cluster.add(&other.cluster);
    }
}
