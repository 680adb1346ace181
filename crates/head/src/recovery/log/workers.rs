//! Distribution of blocks over threads: a worker replays the stripes of one residue.
//!
//! Invariants: a stripe belongs to one worker, so its frames are applied in order. After the first series
//! with two ids (it left the head and returned), replay is single-threaded: its frames may lie in two stripes
//! and must apply in the order of the log. At most three groups of [`GROUP_BYTES_MAX`] are in memory,
//! whatever the length of the WAL.
//! Not here: reading blocks (the parent), applying them (`frames`).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use chronolith_wal::{BlockBuffers, FrameBlock, Segment};

use super::frames::{Scratch, replay_blocks};
use super::shared::{SegmentBlock, Shared};
use crate::recovery::threads::replay_thread_count;

/// Bytes of a group of blocks that are replayed together, so that a series gets several samples at a time.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Bytes of WAL per series in a group: some eight samples.
const SERIES_BYTES: usize = 80;
/// Groups queued per worker.
const QUEUED_GROUPS: usize = 1;

/// The threads, and blocks that are not passed on yet.
pub(super) struct Workers<'scope, 'a> {
    /// Empty: the reader replays everything. The reader also does the share of a thread that could not be
    /// started.
    threads: Vec<Option<Worker<'scope>>>,
    pending: Vec<SegmentBlock>,
    pending_bytes: usize,
    segments: &'a [Segment],
    shared: &'a Shared<'a>,
    buffers: &'a BlockBuffers,
    scratch: Scratch,
}

/// A thread that replays its stripes.
struct Worker<'scope> {
    sender: SyncSender<Arc<Vec<SegmentBlock>>>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl<'scope, 'a> Workers<'scope, 'a> {
    /// Starts one thread per core; a single one would only take turns with the reader.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        segments: &'a [Segment],
        shared: &'a Shared<'a>,
        buffers: &'a BlockBuffers,
    ) -> Workers<'scope, 'a>
    where
        'a: 'scope,
    {
        let worker_count = replay_thread_count();
        let mut threads = Vec::new();
        for worker in (0..worker_count).filter(|_| worker_count > 1) {
            let (sender, receiver): (_, Receiver<Arc<Vec<SegmentBlock>>>) = sync_channel(QUEUED_GROUPS);
            let work = move || {
                let mut scratch = Scratch::default();
                while let Ok(blocks) = receiver.recv() {
                    replay_blocks(&blocks, segments, shared, worker, worker_count, &mut scratch);
                    release(blocks, buffers);
                }
            };
            let thread = std::thread::Builder::new().name("replay".to_owned());
            let spawned = thread.spawn_scoped(scope, work).ok();
            threads.push(spawned.map(|thread| Worker { sender, thread }));
        }
        let (pending, scratch) = (Vec::new(), Scratch::default());
        Workers { threads, pending, pending_bytes: 0, segments, shared, buffers, scratch }
    }

    /// Replays a block of segment `segment`, or queues it. `series_count` estimates the series of the WAL.
    pub(super) fn take(&mut self, block: FrameBlock, segment: usize, series_count: usize) {
        if !self.threads.is_empty() && !self.shared.aliases.read().is_empty() {
            self.pass_on();
            self.join();
        }
        self.pending_bytes += block.frame_bytes();
        self.pending.push((block, segment));
        if self.pending_bytes >= group_bytes(series_count) {
            self.pass_on();
        }
    }

    /// Waits until all blocks are replayed and the threads have ended.
    pub(super) fn end(mut self) {
        self.pass_on();
        self.join();
    }

    fn pass_on(&mut self) {
        let blocks = Arc::new(std::mem::take(&mut self.pending));
        self.pending_bytes = 0;
        let (segments, shared, scratch) = (self.segments, self.shared, &mut self.scratch);
        if self.threads.is_empty() {
            replay_blocks(&blocks, segments, shared, 0, 1, scratch);
        }
        for (worker, thread) in self.threads.iter().enumerate() {
            match thread {
                // A worker ends only after the reader.
                Some(thread) => drop(thread.sender.send(blocks.clone())),
                None => replay_blocks(&blocks, segments, shared, worker, self.threads.len(), scratch),
            }
        }
        release(blocks, self.buffers);
    }

    fn join(&mut self) {
        for Worker { sender, thread } in self.threads.drain(..).flatten() {
            drop(sender);
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Returns the bytes of blocks that are passed on together: one block if a group would have no series with
/// several samples.
fn group_bytes(series_count: usize) -> usize {
    let bytes = series_count.saturating_mul(SERIES_BYTES);
    if bytes > 2 * GROUP_BYTES_MAX { 1 } else { bytes.min(GROUP_BYTES_MAX) }
}

/// Makes the memory of blocks usable again once the last worker is done with them.
fn release(blocks: Arc<Vec<SegmentBlock>>, buffers: &BlockBuffers) {
    for (block, _) in Arc::into_inner(blocks).into_iter().flatten() {
        buffers.put(block);
    }
}
