//! Writes a block: chunks as they come, series and postings at the end, everything synced before the rename.
//!
//! Invariant: `<ULID>` exists only complete and durable; a failure leaves at most a `.tmp-for-creation`
//! directory, which is removed on failure and by `open_dir`.
//! Memory: each distinct string once, 16 bytes per distinct label pair and its hash entry, 4 bytes per label
//! pair of every series (postings) and 4 bytes per series. Series entries wait on disk (`spool`), because all
//! symbols precede them in the index. A million series of ten labels: about 45 MB and the strings.
//! Not here: merging chunks or blocks (`compact`).

mod bulk;
mod postings;
pub(crate) mod samples;
mod segments;
pub(crate) mod sink;
mod spool;
pub(crate) mod symbols;
pub(crate) mod written;

pub use bulk::{BulkSeries, BulkVisit};
pub use written::{BlockSource, WrittenBlock, publish};

use std::path::{Path, PathBuf};

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError, Env};
use chronolith_format::block::chunks::ChunkRef;
use chronolith_format::block::index::{ChunkMeta, IndexWriter, TableEntry};
use chronolith_format::block::meta::{BlockMeta, BlockStats, Ulid};
use chronolith_format::block::tombstones::Tombstones;
use chronolith_format::chunk::kinds::ENCODINGS_HISTOGRAM;
use chronolith_format::chunk::xor::EncodedChunk;
use chronolith_model::{BlockEncoding, Labels, TimeRange, TimeUnit, WordKind};

use crate::BlockError;
use crate::layout::{CHUNKS_DIR, INDEX_FILE, SUFFIX_CREATING, TOMBSTONES_FILE};
use postings::PostingsBuilder;
use samples::SampleEncoder;
use segments::SegmentsWriter;
use sink::FileSink;
use spool::Spool;
use symbols::LabelPairs;
use written::CreatingDir;

/// A finished chunk, its bytes borrowed.
pub(crate) struct ChunkView<'a> {
    pub(crate) encoding: u8,
    pub(crate) min_time: i64,
    pub(crate) max_time: i64,
    pub(crate) count: u16,
    pub(crate) bytes: &'a [u8],
}

impl<'a> From<&'a EncodedChunk> for ChunkView<'a> {
    fn from(chunk: &'a EncodedChunk) -> ChunkView<'a> {
        let EncodedChunk { encoding, min_time, max_time, count, bytes } = chunk;
        ChunkView { encoding: *encoding, min_time: *min_time, max_time: *max_time, count: *count, bytes }
    }
}

/// Writes one block.
pub struct BlockWriter {
    dir: CreatingDir,
    parent_dir: PathBuf,
    ulid: Ulid,
    segments: SegmentsWriter,
    samples: SampleEncoder,
    unit: TimeUnit,
    spool: Spool,
    pairs: LabelPairs,
    last_labels: Option<Labels>,
    stats: BlockStats,
    first_time: i64,
    last_time: i64,
    chunk_metas: Vec<ChunkMeta>,
    record: Vec<u8>,
    /// About how many bytes the index will have.
    index_bytes: u64,
}

/// Returns the encoding of blocks with times in `unit`: [`BlockEncoding::Prometheus`] is for milliseconds,
/// blocks in nanoseconds are dense whatever the tenant's setting is.
#[must_use]
pub fn encoding_for(unit: TimeUnit, encoding: BlockEncoding) -> BlockEncoding {
    match unit {
        TimeUnit::Milli => encoding,
        TimeUnit::Nano => BlockEncoding::Dense,
    }
}

/// Bytes of a series in a postings list.
const POSTING_BYTES: usize = 4;

impl BlockWriter {
    /// Starts a block below `parent_dir`, which is created durably if missing (its parent should exist).
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn create(env: &Env, parent_dir: &Path) -> Result<BlockWriter, BlockError> {
        BlockWriter::create_after(env, parent_dir, None)
    }

