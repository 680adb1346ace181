//! What one thread can see of group commit; the orders of several are tried by `orders`.

use super::{Commit, WriteFailure};
use crate::options::WriteError;

/// A leader that panicked left its mark behind, and everybody else waited for it for ever. It poisons the log.
#[test]
fn a_leader_that_panics_poisons() {
    let commit = Commit::new((), 0);
    commit.queue(|sequence, pending| pending.push(sequence as u8));
    let ticket = commit.ticket();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        commit.wait(ticket, |(), _| panic!("the disk driver is broken"))
    }));
    assert!(unwound.is_err());
    let told = commit.wait(ticket, |(), _| Ok(()));
    assert!(matches!(told, Err(WriteError::Poisoned(_))), "{told:?}");
    assert!(commit.admit(|(), _| Ok(())).is_err());
}

/// With too many bytes in the queue an appender writes them itself before it adds more.
#[test]
fn appenders_are_held_back_by_a_long_queue() {
    let commit = Commit::new(0, 0);
    let write = |taken: &mut usize, bytes: &[u8]| -> Result<(), WriteFailure> {
        *taken += bytes.len();
        Ok(())
    };
    commit.queue(|_, pending| pending.resize(super::PENDING_BYTES_MAX, 0));
    commit.admit(write).expect("open");
    assert_eq!(*commit.sink(), 0, "the limit itself is no reason to wait");
    commit.queue(|_, pending| pending.push(0));
    commit.admit(write).expect("open");
    assert_eq!((*commit.sink(), commit.pending_bytes()), (super::PENDING_BYTES_MAX + 1, 0));
}
