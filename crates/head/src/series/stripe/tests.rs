//! Appends to a stripe, and the slab of sealed chunks.

mod model;
mod open_words;

use chronolith_base::Env;
use chronolith_format::chunk::xor::{ENCODING_XOR, SAMPLES_PER_CHUNK};

use chronolith_model::{DuplicatePolicy, TimeRange};

use super::decoded::UNLIMITED;
use super::*;
use crate::series::decide::AppendOutcome;
use crate::series::sealed::SealedStore;
use crate::series::sealed_chunks::ChunkRef;
use crate::series::sealed_chunks::{
    ChunkMeta, ChunkOrder, SealedChunk, SealedChunks, WINDOW_WIDTH_MAX, max_time_of, split_stored_count,
};
use crate::series::stripe::ooo_log::OOO_COUNT_MAX;
use crate::series::value::Value;

static NO_BUDGET: HistogramBudget = HistogramBudget::new(u64::MAX);

fn context_of<'a>(env: &'a Env, store: &'a SealedStore, window_ms: i64) -> AppendContext<'a> {
    AppendContext::new(store, &*env.disk, &NO_BUDGET, window_ms, DuplicatePolicy::KeepFirst)
}

fn store_of(env: &Env) -> SealedStore {
    SealedStore::new(env, std::path::Path::new("/d"), 1 << 20, 1, Vec::new())
}

fn node(offset: u32) -> SealedChunk {
    let min_time = i64::from(offset);
    let meta = ChunkMeta::in_order(ENCODING_XOR, 3, min_time, min_time + 5, 10);
    SealedChunk::new(ChunkRef::new(1, offset), &meta).expect("the chunk is small")
}

#[test]
fn removed_nodes_leave_the_rest_in_order() {
    for mask in 0..32u32 {
        let mut nodes = SealedChunks::new();
        let mut start = NONE;
        for offset in 0..5 {
            start = nodes.push(node(offset), start);
        }
        let kept = nodes.remove(start, |n| mask >> n.chunk_ref().offset() & 1 == 1);
        let left: Vec<u32> = nodes.list(kept).map(|n| n.chunk_ref().offset()).collect();
        let want: Vec<u32> = (0..5).rev().filter(|o| mask >> o & 1 == 0).collect();
        assert_eq!(left, want);
        assert_eq!(nodes.count(), want.len() as u64);
        let again = nodes.push(node(9), kept);
        assert_eq!(nodes.list(again).count(), want.len() + 1);
    }
}

/// Metadata survives packing, whatever its parts; chunks that a head cannot have are refused.
#[test]
fn chunk_metadata_round_trips() {
    let policies = [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins].map(ChunkOrder::OutOfOrder);
    for order in [ChunkOrder::InOrder].into_iter().chain(policies) {
        for encoding in [1, 2, 3, 0x43, 0x45] {
            for (count, len) in [(1, 10), (120, 65_535), (1023, 65_536)] {
                let meta = ChunkMeta::in_order(encoding, count, -5, 1 << 31, len).with_order(order);
                let node = SealedChunk::new(ChunkRef::new(7, 9), &meta).unwrap();
                assert_eq!((node.encoding(), node.order(), node.count()), (encoding, order, count));
                assert_eq!((node.min_time(), node.max_time()), (-5, 1 << 31));
                assert_eq!(node.byte_len(), Some(len).filter(|&len| len < 65_536));
                assert_eq!(split_stored_count(node.stored_count()), (count, order));
            }
        }
    }
    let is_refused = |encoding, count, min_time, max_time| {
        let meta = ChunkMeta::in_order(encoding, count, min_time, max_time, 9);
        SealedChunk::new(ChunkRef::new(1, 1), &meta).is_none()
    };
    assert!(!is_refused(1, 1, 0, 0));
    assert!(is_refused(4, 1, 0, 0), "an encoding of blocks");
    assert!(is_refused(1, 1024, 0, 0), "too many samples");
    assert!(is_refused(1, 1, 0, 1 << 44) && is_refused(1, 1, i64::MIN, i64::MAX), "too long a span");
}

/// A window of two hours in nanoseconds exceeds 32 bits; regression: chunks of more than 4.3 s were refused.
#[test]
fn the_span_of_a_long_chunk_is_a_bound() {
    for span in [u32::MAX as i64 + 1, 5_000_000_001, 7_199_999_999_999, WINDOW_WIDTH_MAX] {
        let min_time = -9_223_372_036_854_775_806;
        let meta = ChunkMeta::in_order(1, 120, min_time, min_time + span, 9);
        let node = SealedChunk::new(ChunkRef::new(1, 1), &meta).unwrap();
        let over = node.max_time() - (min_time + span);
        assert!(node.is_bound() && (0..2048).contains(&over), "{over} over {span}");
        assert_eq!(node.count(), 120);
        let stored = (node.stored_span(), node.stored_count());
        assert_eq!(max_time_of(min_time, stored.0, stored.1), node.max_time());
        assert_eq!(split_stored_count(stored.1), (120, ChunkOrder::InOrder));
        let meta = ChunkMeta::in_order(1, 120, min_time, node.max_time(), 9);
        assert_eq!(SealedChunk::new(ChunkRef::new(1, 1), &meta).unwrap(), node, "restored from a checkpoint");
    }
}

