//! Callers at the same time, and a request that panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;

use super::*;

/// Waits for another thread.
fn wait_until(is_met: impl Fn() -> bool) {
    while !is_met() {
        std::thread::yield_now();
    }
}

#[test]
fn callers_share_the_request_that_begins_after_them() {
    let shared = Arc::new(SingleFlight::<u32>::new());
    let count = Arc::new(AtomicU32::new(0));
    let (release, released) = sync_channel::<()>(0);
    std::thread::scope(|scope| {
        let (of, begun) = (shared.clone(), count.clone());
        let first = scope.spawn(move || {
            of.run(|| {
                let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                released.recv().expect("is released");
                number
            })
        });
        wait_until(|| count.load(Ordering::SeqCst) == 1);
        let later: Vec<_> = (0..8)
            .map(|_| {
                let (of, begun) = (shared.clone(), count.clone());
                scope.spawn(move || of.run(|| begun.fetch_add(1, Ordering::SeqCst) + 1))
            })
            .collect();
        // Callers before the end of the first request may not have its result, and one of them sends another.
        wait_until(|| shared.ended.notify_all() == 8);
        release.send(()).expect("is awaited");
        assert_eq!(first.join().expect("no panic"), 1);
        let results: Vec<u32> = later.into_iter().map(|asked| asked.join().expect("no panic")).collect();
        assert_eq!(results, [2; 8]);
    });
    assert_eq!(shared.run(|| count.fetch_add(1, Ordering::SeqCst) + 1), 3, "a result is not kept for later");
}

#[test]
fn a_request_that_panics_lets_others_run() {
    let shared = SingleFlight::<u32>::new();
    let panicked = std::thread::scope(|scope| scope.spawn(|| shared.run(|| panic!("as wanted"))).join());
    assert!(panicked.is_err());
    assert_eq!(shared.run(|| 7), 7);
}
