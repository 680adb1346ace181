//! The map of series in every order of threads (loom): lookup of known series, making new ones, taking out those
//! that a window drop left empty. The whole head runs, only its deciding locks are loom's.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p chronolith-head --release --lib --test loom loom_`
#![cfg(loom)]

mod harness;

use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_model::{Labels, TimeRange};
use harness::{NOW_MS, WINDOW_MS, World, batch, labels, read_all, tenant};
use loom::sync::Arc;
use loom::thread;

/// Stack of a thread of the model, in words: loom's own 32 KiB are too small for a whole head.
const STACK_WORDS: usize = 1 << 16;

fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_WORDS).spawn(run).expect("a thread")
}

fn check(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    // Opening a head takes many locks, all before there is a second thread.
    model.max_branches = 100_000;
    model.preemption_bound = Some(2);
    let order_count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = order_count.clone();
    let run = std::sync::Arc::new(run);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let run = run.clone();
        spawn(move || run()).join().expect("no panic");
    });
    let order_count = order_count.load(Ordering::Relaxed);
    println!("{order_count} orders");
    assert!(order_count > 10, "the locks of the head are those of loom: {order_count} orders");
}

fn samples(world: &World, head: &chronolith_head::Head) -> Vec<(Labels, Vec<i64>)> {
    read_all(world, head, &["a"]).into_iter().map(|(k, s)| (k.1, s.into_keys().collect())).collect()
}

/// A series that leaves the head while a sample for it is on its way: the sample is stored, under one series, and
/// is there after a power cut.
#[test]
fn loom_a_sample_meets_the_drop_of_its_series() {
    check(|| {
        let world = Arc::new(World::new(1));
        let (head, _) = world.open();
        let head = Arc::new(head);
        let old = TimeRange::window_of(NOW_MS, WINDOW_MS).start - 2 * WINDOW_MS;
        world.write(&head, &tenant("a"), &batch(&[(labels(1), vec![(old, 1.0)])])).expect("written");
        let window = TimeRange::new(old, old + WINDOW_MS);
        let snapshot = head.snapshot_window(&tenant("a"), window).expect("a snapshot");
        let writer = {
            let (world, head) = (world.clone(), head.clone());
            spawn(move || {
                let outcome = world.write(&head, &tenant("a"), &batch(&[(labels(1), vec![(NOW_MS, 2.0)])]));
                assert_eq!(outcome.expect("written").rejected_count(), 0);
            })
        };
        let dropped = head.drop_window(snapshot);
        writer.join().expect("no panic");
        assert_eq!(dropped.sample_count, 1);
        assert_eq!(samples(&world, &head), [(labels(1), vec![NOW_MS])]);
        assert_eq!(head.stats().series, 1);
        head.checkpoint().expect("a checkpoint");
        drop(head);
        world.disk.crash();
        let (head, report) = world.open();
        assert_eq!((report.series, report.notes), (1, Vec::<String>::new()));
        assert_eq!(samples(&world, &head), [(labels(1), vec![NOW_MS])]);
    });
}

/// Two writers bring the same new series: one is made, both samples are in it and in the log.
#[test]
fn loom_a_new_series_is_made_once() {
    check(|| {
        let world = Arc::new(World::new(2));
        let (head, _) = world.open();
        let head = Arc::new(head);
        let write = |world: &World, head: &chronolith_head::Head, time: i64| {
            let one = batch(&[(labels(7), vec![(time, 1.0)])]);
            world.write(head, &tenant("a"), &one).expect("written").series_created_count
        };
        let other = {
            let (world, head) = (world.clone(), head.clone());
            spawn(move || write(&world, &head, NOW_MS + 1))
        };
        let made = write(&world, &head, NOW_MS) + other.join().expect("no panic");
        assert_eq!(made, 1);
        assert_eq!(samples(&world, &head), [(labels(7), vec![NOW_MS, NOW_MS + 1])]);
        drop(head);
        world.disk.crash();
        let (head, _) = world.open();
        assert_eq!(samples(&world, &head), [(labels(7), vec![NOW_MS, NOW_MS + 1])]);
    });
}
