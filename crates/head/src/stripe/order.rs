//! Samples that do not come in order: repeats, conflicts, replacements, late ones.
//!
//! Holds: a late sample is judged against everything that the series has, but chunks are decoded only where cheap
//! proofs that the time is free fail, and once for all samples of a batch that meet the same chunk.

use chronolith_format::xor;
use chronolith_model::{Columns, DuplicatePolicy, TimeRange};

use super::free::{Known, SeriesWindow};
use super::{Applied, Hot, NONE, SealedNode, Stripe, StripeWorld};
use crate::sealed::SealedPlace;
use crate::windows::WindowTally;

/// Which chunk was decoded last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Seen {
    #[default]
    Nothing,
    /// Series, first time and sample count of an open chunk.
    Open(u32, i64, u16),
    Sealed(SealedPlace),
}

/// The chunk that was decoded last: a sender that repeats a batch asks for one after another of its samples.
#[derive(Default)]
pub(super) struct Decoded {
    seen: Seen,
    samples: Columns,
    /// Chunks that may have a time, while it is looked for.
    nodes: Vec<SealedNode>,
}

impl Decoded {
    /// Chunks have changed under the same name.
    pub(super) fn clear(&mut self) {
        self.seen = Seen::Nothing;
    }

    fn value(&self, time: i64) -> Option<u64> {
        let at = self.samples.times.binary_search(&time).ok()?;
        self.samples.values.get(at).map(|v| v.to_bits())
    }
}

impl Stripe {
    /// Reads what [`Stripe::append_late`] will read of these series and times.
    // PERF: three lines a late sample, each of another series, that nothing has touched for long: asked for one behind
    // the other they come at once, else each after the work on the one before.
    //   cargo run --release -p chronolith-head --example late_speed -- 4000 1440 10 withheld 60000
    pub(crate) fn touch_late(&self, world: &StripeWorld<'_>, samples: impl Iterator<Item = (u32, i64)>) {
        let mut touched = 0;
        for (id, time) in samples {
            let late = self.hot(id).map_or(NONE, |hot| hot.late);
            touched ^=
                u64::from(self.late.touch(late)) ^ self.free.touch(SeriesWindow::of(world, id, time), time);
        }
        std::hint::black_box(touched);
    }

    /// Stores a sample that is not later than the last one of its series, or finds that it must not be.
    pub(crate) fn append_late(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        if self.histograms.get(id).is_some() {
            // Some may have come since it was found to be late.
            return self.append_beside(world, windows, id, time, value_bits);
        }
        self.append_late_apart(world, windows, id, time, value_bits)
    }

    /// As [`Stripe::append_late`], past the histograms of the series.
    pub(super) fn append_late_apart(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        let Some(hot) = self.hot(id).cloned() else { return Applied::Gone };
        let window = SeriesWindow::of(world, id, time);
        let known = self.free.known(window, time);
        // Late samples come first: one of them may replace what a chunk has.
        let waiting = if known == Known::Free { None } else { self.late.find(hot.late, time) };
        let stored = match known {
            Known::Free | Known::NoChunk => waiting,
            Known::Nothing => waiting.or_else(|| self.chunk_value(world, window, &hot, time)),
        };
        let applied = match stored {
            None => Applied::Late,
            Some(found) if found == value_bits => return Applied::Repeat,
            Some(_) if world.duplicates == DuplicatePolicy::KeepFirst => return Applied::Conflict,
            Some(_) => Applied::Replaced,
        };
        if waiting.is_some() {
            self.late.replace(hot.late, time, value_bits);
            return applied;
        }
        windows.add_aside(time, 1);
        self.free.take(window, time);
        let (chain, count) = self.late.insert(hot.late, time, value_bits);
        if let Some(hot) = self.hot_mut(id) {
            hot.late = chain;
        }
        let (nodes, by_time) = (&self.nodes, &mut self.by_time);
        if self.late.is_full(count, || by_time.sample_count(nodes, id, hot.sealed)) {
            self.due.push(id);
        }
        applied
    }