    /// As [`BlockWriter::create`], under a name that sorts after `previous` even if the clock went back:
    /// blocks sort by name in the order in which they were written.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn create_after(
        env: &Env,
        parent_dir: &Path,
        previous: Option<Ulid>,
    ) -> Result<BlockWriter, BlockError> {
        let random = u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
        let earliest_ms = previous.map_or(0, |ulid| ulid.time_ms().saturating_add(1));
        let ulid = Ulid::new(env.clock.now_ms().max(earliest_ms), random);
        BlockWriter::create_named(env, parent_dir, ulid)
    }

    /// As [`BlockWriter::create`], under the name `ulid`, which no other block of the directory has.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub fn create_named(env: &Env, parent_dir: &Path, ulid: Ulid) -> Result<BlockWriter, BlockError> {
        let path = parent_dir.join(format!("{ulid}{SUFFIX_CREATING}"));
        let chunks_dir = path.join(CHUNKS_DIR);
        let parent_is_new = !env.disk.exists(parent_dir);
        env.disk.create_dir_all(&chunks_dir).map_err(BlockError::io(&chunks_dir))?;
        if let Some(above) = parent_dir.parent().filter(|_| parent_is_new) {
            env.disk.sync_dir(above).map_err(BlockError::io(above))?;
        }
        Ok(BlockWriter {
            segments: SegmentsWriter::new(env, chunks_dir),
            samples: SampleEncoder::new(BlockEncoding::default(), env.rng.next_u64()),
            unit: TimeUnit::Milli,
            spool: Spool::new(env, path.join("series.spool")),
            dir: CreatingDir { env: env.clone(), path, complete: false },
            parent_dir: parent_dir.to_owned(),
            ulid,
            pairs: LabelPairs::default(),
            last_labels: None,
            stats: BlockStats::default(),
            first_time: i64::MAX,
            last_time: i64::MIN,
            chunk_metas: Vec::new(),
            record: Vec::new(),
            index_bytes: 0,
        })
    }

    /// Sets the encoding of [`BlockWriter::add_samples`]; the default is [`BlockEncoding::Dense`].
    #[must_use]
    pub fn with_encoding(mut self, encoding: BlockEncoding) -> BlockWriter {
        self.samples.encoding = encoding_for(self.unit, encoding);
        self
    }

    /// Sets the unit of all times of the block; the default is milliseconds.
    #[must_use]
    pub fn with_unit(mut self, unit: TimeUnit) -> BlockWriter {
        self.unit = unit;
        self.samples.set_time_unit(unit);
        let encoding = self.samples.encoding;
        self.with_encoding(encoding)
    }

    /// Sets the kind of the words of the next series; without a call they are floats.
    pub fn set_kind(&mut self, kind: WordKind) {
        self.samples.kind = kind;
    }

    /// Name that the block will have.
    #[must_use]
    pub fn ulid(&self) -> Ulid {
        self.ulid
    }

    /// Adds the next series with all its samples, as few chunks as the encoding allows. One without samples
    /// is left out.
    ///
    /// # Errors
    /// [`BlockError`]; the block cannot be completed then.
    ///
    /// # Panics
    /// If series do not ascend by labels, times do not ascend strictly, or there is not one value per time.
    pub fn add_samples(&mut self, labels: &Labels, times: &[i64], values: &[f64]) -> Result<(), BlockError> {
        self.push_floats(times, values, &[])?;
        self.end_series(labels)
    }

    /// Adds floats as the next chunks of the series that the next [`BlockWriter::end_series`] names. A start
    /// time of 0, or a missing one, is unknown.
    ///
    /// # Errors
    /// [`BlockError`]; the block cannot be completed then.
    ///
    /// # Panics
    /// As [`BlockWriter::add_samples`].
    pub fn push_floats(
        &mut self,
        times: &[i64],
        values: &[f64],
        start_times: &[i64],
    ) -> Result<(), BlockError> {
        let chunk_samples = self.chunk_samples(times.len());
        let mut starts = start_times.chunks(chunk_samples);
        for (times, values) in times.chunks(chunk_samples).zip(values.chunks(chunk_samples)) {
            self.add_chunk_of(times, values, starts.next().unwrap_or(&[]))?;
        }
        Ok(())
    }

    /// Adds an encoded chunk to the series that the next [`BlockWriter::end_series`] names.
    ///
    /// # Errors
    /// [`BlockError`]; the block cannot be completed then.
    ///
    /// # Panics
    /// As [`BlockWriter::add`].
    pub fn push_chunk(&mut self, chunk: &EncodedChunk) -> Result<(), BlockError> {
        self.add_chunk(&ChunkView::from(chunk)).map(drop)
    }

    /// Adds the next series. One without chunks is left out.
    ///
    /// # Errors
    /// [`BlockError`]; the block cannot be completed then.
    ///
    /// # Panics
    /// If series do not ascend by labels, or chunks are empty or do not follow one another in time
    /// (overlapping chunks are merged before they come here: Prometheus refuses them within a series).
    pub fn add(&mut self, labels: &Labels, chunks: &[EncodedChunk]) -> Result<(), BlockError> {
        for chunk in chunks {
            self.add_chunk(&ChunkView::from(chunk))?;
        }
        self.end_series(labels)
    }

    /// Adds the next chunk of the series that the next [`BlockWriter::end_series`] names.
    pub(crate) fn add_chunk(&mut self, chunk: &ChunkView<'_>) -> Result<ChunkRef, BlockError> {
        let (min_time, max_time) = (chunk.min_time, chunk.max_time);
        let follows = self.chunk_metas.last().is_none_or(|last| last.max_time < min_time);
        assert!(
            chunk.count > 0 && min_time <= max_time && follows,
            "chunks must hold samples and follow one another: {min_time}..={max_time} after {:?}",
            self.chunk_metas.last()
        );
        let chunk_ref = self.segments.add(chunk.encoding, chunk.bytes)?;
        self.chunk_metas.push(ChunkMeta { min_time, max_time, chunk_ref });
        self.count_samples(chunk);
        Ok(chunk_ref)
    }

    /// About how many bytes the block will have, if it were completed here.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments.written_bytes + self.index_bytes
    }

    /// Bytes of chunks written so far.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.segments.written_bytes
    }

    /// Ends a series; without chunks since the last one it is left out.
    ///
    /// # Errors
    /// [`BlockError`]; the block cannot be completed then.
    ///
    /// # Panics
    /// If series do not ascend by labels.
    pub fn end_series(&mut self, labels: &Labels) -> Result<(), BlockError> {
        self.samples.kind = WordKind::Float;
        let (Some(first), Some(last)) = (self.chunk_metas.first(), self.chunk_metas.last()) else {
            return Ok(());
        };
        let ascends = self.last_labels.as_ref().is_none_or(|last| last < labels);
        assert!(ascends, "series must ascend by labels: {labels} after {:?}", self.last_labels);
        self.first_time = self.first_time.min(first.min_time);
        self.last_time = self.last_time.max(last.max_time);
        self.stats.num_series += 1;
        self.stats.num_chunks += self.chunk_metas.len() as u64;
        self.record.clear();
        self.pairs.put_series(labels, &mut self.record);
        put_chunk_metas(&mut self.record, &self.chunk_metas);
        self.chunk_metas.clear();
        self.spool.push(&self.record)?;
        // An entry takes about as much as its record, and each label a ref in a postings list.
        self.index_bytes += (self.record.len() + POSTING_BYTES * labels.len()) as u64;
        self.last_labels = Some(labels.clone());
        Ok(())
    }

    fn count_samples(&mut self, chunk: &ChunkView<'_>) {
        let count = u64::from(chunk.count);
        self.stats.num_samples += count;
        if ENCODINGS_HISTOGRAM.contains(&chunk.encoding) {
            self.stats.num_histogram_samples += count;
        } else {
            self.stats.num_float_samples += count;
        }
    }

    /// Completes the block and makes it durable under its name; `None` (and nothing on disk) if no series was
    /// added.
    ///
    /// # Errors
    /// [`BlockError`]; nothing of the block is left then. [`BlockError::OutsideRange`] if samples are outside
    /// `source.range`. If the last sync fails the block may exist under its name nevertheless; its content is
    /// complete then.
    pub fn finish(self, source: BlockSource) -> Result<Option<BlockMeta>, BlockError> {
        match self.write(source.range)? {
            Some(written) => publish(vec![(written, source)]).pop().transpose(),
            None => Ok(None),
        }
    }

    /// Writes all files but `meta.json`; `None` (and nothing on disk) if no series was added. See
    /// [`publish`].
    ///
    /// # Errors
    /// As [`BlockWriter::finish`]; nothing of the block is left then.
    pub fn write(mut self, range: TimeRange) -> Result<Option<WrittenBlock>, BlockError> {
        if self.stats.num_series == 0 {
            return Ok(None);
        }
        let (first, last) = (self.first_time, self.last_time);
        if !range.contains(first) || !range.contains(last) {
            return Err(BlockError::OutsideRange { first, last, range });
        }
        let index = self.write_index()?;
        let tombstones = Tombstones::of_unit(self.unit);
        self.end(index, &tombstones).map(Some)
    }

    /// Writes the remaining bytes of the files.
    fn end(mut self, mut index: FileSink, tombstones: &Tombstones) -> Result<WrittenBlock, BlockError> {
        let mut files: Vec<FileSink> = self.segments.finish().into_iter().collect();
        for segment in &mut files {
            segment.write_out()?;
        }
        index.write_out()?;
        files.push(index);
        self.spool.remove()?;
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        files.push(self.dir.write_file(TOMBSTONES_FILE, &bytes)?);
        let BlockWriter { dir, parent_dir, ulid, stats, unit, .. } = self;
        Ok(WrittenBlock { dir, parent_dir, ulid, stats, unit, files })
    }

    fn write_index(&mut self) -> Result<FileSink, BlockError> {
        let path = self.dir.path.join(INDEX_FILE);
        let sink = FileSink::create(&self.dir.env, &path)?;
        let index_error = || BlockError::index(&path);
        let sorted = self.pairs.sort();
        let mut writer = IndexWriter::begin(sink, sorted.symbols()).map_err(index_error())?;
        let mut postings = PostingsBuilder::new(sorted.pair_counts(), self.stats.num_series);
        let (mut pairs, mut chunks) = (Vec::new(), Vec::new());
        let spool_path = self.spool.path().to_owned();
        self.spool.for_each(&mut |record| {
            read_record(record, &mut pairs, &mut chunks).map_err(BlockError::corrupt(&spool_path))?;
            let symbols = pairs.iter().map(|&pair| sorted.symbols_of(pair));
            let series_ref = writer.series(symbols, &chunks).map_err(BlockError::index(&path))?;
            postings.add(series_ref, &pairs);
            Ok(())
        })?;
        writer.end_series().map_err(index_error())?;
        let all_offset = writer.postings(postings.all()).map_err(index_error())?;
        let mut offsets = Vec::with_capacity(sorted.order().len());
        for &pair in sorted.order() {
            offsets.push(writer.postings(postings.refs(pair)).map_err(index_error())?);
        }
        let all = std::iter::once(TableEntry { name: "", value: "", offset: all_offset });
        let entries = sorted.order().iter().zip(&offsets).map(|(&pair, &offset)| {
            let (name, value) = sorted.texts(pair);
            TableEntry { name, value, offset }
        });
        writer.finish(all.chain(entries)).map_err(index_error())
    }
}

