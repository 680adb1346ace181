//! Simulations for CI: a million operations of single-threaded seeds, crashes at every disk operation of
//! short scripts, and some rounds of several threads. A failure prints its seed and the command that repeats
//! it.

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_sim::{Budget, Tally, run_concurrent, run_crash_points, run_seeds};

/// Simulations in parallel: CI has two cores.
const THREAD_COUNT: u64 = 2;

#[test]
fn a_million_operations_match_the_ledger() {
    let budget = Budget { ops: 500_000, seed_ops: 50_000 };
    let sum = std::thread::scope(|scope| {
        let run = |thread: u64| {
            let run = move || run_seeds(1 + 1000 * thread, budget, |_, _| {});
            scope.spawn(run)
        };
        let threads: Vec<_> = (0..THREAD_COUNT).map(run).collect();
        let mut sum = Tally::default();
        for thread in threads {
            match thread.join().expect("panics of the store are returned as failures") {
                Ok(tally) => sum.add(&tally),
                Err(failure) => panic!("{failure}"),
            }
        }
        sum
    });
    println!("{} operations: {sum:?}", sum.ops());
    assert!(sum.ops() >= 1_000_000, "{sum:?}");
    // Fails if the mix of operations no longer exercises one of these.
    assert!(sum.power_cuts >= 100 && sum.kills >= 100 && sum.flushes >= 1000, "{sum:?}");
    assert!(sum.histograms >= 50_000, "{sum:?}");
    assert!(sum.merges >= 100 && sum.slices >= 1000 && sum.refused >= 500, "{sum:?}");
}

#[test]
fn every_disk_operation_is_a_crash_point() {
    let point_count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..THREAD_COUNT {
            let point_count = &point_count;
            scope.spawn(move || match run_crash_points(1 + seed, 22) {
                Ok(done) => point_count.fetch_add(done.crash_points, Ordering::Relaxed),
                Err(failure) => panic!("{failure}"),
            });
        }
    });
    assert!(point_count.into_inner() >= 500);
}

#[test]
fn concurrent_writers_read_their_acknowledged_samples() {
    for seed in 1..4 {
        match run_concurrent(seed, 6) {
            Ok(tally) => assert!(tally.samples > 10_000 && tally.starts == 6, "seed {seed}: {tally:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}
