//! Group commit under loom, in every interleaving: only bytes that the sink has written are acknowledged,
//! order is kept, no thread waits for ever, and a failure reaches all waiters, even a panic of the leader.

use loom::sync::Arc;
use loom::thread;

use super::{GroupCommit, Shortage, WriteFailure};
use crate::options::WalError;

/// Bytes that reached the disk, and the number of writes that still succeed.
struct Sink {
    written: Vec<u8>,
    good_count: usize,
}

fn write(sink: &mut Sink, bytes: &[u8]) -> Result<(), WriteFailure> {
    if sink.good_count == 0 {
        return Err(WriteFailure::Failed("no more".to_owned()));
    }
    sink.good_count -= 1;
    sink.written.extend_from_slice(bytes);
    Ok(())
}

fn put(commit: &GroupCommit<Sink>, byte: u8) -> Result<(), WalError> {
    commit.admit(write)?;
    commit.queue(|_, pending| pending.push(byte));
    let position = commit.position();
    commit.wait(position, write)
}

fn check(preemption_bound: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemption_bound);
    model.check(run);
}

fn commit(good_count: usize) -> Arc<GroupCommit<Sink>> {
    Arc::new(GroupCommit::new(Sink { written: Vec::new(), good_count }, 0))
}

/// Each of three writers finds its byte written exactly once after its wait.
#[test]
fn loom_acknowledged_is_written() {
    check(2, || {
        let commit = commit(usize::MAX);
        let others: Vec<_> = (1..3)
            .map(|byte| {
                let commit = commit.clone();
                thread::spawn(move || {
                    put(&commit, byte).expect("the sink works");
                    assert!(commit.sink().written.contains(&byte));
                })
            })
            .collect();
        put(&commit, 0).expect("the sink works");
        assert!(commit.sink().written.contains(&0));
        others.into_iter().for_each(|t| t.join().expect("no panic"));
        let mut written = commit.sink().written.clone();
        written.sort_unstable();
        assert_eq!(written, [0, 1, 2]);
    });
}

/// With a failing sink: acknowledged bytes are in it, all other writers get the failure, and none hangs.
#[test]
fn loom_a_failure_reaches_all_waiters() {
    for good_count in 0..2 {
        check(3, move || {
            let commit = commit(good_count);
            let other = commit.clone();
            let thread = thread::spawn(move || put(&other, 1));
            let results = [put(&commit, 0), thread.join().expect("no panic")];
            let written = commit.sink().written.clone();
            for (byte, result) in results.iter().enumerate() {
                assert_eq!(result.is_ok(), written.contains(&(byte as u8)));
                assert!(matches!(result, Ok(()) | Err(WalError::Poisoned(_))));
            }
            let all_at_once = good_count == 1 && written.len() == 2;
            assert!(commit.is_poisoned() != all_at_once);
        });
    }
}

/// An exclusive leader (rotation) finds everything written that was queued before.
#[test]
fn loom_an_exclusive_leader_sees_all_queued_before() {
    check(3, || {
        let commit = commit(usize::MAX);
        let other = commit.clone();
        let writer = thread::spawn(move || put(&other, 1));
        commit.queue(|_, pending| pending.push(0));
        let seen = commit.lead_exclusively(|sink, bytes| {
            write(sink, bytes)?;
            Ok(sink.written.clone())
        });
        assert!(seen.expect("the sink works").contains(&0));
        writer.join().expect("no panic").expect("the sink works");
        assert_eq!(commit.sink().written.len(), 2);
    });
}

/// While the disk is full no append is accepted or acknowledged; with space again, the queued bytes
/// are written in their order.
#[test]
fn loom_a_full_disk_loses_nothing() {
    check(3, || {
        let commit = commit(usize::MAX);
        let full = |_: &mut Sink, _: &[u8]| -> Result<(), WriteFailure> {
            Err(WriteFailure::Short { done_bytes: 0, shortage: Shortage::Space })
        };
        let other = commit.clone();
        let writer = thread::spawn(move || {
            other.queue(|_, pending| pending.push(1));
            let position = other.position();
            (other.wait(position, full), position)
        });
        let freed = commit.lead_exclusively(write);
        let (result, position) = writer.join().expect("no panic");
        assert!(freed.is_ok());
        commit.lead_exclusively(write).expect("there is space");
        commit.wait(position, write).expect("it is written by now");
        assert_eq!(commit.sink().written, [1]);
        assert!(result.is_ok() || result == Err(WalError::DiskFull));
        assert!(commit.is_open());
    });
}
