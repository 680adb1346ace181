//! Operations on a world, and drawing them from a seed.
//!
//! Holds: an operation carries all randomness it needs as a seed of its own, so that leaving others out of a list
//! leaves it meaningful; the list depends on the seed only.
//! Not here: carrying them out (`world`).

use chronolith_base::Rng;

use crate::setup::{DAY_MS, HOUR_MS, MINUTE_MS, Setup, pick};

/// What a batch looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Many series, a sample or few of each, at the present: scrapes.
    Scrape,
    /// Few series, long ascending runs that end at the present or not long before.
    Run,
    /// Some minutes late, in any order.
    Late,
    /// Days late.
    Old,
    /// A run in random order.
    Shuffled,
    /// Ahead of the clock, partly beyond what is allowed.
    Future,
    /// Times that are there already, with the same or other values.
    Again,
    /// The ends of time and borders of windows.
    Extreme,
}

/// How a process ends that does not stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The process alone: what was written is there.
    Kill,
    /// Power: what was not synced is lost.
    PowerCut,
    /// Power: any part of what was not synced is there.
    PowerCutPartly,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// A batch.
    Write {
        /// Index of the tenant.
        tenant: usize,
        /// What it looks like.
        shape: Shape,
        /// Of its content.
        seed: u64,
    },
    /// Time passes, with so many rounds of background work in it.
    Pass {
        /// How much.
        ms: u64,
        /// Rounds.
        rounds: u64,
    },
    /// The clock is set back.
    StepBack {
        /// How much.
        ms: u64,
    },
    /// A part of the checkpoint is written.
    Roll,
    /// Windows that have ended become blocks.
    Flush,
    /// Deletes what random selectors fit in a random range.
    Delete {
        /// Index of the tenant.
        tenant: usize,
        /// Of selectors and range.
        seed: u64,
    },
    /// Rewrites blocks without what is deleted.
    Clean {
        /// Index of the tenant.
        tenant: usize,
    },
    /// Makes a snapshot, opens and compares it.
    Snapshot,
    /// Pauses merging of blocks.
    Pause,
    /// Goes on merging.
    Resume,
    /// Changes the block encoding of a tenant.
    TurnEncoding {
        /// Index of the tenant.
        tenant: usize,
    },
    /// Compares the answer to random matchers over a random range.
    Query {
        /// Of matchers and range.
        seed: u64,
    },
    /// Compares label names and values.
    Labels {
        /// Of matchers and range.
        seed: u64,
    },
    /// Compares everything.
    CheckAll,
    /// Clean stop and start.
    Close,
    /// The process or the machine ends between two operations.
    End {
        /// How.
        ending: Ending,
        /// Of what a power cut leaves.
        seed: u64,
    },
    /// The disk lets so many operations through and refuses all behind them; who notices, ends.
    Cut {
        /// Disk operations that work.
        after: u64,
        /// How it ends.
        ending: Ending,
        /// Of what a power cut leaves.
        seed: u64,
        /// The start after it ends in the same way after so many disk operations.
        again_after: Option<u64>,
    },
    /// Single disk operations fail.
    Fail {
        /// Disk operations that work before.
        after: u64,
        /// How many fail.
        count: u64,
    },
    /// The disk has so many bytes left.
    Full {
        /// Bytes.
        slack_bytes: u64,
    },
    /// It has room again.
    Room,
}

/// How operations are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Mostly writes, everything else at times.
    Usual,
    /// Mostly control operations over little content: for scripts that are cut at every disk operation.
    Short,
}

