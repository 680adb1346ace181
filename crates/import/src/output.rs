//! Chunks on their way to blocks: encoded as they fill, one block writer for each range of time.
//!
//! Holds: a chunk lies in one range; nothing is visible before `finish`; blocks get names in the order in which they
//! were begun, so that of two with the same timestamp the one begun first is right (first value wins).
//! Not here: which samples make a chunk (`gather`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_block::{BlockError, BlockSource, BlockWriter, BulkSeries, LabelRanks};
use chronolith_format::block::chunks::RawChunk;
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::tombstones::Interval;
use chronolith_format::chunk::dense::{self, DenseScratch, ENCODING_DENSE, ENCODING_DENSE_STARTS};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::starts::{self, StartRun};
use chronolith_format::chunk::xor::{CHUNK_BYTES_MAX, ENCODING_XOR, SAMPLES_PER_CHUNK, XorState};
use chronolith_format::chunk::xor2::{self, ENCODING_XOR2};
use chronolith_model::query::SampleKind;
use chronolith_model::{BlockEncoding, Columns, TimeRange};

use crate::series::SeriesTable;

/// Range of a fresh block.
const WINDOW_MS: i64 = 2 * 3_600_000;
/// Range of a block of samples whose day is long over.
const OLD_WINDOW_MS: i64 = 24 * 3_600_000;
/// Ranges that are written at the same time; samples of others wait as late ones do.
pub(crate) const RANGES_OPEN_MAX: usize = 64;
/// Samples of a dense chunk.
const DENSE_SAMPLES: usize = 960;

const _: () = assert!(DENSE_SAMPLES <= u16::MAX as usize);

/// A chunk of a range, and whose it is.
struct Entry {
    series: u32,
    count: u16,
    kind: SampleKind,
    meta: ChunkMeta,
}

impl Entry {
    fn histogram_count(&self) -> u64 {
        if self.kind == SampleKind::Histogram { u64::from(self.count) } else { 0 }
    }
}

struct Part {
    range: TimeRange,
    writer: BlockWriter,
    entries: Vec<Entry>,
}

/// Turns columns into chunk bytes.
struct Encoder {
    encoding: BlockEncoding,
    scratch: DenseScratch,
    bytes: Vec<u8>,
    /// Start times of the chunk.
    runs: Vec<StartRun>,
}

impl Encoder {
    /// The chunk of these samples is in `bytes` afterwards; gives its encoding byte.
    fn encode(&mut self, times: &[i64], values: &[f64], start_times: &[i64]) -> u8 {
        self.bytes.clear();
        self.runs.clear();
        starts::runs_of(times, start_times, &mut self.runs);
        if !self.runs.is_empty() {
            return self.encode_with_starts(times, values, start_times);
        }
        match self.encoding {
            BlockEncoding::Dense => {
                dense::encode(times, values, &mut self.scratch, &mut self.bytes);
                ENCODING_DENSE
            }
            BlockEncoding::Prometheus => {
                self.bytes.resize(CHUNK_BYTES_MAX, 0);
                let mut state = XorState::new();
                for (&time, &value) in times.iter().zip(values) {
                    state.append(&mut self.bytes, time, value);
                }
                self.bytes.truncate(state.byte_len());
                ENCODING_XOR
            }
        }
    }
}

impl Encoder {
    /// As [`Encoder::encode`] where start times are known.
    #[cold]
    fn encode_with_starts(&mut self, times: &[i64], values: &[f64], start_times: &[i64]) -> u8 {
        match self.encoding {
            BlockEncoding::Dense => {
                let mut inner = Vec::new();
                dense::encode(times, values, &mut self.scratch, &mut inner);
                let inner = RawChunk { encoding: ENCODING_DENSE, bytes: &inner };
                dense::encode_starts(&self.runs, inner, &mut self.bytes);
                ENCODING_DENSE_STARTS
            }
            BlockEncoding::Prometheus => {
                xor2::encode(times, values, start_times, &mut self.bytes);
                ENCODING_XOR2
            }
        }
    }
}

/// Blocks being written.
pub(crate) struct Output {
    env: Env,
    blocks_dir: PathBuf,
    now_ms: i64,
    parts: BTreeMap<i64, Part>,
    encoder: Encoder,
    newest: Option<Ulid>,
}

impl Output {
    /// `after` is the newest name in the directory.
    pub(crate) fn new(env: &Env, blocks_dir: &Path, encoding: BlockEncoding, after: Option<Ulid>) -> Output {
        Output {
            env: env.clone(),
            blocks_dir: blocks_dir.to_owned(),
            now_ms: env.clock.now_ms(),
            parts: BTreeMap::new(),
            encoder: Encoder { encoding, scratch: DenseScratch::new(), bytes: Vec::new(), runs: Vec::new() },
            newest: after,
        }
    }

    /// Samples of a full chunk.
    pub(crate) fn chunk_samples(&self) -> u16 {
        match self.encoder.encoding {
            BlockEncoding::Dense => DENSE_SAMPLES as u16,
            BlockEncoding::Prometheus => SAMPLES_PER_CHUNK as u16,
        }
    }

    /// Range of the block that holds `time`: two hours, or the day when that is long over, as a flush would do it.
    pub(crate) fn range_of(&self, time: i64) -> TimeRange {
        let day = TimeRange::window_of(time, OLD_WINDOW_MS);
        if day.end <= self.now_ms.saturating_sub(OLD_WINDOW_MS) {
            day
        } else {
            TimeRange::window_of(time, WINDOW_MS)
        }
    }

