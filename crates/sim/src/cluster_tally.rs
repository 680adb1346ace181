//! Counts of what a simulation of clusters did.

/// Counts of what owners did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnerTally {
    /// Starts of processes.
    pub starts: u64,
    /// Reads of the log.
    pub steps: u64,
    /// Publications of cuts.
    pub publications: u64,
    /// Blocks that became live.
    pub published_blocks: u64,
    /// Requests to the bucket.
    pub requests: u64,
    /// Processes that ended at a disk operation.
    pub disk_ends: u64,
    /// Processes that ended at a request.
    pub request_ends: u64,
    /// Starts with an empty disk.
    pub lost_disks: u64,
}

impl OwnerTally {
    /// Adds the counts of others.
    pub(crate) fn add(&mut self, other: &OwnerTally) {
        self.starts += other.starts;
        self.steps += other.steps;
        self.publications += other.publications;
        self.published_blocks += other.published_blocks;
        self.requests += other.requests;
        self.disk_ends += other.disk_ends;
        self.request_ends += other.request_ends;
        self.lost_disks += other.lost_disks;
    }
}

/// Counts of a simulated cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterTally {
    /// Counts of all owners.
    pub owners: OwnerTally,
    /// Requests that gateways have acknowledged.
    pub acknowledged: u64,
    /// Attempts of senders that were not acknowledged.
    pub unacknowledged: u64,
    /// Acknowledged requests that were sent again.
    pub repeats: u64,
    /// Records of the log.
    pub records: u64,
    /// Cuts of the log.
    pub cuts: u64,
    /// Publications during which another owner published at each creation of an object.
    pub races: u64,
    /// Partitions added and drained.
    pub map_changes: u64,
    /// Deletions that gateways have begun.
    pub deletions_begun: u64,
    /// Deletions that their gateways have ended; owners end the others.
    pub deletions_done: u64,
    /// Queries over owners and blocks.
    pub queries: u64,
    /// Checks of live blocks.
    pub checks: u64,
    /// Samples that were compared with the ledger.
    pub compared: u64,
}

impl ClusterTally {
    /// Acts of processes, and checks.
    #[must_use]
    pub(crate) fn acts(&self) -> u64 {
        let OwnerTally { starts, steps, publications, .. } = self.owners;
        let gateways = self.map_changes + self.deletions_begun;
        starts + steps + publications + self.races + gateways + self.queries + self.checks
    }

    /// Adds the counts of another simulation.
    pub(crate) fn add(&mut self, other: &ClusterTally) {
        self.owners.add(&other.owners);
        self.acknowledged += other.acknowledged;
        self.unacknowledged += other.unacknowledged;
        self.repeats += other.repeats;
        self.records += other.records;
        self.cuts += other.cuts;
        self.races += other.races;
        self.map_changes += other.map_changes;
        self.deletions_begun += other.deletions_begun;
        self.deletions_done += other.deletions_done;
        self.queries += other.queries;
        self.checks += other.checks;
        self.compared += other.compared;
    }
}