/// A weight and what it draws.
type Choice = (u64, fn(&Drawing<'_>) -> Op);

struct Drawing<'a> {
    rng: &'a Rng,
    setup: &'a Setup,
}

impl Drawing<'_> {
    fn tenant(&self) -> usize {
        self.rng.below(self.setup.tenants.len() as u64) as usize
    }

    fn ending(&self) -> Ending {
        if self.setup.survives_power_cut() {
            pick(self.rng, &[Ending::Kill, Ending::PowerCut, Ending::PowerCutPartly])
        } else {
            Ending::Kill
        }
    }

    fn write(&self) -> Op {
        const SHAPES: [Shape; 12] = [
            Shape::Scrape,
            Shape::Scrape,
            Shape::Scrape,
            Shape::Run,
            Shape::Run,
            Shape::Late,
            Shape::Old,
            Shape::Shuffled,
            Shape::Future,
            Shape::Again,
            Shape::Again,
            Shape::Extreme,
        ];
        let mut shape = pick(self.rng, &SHAPES);
        // A block for each of many windows far apart is dear, and tells no more than a few of them.
        if shape == Shape::Extreme && self.rng.below(8) > 0 {
            shape = Shape::Run;
        }
        Op::Write { tenant: self.tenant(), shape, seed: self.rng.next_u64() }
    }

    fn pass(&self) -> Op {
        let longest = pick(self.rng, &[MINUTE_MS, MINUTE_MS, 10 * MINUTE_MS, HOUR_MS, 4 * HOUR_MS]);
        let longest = if self.rng.below(60) == 0 { 2 * DAY_MS } else { longest };
        Op::Pass { ms: self.rng.below(longest.unsigned_abs()), rounds: 1 + self.rng.below(6) }
    }

    fn cut(&self) -> Op {
        let again_after = (self.rng.below(3) == 0).then(|| self.rng.below(60));
        let longest = pick(self.rng, &[4, 40, 400]);
        let (ending, seed) = (self.ending(), self.rng.next_u64());
        Op::Cut { after: self.rng.below(longest), ending, seed, again_after }
    }
}

const USUAL: &[Choice] = &[
    (560, |d| d.write()),
    (120, |d| d.pass()),
    (30, |_| Op::Roll),
    (12, |_| Op::Flush),
    (14, |d| Op::Delete { tenant: d.tenant(), seed: d.rng.next_u64() }),
    (5, |d| Op::Clean { tenant: d.tenant() }),
    (3, |_| Op::Snapshot),
    (1, |_| Op::Pause),
    (2, |_| Op::Resume),
    (2, |d| Op::TurnEncoding { tenant: d.tenant() }),
    (60, |d| Op::Query { seed: d.rng.next_u64() }),
    (12, |d| Op::Labels { seed: d.rng.next_u64() }),
    (1, |_| Op::CheckAll),
    (2, |_| Op::Close),
    (6, |d| Op::End { ending: d.ending(), seed: d.rng.next_u64() }),
    (8, |d| d.cut()),
    (3, |d| Op::Fail { after: d.rng.below(60), count: 1 + d.rng.below(3) }),
    (2, |d| Op::Full { slack_bytes: d.rng.below(200_000) }),
    (6, |_| Op::Room),
    (1, |d| Op::StepBack { ms: d.rng.below(3 * HOUR_MS.unsigned_abs()) }),
];

const SHORT: &[Choice] = &[
    (20, |d| d.write()),
    (8, |d| d.pass()),
    (4, |_| Op::Roll),
    (4, |_| Op::Flush),
    (4, |d| Op::Delete { tenant: d.tenant(), seed: d.rng.next_u64() }),
    (3, |d| Op::Clean { tenant: d.tenant() }),
    (1, |_| Op::Snapshot),
    (2, |_| Op::Close),
    (2, |d| Op::End { ending: d.ending(), seed: d.rng.next_u64() }),
];

/// Draws `count` operations.
#[must_use]
pub fn draw_ops(setup: &Setup, mix: Mix, count: usize) -> Vec<Op> {
    let rng = Rng::from_seed(setup.seed ^ 0x0b5e_55ed);
    let drawing = Drawing { rng: &rng, setup };
    let choices = match mix {
        Mix::Usual => USUAL,
        Mix::Short => SHORT,
    };
    let total: u64 = choices.iter().map(|(weight, _)| weight).sum();
    let draw = |_| {
        let mut at = rng.below(total);
        for (weight, choice) in choices {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return choice(&drawing),
            }
        }
        unreachable!("weights add up")
    };
    (0..count).map(draw).collect()
}
