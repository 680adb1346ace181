//! The thread that appends: takes everything queued, writes it to the segments, syncs each one once,
//! acknowledges.
//!
//! Invariants: offsets are given in the order of the queue; a record is acknowledged and visible after the
//! sync of its segment; after a failed write or sync nothing more is written.
//! Not here: reads (`partition`).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use bytes::Bytes;
use chronolith_format::replicated_log::directory::{RECORD_HEADER_BYTES, put_record};

use super::open_segment::OpenSegment;
use super::shared::Shared;
use crate::error::LogError;
use crate::in_flight::InFlightPermit;
use crate::position::{PartitionId, Position};
use crate::ticket::Outcome;

/// Bytes that are written before a sync, apart from the last record.
const COMMIT_BYTES_MAX: usize = 8 << 20;

/// A record on its way to the disk.
pub(super) struct Queued {
    pub(super) partition: PartitionId,
    pub(super) value: Bytes,
    pub(super) outcome: Arc<Outcome>,
    pub(super) permit: InFlightPermit,
}

/// State of the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// One per partition.
    segments: Vec<OpenSegment>,
    buffer: Vec<u8>,
}

impl Writer {
    /// Returns the state for a thread that appends to these segments, one per partition.
    pub(super) fn new(shared: Arc<Shared>, segments: Vec<OpenSegment>) -> Writer {
        assert_eq!(segments.len(), shared.partitions.len(), "one open segment per partition");
        Writer { shared, segments, buffer: Vec::new() }
    }

    /// Writes the queue until all senders are gone.
    pub(super) fn run(mut self, queue: &Receiver<Queued>) {
        while let Ok(first) = queue.recv() {
            let mut bytes = first.value.len();
            let mut by_partition: BTreeMap<PartitionId, Vec<Queued>> = BTreeMap::new();
            by_partition.entry(first.partition).or_default().push(first);
            while bytes < COMMIT_BYTES_MAX
                && let Ok(next) = queue.try_recv()
            {
                bytes += next.value.len();
                by_partition.entry(next.partition).or_default().push(next);
            }
            self.commit(by_partition);
        }
    }

    /// Writes the records of each partition, then syncs, then acknowledges.
    fn commit(&mut self, by_partition: BTreeMap<PartitionId, Vec<Queued>>) {
        let mut written = Vec::new();
        for (partition, records) in by_partition {
            match self.write(partition, &records) {
                Ok(first_offset) => written.push((partition, records, first_offset)),
                Err(error) => self.refuse(records, &error),
            }
        }
        for (partition, records, first_offset) in written {
            let Some(segment) = self.segments.get(partition.0 as usize) else { continue };
            if let Err(error) = segment.sync() {
                let why = format!("{}: syncing failed: {error}", segment.path().display());
                self.poison(&why);
                let within = self.shared.options.ack_timeout;
                self.refuse(records, &LogError::PossiblyWritten { partition, within, why });
                continue;
            }
            if let Ok(of) = self.shared.partition(partition) {
                of.publish(segment.next_offset(), segment.len());
            }
            self.acknowledge(partition, records, first_offset);
        }
    }

    /// Writes records to the segment of a partition; returns the offset of the first one.
    fn write(&mut self, partition: PartitionId, records: &[Queued]) -> Result<u64, LogError> {
        if let Some(why) = self.shared.poison.lock().clone() {
            return Err(LogError::NotWritten { partition, why });
        }
        let bytes: usize = records.iter().map(|record| RECORD_HEADER_BYTES + record.value.len()).sum();
        let used_bytes = self.shared.disk_bytes.load(Ordering::Relaxed);
        let bytes_max = self.shared.options.log_bytes_max;
        if used_bytes.saturating_add(bytes as u64) > bytes_max {
            let record_bytes = bytes as u64;
            return Err(LogError::Full { what: "the log", used_bytes, bytes_max, record_bytes });
        }
        self.rotate_if_full(partition)?;
        let now_ms = self.shared.env.clock.now_ms();
        let topic = self.shared.topic;
        let Some(segment) = self.segments.get_mut(partition.0 as usize) else {
            return Err(LogError::Closed);
        };
        let first_offset = segment.next_offset();
        self.buffer.clear();
        for (offset, record) in (first_offset..).zip(records) {
            put_record(&topic.0, offset, now_ms, &record.value, &mut self.buffer);
        }
        if let Err(error) = segment.write(&self.buffer, records.len()) {
            let why = format!("{}: writing failed: {error}", segment.path().display());
            // A full disk takes nothing: part of a record may be there, and is cut off again.
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            let is_undone = is_full && segment.undo_failed_write().is_ok();
            if is_undone {
                return Err(LogError::NotWritten { partition, why });
            }
            self.poison(&why);
            let within = self.shared.options.ack_timeout;
            return Err(LogError::PossiblyWritten { partition, within, why });
        }
        self.shared.disk_bytes.fetch_add(self.buffer.len() as u64, Ordering::Relaxed);
        Ok(first_offset)
    }

    /// Begins the next segment if the current one has its size. All records of the current one are durable.
    fn rotate_if_full(&mut self, partition: PartitionId) -> Result<(), LogError> {
        let Some(segment) = self.segments.get_mut(partition.0 as usize) else { return Ok(()) };
        if segment.len() < self.shared.options.segment_bytes || segment.is_empty() {
            return Ok(());
        }
        let of = self.shared.partition(partition)?;
        let topic = self.shared.topic;
        let created = OpenSegment::create(&self.shared.env, of.dir(), topic, of.id(), segment.next_offset());
        let (len, next) =
            created.map_err(|error| LogError::NotWritten { partition, why: error.to_string() })?;
        of.add_segment(segment.next_offset());
        *segment = next;
        self.shared.disk_bytes.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    fn poison(&self, why: &str) {
        tracing::error!(error = %why, "writing to a replicated log failed, appends are refused until it is opened again");
        self.shared.poison.lock().get_or_insert_with(|| why.to_owned());
    }

    fn refuse(&self, records: Vec<Queued>, error: &LogError) {
        for record in records {
            self.finish(record, Err(error.clone()));
        }
    }

    fn acknowledge(&self, partition: PartitionId, records: Vec<Queued>, first_offset: u64) {
        for (offset, record) in (first_offset..).zip(records) {
            self.finish(record, Ok(Position { topic: self.shared.topic, partition, offset }));
        }
    }

    fn finish(&self, record: Queued, result: Result<Position, LogError>) {
        self.shared.counters.note_append(record.value.len(), &result);
        drop(record.permit);
        record.outcome.resolve(result);
    }
}
