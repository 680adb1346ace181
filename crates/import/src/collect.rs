//! Collector: assigns the records of a head to series, in-order floats to open chunks, other samples to a
//! buffer, and writes both to blocks by time range.
//!
//! Invariants: samples of a chunk ascend; of samples of one series with the same timestamp, the first one is
//! kept; samples that are left out are counted.
//! Memory: 112 bytes and the label numbers per series, packed open samples, buffered samples up to a limit.
//! Not here: reading files (`read`), writing blocks (`write`).

mod mapped_samples;
mod ooo_buffer;
mod open_chunk;
mod open_chunks;
mod sample;
mod series_refs;
mod series_table;
mod slab;

use std::sync::Arc;

use chronolith_base::DecodeError;
use chronolith_base::hash::HashSet;
use chronolith_block::{BlockError, LabelRanks};
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_format::prometheus::histograms::for_each_histogram;
use chronolith_format::prometheus::record::{self, Kind, SeriesRecords, Tombstone};
use chronolith_model::{Columns, TimeRange};

use crate::read::head_chunks::HeadChunkIndex;
use crate::read::log_reader::Log;
use crate::write::block_set::{FinishedBlocks, LabelOrder, NO_POSITION};
use crate::write::head_blocks::HeadBlocks;
use crate::write::report::HeadCounts;
use mapped_samples::MappedSamples;
use ooo_buffer::{BufferedSample, OooBuffer};
use open_chunks::OpenChunks;
use sample::{Decision, Sample, SampleValue, decide};
use series_refs::NO_SERIES;
use series_table::SeriesTable;

/// Series and samples of the head.
pub(crate) struct Collector {
    series: SeriesTable,
    open: OpenChunks,
    buffer: OooBuffer,
    /// Series with samples in blocks of buffered samples.
    buffered_series: HashSet<u32>,
    mapped: MappedSamples,
    tombstones: Tombstones,
    /// Series that Prometheus removed from memory: a block of the source holds their samples.
    dropped: HashSet<u32>,
    /// Older in-order samples are in blocks of the source.
    min_time: i64,
    /// The series after the last sample's: the likely series of the next one.
    next_series: u32,
    counts: HeadCounts,
    /// Reused for the samples of a chunk.
    columns: Columns,
    blocks: HeadBlocks,
    /// First error of a block write, returned after the record.
    error: Option<BlockError>,
}

impl Collector {
    pub(crate) fn new(blocks: HeadBlocks, chunks: HeadChunkIndex, min_time: i64) -> Collector {
        Collector {
            series: SeriesTable::default(),
            open: OpenChunks::new(blocks.chunk_samples()),
            buffer: OooBuffer::default(),
            buffered_series: HashSet::default(),
            mapped: MappedSamples::new(chunks),
            tombstones: Tombstones::new(),
            dropped: HashSet::default(),
            min_time,
            next_series: 0,
            counts: HeadCounts::default(),
            columns: Columns::default(),
            blocks,
            error: None,
        }
    }

