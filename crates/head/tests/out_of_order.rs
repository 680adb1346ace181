//! Out-of-order samples of one series in hostile orders: the work per sample is bounded, and nothing is lost.

mod harness;

use std::collections::BTreeMap;

use chronolith_base::Rng;
use chronolith_head::Head;
use chronolith_model::{DuplicatePolicy, WriteBatch};
use harness::{NOW_MS, World, batch, labels, read_once, tenant};

/// Samples of one series in the default window, a millisecond apart.
fn world() -> World {
    let mut world = World::new(1);
    world.options.window_ms = 7_200_000;
    world.options.wal_segment_bytes = 1 << 20;
    world.options.sealed_file_bytes = 1 << 20;
    world
}

/// The numbers below `count` in an order that makes buffers of late samples work hard.
fn ordered(order: &str, count: usize, seed: u64) -> Vec<usize> {
    let rng = Rng::from_seed(seed);
    let mut out: Vec<usize> = (0..count).collect();
    let blocks = |len: usize| (0..count.div_ceil(len)).map(move |b| b * len..count.min((b + 1) * len));
    match order {
        "random" => (1..count).rev().for_each(|i| out.swap(i, rng.below(i as u64 + 1) as usize)),
        "descending" => out.reverse(),
        "interleaved" => {
            let half = count.div_ceil(2);
            out = (0..half).flat_map(|i| [i, half + i]).filter(|&i| i < count).collect();
        }
        "sawtooth" => out = (0..17).flat_map(|tooth| (tooth..count).step_by(17)).collect(),
        "reverse sawtooth" => {
            out = (0..17).rev().flat_map(|tooth| (tooth..count).step_by(17).rev()).collect()
        }
        "descending blocks" => out = blocks(1000).rev().flatten().collect(),
        "blocks of descending" => out = blocks(1000).flat_map(|b| b.rev()).collect(),
        "swapped blocks" => {
            let mut all: Vec<_> = blocks(333).collect();
            (1..all.len()).rev().for_each(|i| all.swap(i, rng.below(i as u64 + 1) as usize));
            out = all.into_iter().flatten().collect();
        }
        "middle out" => {
            let middle = count / 2;
            out = (0..=middle)
                .flat_map(|i| [middle + i, middle.wrapping_sub(i + 1)])
                .filter(|&i| i < count)
                .collect();
        }
        "ends in" => out = (0..count.div_ceil(2)).flat_map(|i| [count - 1 - i, i]).take(count).collect(),
        "bit reversed" => {
            let bits = usize::BITS - count.leading_zeros();
            out = (0..1usize << bits)
                .map(|i| i.reverse_bits() >> (usize::BITS - bits))
                .filter(|&i| i < count)
                .collect();
        }
        "last first" => out.rotate_right(1),
        other => panic!("no such order: {other}"),
    }
    out
}

const ORDERS: [&str; 12] = [
    "random",
    "descending",
    "interleaved",
    "sawtooth",
    "reverse sawtooth",
    "descending blocks",
    "blocks of descending",
    "swapped blocks",
    "middle out",
    "ends in",
    "bit reversed",
    "last first",
];

fn value_of(i: usize, version: usize) -> f64 {
    (i * 7 % 1000) as f64 + version as f64 * 10_000.0
}

fn batch_of(ids: &[usize], version: usize) -> WriteBatch {
    let samples: Vec<(i64, f64)> = ids.iter().map(|&i| (NOW_MS + i as i64, value_of(i, version))).collect();
    batch(&[(labels(0), samples)])
}

#[track_caller]
fn check_samples(world: &World, head: &Head, want: &BTreeMap<i64, u64>) {
    let selector = chronolith_model::Selector { matchers: &[], range: chronolith_model::TimeRange::ALL };
    let found = read_once(world, head, "a", &selector);
    let samples = found.values().next().expect("the series is there");
    assert!(samples == want, "{} samples instead of {}", samples.len(), want.len());
}

/// The bound: each sample is encoded again a logarithm of their number of times, in whatever order and
/// batches they come.
#[track_caller]
fn check_moves(head: &Head, count: usize, what: &str) {
    let moves = head.stats().samples_merged as f64 / count as f64;
    assert!(moves <= 2.0 * (count as f64).log2(), "{what}: each sample was encoded {moves} times");
}

/// Each full buffer of late samples was merged with every chunk of the series: the work grew with the square
/// of their number, 300,000 samples of one series in one request stopped all writers and queries for 6 s, a
/// million for 135 s.
#[test]
fn each_sample_is_encoded_a_bounded_number_of_times_in_any_order() {
    let count = 60_000;
    for (seed, order) in ORDERS.iter().enumerate() {
        let ids = ordered(order, count, seed as u64);
        assert_eq!(ids.len(), count, "{order}");
        for batch_len in [count, 1000, 77] {
            let world = world();
            let (head, _) = world.open();
            for part in ids.chunks(batch_len) {
                let outcome = world.write(&head, &tenant("a"), &batch_of(part, 0)).unwrap();
                assert_eq!(outcome.accepted_count, part.len() as u64, "{order}");
            }
            check_moves(&head, count, &format!("{order}, {batch_len} a batch"));
            let want = (0..count).map(|i| (NOW_MS + i as i64, value_of(i, 0).to_bits())).collect();
            check_samples(&world, &head, &want);
            let again = world.write(&head, &tenant("a"), &batch_of(&ids[..count / 10], 0)).unwrap();
            assert_eq!(again.repeated_count, count as u64 / 10, "{order}: a retry changes nothing");
            check_samples(&world, &head, &want);
        }
    }
}

/// Of two values for a time the first or the last counts, as the tenant says, wherever the sample is by then;
/// a restart and a power cut bring back the same.
#[test]
fn second_values_are_judged_alike_in_any_order() {
    let count = 20_000;
    for policy in [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins] {
        for (seed, order) in ORDERS.iter().enumerate() {
            let mut world = world();
            world.limits.duplicates = policy;
            let (head, _) = world.open();
            let ids = ordered(order, count, seed as u64);
            let second: Vec<usize> = ordered("random", count, 99).into_iter().take(count / 4).collect();
            let mut want = BTreeMap::new();
            for (at, part) in ids.chunks(3000).enumerate() {
                let doubled: Vec<usize> = second.iter().copied().skip(at * 500).take(500).collect();
                for (part, version) in [(part, 0), (&*doubled, 1)] {
                    world.write(&head, &tenant("a"), &batch_of(part, version)).unwrap();
                    for &i in part {
                        let bits = value_of(i, version).to_bits();
                        let slot = want.entry(NOW_MS + i as i64).or_insert(bits);
                        if policy == DuplicatePolicy::LastWins {
                            *slot = bits;
                        }
                    }
                }
            }
            check_samples(&world, &head, &want);
            drop(head);
            world.disk.crash();
            let (head, report) = world.open();
            assert!(report.notes.is_empty(), "{order}: {:?}", report.notes);
            check_samples(&world, &head, &want);
        }
    }
}
