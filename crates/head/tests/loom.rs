//! The map of series in every interleaving (loom): lookup of known series, creation, removal of series that a
//! window drop left empty. The whole head runs, only its deciding locks are loom's.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p chronolith-head --release --lib --test loom loom_`
#![cfg(loom)]

mod harness;

use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_model::{Labels, TimeRange};
use harness::{NOW_MS, TestEnv, WINDOW_MS, batch, labels, read_all, tenant};
use loom::sync::Arc;
use loom::thread;

/// Stack of a model thread, in words: loom's own 32 KiB are too small for a whole head.
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

fn samples(test_env: &TestEnv, head: &chronolith_head::Head) -> Vec<(Labels, Vec<i64>)> {
    read_all(test_env, head, &["a"]).into_iter().map(|(k, s)| (k.1, s.into_keys().collect())).collect()
}

/// A series leaves the head during an append to it: the sample is stored, under one series, and survives a
/// power failure.
#[test]
fn loom_an_append_races_with_the_drop_of_its_series() {
    check(|| {
        let test_env = Arc::new(TestEnv::new(1));
        let (head, _) = test_env.open();
        let head = Arc::new(head);
        let old = TimeRange::window_of(NOW_MS, WINDOW_MS).start - 2 * WINDOW_MS;
        test_env.write(&head, &tenant("a"), &batch(&[(labels(1), vec![(old, 1.0)])])).expect("written");
        let window = TimeRange::new(old, old + WINDOW_MS);
        let snapshot = head.windows().snapshot(&tenant("a"), window).expect("a snapshot");
        let writer = {
            let (test_env, head) = (test_env.clone(), head.clone());
            spawn(move || {
                let outcome =
                    test_env.write(&head, &tenant("a"), &batch(&[(labels(1), vec![(NOW_MS, 2.0)])]));
                assert_eq!(outcome.expect("written").rejected_count(), 0);
            })
        };
        let dropped = head.windows().drop(snapshot);
        writer.join().expect("no panic");
        assert_eq!(dropped.sample_count, 1);
        assert_eq!(samples(&test_env, &head), [(labels(1), vec![NOW_MS])]);
        assert_eq!(head.statistics().stats().series, 1);
        head.checkpointer().checkpoint().expect("a checkpoint");
        drop(head);
        test_env.disk.crash();
        let (head, report) = test_env.open();
        assert_eq!((report.series, report.notes), (1, Vec::<String>::new()));
        assert_eq!(samples(&test_env, &head), [(labels(1), vec![NOW_MS])]);
    });
}

/// Two writers send the same new series: one is created, both samples are in it and in the WAL.
#[test]
fn loom_a_new_series_is_made_once() {
    check(|| {
        let test_env = Arc::new(TestEnv::new(2));
        let (head, _) = test_env.open();
        let head = Arc::new(head);
        let write = |test_env: &TestEnv, head: &chronolith_head::Head, time: i64| {
            let one = batch(&[(labels(7), vec![(time, 1.0)])]);
            test_env.write(head, &tenant("a"), &one).expect("written").series_created_count
        };
        let other = {
            let (test_env, head) = (test_env.clone(), head.clone());
            spawn(move || write(&test_env, &head, NOW_MS + 1))
        };
        let made = write(&test_env, &head, NOW_MS) + other.join().expect("no panic");
        assert_eq!(made, 1);
        assert_eq!(samples(&test_env, &head), [(labels(7), vec![NOW_MS, NOW_MS + 1])]);
        drop(head);
        test_env.disk.crash();
        let (head, _) = test_env.open();
        assert_eq!(samples(&test_env, &head), [(labels(7), vec![NOW_MS, NOW_MS + 1])]);
    });
}
