//! Encoder of snapshots.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_model::{DuplicatePolicy, TimeUnit};

use super::super::numbered::SnapshotKey;
use super::super::packed::{put_packed, put_plain};
use super::{
    BlockFolder, BucketBlock, DeletionMark, EncodeError, EtagSums, LogCut, MAGIC, RollupObject,
    SNAPSHOT_RAW_BYTES_MAX, Snapshot, VERSION, VERSION_WITHOUT_CUTS,
};
use crate::block::meta::Ulid;

/// Flag of the header.
pub(super) const FLAG_LAST_WINS: u8 = 1;
/// Flags of a block.
pub(super) const FLAG_THANOS: u8 = 1;
pub(super) const FLAG_NANO: u8 = 2;
pub(super) const FLAG_SIDECAR: u8 = 4;
pub(super) const FLAG_TOMBSTONES: u8 = 8;
pub(super) const FLAG_SPLIT_SET: u8 = 16;
pub(super) const FLAG_COMPACTION_FAILED: u8 = 32;
pub(super) const FLAG_ROLLUPS: u8 = 64;
pub(super) const FLAG_ETAGS: u8 = 128;

/// Every ULID of a snapshot, sorted: records refer to them by position.
struct UlidTable(Vec<Ulid>);

impl UlidTable {
    fn of(snapshot: &Snapshot) -> UlidTable {
        let mut all: Vec<Ulid> = snapshot.deletion_marks.iter().map(|mark| mark.ulid).collect();
        for block in &snapshot.blocks {
            let ancestry = &block.ancestry;
            all.extend([block.ulid, ancestry.oldest_source]);
            all.extend(ancestry.split_set);
            for list in [&ancestry.sources, &ancestry.parents, &ancestry.split_blocks] {
                all.extend_from_slice(list);
            }
        }
        all.sort_unstable();
        all.dedup();
        UlidTable(all)
    }

    fn idx(&self, ulid: Ulid) -> u64 {
        self.0.binary_search(&ulid).map_or(u64::MAX, |idx| idx as u64)
    }

    /// Appends the times as differences.
    fn put_times(&self, out: &mut Vec<u8>) {
        put_uvarint(out, self.0.len() as u64);
        let mut last_ms = 0;
        for ulid in &self.0 {
            put_varint(out, ulid.time_ms() - last_ms);
            last_ms = ulid.time_ms();
        }
    }

    /// The random parts. They are most of the bytes of a snapshot and do not compress.
    fn random_parts(&self) -> Vec<u8> {
        self.0.iter().flat_map(|ulid| ulid.to_bytes().into_iter().skip(6)).collect()
    }

    /// Appends a list in its order: positions as differences, which are mostly 1 in an ordered list.
    fn put_list(&self, list: &[Ulid], out: &mut Vec<u8>) {
        put_uvarint(out, list.len() as u64);
        let mut last = 0i64;
        for ulid in list {
            let idx = self.idx(*ulid).cast_signed();
            put_varint(out, idx - last);
            last = idx;
        }
    }
}

impl Snapshot {
    /// Appends the object, for the folder with this key. The order of blocks, marks and cuts does not matter.
    ///
    /// # Errors
    /// [`EncodeError`], and nothing is appended.
    pub fn encode(&self, folder: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut blocks: Vec<&BucketBlock> = self.blocks.iter().collect();
        blocks.sort_unstable_by_key(|block| block.ulid);
        let mut marks: Vec<&DeletionMark> = self.deletion_marks.iter().collect();
        marks.sort_unstable_by_key(|mark| mark.ulid);
        let repeated_block = blocks.windows(2).find(|pair| pair[0].ulid == pair[1].ulid);
        let repeated_mark = marks.windows(2).find(|pair| pair[0].ulid == pair[1].ulid);
        if let Some(pair) = repeated_block {
            return Err(EncodeError::Repeated(pair[0].ulid));
        }
        if let Some(pair) = repeated_mark {
            return Err(EncodeError::Repeated(pair[0].ulid));
        }
        let ulids = UlidTable::of(self);
        let mut raw = Vec::new();
        ulids.put_times(&mut raw);
        put_uvarint(&mut raw, blocks.len() as u64);
        for block in blocks {
            put_block(block, &ulids, &mut raw);
        }
        put_uvarint(&mut raw, marks.len() as u64);
        for mark in marks {
            put_uvarint(&mut raw, ulids.idx(mark.ulid));
            put_varint(&mut raw, mark.marked_ms);
        }
        if !self.cuts.is_empty() {
            put_cuts(&self.cuts, &mut raw)?;
        }
        let random_parts = ulids.random_parts();
        let raw_bytes = raw.len().max(random_parts.len());
        if raw_bytes > SNAPSHOT_RAW_BYTES_MAX {
            return Err(EncodeError::TooLong(raw_bytes));
        }
        let mut records = Vec::new();
        put_packed(&raw, &mut records);
        self.put_header(folder, records.len(), out);
        out.extend_from_slice(&records);
        put_plain(&random_parts, out);
        Ok(())
    }