    /// Whether the block of `range` is being written or may be begun.
    pub(crate) fn has_room(&self, range: TimeRange) -> bool {
        self.parts.contains_key(&range.start) || self.parts.len() < RANGES_OPEN_MAX
    }

    /// Begins the block of `range` if it is not.
    pub(crate) fn begin(&mut self, range: TimeRange) -> Result<(), BlockError> {
        if !self.parts.contains_key(&range.start) {
            let writer = BlockWriter::create_after(&self.env, &self.blocks_dir, self.newest)?;
            self.newest = Some(writer.ulid());
            self.parts.insert(range.start, Part { range, writer, entries: Vec::new() });
        }
        Ok(())
    }

    /// Writes samples of one series, all in `range`, as chunks.
    pub(crate) fn put(&mut self, series: u32, range: TimeRange, columns: &Columns) -> Result<(), BlockError> {
        self.begin(range)?;
        let Some(part) = self.parts.get_mut(&range.start) else { return Ok(()) };
        let len = match self.encoder.encoding {
            BlockEncoding::Dense => DENSE_SAMPLES,
            BlockEncoding::Prometheus => SAMPLES_PER_CHUNK,
        };
        let mut starts = columns.start_times.chunks(len);
        for (times, values) in columns.times.chunks(len).zip(columns.values.chunks(len)) {
            let start_times = starts.next().unwrap_or(&[]);
            let (Some(&first), Some(&last)) = (times.first(), times.last()) else { continue };
            let encoding = self.encoder.encode(times, values, start_times);
            let meta = part.writer.put_chunk(encoding, (first, last), &self.encoder.bytes)?;
            part.entries.push(Entry { series, count: times.len() as u16, kind: SampleKind::Float, meta });
        }
        Ok(())
    }

    /// Writes histograms of one series, all in `range`, as chunks.
    pub(crate) fn put_histograms(
        &mut self,
        series: u32,
        range: TimeRange,
        samples: &Columns,
    ) -> Result<(), BlockError> {
        self.begin(range)?;
        let Some(part) = self.parts.get_mut(&range.start) else { return Ok(()) };
        let mut chunks = Vec::new();
        kinds::encode(samples, &mut chunks);
        for chunk in &chunks {
            let meta =
                part.writer.put_chunk(chunk.encoding, (chunk.min_time, chunk.max_time), &chunk.bytes)?;
            part.entries.push(Entry { series, count: chunk.count, kind: SampleKind::Histogram, meta });
        }
        Ok(())
    }

    /// Names of the blocks that [`Output::finish`] is going to make, some of which may turn out empty.
    pub(crate) fn ulids(&self) -> Vec<Ulid> {
        self.parts.values().map(|part| part.writer.ulid()).collect()
    }

    /// An output without blocks whose names come behind those given out so far.
    pub(crate) fn begin_beside(&self) -> Output {
        Output::new(&self.env, &self.blocks_dir, self.encoder.encoding, self.newest)
    }

    /// Goes on with names behind those of an output begun with [`Output::begin_beside`].
    pub(crate) fn end_beside(&mut self, other: &Output) {
        self.newest = other.newest;
    }

    /// Completes all blocks. `positions` gives the place of each series by labels, [`crate::refs::NONE`] for those
    /// that are left out; `deleted` the intervals of a series.
    pub(crate) fn finish(
        &mut self,
        table: &SeriesTable,
        ranks: &LabelRanks,
        positions: &[u32],
        deleted: &dyn Fn(u32) -> Vec<Interval>,
    ) -> Result<Finished, BlockError> {
        let mut finished = Finished::default();
        while let Some((_, part)) = self.parts.pop_first() {
            let Part { range, writer, mut entries } = part;
            let position = |entry: &Entry| positions[entry.series as usize];
            entries.retain(|entry| {
                let kept = position(entry) != crate::refs::NONE;
                finished.dropped_samples += u64::from(entry.count) * u64::from(!kept);
                kept
            });
            entries.sort_by_key(|entry| (position(entry), entry.meta.min_time));
            let mut chunks = Vec::new();
            let written =
                writer.finish_bulk(BlockSource::head(range), table.dictionary(), ranks, &mut |visit| {
                    for group in entries.chunk_by(|a, b| a.series == b.series) {
                        let Some(first) = group.first() else { continue };
                        chunks.clear();
                        chunks.extend(group.iter().map(|entry| entry.meta));
                        visit(&BulkSeries {
                            pairs: table.pairs_of(first.series),
                            chunks: &chunks,
                            sample_count: group.iter().map(|entry| u64::from(entry.count)).sum(),
                            histogram_count: group.iter().map(Entry::histogram_count).sum(),
                            deleted: &deleted(first.series),
                        })?;
                    }
                    Ok(())
                })?;
            if let Some(meta) = written {
                finished.samples += meta.stats.num_samples;
                finished.blocks.push(meta.ulid);
            }
        }
        Ok(finished)
    }
}

/// What [`Output::finish`] made.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) blocks: Vec<Ulid>,
    pub(crate) samples: u64,
    /// Samples of series that were left out.
    pub(crate) dropped_samples: u64,
}
