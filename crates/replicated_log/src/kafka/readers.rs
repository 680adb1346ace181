//! Reads: a reader per partition, for the partitions that were read last.
//!
//! Invariants: buffers are bounded by readers and bytes of a fetch; a reader returns records of the topic
//! that was opened alone, from the offset that was asked for on; an empty answer was compared with the
//! bounds, so that a reader that gets nothing does not look like one at the end.
//! Not here: requests (`client`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::client::{Cause, Client, Failure, Fetcher};
use super::recent_readers::{RecentReaders, SharedReader};
use super::topic::Topic;
use crate::error::LogError;
use crate::position::{PartitionId, ReadLimits, Record};

/// Readers of the partitions that were read last.
pub(super) struct Readers<C: Client> {
    topic: Arc<Topic<C>>,
    recent: RecentReaders<Reader<C::Fetcher>>,
    buffer_bytes: Arc<AtomicU64>,
}

/// Reader of one partition.
struct Reader<F> {
    partition: PartitionId,
    fetcher: F,
    /// Offset after the last record that was returned; `None` before the first read.
    next: Option<u64>,
    /// Records that were fetched and not returned.
    buffer: VecDeque<Record>,
    buffer_bytes: Arc<AtomicU64>,
    /// Time of the first of the reads that got nothing where there are records.
    starving_since_ns: Option<u64>,
}

impl<C: Client> Readers<C> {
    /// Returns readers of no partition, which count the bytes that they keep.
    pub(super) fn new(topic: Arc<Topic<C>>, buffer_bytes: Arc<AtomicU64>) -> Readers<C> {
        Readers { topic, recent: RecentReaders::new(), buffer_bytes }
    }

    /// Reads records from offset `from` on.
    ///
    /// # Errors
    /// As [`crate::ReplicatedLog::read`]; the reader begins again after an error.
    pub(super) fn read(
        &self,
        partition: PartitionId,
        from: u64,
        limits: ReadLimits,
    ) -> Result<Vec<Record>, LogError> {
        self.topic.check_identity()?;
        let reader = self.reader(partition)?;
        let read = reader.lock().read(&self.topic, from, limits);
        if read.is_err() {
            self.recent.remove(partition);
        }
        read
    }

    /// Returns the reader of a partition; a new one may replace the least recently used one.
    fn reader(&self, partition: PartitionId) -> Result<SharedReader<Reader<C::Fetcher>>, LogError> {
        if let Some(reader) = self.recent.get(partition) {
            return Ok(reader);
        }
        let started = self.topic.client.start_fetcher(partition);
        let fetcher = started.map_err(|failure| self.topic.failed(failure))?;
        let reader = Reader {
            partition,
            fetcher,
            next: None,
            buffer: VecDeque::new(),
            buffer_bytes: self.buffer_bytes.clone(),
            starving_since_ns: None,
        };
        Ok(self.recent.add(partition, reader).0)
    }

    /// Ends all readers.
    pub(super) fn close(&self) {
        self.recent.take_all();
    }
}

impl<F: Fetcher> Reader<F> {
    fn read<C: Client<Fetcher = F>>(
        &mut self,
        topic: &Topic<C>,
        from: u64,
        limits: ReadLimits,
    ) -> Result<Vec<Record>, LogError> {
        if self.next != Some(from) {
            self.clear();
            self.fetcher.seek(from)?;
            self.next = Some(from);
        }
        if self.buffer.is_empty() {
            self.fetch(topic, from, limits)?;
        }
        Ok(self.take(limits.bytes_max))
    }

