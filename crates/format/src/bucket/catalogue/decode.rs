//! Decoder of snapshots.

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::log_position::{LogPartition, PartitionId, TopicId};
use chronolith_model::rollup::RollupSpan;
use chronolith_model::{DuplicatePolicy, TimeRange, TimeUnit};

use super::super::numbered::{NumberedSnapshot, SnapshotKey};
use super::super::packed::Unpacker;
use super::super::texts::check_end;
use super::encode::{
    FLAG_COMPACTION_FAILED, FLAG_ETAGS, FLAG_LAST_WINS, FLAG_NANO, FLAG_ROLLUPS, FLAG_SIDECAR,
    FLAG_SPLIT_SET, FLAG_THANOS, FLAG_TOMBSTONES,
};
use super::{
    Ancestry, BlockCounts, BlockFiles, BlockFolder, BucketBlock, DeletionMark, EtagSums, LogCut, MAGIC,
    RollupObject, SNAPSHOT_RAW_BYTES_MAX, SidecarObject, Snapshot, TombstonesObject, VERSION, VERSION_FIRST,
    VERSION_WITHOUT_CUTS, VERSION_WITHOUT_FOLDER,
};
use crate::block::meta::Ulid;

const WHAT: &str = "bucket catalogue";
const TIME_MS_MAX: i64 = (1 << 48) - 1;
const RANDOM_BYTES: usize = 10;
/// ULIDs in the lists of all blocks: a list may repeat few entries of the table, so that decoding could take
/// many times the memory of the bytes.
const LISTED_ULIDS_MAX: usize = 8 << 20;

#[cold]
fn invalid(expected: &'static str, offset: usize, found: u64) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected, found }
}

impl Snapshot {
    /// Decodes the object of snapshot `key`.
    ///
    /// # Errors
    /// [`DecodeError`] if it is damaged, of a later version or another snapshot: with an offset of `bytes`
    /// for their header, else one of the unpacked content.
    pub fn decode(bytes: &[u8], key: SnapshotKey<'_>) -> Result<Snapshot, DecodeError> {
        let mut header = ByteReader::new(bytes);
        let Header { mut snapshot, record_bytes, folder_crc, has_cuts } = read_header(&mut header, bytes)?;
        if snapshot.number != key.number {
            return Err(invalid("the number of its name", 8, snapshot.number));
        }
        if let Some(found) = folder_crc.filter(|crc| *crc != key.folder_crc()) {
            return Err(invalid("the checksum of its folder", 44, u64::from(found)));
        }
        let records = header.bytes(WHAT, record_bytes)?;
        let left = header.remaining();
        let mut unpacker = Unpacker::default();
        let mut random_parts = Vec::new();
        unpacker.unpack(WHAT, header.bytes(WHAT, left)?, SNAPSHOT_RAW_BYTES_MAX, &mut random_parts)?;
        let mut raw = Vec::new();
        unpacker.unpack(WHAT, records, SNAPSHOT_RAW_BYTES_MAX, &mut raw)?;
        let mut reader = RecordReader::new(&raw, &random_parts)?;
        let block_count = reader.bytes.length(WHAT)?;
        for _ in 0..block_count {
            let offset = reader.bytes.offset();
            let block = reader.block()?;
            if snapshot.blocks.last().is_some_and(|last| last.ulid >= block.ulid) {
                return Err(invalid("ascending blocks", offset, 0));
            }
            snapshot.blocks.push(block);
        }
        let mark_count = reader.bytes.length(WHAT)?;
        for _ in 0..mark_count {
            let offset = reader.bytes.offset();
            let ulid = reader.ulid()?;
            let marked_ms = reader.bytes.varint(WHAT)?;
            if snapshot.deletion_marks.last().is_some_and(|last| last.ulid >= ulid) {
                return Err(invalid("ascending deletion marks", offset, 0));
            }
            snapshot.deletion_marks.push(DeletionMark { ulid, marked_ms });
        }
        if has_cuts {
            snapshot.cuts = read_cuts(&mut reader.bytes)?;
        }
        check_end(WHAT, &reader.bytes)?;
        Ok(snapshot)
    }
}

/// Header of a snapshot.
struct Header {
    /// The snapshot without blocks.
    snapshot: Snapshot,
    /// Bytes of the packed records.
    record_bytes: usize,
    /// Checksum of the folder; `None` before version 3.
    folder_crc: Option<u32>,
    /// Cuts follow the deletion marks.
    has_cuts: bool,
}

fn read_cuts(reader: &mut ByteReader<'_>) -> Result<Vec<LogCut>, DecodeError> {
    let count = reader.length(WHAT)?;
    let mut cuts: Vec<LogCut> = Vec::new();
    for _ in 0..count {
        let offset = reader.offset();
        let mut topic = [0; 16];
        topic.copy_from_slice(reader.bytes(WHAT, 16)?);
        let number = reader.uvarint(WHAT)?;
        let number = u32::try_from(number).map_err(|_| invalid("32 bits", offset, number))?;
        let partition = LogPartition { topic: TopicId(topic), number: PartitionId(number) };
        if cuts.last().is_some_and(|last| last.partition >= partition) {
            return Err(invalid("ascending partitions", offset, u64::from(number)));
        }
        cuts.push(LogCut { partition, offset: reader.uvarint(WHAT)? });
    }
    Ok(cuts)
}

