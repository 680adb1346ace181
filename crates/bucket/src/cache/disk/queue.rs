//! Ranges that wait to be written to the cache directory.
//!
//! Invariants: they have at most [`QUEUE_BYTES_MAX`] bytes together, or there is one of them; at most one
//! thread writes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes that wait, which a slow disk keeps in memory.
const QUEUE_BYTES_MAX: u64 = 16 << 20;

/// A range to be written.
pub(super) struct QueuedWrite {
    pub(super) key: Arc<str>,
    /// Offset of the first byte in the object.
    pub(super) start: u64,
    pub(super) bytes: Bytes,
    /// Removals of damaged ranges before the bytes came.
    pub(super) removal_count: u64,
}

/// Ranges in the order in which they came.
#[derive(Default)]
pub(super) struct WriteQueue(Mutex<State>);

#[derive(Default)]
struct State {
    writes: VecDeque<QueuedWrite>,
    /// Bytes of `writes` and of the write in progress.
    bytes: u64,
    writing_bytes: u64,
    has_writer: bool,
}

/// Outcome of [`WriteQueue::push`].
pub(super) struct Queued {
    pub(super) is_kept: bool,
    /// The caller starts a thread that pops until nothing is left.
    pub(super) needs_writer: bool,
}

impl WriteQueue {
    pub(super) fn push(&self, write: QueuedWrite) -> Queued {
        let mut state = self.0.lock();
        let write_bytes = write.bytes.len() as u64;
        let is_kept = state.bytes == 0 || state.bytes + write_bytes <= QUEUE_BYTES_MAX;
        if is_kept {
            state.bytes += write_bytes;
            state.writes.push_back(write);
        }
        let needs_writer = is_kept && !std::mem::replace(&mut state.has_writer, true);
        Queued { is_kept, needs_writer }
    }

    /// Returns the next write, the one before being done; `None` ends the writer.
    pub(super) fn pop(&self) -> Option<QueuedWrite> {
        let mut state = self.0.lock();
        assert!(state.has_writer, "only the writer takes writes");
        let done_bytes = std::mem::take(&mut state.writing_bytes);
        state.bytes -= done_bytes;
        let next = state.writes.pop_front();
        match &next {
            Some(write) => state.writing_bytes = write.bytes.len() as u64,
            None => {
                assert_eq!(state.bytes, 0, "an empty queue has no bytes");
                state.has_writer = false;
            }
        }
        next
    }

    /// Bytes that wait or are being written.
    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }
}
