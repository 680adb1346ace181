//! Start timestamps of one series: packs of encoded runs, and the newest runs decoded.
//!
//! Invariants: runs ascend over packs and tail; the tail is empty only if all is; `last` is not before any
//! time that was set.

use chronolith_base::ByteReader;
use chronolith_format::chunk::starts::{self, StartRun};
use chronolith_model::TimeRange;

/// Approximate runs per pack. Setting a start in the past decodes and encodes one pack.
const PACK_RUNS: usize = 128;

/// Encoded runs.
struct Pack {
    /// Timestamp of the first run.
    first: i64,
    count: u32,
    bytes: Box<[u8]>,
}

impl Pack {
    fn new(runs: &[StartRun]) -> Pack {
        let mut bytes = Vec::new();
        starts::encode(runs, &mut bytes);
        let first = runs.first().map_or(i64::MAX, |run| run.time);
        Pack { first, count: runs.len() as u32, bytes: bytes.into_boxed_slice() }
    }

    fn decode(&self, out: &mut Vec<StartRun>) {
        // Decoding cannot fail: this process encoded the bytes.
        let decoded = starts::decode(&mut ByteReader::new(&self.bytes), out);
        debug_assert!(decoded.is_ok(), "packs decode");
    }
}

/// Step function of the start timestamps of one series.
pub(crate) struct StartTimestamps {
    packs: Vec<Pack>,
    tail: Vec<StartRun>,
    run_count: usize,
    /// A start set after this time applies to all following samples; one set before, to its timestamp alone.
    last: i64,
}

/// Position of a timestamp.
enum Position {
    Pack(usize),
    Tail,
}

impl StartTimestamps {
    /// Returns a function that is unknown for samples up to `last`.
    pub(super) fn new(last: i64) -> StartTimestamps {
        StartTimestamps { packs: Vec::new(), tail: Vec::new(), run_count: 0, last }
    }

    /// Returns a function of ascending runs, for a series whose newest sample is at `newest`.
    pub(super) fn restored(runs: &[StartRun], newest: i64) -> StartTimestamps {
        let last = runs.last().map_or(newest, |run| newest.max(run.time));
        let packed = runs.len().saturating_sub(1) / PACK_RUNS * PACK_RUNS;
        let (packed, tail) = runs.split_at(packed);
        let packs = packed.chunks(PACK_RUNS).map(Pack::new).collect();
        StartTimestamps { packs, tail: tail.to_vec(), run_count: runs.len(), last }
    }

    pub(crate) fn run_count(&self) -> usize {
        self.run_count
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let packs: usize = self.packs.iter().map(|pack| pack.bytes.len()).sum();
        packs + self.packs.capacity() * size_of::<Pack>() + self.tail.capacity() * size_of::<StartRun>()
    }

    /// Implements [`super::Stripe::set_start`].
    pub(super) fn set(&mut self, time: i64, start_ms: i64) {
        if time <= self.last {
            return self.set_alone(time, start_ms);
        }
        self.last = time;
        if self.tail.last().map_or(0, |run| run.start_ms) == start_ms {
            return;
        }
        if let Some(run) = self.tail.last_mut().filter(|run| run.time == time) {
            // A start that was set for the last timestamp alone ends here.
            run.start_ms = start_ms;
            return;
        }
        self.tail.push(StartRun { time, start_ms });
        self.run_count += 1;
        self.pack_tail();
    }

    /// Makes the starts after `newest`, the newest sample, unknown: their records are lost.
    pub(super) fn forget_after(&mut self, newest: i64) {
        self.last = self.last.max(newest);
        if self.tail.last().is_some_and(|run| run.start_ms != 0) {
            self.tail.push(StartRun { time: self.last.saturating_add(1), start_ms: 0 });
            self.run_count += 1;
            self.pack_tail();
        }
    }