    /// Appends one record. Returns the damage in it, if any; entries before the damage are appended.
    ///
    /// # Errors
    /// If a block cannot be written.
    pub(crate) fn append_record(&mut self, log: Log, bytes: &[u8]) -> Result<Option<String>, BlockError> {
        self.counts.records += 1;
        let done = match Kind::of(bytes) {
            None => Ok(()),
            Some(Kind::Samples) if log == Log::Wal && !self.open.has_start_timestamps() => {
                record::for_each_sample(bytes, &mut |series_ref, time, bits| {
                    self.append_float(series_ref, time, bits);
                })
            }
            Some(Kind::Samples) => record::for_each_sample(bytes, &mut |series_ref, time, bits| {
                let sample = Sample { time, start_ms: 0, value: SampleValue::Float(bits) };
                self.append_sample(log, series_ref, sample);
            }),
            Some(Kind::SamplesWithStart) => {
                record::for_each_with_start(bytes, &mut |series_ref, time, bits, start_ms| {
                    let sample = Sample { time, start_ms, value: SampleValue::Float(bits) };
                    self.append_sample(log, series_ref, sample);
                })
            }
            Some(Kind::Histograms) => for_each_histogram(bytes, &mut |record| match record.histogram() {
                Some(histogram) => {
                    let value = SampleValue::Histogram(Arc::new(histogram));
                    let sample = Sample { time: record.time, start_ms: record.start_ms, value };
                    self.append_sample(log, record.series_ref, sample);
                }
                None => self.counts.skipped.invalid_histograms += 1,
            }),
            Some(Kind::Series) => self.append_series(bytes),
            Some(Kind::Tombstones) => record::tombstones(bytes).map(|all| self.append_tombstones(&all)),
            Some(Kind::Exemplars) => record::entry_count(bytes).map(|count| self.counts.exemplars += count),
            Some(Kind::Metadata) => record::entry_count(bytes).map(|count| self.counts.metadata += count),
            // The samples that they mark are recognised by their timestamps.
            Some(Kind::MmapMarkers) => record::entry_count(bytes).map(drop),
            Some(Kind::MinValidTime) => {
                record::min_valid_time(bytes).map(|time| self.min_time = self.min_time.max(time))
            }
            Some(Kind::Unknown(number)) => {
                self.counts.unknown_records += 1;
                self.counts.unknown_record_types.insert(number);
                Ok(())
            }
        };
        self.take_error()?;
        Ok(done.err().map(|error| error.to_string()))
    }

    /// Appends a float of the WAL while no series has start timestamps.
    ///
    /// PERF: nearly all samples belong to the series after the previous sample's and continue its group.
    /// Anything else is a function call, so that this one is a few loads and compares, inlined into the loop
    /// over the record: 15 -> 12 % of the CPU time of an import (`perf`, CPU clock, 10 000 series x 10 000
    /// samples). cargo bench -p chronolith-import --bench import_speed
    #[inline]
    fn append_float(&mut self, series_ref: u64, time: i64, bits: u64) {
        if self.series.has_ref(self.next_series, series_ref)
            && self.open.join_group(self.next_series, time, bits)
        {
            self.next_series = self.next_series.wrapping_add(1);
        } else {
            self.append_float_of_any(series_ref, time, bits);
        }
    }

    /// As [`Collector::append_float`], for any series and time.
    #[inline(never)]
    fn append_float_of_any(&mut self, series_ref: u64, time: i64, bits: u64) {
        let series = self.series.of_ref_near(series_ref, self.next_series);
        self.next_series = series.wrapping_add(1);
        if !self.open.join_group(series, time, bits) && !self.open.continue_chunk(series, time, bits) {
            self.append(Log::Wal, series, Sample { time, start_ms: 0, value: SampleValue::Float(bits) });
        }
    }

    fn append_sample(&mut self, log: Log, series_ref: u64, sample: Sample) {
        let series = self.series.of_ref_near(series_ref, self.next_series);
        self.next_series = series.wrapping_add(1);
        self.append(log, series, sample);
    }

    /// Appends, buffers or counts a sample of any kind.
    fn append(&mut self, log: Log, series: u32, sample: Sample) {
        if series == NO_SERIES {
            // A checkpoint leaves out the records of series whose samples are all in blocks.
            if log == Log::Wal && sample.time < self.min_time {
                self.counts.skipped.in_block += 1;
            } else {
                self.counts.skipped.unknown_series += 1;
            }
            return;
        }
        let is_mapped = || self.mapped.contains(series, sample.time);
        let decision = decide(log, &sample, self.open.newest(series), self.min_time, is_mapped);
        self.counts.skipped.count(decision);
        match (decision, &sample.value) {
            (Decision::AppendInOrder, &SampleValue::Float(bits)) => {
                if !self.open.is_continued(series, sample.time) {
                    self.seal(series);
                    self.open.begin(series, self.blocks.range_of(sample.time).end);
                }
                self.open.append(series, sample.time, bits, sample.start_ms);
            }
            (Decision::AppendInOrder | Decision::Buffer, _) => {
                if !self.blocks.has_room(self.blocks.range_of(sample.time)) {
                    // Open samples of this range are buffered too; they arrived first, so they come first.
                    self.seal(series);
                }
                self.buffer.push(series, sample);
                self.flush_full_buffer();
            }
            _ => {}
        }
    }

