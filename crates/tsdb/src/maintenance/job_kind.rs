//! Kinds of maintenance jobs.
//!
//! Not here: intervals and limits of a kind (`scheduler`), its work (the file named after it).

/// Kind of a maintenance job, in order of priority: jobs of an earlier kind run first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// Writes one or several adjacent head windows of a tenant to a block.
    Flush,
    /// Writes the series of a tenant that receive no samples to blocks before their windows end.
    IdleFlush,
    /// Writes a checkpoint of the head and removes the WAL before it.
    Checkpoint,
    /// Removes expired blocks of a tenant from its list of blocks.
    Retention,
    /// Removes local copies of blocks that the bucket has.
    LocalRetention,
    /// Removes the samples of a dropped store.
    StoreRemoval,
    /// Removes the files of blocks that were compacted or have expired.
    BlockRemoval,
    /// Compacts several blocks of a tenant.
    Compaction,
    /// Applies pending deletions: rewrites a block without its deleted samples.
    Deletion,
    /// Writes the roll-ups of a block.
    Rollup,
    /// Forgets tenants without data and frees series ids.
    TenantCleanup,
    /// Writes the order of metadata entries.
    Metadata,
    /// Verifies blocks after a start.
    Scrub,
}

impl JobKind {
    /// Number of kinds.
    pub(super) const COUNT: usize = JobKind::ALL.len();

    /// All kinds, in order of priority.
    pub const ALL: [JobKind; 13] = [
        JobKind::Flush,
        JobKind::IdleFlush,
        JobKind::Checkpoint,
        JobKind::Retention,
        JobKind::LocalRetention,
        JobKind::StoreRemoval,
        JobKind::BlockRemoval,
        JobKind::Compaction,
        JobKind::Deletion,
        JobKind::Rollup,
        JobKind::TenantCleanup,
        JobKind::Metadata,
        JobKind::Scrub,
    ];

    /// Returns the name in metrics and log lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Flush => "flush",
            JobKind::IdleFlush => "idle_flush",
            JobKind::Checkpoint => "checkpoint",
            JobKind::Retention => "retention",
            JobKind::LocalRetention => "local_retention",
            JobKind::StoreRemoval => "store_removal",
            JobKind::BlockRemoval => "block_removal",
            JobKind::Compaction => "compaction",
            JobKind::Deletion => "deletion",
            JobKind::Rollup => "rollup",
            JobKind::TenantCleanup => "tenant_cleanup",
            JobKind::Metadata => "metadata",
            JobKind::Scrub => "scrub",
        }
    }
}
