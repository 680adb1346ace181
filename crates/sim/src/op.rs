//! Operations of a simulation, drawn from a seed.
//!
//! Invariants: an operation has its own seed for all randomness that it needs, so that it keeps its meaning
//! when others are removed from the list; the list depends on the seed only.
//! Not here: executing them (`test_env`).

use chronolith_base::Rng;

use crate::setup::{DAY_MS, HOUR_MS, MINUTE_MS, Setup, pick};

/// Shape of a written batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Scrape: many series with one to three current samples each.
    Scrape,
    /// Few series with long ascending runs that end within the last hour.
    Run,
    /// Up to ten minutes old, in any order.
    OutOfOrder,
    /// Up to ten days old.
    Old,
    /// A run in random order.
    Shuffled,
    /// Ahead of the clock, partly beyond the future limit.
    Future,
    /// Timestamps that are stored, with the same or other values.
    Repeated,
    /// Limits of timestamps and borders of windows.
    Boundary,
}

/// Kind of crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashKind {
    /// The process only: all written bytes survive.
    Kill,
    /// Power cut: all bytes that were not synced are lost.
    PowerCut,
    /// Power cut: any part of the bytes that were not synced survives.
    PowerCutPartly,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Writes a batch.
    Write {
        /// Index of the tenant.
        tenant: usize,
        /// Shape of the batch.
        shape: Shape,
        /// Seed of the content.
        seed: u64,
    },
    /// Writes carbon points to the Graphite store.
    WriteCarbon {
        /// Seed of the content.
        seed: u64,
    },
    /// Advances the clock in steps, with maintenance after each.
    AdvanceClock {
        /// Total of the steps.
        ms: u64,
        /// Steps.
        rounds: u64,
    },
    /// Sets the clock back.
    SetClockBack {
        /// Difference.
        ms: u64,
    },
    /// Writes a part of the checkpoint.
    Checkpoint,
    /// Flushes the head windows that have ended.
    Flush,
    /// Deletes the samples of random selectors in a random range.
    Delete {
        /// Index of the tenant.
        tenant: usize,
        /// Seed of selectors and range.
        seed: u64,
    },
    /// Rewrites blocks with tombstones.
    CleanTombstones {
        /// Index of the tenant.
        tenant: usize,
    },
    /// Makes a snapshot, opens and compares it.
    Snapshot,
    /// Pauses compaction.
    PauseCompaction,
    /// Resumes compaction.
    ResumeCompaction,
    /// Switches the block encoding of a tenant.
    SwitchEncoding {
        /// Index of the tenant.
        tenant: usize,
    },
    /// Compares the samples of random matchers in a random range.
    Query {
        /// Seed of matchers and range.
        seed: u64,
    },
    /// Compares label names and values.
    Labels {
        /// Seed of matchers and range.
        seed: u64,
    },
    /// Compares all samples.
    CompareAll,
    /// Stops the store cleanly and starts it.
    Close,
    /// Crashes between two operations.
    Crash {
        /// Kind of crash.
        kind: CrashKind,
        /// Seed of the bytes that survive.
        seed: u64,
    },
    /// Crashes at a later disk operation, within whatever operation does it.
    CrashDuring {
        /// Disk operations that succeed before.
        after: u64,
        /// Kind of crash.
        kind: CrashKind,
        /// Seed of the bytes that survive.
        seed: u64,
        /// The start after the crash crashes, too, after this many disk operations.
        second_after: Option<u64>,
    },
    /// Lets some disk operations fail.
    FailDisk {
        /// Disk operations that succeed before.
        after: u64,
        /// Disk operations that fail.
        count: u64,
    },
    /// Fills the disk.
    FillDisk {
        /// Bytes that remain free.
        slack_bytes: u64,
    },
    /// Frees the disk.
    FreeDisk,
    /// Uploads blocks to the bucket.
    Upload,
    /// Flushes all windows and uploads until nothing waits; then the bucket has everything.
    UploadEverything,
    /// Runs the maintenance of the bucket that is due.
    MaintainBucket,
    /// Loses the disk: the process starts again with an empty data directory.
    LoseDisk,
    /// Reads the bucket by a process that has nothing else.
    ReadBucket {
        /// Seed of process, matchers and range.
        seed: u64,
    },
    /// Makes requests to the bucket fail.
    BreakBucket,
    /// Makes requests to the bucket succeed.
    RepairBucket,
    /// Ends the process at a later request to the bucket.
    CrashDuringRequest {
        /// Requests that are answered before.
        after: u64,
        /// True if the request takes effect.
        is_carried_out: bool,
        /// Kind of crash.
        kind: CrashKind,
        /// Seed of the bytes that survive.
        seed: u64,
    },
}