    /// Sets the start of one timestamp, after which there may be other samples.
    #[cold]
    fn set_alone(&mut self, time: i64, start_ms: i64) {
        let position = self.position(time);
        let mut runs = Vec::new();
        let next = match position {
            Position::Tail => {
                runs = std::mem::take(&mut self.tail);
                None
            }
            Position::Pack(idx) => {
                self.packs[idx].decode(&mut runs);
                let tail = || self.tail.first().map(|run| run.time);
                self.packs.get(idx + 1).map(|pack| pack.first).or_else(tail)
            }
        };
        let len_before = runs.len();
        let has_changed = set_within(&mut runs, next, time, start_ms);
        self.run_count = self.run_count + runs.len() - len_before;
        match position {
            Position::Tail => {
                self.tail = runs;
                self.pack_tail();
            }
            Position::Pack(_) if !has_changed => {}
            Position::Pack(idx) => {
                let half = if runs.len() > 2 * PACK_RUNS { runs.len() / 2 } else { runs.len() };
                let (front, back) = runs.split_at(half);
                self.packs[idx] = Pack::new(front);
                if !back.is_empty() {
                    self.packs.insert(idx + 1, Pack::new(back));
                }
            }
        }
    }

    /// Returns the position where a run at `time` is or would be.
    fn position(&self, time: i64) -> Position {
        let is_in_tail = self.packs.is_empty() || self.tail.first().is_some_and(|run| run.time <= time);
        if is_in_tail {
            return Position::Tail;
        }
        Position::Pack(self.packs.partition_point(|pack| pack.first <= time).saturating_sub(1))
    }

    fn pack_tail(&mut self) {
        if self.tail.len() >= 2 * PACK_RUNS {
            self.packs.push(Pack::new(&self.tail[..PACK_RUNS]));
            self.tail.drain(..PACK_RUNS);
        }
    }

    /// Returns the start timestamp of the sample at `time`.
    pub(crate) fn at(&self, time: i64) -> i64 {
        match self.position(time) {
            Position::Tail => starts::start_at(&self.tail, time),
            Position::Pack(idx) => {
                let mut runs = Vec::new();
                self.packs[idx].decode(&mut runs);
                starts::start_at(&runs, time)
            }
        }
    }

    /// Appends the runs that affect `range` to `out`: the run before it, and those in it.
    pub(super) fn copy(&self, range: TimeRange, out: &mut Vec<StartRun>) {
        let first_pack = self.packs.partition_point(|pack| pack.first <= range.start).saturating_sub(1);
        for pack in self.packs.iter().skip(first_pack).take_while(|pack| pack.first < range.end) {
            pack.decode(out);
        }
        out.extend(self.tail.iter().take_while(|run| run.time < range.end));
        out.truncate(out.partition_point(|run| run.time < range.end));
        let before = out.partition_point(|run| run.time <= range.start).saturating_sub(1);
        out.drain(..before);
    }

    /// Appends all runs to `out`.
    pub(crate) fn runs(&self, out: &mut Vec<StartRun>) {
        self.packs.iter().for_each(|pack| pack.decode(out));
        out.extend_from_slice(&self.tail);
    }

    /// Drops about all that affects only times before `oldest`; returns false if nothing else is left.
    pub(super) fn trim(&mut self, oldest: i64) -> bool {
        let tail_first = self.tail.first().map_or(i64::MAX, |run| run.time);
        let nexts = self.packs.iter().skip(1).map(|pack| pack.first).chain([tail_first]);
        let gone = nexts.take_while(|&next| next <= oldest).count().min(self.packs.len());
        self.run_count -= self.packs.drain(..gone).map(|pack| pack.count as usize).sum::<usize>();
        if self.packs.is_empty() {
            let gone = self.tail.partition_point(|run| run.time <= oldest).saturating_sub(1);
            self.tail.drain(..gone);
            self.run_count -= gone;
        }
        !self.packs.is_empty() || self.tail.iter().any(|run| run.start_ms != 0)
    }
}

/// Sets the start of `time` alone in `runs`, after which a run begins at `next`; returns true if that changes
/// it.
fn set_within(runs: &mut Vec<StartRun>, next: Option<i64>, time: i64, start_ms: i64) -> bool {
    let next_idx = runs.partition_point(|run| run.time <= time);
    let before = next_idx.checked_sub(1).and_then(|at| runs.get(at)).copied();
    let former_ms = before.map_or(0, |run| run.start_ms);
    if former_ms == start_ms {
        return false;
    }
    let after = time.saturating_add(1);
    let mut at = next_idx;
    match before.filter(|run| run.time == time) {
        Some(_) => runs[next_idx - 1].start_ms = start_ms,
        None => {
            runs.insert(next_idx, StartRun { time, start_ms });
            at += 1;
        }
    }
    if runs.get(at).map(|run| run.time).or(next) != Some(after) {
        runs.insert(at, StartRun { time: after, start_ms: former_ms });
    }
    true
}
