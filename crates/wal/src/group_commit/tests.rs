//! Group commit with one thread; `orders` runs the interleavings of several.

use super::{GroupCommit, WriteFailure};
use crate::options::WalError;

/// Regression: a leader that panicked left its flag set, and all other threads waited for it for ever. It
/// poisons the log.
#[test]
fn a_leader_that_panics_poisons() {
    let commit = GroupCommit::new((), 0);
    commit.queue(|sequence, pending| pending.push(sequence as u8));
    let position = commit.position();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        commit.wait(position, |(), _| panic!("the disk driver is broken"))
    }));
    assert!(unwound.is_err());
    let result = commit.wait(position, |(), _| Ok(()));
    assert!(matches!(result, Err(WalError::Poisoned(_))), "{result:?}");
    assert!(commit.admit(|(), _| Ok(())).is_err());
}

/// If too many bytes are queued, an appender writes them itself before it adds more.
#[test]
fn appenders_wait_for_a_long_queue() {
    let commit = GroupCommit::new(0, 0);
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
