//! Failures in the middle of a write: a panic, and a process without file descriptors.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::Rng;
use chronolith_head::{WalError, WriteError};
use chronolith_model::{MatchOp, Matcher, Selector, TimeRange};

use crate::harness::fault_disk::{Fault, FaultDisk};
use crate::harness::{NOW_MS, TestEnv, batch, labels, read_all, read_once, tenant};

/// Disk whose sealed chunk files panic on reads, or cannot be created, while a flag is set.
#[derive(Default)]
struct Sealed {
    panics: AtomicBool,
    is_short_of_files: AtomicBool,
    is_short_for_dirs: AtomicBool,
}

fn is_sealed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sealed")
}

impl Fault for Sealed {
    fn before_read(&self, path: &Path) {
        assert!(
            !(is_sealed(path) && self.panics.load(Ordering::Relaxed)),
            "a panic in the middle of an append"
        );
    }

    fn before_create(&self, path: &Path) -> io::Result<()> {
        const EMFILE: i32 = 24;
        let fails = is_sealed(path) && self.is_short_of_files.load(Ordering::Relaxed);
        if fails { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
    }

    fn before_open_dir(&self, dir: &Path) -> io::Result<()> {
        const EMFILE: i32 = 24;
        let fails = dir.ends_with("chunks") && self.is_short_for_dirs.load(Ordering::Relaxed);
        if fails { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
    }
}

fn world_with(fault: &Arc<Sealed>) -> TestEnv {
    let mut test_env = TestEnv::new(1);
    test_env.options.window_ms = 7_200_000;
    test_env.options.wal_segment_bytes = 1 << 20;
    test_env.env.disk = Arc::new(FaultDisk::new(test_env.disk.clone(), fault.clone()));
    test_env
}

/// Regression: a panic below an append left a sample in memory whose frame never reached the WAL. Its retry
/// was acknowledged as a duplicate and was lost at a restart. The panic poisons the WAL: nothing is
/// acknowledged until the restart.
#[test]
fn a_retry_after_a_panic_is_not_acknowledged() {
    let fault = Arc::new(Sealed::default());
    let test_env = world_with(&fault);
    let (head, _) = test_env.open();
    let old: Vec<(i64, f64)> = (0..300).map(|i| (NOW_MS + i * 10, i as f64)).collect();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), old)])).expect("written");
    head.recover_space();
    let before = read_all(&test_env, &head, &["a"]);

    let fresh = (NOW_MS + 5000, 1.0);
    let needs_a_look = (NOW_MS + 20, 2.0);
    fault.panics.store(true, Ordering::Relaxed);
    let write = || test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![fresh, needs_a_look])]));
    catch_unwind(AssertUnwindSafe(write)).expect_err("the panic is injected after the first sample");
    fault.panics.store(false, Ordering::Relaxed);

    let retry = test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![fresh])]));
    assert!(matches!(retry, Err(WriteError::Wal(WalError::Poisoned(_)))), "{retry:?}");
    assert!(head.statistics().stats().wal.is_poisoned);
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    assert_eq!(read_all(&test_env, &head, &["a"]), before, "what was acknowledged, no more and no less");
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![fresh])])).expect("taken again");
}

/// Regression: a process without a file descriptor for the next sealed file poisoned its WAL until a restart.
/// Chunks stay in memory up to a limit, then writes are refused; both end as soon as there are descriptors
/// again.
#[test]
fn writes_resume_after_a_shortage_of_file_descriptors() {
    let fault = Arc::new(Sealed::default());
    let mut test_env = world_with(&fault);
    test_env.options.wal_segment_bytes = 64 << 20;
    test_env.options.sealed_file_bytes = 128 << 20;
    let (head, _) = test_env.open();
    fault.is_short_of_files.store(true, Ordering::Relaxed);
    // Chunks that do not compress.
    let rng = Rng::from_seed(1);
    let samples: Vec<(i64, f64)> =
        (0..120_000).map(|i| (NOW_MS + i, f64::from_bits(0x3ff << 52 | rng.next_u64() >> 12))).collect();
    let row = |idx: u64| batch(&[(labels(idx), samples.clone())]);
    let mut refused = None;
    let mut round = 0;
    while refused.is_none() && round < 200 {
        refused = test_env.write(&head, &tenant("a"), &row(round)).err();
        round += 1;
    }
    assert_eq!(refused, Some(WriteError::NoFileDescriptor), "memory is bounded, after {round} batches");
    assert!(round > 1, "a few chunks may wait");
    assert!(!head.statistics().stats().wal.is_poisoned);
    assert!(head.checkpointer().checkpoint().is_err(), "nothing is promised of chunks that no file has");
    let host = [Matcher::new("instance", MatchOp::Equal, "host-0").expect("compiles")];
    let selector = Selector { matchers: &host, range: TimeRange::ALL };
    let before = read_once(&test_env, &head, "a", &selector);

    fault.is_short_of_files.store(false, Ordering::Relaxed);
    test_env.write(&head, &tenant("a"), &row(500)).expect("taken again at once");
    head.checkpointer().checkpoint().expect("a checkpoint");
    drop(head);
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(read_once(&test_env, &head, "a", &selector), before);
}

/// Regression: a checkpoint syncs the directory of sealed files, which needs a descriptor; without one the
/// WAL was closed until a restart. The checkpoint fails and is retried, and writes go on.
#[test]
fn a_checkpoint_without_a_descriptor_for_its_directory_is_retried() {
    let fault = Arc::new(Sealed::default());
    let mut test_env = world_with(&fault);
    test_env.options.wal_segment_bytes = 64 << 20;
    let (head, _) = test_env.open();
    let samples = |first: i64| (first..first + 2000).map(|i| (NOW_MS + i, i as f64)).collect::<Vec<_>>();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), samples(0))])).expect("taken");
    fault.is_short_for_dirs.store(true, Ordering::Relaxed);
    for round in 1..4 {
        let failed = head.checkpointer().checkpoint().expect_err("no descriptor");
        assert!(failed.to_string().contains("os error 24"), "{failed}");
        assert!(!head.statistics().stats().wal.is_poisoned);
        let more = batch(&[(labels(0), samples(round * 2000))]);
        test_env.write(&head, &tenant("a"), &more).expect("writes go on");
    }
    fault.is_short_for_dirs.store(false, Ordering::Relaxed);
    head.checkpointer().checkpoint().expect("retried");
    let before = read_all(&test_env, &head, &["a"]);
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    assert_eq!(read_all(&test_env, &head, &["a"]), before);
}