    /// Series with so many late samples that they are to be sealed. Whoever appends takes and seals them, in
    /// as many slices as it takes, before it lets others have the stripe for good.
    pub(crate) fn take_due(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.due)
    }

    /// Seals the late samples of all series that are due.
    pub(crate) fn seal_due(&mut self, world: &StripeWorld<'_>, windows: &mut WindowTally) {
        for id in self.take_due() {
            self.seal_crowded_open(world, windows, id);
            let all = TimeRange { start: i64::MIN, end: i64::MAX };
            self.seal_late(world, windows, id, all);
            self.seal_crowded_open_histograms(world, windows, id);
            self.seal_late_histograms(world, windows, id, all);
        }
    }

    /// Seals the open chunk of a series if most of its late samples belong into that.
    pub(crate) fn seal_crowded_open(&mut self, world: &StripeWorld<'_>, windows: &mut WindowTally, id: u32) {
        let Some(hot) = self.hot(id).filter(|hot| hot.late != NONE && !hot.open.is_none()) else { return };
        let (before_open, count) = self.late.counts(hot.late, hot.open_min);
        if before_open <= count / 2 {
            self.seal_open(world, windows, id);
        }
    }

    /// Bits of the value that a chunk has for `time`, which lies in `window` and is not later than the last sample.
    pub(super) fn chunk_value(
        &mut self,
        world: &StripeWorld<'_>,
        window: SeriesWindow,
        hot: &Hot,
        time: i64,
    ) -> Option<u64> {
        if time == hot.xor.time() {
            return Some(hot.xor.value_bits());
        }
        if !hot.open.is_none() && time >= hot.open_min {
            // Two neighbours in the wrong order: between the last two samples of a chunk is none.
            if time > hot.xor.time() - hot.xor.step_ms() {
                return None;
            }
            self.see_open(window, hot);
            return self.decoded.value(time);
        }
        self.sealed_value(world, window, hot, time)
    }

    fn see_open(&mut self, window: SeriesWindow, hot: &Hot) {
        let seen = Seen::Open(window.id, hot.open_min, hot.xor.count());
        if self.decoded.seen == seen {
            return;
        }
        self.chunk.clear();
        self.chains.copy(hot.open, &hot.xor, &mut self.chunk);
        self.decoded.samples.clear();
        // The process wrote these bytes itself.
        let decoded = xor::decode(&self.chunk, TimeRange::ALL, &mut self.decoded.samples);
        debug_assert!(decoded.is_ok(), "open chunks decode");
        self.decoded.seen = seen;
        if self.late.is_tree(hot.late) {
            return;
        }
        let mut nodes = std::mem::take(&mut self.decoded.nodes);
        self.sealed_in(window.id, hot.sealed, hot.open_min, i64::MAX, &mut nodes);
        if nodes.is_empty() {
            let open = TimeRange { start: hot.open_min, end: i64::MAX };
            self.free.note_chunk(window, &self.decoded.samples.times, self.late.times_in(hot.late, open));
        }
        self.decoded.nodes = nodes;
    }

    fn sealed_value(
        &mut self,
        world: &StripeWorld<'_>,
        window: SeriesWindow,
        hot: &Hot,
        time: i64,
    ) -> Option<u64> {
        let mut decoded = std::mem::take(&mut self.decoded);
        let mut nodes = std::mem::take(&mut decoded.nodes);
        self.sealed_in(window.id, hot.sealed, time, time, &mut nodes);
        let mut found = None;
        for node in &nodes {
            if decoded.seen != Seen::Sealed(node.place) {
                decoded.seen = Seen::Nothing;
                decoded.samples.clear();
                // A chunk that cannot be read cannot object to a sample either; queries name the damage.
                if self.decode_sealed(world, node, &mut decoded.samples) {
                    decoded.seen = Seen::Sealed(node.place);
                    // With so many late samples the next one rarely asks for the same chunk.
                    if !self.late.is_tree(hot.late) && self.is_alone(window.id, hot, node) {
                        let within = TimeRange::inclusive(node.min_time, node.max_time());
                        let waiting = self.late.times_in(hot.late, within);
                        self.free.note_chunk(window, &decoded.samples.times, waiting);
                    }
                }
            }
            found = decoded.value(time);
            if found.is_some() {
                break;
            }
        }
        decoded.nodes = nodes;
        self.decoded = decoded;
        found
    }

    /// Whether no other chunk of the series lies where `node` does. Chunks of earlier versions may overlap.
    fn is_alone(&mut self, id: u32, hot: &Hot, node: &SealedNode) -> bool {
        let mut others = Vec::new();
        self.sealed_in(id, hot.sealed, node.min_time, node.max_time(), &mut others);
        (hot.open.is_none() || hot.open_min > node.max_time()) && others.len() == 1
    }
}