fn put_chunk_metas(out: &mut Vec<u8>, chunks: &[ChunkMeta]) {
    put_uvarint(out, chunks.len() as u64);
    for chunk in chunks {
        put_varint(out, chunk.min_time);
        put_varint(out, chunk.max_time);
        put_uvarint(out, chunk.chunk_ref.0);
    }
}

/// Reads a spooled series. Unlike the block's files it never outlives the writer, so it has no checksum.
fn read_record(record: &[u8], pairs: &mut Vec<u32>, chunks: &mut Vec<ChunkMeta>) -> Result<(), DecodeError> {
    pairs.clear();
    chunks.clear();
    let mut r = ByteReader::new(record);
    for _ in 0..r.length("spooled label count")? {
        pairs.push(r.le_u32("spooled label pair")?);
    }
    for _ in 0..r.length("spooled chunk count")? {
        let min_time = r.varint("spooled chunk start")?;
        let max_time = r.varint("spooled chunk end")?;
        let chunk_ref = ChunkRef(r.uvarint("spooled chunk ref")?);
        chunks.push(ChunkMeta { min_time, max_time, chunk_ref });
    }
    Ok(())
}

#[cfg(test)]
impl BlockWriter {
    /// Cuts segments and spills the spool earlier than a real block does.
    pub(crate) fn with_small_limits(mut self, segment_bytes_max: u64, spool_bytes_max: usize) -> BlockWriter {
        self.segments.bytes_max = segment_bytes_max;
        self.spool.bytes_max = spool_bytes_max;
        self
    }
}