    fn put_header(&self, folder: &str, record_bytes: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        let version = if self.cuts.is_empty() { VERSION_WITHOUT_CUTS } else { VERSION };
        out.extend_from_slice(&version.to_le_bytes());
        let flags = if self.duplicates == DuplicatePolicy::LastWins { FLAG_LAST_WINS } else { 0 };
        out.extend_from_slice(&[flags, 0]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.writer);
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        out.extend_from_slice(&u32::try_from(record_bytes).unwrap_or(u32::MAX).to_le_bytes());
        let key = SnapshotKey { folder, number: self.number };
        out.extend_from_slice(&key.folder_crc().to_le_bytes());
        let sum = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_le_bytes());
    }
}

fn put_cuts(cuts: &[LogCut], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut cuts: Vec<&LogCut> = cuts.iter().collect();
    cuts.sort_unstable_by_key(|cut| cut.partition);
    if let Some(pair) = cuts.windows(2).find(|pair| pair[0].partition == pair[1].partition) {
        return Err(EncodeError::RepeatedCut(pair[0].partition.number));
    }
    put_uvarint(out, cuts.len() as u64);
    for LogCut { partition, offset } in cuts {
        out.extend_from_slice(&partition.topic.0);
        put_uvarint(out, u64::from(partition.number.0));
        put_uvarint(out, *offset);
    }
    Ok(())
}

fn put_block(block: &BucketBlock, ulids: &UlidTable, out: &mut Vec<u8>) {
    let ancestry = &block.ancestry;
    let flags = [
        (block.folder == BlockFolder::Thanos, FLAG_THANOS),
        (block.time_unit == TimeUnit::Nano, FLAG_NANO),
        (block.sidecar.is_some(), FLAG_SIDECAR),
        (block.tombstones.is_some(), FLAG_TOMBSTONES),
        (ancestry.split_set.is_some(), FLAG_SPLIT_SET),
        (ancestry.is_compaction_failed, FLAG_COMPACTION_FAILED),
        (!block.files.rollups.is_empty(), FLAG_ROLLUPS),
        (!block.etags.is_empty(), FLAG_ETAGS),
    ];
    out.push(flags.into_iter().map(|(is_set, flag)| if is_set { flag } else { 0 }).sum());
    put_uvarint(out, ulids.idx(block.ulid));
    put_varint(out, block.range.start);
    put_varint(out, block.range.end.wrapping_sub(block.range.start));
    let counts = &block.counts;
    for count in [counts.series, counts.chunks, counts.samples, counts.tombstones] {
        put_uvarint(out, count);
    }
    put_uvarint(out, block.files.index);
    put_uvarint(out, block.files.meta);
    put_uvarint(out, block.files.segments.len() as u64);
    block.files.segments.iter().for_each(|len| put_uvarint(out, *len));
    if !block.files.rollups.is_empty() {
        put_rollups(&block.files.rollups, out);
    }
    if !block.etags.is_empty() {
        put_etags(block, out);
    }
    if let Some(sidecar) = &block.sidecar {
        put_uvarint(out, sidecar.len);
        put_uvarint(out, u64::from(sidecar.head_len));
        out.extend_from_slice(&sidecar.crc.to_le_bytes());
    }
    if let Some(tombstones) = &block.tombstones {
        put_uvarint(out, tombstones.name.len() as u64);
        out.extend_from_slice(tombstones.name.as_bytes());
        put_uvarint(out, tombstones.len);
        out.extend_from_slice(&tombstones.crc.to_le_bytes());
    }
    put_uvarint(out, u64::from(ancestry.level));
    put_uvarint(out, ulids.idx(ancestry.oldest_source));
    if let Some(set) = ancestry.split_set {
        put_uvarint(out, ulids.idx(set));
    }
    ulids.put_list(&ancestry.sources, out);
    ulids.put_list(&ancestry.parents, out);
    ulids.put_list(&ancestry.split_blocks, out);
    put_varint(out, block.uploaded_ms);
}

fn put_rollups(rollups: &[RollupObject], out: &mut Vec<u8>) {
    put_uvarint(out, rollups.len() as u64);
    for RollupObject { span, len } in rollups {
        put_uvarint(out, span.span_ms.cast_unsigned());
        put_uvarint(out, span.slot_ms.cast_unsigned());
        put_uvarint(out, *len);
    }
}

/// Appends one sum per file of the record.
fn put_etags(block: &BucketBlock, out: &mut Vec<u8>) {
    let EtagSums { index, segments, rollups, sidecar } = &block.etags;
    let mut put = |sum: u32| out.extend_from_slice(&sum.to_le_bytes());
    put(*index);
    let files = &block.files;
    for (sums, file_count) in [(segments, files.segments.len()), (rollups, files.rollups.len())] {
        (0..file_count).for_each(|idx| put(sums.get(idx).copied().unwrap_or(0)));
    }
    if block.sidecar.is_some() {
        put(*sidecar);
    }
}