fn read_header(reader: &mut ByteReader<'_>, bytes: &[u8]) -> Result<Header, DecodeError> {
    let magic = reader.be_u32("bucket catalogue magic")?;
    if magic != u32::from_be_bytes(MAGIC) {
        return Err(invalid("CLCS", 0, u64::from(magic)));
    }
    let version = reader.le_u16("bucket catalogue version")?;
    let flags = reader.bytes(WHAT, 2)?;
    let is_last_wins = flags.first().is_some_and(|flags| flags & FLAG_LAST_WINS != 0);
    let number = reader.le_u64(WHAT)?;
    let mut writer = [0; 16];
    writer.copy_from_slice(reader.bytes(WHAT, 16)?);
    let created_ms = reader.le_u64(WHAT)?.cast_signed();
    let record_bytes = reader.le_u32(WHAT)? as usize;
    if !(VERSION_FIRST..=VERSION).contains(&version) {
        return Err(invalid("version 1 to 5", 4, u64::from(version)));
    }
    let folder_crc = if version > VERSION_WITHOUT_FOLDER { Some(reader.le_u32(WHAT)?) } else { None };
    let offset = reader.offset();
    let found = reader.le_u32(WHAT)?;
    let expected = crc32c(bytes.get(..offset).unwrap_or_default());
    if found != expected {
        return Err(DecodeError::Checksum { what: WHAT, offset, expected, found });
    }
    let duplicates = if is_last_wins { DuplicatePolicy::LastWins } else { DuplicatePolicy::KeepFirst };
    let snapshot = Snapshot { number, writer, created_ms, duplicates, ..Snapshot::empty() };
    Ok(Header { snapshot, record_bytes, folder_crc, has_cuts: version > VERSION_WITHOUT_CUTS })
}

/// Reader of records, whose ULIDs are positions in a table.
struct RecordReader<'a> {
    bytes: ByteReader<'a>,
    ulids: Vec<Ulid>,
    listed_count: usize,
}