    /// Writes the open samples of a series as chunks, or buffers them if the block of their range cannot be
    /// begun.
    #[cold]
    fn seal(&mut self, series: u32) {
        let mut columns = std::mem::take(&mut self.columns);
        if self.open.take(series, &mut columns) {
            let range = self.blocks.range_of(columns.times[0]);
            if self.blocks.has_room(range) {
                let written = self.blocks.append_in_order(series, range, &columns);
                self.keep_error(written);
            } else {
                self.buffer.extend(series, &columns);
                self.flush_full_buffer();
            }
        }
        self.columns = columns;
    }

    fn flush_full_buffer(&mut self) {
        if self.buffer.is_full() {
            let flushed = self.flush_buffer();
            self.keep_error(flushed);
        }
    }

    /// Writes all buffered samples to blocks of their own.
    fn flush_buffer(&mut self) -> Result<(), BlockError> {
        let mut samples = self.buffer.take();
        let count = samples.len();
        samples.retain(|buffered| !self.dropped.contains(&buffered.series));
        self.counts.skipped.dropped_series += (count - samples.len()) as u64;
        if samples.is_empty() {
            return Ok(());
        }
        let ranks = self.series.dictionary().ranks();
        let flushed: HashSet<u32> = samples.iter().map(|buffered| buffered.series).collect();
        let order = self.series.sorted(&ranks, flushed.iter().copied());
        let positions = positions_of(&order, self.series.len());
        self.buffered_series.extend(flushed);
        let range_of = |time| self.blocks.range_of(time);
        ooo_buffer::sort_and_dedup(&mut samples, range_of, &positions, &mut self.counts.skipped);
        let mut rest = samples.as_slice();
        while let Some(first) = rest.first() {
            let range = self.blocks.range_of(first.sample.time);
            let count =
                rest.partition_point(|one| self.blocks.range_of(one.sample.time).start <= range.start);
            let (of_range, after) = rest.split_at(count);
            self.write_buffered(range, of_range, &ranks, &positions)?;
            rest = after;
        }
        Ok(())
    }

    /// Writes sorted samples of one range to a block.
    fn write_buffered(
        &mut self,
        range: TimeRange,
        samples: &[BufferedSample],
        ranks: &LabelRanks,
        positions: &[u32],
    ) -> Result<(), BlockError> {
        let mut blocks = self.blocks.begin_out_of_order(range)?;
        for of_series in samples.chunk_by(|a, b| a.series == b.series) {
            self.columns.clear();
            of_series.iter().for_each(|buffered| buffered.sample.push_to(&mut self.columns));
            blocks.append(of_series[0].series, range, &self.columns)?;
        }
        let finished = with_order(&self.series, &self.tombstones, ranks, positions, |order| {
            self.blocks.finish_out_of_order(blocks, order)
        })?;
        self.counts.count_written(&finished);
        self.counts.out_of_order_samples += finished.sample_count - finished.histogram_count;
        Ok(())
    }

    fn append_series(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut records = SeriesRecords::new(bytes);
        let (mut labels, mut previous) = (Vec::new(), Vec::new());
        while let Some(series_ref) = records.next(&mut labels)? {
            match self.series.resolve(series_ref, &labels, &previous) {
                Ok(series) => {
                    self.open.add_series(series);
                    self.append_mapped_chunks(series_ref, series);
                    std::mem::swap(&mut labels, &mut previous);
                }
                Err(_) => {
                    self.counts.rejected_series += 1;
                    previous.clear();
                }
            }
        }
        Ok(())
    }

