//! Deletions of a cluster in a bucket: numbered snapshots of those that are open and those that were done
//! lately; and the mark of each partition, an object of its own.
//!
//! Invariants: checksums are verified before anything is returned; numbers of decoded deletions ascend, and
//! none is greater than the last number; a deletion has one partition at least, in ascending order, and one
//! that is done has an offset for each.
//! Not here: the rules (`model::cluster_deletion`), creating and changing the objects (`cluster`). Layout:
//! `docs/bucket/deletions.md`.

pub mod mark;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::log_position::{LogPartition, PartitionId, TopicId};
use chronolith_model::{Matcher, TenantId, TimeRange};

use super::numbered::header::SnapshotFormat;
use super::numbered::{NumberedSnapshot, SnapshotKey, Stamp};
use super::texts::check_end;
use crate::lists::{put_list, put_text, read_text};
use crate::read::{ReadCodecError, put_matcher, read_matchers};
use crate::record::{RecordStore, put_store, read_store};

const FORMAT: SnapshotFormat =
    SnapshotFormat { what: WHAT, magic: "CLDL", version: 1, version_text: "version 1" };
/// Bytes of the unpacked content.
const RAW_BYTES_MAX: usize = 16 << 20;
const WHAT: &str = "list of deletions";
const STATE_OPEN: u8 = 0;
const STATE_DONE: u8 = 1;

/// Deletions of a cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeletionsSnapshot {
    /// Number, writer and time of the snapshot.
    pub stamp: Stamp,
    /// Number of the last deletion that was created; 0 before the first one.
    pub last_number: u64,
    /// Open deletions, and those that are done and not forgotten, ascending by number.
    pub deletions: Vec<ClusterDeletion>,
}

/// A deletion of samples of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDeletion {
    /// Number, which its records have. Each number is used once.
    pub number: u64,
    /// The tenant.
    pub tenant: TenantId,
    /// The store.
    pub store: RecordStore,
    /// Clock of the process that created it, milliseconds since 1970.
    pub created_ms: i64,
    /// Identity of the topic.
    pub topic: TopicId,
    /// Partitions that have to pass its record, ascending.
    pub partitions: Vec<PartitionId>,
    /// Open or done.
    pub state: DeletionState,
}

/// State of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionState {
    /// Blocks may have samples that it takes.
    Open {
        /// Id of the request at the gateway.
        request_id: String,
        /// Series must be selected by all matchers of one of them.
        selectors: Vec<Vec<Matcher>>,
        /// Times of the samples, in the unit of the store.
        range: TimeRange,
    },
    /// Tombstones of all its samples are in the catalogue.
    Done {
        /// Clock of the process that entered them, milliseconds since 1970.
        done_ms: i64,
        /// Number of a catalogue of the store that has them, as all later ones; 0 if the store had none.
        catalogue: u64,
        /// Offset of the record that each partition has applied, in the order of the partitions.
        marks: Vec<u64>,
    },
}

impl ClusterDeletion {
    /// Returns true if it is not done.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, DeletionState::Open { .. })
    }

    /// Returns its partitions.
    pub fn log_partitions(&self) -> impl Iterator<Item = LogPartition> {
        self.partitions.iter().map(|number| LogPartition { topic: self.topic, number: *number })
    }

    /// Returns true if it waits for a partition.
    #[must_use]
    pub fn has(&self, partition: LogPartition) -> bool {
        partition.topic == self.topic && self.partitions.binary_search(&partition.number).is_ok()
    }

    /// Returns the offset of the record that a partition has applied, of a deletion that is done.
    #[must_use]
    pub fn mark_when_done(&self, partition: LogPartition) -> Option<u64> {
        let DeletionState::Done { marks, .. } = &self.state else { return None };
        let idx = self.partitions.binary_search(&partition.number).ok()?;
        if partition.topic == self.topic { marks.get(idx).copied() } else { None }
    }
}

impl DeletionsSnapshot {
    /// Returns the deletion with this number.
    #[must_use]
    pub fn find(&self, number: u64) -> Option<&ClusterDeletion> {
        let idx = self.deletions.binary_search_by_key(&number, |deletion| deletion.number).ok()?;
        self.deletions.get(idx)
    }

    /// Returns the open deletion of a store.
    #[must_use]
    pub fn open_of(&self, tenant: &TenantId, store: RecordStore) -> Option<&ClusterDeletion> {
        self.open().find(|deletion| deletion.tenant == *tenant && deletion.store == store)
    }

    /// Returns the open deletions, ascending by number.
    pub fn open(&self) -> impl Iterator<Item = &ClusterDeletion> {
        self.deletions.iter().filter(|deletion| deletion.is_open())
    }
}

/// The list is longer than readers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("list of deletions of {0} bytes before compression, at most {RAW_BYTES_MAX}")]
pub struct ListTooLong(usize);

#[cold]
fn invalid(expected: &'static str, offset: usize, found: u64) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected, found }
}

impl NumberedSnapshot for DeletionsSnapshot {
    const FOLDER: &'static str = "deletions/";
    const WHAT: &'static str = WHAT;
    type EncodeError = ListTooLong;