impl<'a> RecordReader<'a> {
    /// Reads the times of the ULIDs; `random_parts` are the rest of them.
    fn new(raw: &'a [u8], random_parts: &[u8]) -> Result<RecordReader<'a>, DecodeError> {
        let mut bytes = ByteReader::new(raw);
        let count = bytes.length(WHAT)?;
        let mut random_parts = ByteReader::new(random_parts);
        let mut ulids: Vec<Ulid> = Vec::with_capacity(count.min(random_parts.remaining() / RANDOM_BYTES));
        let mut time_ms = 0i64;
        for _ in 0..count {
            let offset = bytes.offset();
            time_ms = time_ms.wrapping_add(bytes.varint(WHAT)?);
            let random = random_parts.bytes(WHAT, RANDOM_BYTES)?;
            let random = random.iter().fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
            let ulid = Ulid::new(time_ms, random);
            let is_next = ulids.last().is_none_or(|last| *last < ulid);
            if !(0..=TIME_MS_MAX).contains(&time_ms) || !is_next {
                return Err(invalid("ascending ULIDs", offset, time_ms.cast_unsigned()));
            }
            ulids.push(ulid);
        }
        check_end(WHAT, &random_parts)?;
        Ok(RecordReader { bytes, ulids, listed_count: 0 })
    }

    fn ulid(&mut self) -> Result<Ulid, DecodeError> {
        let offset = self.bytes.offset();
        let idx = self.bytes.uvarint(WHAT)?;
        self.ulid_at(idx, offset)
    }

    fn ulid_at(&self, idx: u64, offset: usize) -> Result<Ulid, DecodeError> {
        let found = usize::try_from(idx).ok().and_then(|idx| self.ulids.get(idx));
        found.copied().ok_or_else(|| invalid("the position of a ULID", offset, idx))
    }

    fn list(&mut self) -> Result<Vec<Ulid>, DecodeError> {
        let at = self.bytes.offset();
        let count = self.bytes.length(WHAT)?;
        self.listed_count += count;
        if self.listed_count > LISTED_ULIDS_MAX {
            return Err(invalid("fewer ULIDs in all lists", at, self.listed_count as u64));
        }
        let mut list = Vec::with_capacity(count);
        let mut idx = 0i64;
        for _ in 0..count {
            let offset = self.bytes.offset();
            idx = idx.wrapping_add(self.bytes.varint(WHAT)?);
            list.push(self.ulid_at(idx.cast_unsigned(), offset)?);
        }
        Ok(list)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        let offset = self.bytes.offset();
        let found = self.bytes.uvarint(WHAT)?;
        u32::try_from(found).map_err(|_| invalid("32 bits", offset, found))
    }

    fn block(&mut self) -> Result<BucketBlock, DecodeError> {
        // Each bit has a meaning.
        let flags = self.bytes.u8(WHAT)?;
        let has = |flag: u8| flags & flag != 0;
        let ulid = self.ulid()?;
        let range = self.range()?;
        let counts = BlockCounts {
            series: self.bytes.uvarint(WHAT)?,
            chunks: self.bytes.uvarint(WHAT)?,
            samples: self.bytes.uvarint(WHAT)?,
            tombstones: self.bytes.uvarint(WHAT)?,
        };
        let files = self.files(has(FLAG_ROLLUPS))?;
        let etags =
            if has(FLAG_ETAGS) { self.etags(&files, has(FLAG_SIDECAR))? } else { EtagSums::default() };
        let sidecar = if has(FLAG_SIDECAR) { Some(self.sidecar()?) } else { None };
        let tombstones = if has(FLAG_TOMBSTONES) { Some(self.tombstones()?) } else { None };
        let ancestry = Ancestry {
            level: self.u32()?,
            oldest_source: self.ulid()?,
            split_set: if has(FLAG_SPLIT_SET) { Some(self.ulid()?) } else { None },
            sources: self.list()?,
            parents: self.list()?,
            split_blocks: self.list()?,
            is_compaction_failed: has(FLAG_COMPACTION_FAILED),
        };
        let uploaded_ms = self.bytes.varint(WHAT)?;
        let folder = if has(FLAG_THANOS) { BlockFolder::Thanos } else { BlockFolder::Mimir };
        let time_unit = if has(FLAG_NANO) { TimeUnit::Nano } else { TimeUnit::Milli };
        Ok(BucketBlock {
            ulid,
            folder,
            time_unit,
            range,
            counts,
            files,
            etags,
            sidecar,
            tombstones,
            ancestry,
            uploaded_ms,
        })
    }

    fn range(&mut self) -> Result<TimeRange, DecodeError> {
        let offset = self.bytes.offset();
        let start = self.bytes.varint(WHAT)?;
        let end = start.wrapping_add(self.bytes.varint(WHAT)?);
        if end < start {
            return Err(invalid("an end after the start", offset, end.cast_unsigned()));
        }
        Ok(TimeRange { start, end })
    }

    fn files(&mut self, has_rollups: bool) -> Result<BlockFiles, DecodeError> {
        let index = self.bytes.uvarint(WHAT)?;
        let meta = self.bytes.uvarint(WHAT)?;
        let segment_count = self.bytes.length(WHAT)?;
        let segments = (0..segment_count).map(|_| self.bytes.uvarint(WHAT)).collect::<Result<_, _>>()?;
        let rollups = if has_rollups { self.rollups()? } else { Vec::new() };
        Ok(BlockFiles { index, segments, meta, rollups })
    }

    fn rollups(&mut self) -> Result<Vec<RollupObject>, DecodeError> {
        let count = self.bytes.length(WHAT)?;
        let mut rollups = Vec::new();
        for _ in 0..count {
            let span = RollupSpan { span_ms: self.duration_ms()?, slot_ms: self.duration_ms()? };
            rollups.push(RollupObject { span, len: self.bytes.uvarint(WHAT)? });
        }
        Ok(rollups)
    }

    fn etags(&mut self, files: &BlockFiles, has_sidecar: bool) -> Result<EtagSums, DecodeError> {
        Ok(EtagSums {
            index: self.bytes.le_u32(WHAT)?,
            segments: self.sums(files.segments.len())?,
            rollups: self.sums(files.rollups.len())?,
            sidecar: if has_sidecar { self.bytes.le_u32(WHAT)? } else { 0 },
        })
    }

    fn sums(&mut self, count: usize) -> Result<Vec<u32>, DecodeError> {
        (0..count).map(|_| self.bytes.le_u32(WHAT)).collect()
    }

    fn duration_ms(&mut self) -> Result<i64, DecodeError> {
        let offset = self.bytes.offset();
        let found = self.bytes.uvarint(WHAT)?;
        i64::try_from(found).map_err(|_| invalid("milliseconds below 2^63", offset, found))
    }

    fn sidecar(&mut self) -> Result<SidecarObject, DecodeError> {
        let len = self.bytes.uvarint(WHAT)?;
        let head_len = self.u32()?;
        Ok(SidecarObject { len, head_len, crc: self.bytes.le_u32(WHAT)? })
    }

    fn tombstones(&mut self) -> Result<TombstonesObject, DecodeError> {
        let len = self.bytes.length(WHAT)?;
        let offset = self.bytes.offset();
        let name = std::str::from_utf8(self.bytes.bytes(WHAT, len)?);
        let name = name.map_err(|e| invalid("UTF-8", offset, e.valid_up_to() as u64))?;
        let len = self.bytes.uvarint(WHAT)?;
        Ok(TombstonesObject { name: name.to_owned(), len, crc: self.bytes.le_u32(WHAT)? })
    }
}
