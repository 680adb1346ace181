//! Group commit in every order of threads (loom): nothing is acknowledged that the sink has not taken, order is
//! kept, nobody waits for ever, a failure reaches everybody, also when it is a panic of the leader.

use loom::sync::Arc;
use loom::thread;

use super::{Commit, WriteFailure};
use crate::options::WriteError;

/// What reached the disk, and how often it shall still work.
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

fn put(commit: &Commit<Sink>, byte: u8) -> Result<(), WriteError> {
    commit.admit(write)?;
    commit.queue(|_, pending| pending.push(byte));
    let ticket = commit.ticket();
    commit.wait(ticket, write)
}

fn check(preemption_bound: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemption_bound);
    model.check(run);
}

fn commit(good_count: usize) -> Arc<Commit<Sink>> {
    Arc::new(Commit::new(Sink { written: Vec::new(), good_count }, 0))
}

/// Each of three writers finds its byte written, once, when it is told so.
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

/// A sink that fails: who is told "written" is in it, the others get the failure, and nobody hangs.
#[test]
fn loom_a_failure_reaches_everybody() {
    for good_count in 0..2 {
        check(3, move || {
            let commit = commit(good_count);
            let other = commit.clone();
            let thread = thread::spawn(move || put(&other, 1));
            let told = [put(&commit, 0), thread.join().expect("no panic")];
            let written = commit.sink().written.clone();
            for (byte, told) in told.iter().enumerate() {
                assert_eq!(told.is_ok(), written.contains(&(byte as u8)));
                assert!(matches!(told, Ok(()) | Err(WriteError::Poisoned(_))));
            }
            let all_at_once = good_count == 1 && written.len() == 2;
            assert!(commit.is_poisoned() != all_at_once);
        });
    }
}

/// Whoever rotates the log leads alone, and what it finds written is all that was queued before.
#[test]
fn loom_an_exclusive_leader_sees_all_before_it() {
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

/// Back-pressure and space: while the disk is full nobody is admitted or acknowledged; with space again, what
/// was queued is written in its order.
#[test]
fn loom_a_full_disk_loses_nothing() {
    check(3, || {
        let commit = commit(usize::MAX);
        let full = |_: &mut Sink, _: &[u8]| -> Result<(), WriteFailure> {
            Err(WriteFailure::Full { done_bytes: 0 })
        };
        let other = commit.clone();
        let writer = thread::spawn(move || {
            other.queue(|_, pending| pending.push(1));
            let ticket = other.ticket();
            (other.wait(ticket, full), ticket)
        });
        let freed = commit.lead_exclusively(write);
        let (told, ticket) = writer.join().expect("no panic");
        assert!(freed.is_ok());
        commit.lead_exclusively(write).expect("there is space");
        commit.wait(ticket, write).expect("it is written by now");
        assert_eq!(commit.sink().written, [1]);
        assert!(told.is_ok() || told == Err(WriteError::DiskFull));
        assert!(commit.is_open());
    });
}