#[test]
fn out_of_order_samples_are_sealed_by_window_when_they_are_many() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1000);
    let mut stripe = Stripe::new();
    stripe.create(7, 0);
    let mut append =
        |stripe: &mut Stripe, id, time, bits| stripe.append(&mut cx, id, time, Value::Word(bits));
    assert_eq!(append(&mut stripe, 8, 1, 1), AppendOutcome::SeriesGone);
    assert_eq!(append(&mut stripe, 7, 50_000, 1), AppendOutcome::InOrder);
    for i in 0..OOO_COUNT_MAX as i64 {
        assert_eq!(append(&mut stripe, 7, 40_000 - i * 100, 1), AppendOutcome::OutOfOrder);
    }
    let series = stripe.series(7).unwrap().clone();
    assert!(series.ooo.is_empty(), "the log has no sample of the series");
    let sealed: Vec<_> = stripe.sealed_of(&series).copied().collect();
    assert!(sealed.iter().all(|n| n.min_time() / 1000 == n.max_time() / 1000), "no chunk crosses a window");
    assert_eq!(sealed.iter().map(|n| usize::from(n.count())).sum::<usize>(), OOO_COUNT_MAX);
    assert_eq!(append(&mut stripe, 7, 39_000, 1), AppendOutcome::Duplicate);
    assert_eq!(append(&mut stripe, 7, 39_000, 2), AppendOutcome::DuplicateTimestamp);
    assert_eq!(append(&mut stripe, 7, 39_001, 2), AppendOutcome::OutOfOrder);
}

/// Senders that repeat one large batch must not pay for a lookup per sample: the rest is accepted, and
/// resolved when it is read.
#[test]
fn an_append_without_lookups_accepts_duplicates_once() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000).with_lookups(1);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    (0..300).for_each(|at| {
        stripe.append(&mut cx, 1, at * 10, Value::Word(1));
    });
    cx.lookups_left = 2;
    // The same chunk is decoded once; the open one would be the third.
    assert_eq!(stripe.append(&mut cx, 1, 100, Value::Word(1)), AppendOutcome::Duplicate);
    assert_eq!(stripe.append(&mut cx, 1, 200, Value::Word(2)), AppendOutcome::DuplicateTimestamp);
    assert_eq!(stripe.append(&mut cx, 1, 1500, Value::Word(2)), AppendOutcome::DuplicateTimestamp);
    assert_eq!(stripe.append(&mut cx, 1, 2500, Value::Word(2)), AppendOutcome::OutOfOrder);
    cx.lookups_left = UNLIMITED;
    assert_eq!(stripe.append(&mut cx, 1, 2500, Value::Word(1)), AppendOutcome::Duplicate);
}

/// Regression: a million samples in descending order visited up to 256 chunks each without paying for them,
/// 1.1 s of CPU instead of 0.3 s.
#[test]
fn samples_before_all_chunks_of_their_series_use_up_the_lookups() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000_000).with_lookups(0);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    let mut time = 1_000_000;
    for _ in 0..1000 * OOO_COUNT_MAX {
        time -= 1;
        stripe.append(&mut cx, 1, time, Value::Word(1));
    }
    let chunk_count = stripe.sealed_of(stripe.series(1).unwrap()).count();
    assert!(chunk_count >= 999, "{chunk_count} chunks to visit");
    cx.lookups_left = 4;
    time -= 1;
    assert_eq!(stripe.append(&mut cx, 1, time, Value::Word(1)), AppendOutcome::OutOfOrder);
    assert_eq!(cx.lookups_left, 0, "one sample visits no more chunks than four lookups allow");
    // A short list of chunks is searched to its end; only decoded chunks count as work.
    stripe.create(2, 0);
    (0..300).for_each(|at| {
        stripe.append(&mut cx, 2, 1000 + at * 10, Value::Word(1));
    });
    cx.lookups_left = 1;
    assert_eq!(stripe.append(&mut cx, 2, 5, Value::Word(1)), AppendOutcome::OutOfOrder);
    assert_eq!(cx.lookups_left, 1);
}

/// Counters without a cross-check in production are checked against a sum over the series here.
#[test]
fn chunks_are_counted_as_they_come_and_go() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 100_000);
    let mut stripe = Stripe::new();
    (0..20).for_each(|id| stripe.create(id, 0));
    for step in 0..20_000u64 {
        let (id, time) = (env.rng.below(20) as u32, (step * 30 + env.rng.below(3_000)) as i64);
        stripe.append(&mut cx, id, time, Value::Word(env.rng.below(9)));
        if env.rng.below(50) == 0 {
            stripe.seal_out_of_order(&mut cx, id, TimeRange::new(0, time));
        }
        if env.rng.below(50) == 0 {
            stripe.unlink_sealed(&cx, id, |node| node.count() < 20);
        }
        let of = |series: &SeriesState| {
            let held = usize::from(series.has_open_words()) + usize::from(!series.ooo.is_empty());
            held + stripe.sealed_of(series).count()
        };
        if step % 97 == 0 {
            let sum: usize = (0..20).filter_map(|id| stripe.series(id)).map(of).sum();
            assert_eq!(stripe.chunk_count(), sum as u64);
        }
    }
}

