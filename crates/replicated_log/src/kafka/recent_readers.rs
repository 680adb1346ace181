//! Readers of the partitions that were read last.
//!
//! Invariant: at most [`READERS_MAX`] readers.
//! Not here: reads, and the end of a reader that is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::position::PartitionId;

/// Partitions with a reader of their own.
pub(super) const READERS_MAX: usize = 4;

/// A reader that one read at a time uses.
pub(super) type SharedReader<R> = Arc<Mutex<R>>;

/// Readers, the one used last at the end.
pub(super) struct RecentReaders<R>(Mutex<VecDeque<(PartitionId, SharedReader<R>)>>);

impl<R> RecentReaders<R> {
    /// Returns readers of no partition.
    pub(super) fn new() -> RecentReaders<R> {
        RecentReaders(Mutex::default())
    }

    /// Returns the reader of a partition.
    pub(super) fn get(&self, partition: PartitionId) -> Option<SharedReader<R>> {
        let mut used = self.0.lock();
        let idx = used.iter().position(|(of, _)| *of == partition)?;
        let entry = used.remove(idx)?;
        let reader = entry.1.clone();
        used.push_back(entry);
        Some(reader)
    }

    /// Adds a reader, unless another thread was faster. Returns the reader of the partition, and the least
    /// recently used one if it had to make room.
    pub(super) fn add(
        &self,
        partition: PartitionId,
        reader: R,
    ) -> (SharedReader<R>, Option<SharedReader<R>>) {
        let mut used = self.0.lock();
        if let Some((_, faster)) = used.iter().find(|(of, _)| *of == partition) {
            return (faster.clone(), None);
        }
        let reader = Arc::new(Mutex::new(reader));
        let dropped = if used.len() >= READERS_MAX { used.pop_front() } else { None };
        used.push_back((partition, reader.clone()));
        (reader, dropped.map(|(_, dropped)| dropped))
    }

    /// Removes the reader of a partition.
    pub(super) fn remove(&self, partition: PartitionId) {
        self.0.lock().retain(|(of, _)| *of != partition);
    }

    /// Removes and returns all readers.
    pub(super) fn take_all(&self) -> VecDeque<(PartitionId, SharedReader<R>)> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[cfg(test)]
mod tests;
