//! Simulations for CI: operations of single-threaded seeds, crashes at every disk operation of short scripts,
//! and some rounds of several threads. A failure prints its seed and the command that repeats it.
//! `CHRONOLITH_SIM_OPS=1000000` runs as many operations as the step `simulator` of `cargo xtask ci --all`,
//! and longer scripts.

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_sim::{
    Budget, Op, Setup, Shape, Tally, run_bucket_crash_points, run_bucket_maintenance_points,
    run_bucket_seeds, run_cluster_ends, run_cluster_seeds, run_concurrent, run_crash_points,
    run_cut_scenarios, run_graphite_seeds, run_ops, run_seam, run_seeds,
};

/// Simulations in parallel: CI has two cores.
const THREAD_COUNT: u64 = 2;

/// Operations before a merge. The first seeds of a release are the same.
const OPS_DEFAULT: u64 = 100_000;

/// Operations of clusters for each one of a single store: most of them are samples of long runs.
const CLUSTER_OPS_PER_OP: u64 = 30;

/// Operations from which on a run is for a release.
const OPS_OF_RELEASE: u64 = 1_000_000;

fn ops() -> u64 {
    let asked = std::env::var("CHRONOLITH_SIM_OPS").ok().map(|ops| ops.parse().expect("a number"));
    asked.unwrap_or(OPS_DEFAULT)
}

fn is_release() -> bool {
    ops() >= OPS_OF_RELEASE
}

#[test]
fn operations_match_the_ledger() {
    let ops = ops();
    let budget = Budget { ops: ops / THREAD_COUNT, seed_ops: 50_000 };
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
    assert!(sum.ops() >= ops, "{sum:?}");
    // Fails if the mix of operations no longer exercises one of these.
    let per_million = |count: u64| count * ops / 1_000_000;
    assert!(sum.power_cuts >= per_million(100) && sum.kills >= per_million(100), "{sum:?}");
    assert!(sum.flushes >= per_million(1000) && sum.slices >= per_million(1000), "{sum:?}");
    assert!(sum.histograms >= per_million(50_000), "{sum:?}");
    assert!(sum.merges >= per_million(100) && sum.refused >= per_million(500), "{sum:?}");
}

#[test]
fn every_disk_operation_is_a_crash_point() {
    // The cost is quadratic: each crash point is followed by the rest of the operations.
    let op_count = if is_release() { 22 } else { 16 };
    let points_min = if is_release() { 500 } else { 300 };
    let point_count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..THREAD_COUNT {
            let point_count = &point_count;
            scope.spawn(move || match run_crash_points(1 + seed, op_count) {
                Ok(done) => point_count.fetch_add(done.crash_points, Ordering::Relaxed),
                Err(failure) => panic!("{failure}"),
            });
        }
    });
    let point_count = point_count.into_inner();
    assert!(point_count >= points_min, "{point_count} crash points");
}