/// Mix of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Mostly writes.
    Usual,
    /// Mostly control operations and few samples, for scripts that crash at each disk operation.
    Short,
    /// As usual, and a Graphite store.
    Graphite,
    /// As usual, and a bucket.
    Bucket,
    /// Few samples, for scripts that end at each request to the bucket.
    BucketShort,
}

/// Weight and constructor of an operation.
type Choice = (u64, fn(&OpGenerator<'_>) -> Op);

struct OpGenerator<'a> {
    rng: &'a Rng,
    setup: &'a Setup,
}

impl OpGenerator<'_> {
    fn tenant(&self) -> usize {
        self.rng.below(self.setup.tenants.len() as u64) as usize
    }

    /// A tenant other than the Graphite store, which has operations of its own.
    fn written_tenant(&self) -> usize {
        let count = self.setup.graphite.unwrap_or(self.setup.tenants.len());
        self.rng.below(count as u64) as usize
    }

    fn graphite_tenant(&self) -> usize {
        self.setup.graphite.unwrap_or(0)
    }

    fn crash_kind(&self) -> CrashKind {
        if self.setup.survives_power_cut() {
            pick(self.rng, &[CrashKind::Kill, CrashKind::PowerCut, CrashKind::PowerCutPartly])
        } else {
            CrashKind::Kill
        }
    }

    fn write(&self) -> Op {
        const SHAPES: [Shape; 12] = [
            Shape::Scrape,
            Shape::Scrape,
            Shape::Scrape,
            Shape::Run,
            Shape::Run,
            Shape::OutOfOrder,
            Shape::Old,
            Shape::Shuffled,
            Shape::Future,
            Shape::Repeated,
            Shape::Repeated,
            Shape::Boundary,
        ];
        let mut shape = pick(self.rng, &SHAPES);
        // Blocks of many distant windows are slow and find no more than a few of them. Windows at the limits
        // of time never end, so the bucket would never have them.
        if shape == Shape::Boundary && (self.setup.bucket.is_some() || self.rng.below(8) > 0) {
            shape = Shape::Run;
        }
        Op::Write { tenant: self.written_tenant(), shape, seed: self.rng.next_u64() }
    }

    fn advance_clock(&self) -> Op {
        let longest = pick(self.rng, &[MINUTE_MS, MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 4 * HOUR_MS]);
        let longest = if self.rng.below(60) == 0 { 2 * DAY_MS } else { longest };
        Op::AdvanceClock { ms: self.rng.below(longest.unsigned_abs()), rounds: 1 + self.rng.below(6) }
    }

    /// Time in which windows end.
    fn let_hours_pass(&self) -> Op {
        Op::AdvanceClock { ms: self.rng.below(5 * HOUR_MS.unsigned_abs()), rounds: 1 + self.rng.below(4) }
    }

    /// Time enough for maintenance of the bucket: blocks have no local copy, and delays are over.
    fn let_a_day_pass(&self) -> Op {
        let ms = (12 * HOUR_MS + DAY_MS).unsigned_abs();
        Op::AdvanceClock { ms: ms + self.rng.below(ms), rounds: 2 }
    }

    fn crash_during(&self) -> Op {
        let second_after = (self.rng.below(3) == 0).then(|| self.rng.below(60));
        let longest = pick(self.rng, &[4, 40, 400]);
        let (kind, seed) = (self.crash_kind(), self.rng.next_u64());
        Op::CrashDuring { after: self.rng.below(longest), kind, seed, second_after }
    }

    fn crash_during_request(&self) -> Op {
        let longest = pick(self.rng, &[4, 20, 100]);
        let kind = self.crash_kind();
        let seed = self.rng.next_u64();
        let is_carried_out = self.rng.below(2) == 0;
        Op::CrashDuringRequest { after: self.rng.below(longest), is_carried_out, kind, seed }
    }
}