    /// Appends the samples of the m-mapped chunks of `series_ref`.
    fn append_mapped_chunks(&mut self, series_ref: u64, series: u32) {
        let mut columns = Columns::default();
        for idx in self.mapped.chunks.indices_of(series_ref) {
            let Some(span) = self.mapped.chunks.take(idx, &mut columns) else { continue };
            for idx in 0..columns.len() {
                self.append(span.log, series, Sample::of_columns(&columns, idx));
            }
            if span.log == Log::Wal {
                self.mapped.add(series, span);
            }
        }
    }

    fn append_tombstones(&mut self, tombstones: &[Tombstone]) {
        for tombstone in tombstones {
            if tombstone.is_whole_series() {
                self.dropped.extend(self.series.forget(tombstone.series_ref));
                continue;
            }
            let series = self.series.of_ref(tombstone.series_ref);
            if series != NO_SERIES {
                self.counts.tombstones += 1;
                let interval = Interval { first: tombstone.first, last: tombstone.last };
                self.tombstones.add(u64::from(series), interval);
            }
        }
    }

    /// Completes all blocks; returns the counts and the ULIDs of the blocks.
    ///
    /// # Errors
    /// If a block cannot be written. Announced blocks may exist then.
    pub(crate) fn finish(mut self) -> Result<(HeadCounts, Vec<Ulid>), BlockError> {
        self.counts.unknown_chunks += self.mapped.chunks.undecodable_count();
        self.counts.unknown_series_chunks += self.mapped.chunks.unknown_series_count();
        self.series.freeze();
        let ranks = self.series.dictionary().ranks();
        let all = (0u32..).take(self.series.len());
        let order = self.series.sorted(&ranks, all.clone().filter(|series| !self.dropped.contains(series)));
        let positions = positions_of(&order, self.series.len());
        // In the order of series, because their packed samples are adjacent in memory.
        for series in all {
            if positions[series as usize] != NO_POSITION {
                self.seal(series);
            } else {
                self.counts.skipped.dropped_series += u64::from(self.open.sample_count(series));
            }
        }
        self.open.free_samples();
        self.take_error()?;
        self.flush_buffer()?;
        let has_samples =
            |&&series: &&u32| self.open.has_samples(series) || self.buffered_series.contains(&series);
        self.counts.series = order.iter().filter(has_samples).count() as u64;
        drop(order);
        drop(self.open);
        let (finished, ulids) = with_order(&self.series, &self.tombstones, &ranks, &positions, |order| {
            self.blocks.finish(order)
        })?;
        self.counts.count_written(&finished);
        Ok((self.counts, ulids))
    }

    fn keep_error(&mut self, done: Result<(), BlockError>) {
        if let Err(error) = done {
            self.error.get_or_insert(error);
        }
    }

    fn take_error(&mut self) -> Result<(), BlockError> {
        self.error.take().map_or(Ok(()), Err)
    }
}

/// Position of each series in `order`, [`NO_POSITION`] for the others.
fn positions_of(order: &[u32], series_count: usize) -> Vec<u32> {
    let mut positions = vec![NO_POSITION; series_count];
    for (position, &series) in (0u32..).zip(order) {
        positions[series as usize] = position;
    }
    positions
}

fn with_order<T>(
    series: &SeriesTable,
    tombstones: &Tombstones,
    ranks: &LabelRanks,
    positions: &[u32],
    write: impl FnOnce(&LabelOrder<'_>) -> T,
) -> T {
    write(&LabelOrder {
        dictionary: series.dictionary(),
        ranks,
        positions,
        pairs_of: &|series_id| series.pairs_of(series_id),
        deleted: &|series_id| tombstones.get(u64::from(series_id)).to_vec(),
    })
}

impl HeadCounts {
    fn count_written(&mut self, finished: &FinishedBlocks) {
        self.samples += finished.sample_count;
        self.histograms_written += finished.histogram_count;
        self.skipped.dropped_series += finished.dropped_count;
    }
}