/// All series of a fleet fill their chunks in step: at the end, the nodes are freed or used again.
#[test]
fn memory_of_open_chunks_is_freed_when_all_are_sealed() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000_000);
    let mut stripe = Stripe::new();
    (0..1000).for_each(|id| stripe.create(id, 0));
    let (mut peak, mut after) = (Vec::new(), Vec::new());
    for round in 0..3 * SAMPLES_PER_CHUNK as i64 {
        if round % SAMPLES_PER_CHUNK as i64 == SAMPLES_PER_CHUNK as i64 - 1 {
            peak.push(stripe.memory()[1].bytes);
        }
        for id in 0..1000 {
            stripe.append(&mut cx, id, round * 1000, Value::Word(env.rng.next_u64()));
        }
        if round % SAMPLES_PER_CHUNK as i64 == SAMPLES_PER_CHUNK as i64 - 1 {
            after.push(stripe.memory()[1].bytes);
        }
    }
    assert!(after.iter().all(|&a| a < peak[0] / 4), "{after:?} of {peak:?}");
    assert!(peak.iter().all(|&p| p < peak[0] + peak[0] / 8), "peaks do not add up: {peak:?}");
}

/// A log of many series: pages that few samples keep are emptied, so memory follows the samples in use.
#[test]
fn sparse_pages_of_the_log_are_freed() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000_000).with_lookups(0);
    let mut stripe = Stripe::new();
    (0..1000).for_each(|id| stripe.create(id, 0));
    (0..1000).for_each(|id| {
        stripe.append(&mut cx, id, 1_000_000, Value::Word(1));
    });
    // Every tenth series has a single sample, the others fill their lists again and again.
    for at in 0..40 * OOO_COUNT_MAX as i64 {
        for id in (0..1000u32).filter(|id| at == i64::from(id % 97) || id % 10 != 0) {
            stripe.append(&mut cx, id, at * 10 + i64::from(id % 7), Value::Word(1));
        }
    }
    let bytes = stripe.memory()[2].bytes;
    let entry_bytes = 24 * 1000 * OOO_COUNT_MAX as u64;
    assert!(bytes < 2 * entry_bytes, "{bytes} bytes for at most {entry_bytes}");
    for id in 0..1000 {
        stripe.seal_out_of_order(&mut cx, id, TimeRange::ALL);
    }
    assert_eq!((stripe.memory()[2].bytes, stripe.memory()[2].count), (0, 0));
}

/// Erased samples can be written again; kept ones are still known.
#[test]
fn erased_samples_can_be_written_again() {
    for (from, to) in [(0, 3000), (0, 500), (250, 260), (1190, 1200), (2990, 3000), (1300, 5000), (-50, 1)] {
        let (env, _, _) = Env::fake(0, 1);
        let store = store_of(&env);
        let mut cx = context_of(&env, &store, 1_000_000);
        let mut stripe = Stripe::new();
        stripe.create(1, 0);
        for time in (0..3000).step_by(10).filter(|t| t % 70 != 0).chain((0..3000).step_by(70)) {
            assert!(stripe.append(&mut cx, 1, time, Value::Word(1)) != AppendOutcome::DuplicateTimestamp);
        }
        let range = TimeRange::new(from, to);
        let want = (0..3000).step_by(10).filter(|&t| range.contains(t)).count();
        assert_eq!(stripe.erase(&mut cx, 1, range).unwrap_or(0), want as u64);
        assert_eq!(stripe.erase(&mut cx, 1, range).unwrap_or(0), 0, "deleting twice changes nothing");
        for time in (0..3000).step_by(10) {
            let outcome = stripe.append(&mut cx, 1, time, Value::Word(2));
            let is_gone = range.contains(time);
            assert_eq!(
                outcome == AppendOutcome::DuplicateTimestamp,
                !is_gone,
                "{time} of {from}..{to}: {outcome:?}"
            );
        }
        assert_eq!(cx.windows.take_count(), 300, "{from}..{to}");
    }
}

/// Regression: the series record kept the old value of a last sample whose replacement was sealed, so a
/// repeat of the old value was taken for stored. The sealed value decides.
#[test]
fn a_replaced_last_sample_is_known_after_sealing() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1000);
    cx.duplicates = DuplicatePolicy::LastWins;
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    assert_eq!(stripe.append(&mut cx, 1, 500, Value::Word(1)), AppendOutcome::InOrder);
    stripe.seal_open(&cx, 1);
    assert_eq!(stripe.append(&mut cx, 1, 500, Value::Word(2)), AppendOutcome::Replaced);
    stripe.seal_out_of_order(&mut cx, 1, TimeRange::ALL);
    assert_eq!(stripe.append(&mut cx, 1, 500, Value::Word(2)), AppendOutcome::Duplicate);
    assert_eq!(stripe.append(&mut cx, 1, 500, Value::Word(1)), AppendOutcome::Replaced);
}