    /// Fills the buffer, unless no record came within the wait.
    fn fetch<C: Client<Fetcher = F>>(
        &mut self,
        topic: &Topic<C>,
        from: u64,
        limits: ReadLimits,
    ) -> Result<(), LogError> {
        let mut records = self.poll(topic, from, limits)?;
        if records.is_empty() {
            if !self.has_more(topic, from)? {
                return Ok(());
            }
            if !C::REFETCH_WITHIN.is_zero() {
                records = self.poll(topic, from, ReadLimits { wait: C::REFETCH_WITHIN, ..limits })?;
            }
        }
        if records.is_empty() {
            return self.check_starving(topic, from);
        }
        match self.fetcher.identity_in_use() {
            Some(found) => topic.note_identity(found)?,
            None => topic.check_identity_within(C::READ_LOOK_AGE)?,
        }
        self.starving_since_ns = None;
        self.fill(from, records)
    }

    fn poll<C: Client<Fetcher = F>>(
        &mut self,
        topic: &Topic<C>,
        offset: u64,
        limits: ReadLimits,
    ) -> Result<Vec<Record>, LogError> {
        let Failure { cause, error } = match self.fetcher.poll(limits.wait, limits.bytes_max) {
            Ok(records) => return Ok(records),
            Err(failure) => failure,
        };
        if cause != Cause::Offset {
            return Err(topic.failed(Failure { cause, error }));
        }
        let partition = self.partition;
        let bounds = topic.bounds(partition)?;
        if offset < bounds.start || offset > bounds.end {
            return Err(LogError::OffsetOutOfRange { partition, offset, bounds });
        }
        Err(error)
    }

    /// Returns true if the partition has records from `offset` on.
    fn has_more<C: Client<Fetcher = F>>(&mut self, topic: &Topic<C>, offset: u64) -> Result<bool, LogError> {
        let partition = self.partition;
        let bounds = topic.bounds(partition)?;
        if offset < bounds.start || offset > bounds.end {
            return Err(LogError::OffsetOutOfRange { partition, offset, bounds });
        }
        if offset == bounds.end {
            self.starving_since_ns = None;
            return Ok(false);
        }
        self.starving_since_ns.get_or_insert(topic.clock.mono_ns());
        Ok(true)
    }

    /// Returns an error once there are records and none came for longer than the client says: clients keep
    /// errors of fetches to themselves.
    fn check_starving<C: Client<Fetcher = F>>(&self, topic: &Topic<C>, from: u64) -> Result<(), LogError> {
        let now_ns = topic.clock.mono_ns();
        let since_ns = self.starving_since_ns.unwrap_or(now_ns);
        if Duration::from_nanos(now_ns.saturating_sub(since_ns)) <= topic.client.starved_after() {
            return Ok(());
        }
        let partition = self.partition;
        let why = format!(
            "partition {partition} has records from {from} on, and reads return none: does this client have the right READ?"
        );
        Err(LogError::Unavailable { why })
    }

    fn fill(&mut self, from: u64, records: Vec<Record>) -> Result<(), LogError> {
        let mut expected = from;
        for record in records {
            if record.offset < expected {
                // The client went back because the leader's log ends before the records it has read.
                let partition = self.partition;
                let at = record.offset;
                let why = format!("partition {partition} went back from offset {expected} to {at}");
                return Err(LogError::Unavailable { why });
            }
            expected = record.offset.saturating_add(1);
            self.buffer_bytes.fetch_add(record.value.len() as u64, Ordering::Relaxed);
            self.buffer.push_back(record);
        }
        Ok(())
    }

    fn take(&mut self, bytes_max: usize) -> Vec<Record> {
        let mut left_bytes = bytes_max;
        let mut taken = Vec::new();
        while let Some(record) = self.buffer.front() {
            let bytes = record.value.len();
            if bytes > left_bytes && !taken.is_empty() {
                break;
            }
            left_bytes = left_bytes.saturating_sub(bytes);
            self.buffer_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
            self.next = Some(record.offset.saturating_add(1));
            taken.extend(self.buffer.pop_front());
        }
        taken
    }
}

impl<F> Reader<F> {
    fn clear(&mut self) {
        let bytes: u64 = self.buffer.drain(..).map(|record| record.value.len() as u64).sum();
        self.buffer_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.starving_since_ns = None;
    }
}

impl<F> Drop for Reader<F> {
    fn drop(&mut self) {
        self.clear();
    }
}
