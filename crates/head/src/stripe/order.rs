//! Samples that do not come in order: repeats, conflicts, replacements, late ones.
//!
//! Holds: a late sample is judged against everything that the series has, but chunks are decoded only where cheap
//! proofs that the time is free fail, and once for all samples of a batch that meet the same chunk.

use chronolith_format::xor;
use chronolith_model::{Columns, DuplicatePolicy, TimeRange};

use super::taken::ChunkKey;
use super::{Applied, Hot, NONE, Stripe, StripeWorld};
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
    /// Stores a sample that is not later than the last one of its series, or finds that it must not be.
    #[cold]
    pub(super) fn append_late(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        time: i64,
        value_bits: u64,
    ) -> Applied {
        let Some(hot) = self.hot(id).cloned() else { return Applied::Gone };
        // Late samples come first: one of them may replace what a chunk has.
        let waiting = if hot.late == NONE { Err(0) } else { self.late.find(hot.late, time) };
        let stored = waiting.ok().or_else(|| self.chunk_value(world, id, &hot, time));
        let applied = match stored {
            None => Applied::Late,
            Some(found) if found == value_bits => return Applied::Repeat,
            Some(_) if world.duplicates == DuplicatePolicy::KeepFirst => return Applied::Conflict,
            Some(_) => Applied::Replaced,
        };
        let mut handle = hot.late;
        if handle == NONE {
            handle = self.late.alloc();
            let sealed_from = self.nodes.list(hot.sealed).map(|n| n.min_time).min();
            self.late.set_sealed_from(handle, sealed_from.unwrap_or(i64::MAX));
            if let Some(hot) = self.hot_mut(id) {
                hot.late = handle;
            }
        } else if waiting.is_ok() && self.late.replace(handle, time, value_bits) {
            return applied;
        }
        windows.add_aside(time, 1);
        let place = waiting.expect_err("what waits has been replaced");
        let count = self.late.insert(handle, place, time, value_bits);
        let sealed_count = || self.nodes.list(hot.sealed).map(|n| usize::from(n.count)).sum();
        if self.late.is_full(count, sealed_count) {
            self.seal_full(world, windows, id, &hot);
        }
        applied
    }

    /// Seals a buffer of late samples that is full; the open chunk with it if most of them belong into that.
    fn seal_full(&mut self, world: &StripeWorld<'_>, windows: &mut WindowTally, id: u32, hot: &Hot) {
        let Some(handle) = self.hot(id).map(|hot| hot.late).filter(|&late| late != NONE) else { return };
        let (before_open, count) = self.late.counts(handle, hot.open_min);
        if !hot.open.is_none() && before_open <= count / 2 {
            self.seal_open(world, windows, id);
        }
        self.seal_late(world, windows, id, TimeRange { start: i64::MIN, end: i64::MAX });
    }

    /// Bits of the value that a chunk has for `time`, which is not later than the last sample.
    pub(super) fn chunk_value(&mut self, world: &StripeWorld<'_>, id: u32, hot: &Hot, time: i64) -> Option<u64> {
        if time == hot.xor.time() {
            return Some(hot.xor.value_bits());
        }
        if self.gaps.covers(id, time) {
            return None;
        }
        if !hot.open.is_none() && time >= hot.open_min {
            if self.taken.is_free(ChunkKey::open(id), hot.open_min, time) {
                return None;
            }
            self.see_open(id, hot);
            return self.decoded.value(time);
        }
        if hot.late != NONE && !self.late.may_be_sealed(hot.late, time) {
            return None;
        }
        self.sealed_value(world, hot, time)
    }

    fn see_open(&mut self, id: u32, hot: &Hot) {
        let seen = Seen::Open(id, hot.open_min, hot.xor.count());
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
        self.taken.note(ChunkKey::open(id), &self.decoded.samples.times);
    }

    fn sealed_value(&mut self, world: &StripeWorld<'_>, hot: &Hot, time: i64) -> Option<u64> {
        let mut decoded = std::mem::take(&mut self.decoded);
        let mut found = None;
        for node in self.nodes.list(hot.sealed).filter(|n| n.min_time <= time && time <= n.max_time()) {
            let key = ChunkKey::sealed(node.place);
            if decoded.seen != Seen::Sealed(node.place) {
                if self.taken.is_free(key, node.min_time, time) {
                    continue;
                }
                decoded.seen = Seen::Nothing;
                decoded.samples.clear();
                // A chunk that cannot be read cannot object to a sample either; queries name the damage.
                if self.decode_sealed(world, node, &mut decoded.samples) {
                    decoded.seen = Seen::Sealed(node.place);
                    self.taken.note(key, &decoded.samples.times);
                }
            }
            found = decoded.value(time);
            if found.is_some() {
                break;
            }
        }
        self.decoded = decoded;
        found
    }
}