const USUAL: &[Choice] = &[
    (560, |d| d.write()),
    (120, |d| d.advance_clock()),
    (30, |_| Op::Checkpoint),
    (12, |_| Op::Flush),
    (14, |d| Op::Delete { tenant: d.tenant(), seed: d.rng.next_u64() }),
    (5, |d| Op::CleanTombstones { tenant: d.tenant() }),
    (3, |_| Op::Snapshot),
    (1, |_| Op::PauseCompaction),
    (2, |_| Op::ResumeCompaction),
    (2, |d| Op::SwitchEncoding { tenant: d.tenant() }),
    (60, |d| Op::Query { seed: d.rng.next_u64() }),
    (12, |d| Op::Labels { seed: d.rng.next_u64() }),
    (1, |_| Op::CompareAll),
    (2, |_| Op::Close),
    (6, |d| Op::Crash { kind: d.crash_kind(), seed: d.rng.next_u64() }),
    (8, |d| d.crash_during()),
    (3, |d| Op::FailDisk { after: d.rng.below(60), count: 1 + d.rng.below(3) }),
    (2, |d| Op::FillDisk { slack_bytes: d.rng.below(200_000) }),
    (6, |_| Op::FreeDisk),
    (1, |d| Op::SetClockBack { ms: d.rng.below(3 * HOUR_MS.unsigned_abs()) }),
];

const SHORT: &[Choice] = &[
    (20, |d| d.write()),
    (8, |d| d.advance_clock()),
    (4, |_| Op::Checkpoint),
    (4, |_| Op::Flush),
    (4, |d| Op::Delete { tenant: d.tenant(), seed: d.rng.next_u64() }),
    (3, |d| Op::CleanTombstones { tenant: d.tenant() }),
    (1, |_| Op::Snapshot),
    (2, |_| Op::Close),
    (2, |d| Op::Crash { kind: d.crash_kind(), seed: d.rng.next_u64() }),
];

/// Added to [`USUAL`].
const BUCKET: &[Choice] = &[
    (40, |_| Op::Upload),
    (5, |_| Op::UploadEverything),
    (30, |_| Op::MaintainBucket),
    (2, |_| Op::LoseDisk),
    (30, |d| Op::ReadBucket { seed: d.rng.next_u64() }),
    (6, |_| Op::BreakBucket),
    (8, |_| Op::RepairBucket),
    (12, |d| d.crash_during_request()),
];

/// Added to [`USUAL`]. Time passes so that windows are flushed, rolled up and compacted.
const GRAPHITE: &[Choice] = &[
    (500, |d| Op::WriteCarbon { seed: d.rng.next_u64() }),
    (120, |d| d.let_hours_pass()),
    (20, |_| Op::Flush),
    (30, |d| Op::Delete { tenant: d.graphite_tenant(), seed: d.rng.next_u64() }),
    (6, |d| Op::CleanTombstones { tenant: d.graphite_tenant() }),
    (25, |_| Op::CompareAll),
    (10, |d| Op::Crash { kind: d.crash_kind(), seed: d.rng.next_u64() }),
    (10, |d| d.crash_during()),
];

const BUCKET_SHORT: &[Choice] = &[
    (12, |d| d.write()),
    (8, |d| d.advance_clock()),
    (6, |d| Op::Delete { tenant: d.tenant(), seed: d.rng.next_u64() }),
    (2, |d| Op::CleanTombstones { tenant: d.tenant() }),
    (6, |_| Op::Upload),
    (6, |_| Op::UploadEverything),
    (8, |d| d.let_a_day_pass()),
    (12, |_| Op::MaintainBucket),
    (1, |_| Op::LoseDisk),
    (2, |d| Op::ReadBucket { seed: d.rng.next_u64() }),
    (1, |_| Op::Close),
];

/// Draws `count` operations.
#[must_use]
pub fn draw_ops(setup: &Setup, mix: Mix, count: usize) -> Vec<Op> {
    let rng = Rng::from_seed(setup.seed ^ 0x0b5e_55ed);
    let generator = OpGenerator { rng: &rng, setup };
    let choices = match mix {
        Mix::Usual => vec![USUAL],
        Mix::Short => vec![SHORT],
        Mix::Graphite => vec![USUAL, GRAPHITE],
        Mix::Bucket => vec![USUAL, BUCKET],
        Mix::BucketShort => vec![BUCKET_SHORT],
    };
    let choices = choices.concat();
    let total: u64 = choices.iter().map(|(weight, _)| weight).sum();
    let draw = |_| {
        let mut at = rng.below(total);
        for (weight, choice) in &choices {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return choice(&generator),
            }
        }
        unreachable!("weights add up")
    };
    (0..count).map(draw).collect()
}
