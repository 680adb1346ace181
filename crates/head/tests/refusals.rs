//! Failures in the middle of a write: a process without file descriptors.

mod harness;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::Rng;
use chronolith_head::WriteError;
use chronolith_model::{MatchOp, Matcher, Selector, TimeRange};
use harness::fault_disk::{Fault, FaultDisk};
use harness::{NOW_MS, World, batch, labels, read_once, tenant};

/// Sealed chunk files that cannot be made while it says so.
#[derive(Default)]
struct Sealed {
    is_short_of_files: AtomicBool,
}

fn is_sealed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sealed")
}

impl Fault for Sealed {
    fn before_create(&self, path: &Path) -> io::Result<()> {
        const EMFILE: i32 = 24;
        let fails = is_sealed(path) && self.is_short_of_files.load(Ordering::Relaxed);
        if fails { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
    }
}

fn world_with(fault: &Arc<Sealed>) -> World {
    let mut world = World::new(1);
    world.options.window_ms = 7_200_000;
    world.options.wal_segment_bytes = 1 << 20;
    world.env.disk = Arc::new(FaultDisk::new(world.disk.clone(), fault.clone()));
    world
}

/// A process that had no file descriptor left for the next sealed file poisoned its log until a restart. Chunks wait in
/// memory up to a bound, then writes are refused; both end by themselves when there are descriptors again.
#[test]
fn a_shortage_of_file_descriptors_passes() {
    let fault = Arc::new(Sealed::default());
    let mut world = world_with(&fault);
    world.options.wal_segment_bytes = 64 << 20;
    world.options.sealed_file_bytes = 128 << 20;
    let (head, _) = world.open();
    fault.is_short_of_files.store(true, Ordering::Relaxed);
    // Chunks that do not compress.
    let rng = Rng::from_seed(1);
    let samples: Vec<(i64, f64)> =
        (0..120_000).map(|i| (NOW_MS + i, f64::from_bits(0x3ff << 52 | rng.next_u64() >> 12))).collect();
    let row = |idx: u64| batch(&[(labels(idx), samples.clone())]);
    let mut refused = None;
    let mut round = 0;
    while refused.is_none() && round < 200 {
        refused = world.write(&head, &tenant("a"), &row(round)).err();
        round += 1;
    }
    assert_eq!(refused, Some(WriteError::NoFileDescriptor), "memory is bounded, after {round} batches");
    assert!(round > 1, "a few chunks may wait");
    assert!(!head.stats().wal_poisoned);
    assert!(head.checkpoint().is_err(), "nothing is promised of chunks that no file has");
    let host = [Matcher::new("instance", MatchOp::Equal, "host-0").expect("compiles")];
    let selector = Selector { matchers: &host, range: TimeRange::ALL };
    let before = read_once(&world, &head, "a", &selector);

    fault.is_short_of_files.store(false, Ordering::Relaxed);
    world.write(&head, &tenant("a"), &row(500)).expect("taken again at once");
    head.checkpoint().expect("a checkpoint");
    drop(head);
    world.disk.crash();
    let (head, report) = world.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(read_once(&world, &head, "a", &selector), before);
}