    fn empty() -> DeletionsSnapshot {
        DeletionsSnapshot::default()
    }

    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        self.stamp = stamp;
    }

    fn encode_object(&self, folder: &str, out: &mut Vec<u8>) -> Result<(), ListTooLong> {
        let mut raw = Vec::new();
        put_uvarint(&mut raw, self.last_number);
        put_list(&mut raw, &self.deletions, put_deletion);
        if raw.len() > RAW_BYTES_MAX {
            return Err(ListTooLong(raw.len()));
        }
        FORMAT.put_object(&self.stamp, folder, &raw, out);
        Ok(())
    }

    fn decode_object(bytes: &[u8], key: SnapshotKey<'_>) -> Result<DeletionsSnapshot, DecodeError> {
        let (stamp, raw) = FORMAT.read_object(bytes, key, RAW_BYTES_MAX)?;
        let mut reader = ByteReader::new(&raw);
        let last_number = reader.uvarint(WHAT)?;
        let deletions = read_deletions(&mut reader, last_number)?;
        check_end(WHAT, &reader)?;
        Ok(DeletionsSnapshot { stamp, last_number, deletions })
    }
}

fn put_deletion(out: &mut Vec<u8>, deletion: &ClusterDeletion) {
    let ClusterDeletion { number, tenant, store, created_ms, topic, partitions, state } = deletion;
    put_uvarint(out, *number);
    put_store(tenant, *store, out);
    put_varint(out, *created_ms);
    out.extend_from_slice(&topic.0);
    put_list(out, partitions, |out, partition| put_uvarint(out, u64::from(partition.0)));
    match state {
        DeletionState::Open { request_id, selectors, range } => {
            out.push(STATE_OPEN);
            put_text(out, request_id);
            put_varint(out, range.start);
            put_varint(out, range.end);
            put_list(out, selectors, |out, matchers| put_list(out, matchers, put_matcher));
        }
        DeletionState::Done { done_ms, catalogue, marks } => {
            assert_eq!(marks.len(), partitions.len(), "each partition has a mark");
            out.push(STATE_DONE);
            put_varint(out, *done_ms);
            put_uvarint(out, *catalogue);
            marks.iter().for_each(|mark| put_uvarint(out, *mark));
        }
    }
}

fn read_deletions(
    reader: &mut ByteReader<'_>,
    last_number: u64,
) -> Result<Vec<ClusterDeletion>, DecodeError> {
    let count = reader.length(WHAT)?;
    let mut deletions: Vec<ClusterDeletion> = Vec::new();
    for _ in 0..count {
        let offset = reader.offset();
        let deletion = read_deletion(reader)?;
        let before = deletions.last().map_or(0, |before| before.number);
        if deletion.number <= before || deletion.number > last_number {
            return Err(invalid("ascending numbers up to the last one", offset, deletion.number));
        }
        deletions.push(deletion);
    }
    Ok(deletions)
}

fn read_deletion(reader: &mut ByteReader<'_>) -> Result<ClusterDeletion, DecodeError> {
    let number = reader.uvarint(WHAT)?;
    let (tenant, store) = read_store(reader)?;
    let created_ms = reader.varint(WHAT)?;
    let mut topic = [0; 16];
    topic.copy_from_slice(reader.bytes(WHAT, 16)?);
    let partitions = read_partitions(reader)?;
    let offset = reader.offset();
    let state = match reader.u8(WHAT)? {
        STATE_OPEN => read_open(reader)?,
        STATE_DONE => {
            let done_ms = reader.varint(WHAT)?;
            let catalogue = reader.uvarint(WHAT)?;
            let marks = partitions.iter().map(|_| reader.uvarint(WHAT));
            let marks = marks.collect::<Result<_, _>>()?;
            DeletionState::Done { done_ms, catalogue, marks }
        }
        other => return Err(invalid("0 or 1", offset, u64::from(other))),
    };
    Ok(ClusterDeletion { number, tenant, store, created_ms, topic: TopicId(topic), partitions, state })
}

fn read_partitions(reader: &mut ByteReader<'_>) -> Result<Vec<PartitionId>, DecodeError> {
    let offset = reader.offset();
    let count = reader.length(WHAT)?;
    let mut partitions: Vec<PartitionId> = Vec::new();
    for _ in 0..count {
        let offset = reader.offset();
        let number = reader.uvarint(WHAT)?;
        let next = u32::try_from(number).ok().map(PartitionId);
        let next = next.filter(|next| partitions.last().is_none_or(|before| before < next));
        partitions.push(next.ok_or_else(|| invalid("ascending partitions", offset, number))?);
    }
    if partitions.is_empty() { Err(invalid("one partition at least", offset, 0)) } else { Ok(partitions) }
}

fn read_open(reader: &mut ByteReader<'_>) -> Result<DeletionState, DecodeError> {
    let request_id = read_text(reader, WHAT)?;
    let start = reader.varint(WHAT)?;
    let offset = reader.offset();
    let end = reader.varint(WHAT)?;
    if start > end {
        return Err(invalid("an end after the start", offset, end.cast_unsigned()));
    }
    let count = reader.length(WHAT)?;
    let mut selectors = Vec::new();
    for _ in 0..count {
        let offset = reader.offset();
        selectors.push(read_matchers(reader).map_err(|error| match error {
            ReadCodecError::Bytes(error) => error,
            ReadCodecError::Store(_) | ReadCodecError::Regex { .. } => {
                invalid("a pattern that compiles", offset, 0)
            }
        })?);
    }
    Ok(DeletionState::Open { request_id, selectors, range: TimeRange { start, end } })
}

#[cfg(test)]
mod tests;