#[test]
fn concurrent_writers_read_their_acknowledged_samples() {
    let seed_end = if is_release() { 4 } else { 3 };
    for seed in 1..seed_end {
        match run_concurrent(seed, 6) {
            Ok(tally) => assert!(tally.samples > 10_000 && tally.starts == 6, "seed {seed}: {tally:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[test]
fn carbon_points_and_roll_ups_match_the_ledger() {
    let budget = Budget { ops: 200_000, seed_ops: 10_000 };
    let tally = match run_graphite_seeds(500, budget, |_, _| {}) {
        Ok(tally) => tally,
        Err(failure) => panic!("{failure}"),
    };
    println!("{tally:?}");
    // Fails if the mix of operations no longer exercises one of these.
    assert!(tally.power_cuts >= 50 && tally.kills >= 30 && tally.merges >= 100, "{tally:?}");
    assert!(tally.rolled_up_blocks >= 500 && tally.rolled_up_windows >= 100_000, "{tally:?}");
}

#[test]
fn a_bucket_has_what_was_uploaded() {
    let budget = Budget { ops: 100_000, seed_ops: 5_000 };
    let tally = match run_bucket_seeds(300, budget, |_, _| {}) {
        Ok(tally) => tally,
        Err(failure) => panic!("{failure}"),
    };
    println!("{tally:?}");
    let bucket = tally.bucket;
    // Fails if the mix of operations no longer exercises one of these.
    assert!(bucket.requests > 10_000 && bucket.faults > 100 && bucket.uploads > 300, "{tally:?}");
    assert!(bucket.kills > 10 && bucket.lost_disks >= 20 && bucket.removed_copies > 50, "{tally:?}");
    assert!(bucket.compactions > 5 && bucket.expired > 3 && bucket.removed > 5, "{tally:?}");
    assert!(bucket.compared > tally.samples / 2, "{tally:?}");
}

#[test]
fn a_process_may_end_at_any_request() {
    for (seed, step) in [(2, 5), (3, 3)] {
        match run_bucket_crash_points(seed, 24, step) {
            Ok(done) => assert!(done.tally.bucket.kills > 40 && done.tally.bucket.uploads > 50, "{done:?}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[test]
fn the_maintenance_of_a_bucket_may_end_at_any_request() {
    match run_bucket_maintenance_points(1, 2) {
        Ok(done) => {
            let bucket = done.tally.bucket;
            assert!(bucket.kills > 40 && bucket.compactions > 40 && bucket.removed > 40, "{done:?}");
        }
        Err(failure) => panic!("{failure}"),
    }
}

/// A block whose samples were all deleted was removed locally before the bucket had its deletions, and
/// queries read it from the bucket, with the deleted samples. It stays until they are there.
#[test]
fn deleted_samples_do_not_come_back_from_the_bucket() {
    let setup = Setup::with_bucket(374);
    let ops = [
        Op::Write { tenant: 0, shape: Shape::Scrape, seed: 15_959_624_761_132_165_290 },
        Op::Flush,
        Op::Upload,
        Op::Delete { tenant: 0, seed: 18_227_559_447_249_972_712 },
        Op::AdvanceClock { ms: 44_669, rounds: 1 },
    ];
    run_ops(&setup, &ops, u64::MAX).unwrap_or_else(|(_, text)| panic!("{text}"));
}

/// Requests of one run at the same time may be answered in any order; faults must not depend on it.
#[test]
fn a_seed_repeats_its_run_with_a_bucket() {
    let run = || run_bucket_seeds(210, Budget { ops: 5_000, seed_ops: 5_000 }, |_, _| {});
    let [first, second] = [run(), run()].map(|done| done.unwrap_or_else(|failure| panic!("{failure}")));
    assert!(first.bucket.uploads > 0);
    let stored =
        |tally: Tally| (tally.samples, tally.compared, tally.starts, tally.flushes, tally.bucket.uploads);
    assert_eq!(stored(first), stored(second));
}

/// One operation is a sample that a gateway was asked to write, or an act of a process.
#[test]
fn clusters_match_the_ledger() {
    let first = std::env::var("CHRONOLITH_SIM_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    let ops = CLUSTER_OPS_PER_OP * ops();
    let budget = Budget { ops: ops / THREAD_COUNT, seed_ops: 1_000_000 };
    let tally = std::thread::scope(|scope| {
        let run =
            |thread: u64| scope.spawn(move || run_cluster_seeds(first + 1000 * thread, budget, |_, _| {}));
        let threads: Vec<_> = (0..THREAD_COUNT).map(run).collect();
        let mut sum = Tally::default();
        for thread in threads {
            match thread.join().expect("panics of a cluster are returned as failures") {
                Ok(tally) => sum.add(&tally),
                Err(failure) => panic!("{failure}"),
            }
        }
        sum
    });
    let cluster = tally.cluster;
    println!("{} operations: {cluster:?}", tally.ops());
    let owners = cluster.owners;
    // Fails if the mix of operations no longer exercises one of these.
    assert!(owners.disk_ends > 20 && owners.request_ends > 5 && owners.lost_disks > 20, "{cluster:?}");
    assert!(owners.published_blocks > 100 && cluster.cuts > 50 && cluster.races > 50, "{cluster:?}");
    assert!(cluster.unacknowledged > 100 && cluster.map_changes > 0, "{cluster:?}");
    assert!(cluster.deletions_begun > 5 && cluster.deletions_done > 0, "{cluster:?}");
}

#[test]
fn a_query_node_with_an_old_catalogue_misses_no_sample_of_a_cut() {
    let mut queries = 0;
    for seed in 0..2 {
        match run_seam(seed, 50) {
            Ok(tally) => queries += tally.cluster.queries,
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(queries > 300, "{queries} queries");
}

#[test]
fn an_owner_may_end_at_any_record_disk_operation_and_request() {
    let step = if is_release() { 2 } else { 12 };
    match run_cluster_ends(1, step) {
        Ok((tally, end_count)) => assert!(end_count > 20, "{end_count} ends: {tally:?}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn samples_that_have_just_left_an_owner_are_not_missed() {
    for seed in 1..6 {
        run_cut_scenarios(seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
