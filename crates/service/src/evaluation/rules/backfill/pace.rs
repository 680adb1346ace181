//! Rounds per chunk: as many as its samples have room for, and as few as end in a short time, so that a
//! backfill can be stopped and shows its progress.

use chronolith_rules::backfill::RoundTimes;

/// Rounds of the first chunk of a stage, whose series are not known.
const ROUNDS_FIRST: usize = 32;
/// Rounds of one query.
const ROUNDS_MAX: usize = 2880;
/// Results of a chunk, in samples: some 16 bytes each, and a copy for the write.
const SAMPLES_MAX: usize = 2_000_000;
/// Wanted duration of a chunk.
const CHUNK_NS: u64 = 2_000_000_000;
/// Rounds of a chunk that takes longer, as long as its queries succeed: with fewer rounds, plans and lookups
/// of stored series would be most of the work.
const ROUNDS_SLOW: usize = 128;
/// Growth from one chunk to the next.
const GROWTH_MAX: usize = 8;
/// Chunks end at a multiple of this where they are long enough: blocks have this range, or a multiple.
const WINDOW_MS: i64 = 2 * 3_600_000;

/// Outcome of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkCost {
    pub(super) sample_count: usize,
    pub(super) duration_ns: u64,
    /// A query had to be repeated over fewer rounds, or by itself.
    pub(super) is_repeated: bool,
}

/// Rounds per chunk of a stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    rounds: usize,
    rounds_max: usize,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { rounds: ROUNDS_FIRST, rounds_max: ROUNDS_MAX }
    }

    /// The next chunk of `rest`.
    pub(super) fn take(&self, rest: RoundTimes) -> RoundTimes {
        let chunk = rest.first(self.rounds);
        let window_ms = chunk.next_ms().div_euclid(WINDOW_MS).saturating_mul(WINDOW_MS);
        let span_ms = window_ms.saturating_sub(chunk.first_ms());
        let in_windows = span_ms.saturating_add(chunk.interval_ms() - 1) / chunk.interval_ms();
        let in_windows = usize::try_from(in_windows).unwrap_or(0);
        // A chunk is not cut to less than half of what it may have.
        if chunk.count() < rest.count() && in_windows > chunk.count() / 2 {
            return rest.first(in_windows);
        }
        chunk
    }

    /// Adapts to a chunk of `round_count` rounds.
    pub(super) fn note(&mut self, round_count: usize, cost: ChunkCost) {
        assert!(round_count > 0, "a chunk has a round");
        if cost.is_repeated {
            self.rounds_max = (round_count / 2).max(1);
        }
        let per_round = (cost.sample_count / round_count).max(1);
        let in_time = match cost.duration_ns {
            0 => usize::MAX,
            ns => usize::try_from((round_count as u64).saturating_mul(CHUNK_NS) / ns).unwrap_or(usize::MAX),
        };
        let in_time = in_time.max(ROUNDS_SLOW);
        let grown = self.rounds.saturating_mul(GROWTH_MAX);
        self.rounds = grown.min(SAMPLES_MAX / per_round).min(in_time).clamp(1, self.rounds_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_room_for_their_samples_and_end_in_time() {
        let mut pace = Pace::new();
        let cost = ChunkCost { sample_count: 32 * 20_000, duration_ns: 0, is_repeated: false };
        pace.note(32, cost);
        assert_eq!(pace.rounds, 100);
        let mut pace = Pace::new();
        pace.note(32, ChunkCost { sample_count: 32, duration_ns: 320_000_000, is_repeated: false });
        assert_eq!(pace.rounds, 200);
        pace.note(200, ChunkCost { sample_count: 200, duration_ns: 200_000_000_000, is_repeated: false });
        assert_eq!(pace.rounds, ROUNDS_SLOW);
        pace.note(ROUNDS_SLOW, ChunkCost { sample_count: 8, duration_ns: 0, is_repeated: true });
        assert_eq!(pace.rounds, ROUNDS_SLOW / 2);
        pace.note(64, ChunkCost { sample_count: 1_000_000_000, duration_ns: 0, is_repeated: false });
        assert_eq!(pace.rounds, 1);
    }

    #[test]
    fn long_chunks_end_with_a_window() {
        let pace = Pace { rounds: 500, rounds_max: ROUNDS_MAX };
        let all = RoundTimes::new(WINDOW_MS + 60_000 * 30 + 7, 60_000, 10_000);
        let first = pace.take(all);
        assert_eq!((first.count(), first.next_ms()), (450, 5 * WINDOW_MS + 7));
        let second = pace.take(all.since(first.next_ms()).expect("more"));
        assert_eq!((second.count(), second.next_ms()), (480, 9 * WINDOW_MS + 7));
        assert_eq!(pace.take(RoundTimes::new(0, 60_000, 100)).count(), 100, "the rest is one chunk");
        let short = Pace { rounds: 10, rounds_max: ROUNDS_MAX };
        assert_eq!(short.take(all).count(), 10);
    }
}
