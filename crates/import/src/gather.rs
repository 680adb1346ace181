//! From records of the log to chunks: finds the series of each sample and appends it, or puts it with the
//! late ones.
//!
//! Holds: samples of a chunk ascend; of equal times of a series the first value stays; every sample that is
//! left out is counted. Memory: 112 bytes and the label numbers a series, waiting samples packed, late
//! samples up to a limit. Start times of samples in order wait beside them (`starts`). Not here: reading
//! files (`pump`), blocks (`output`).

mod histograms;
mod late;
mod mapped;
mod starts;
mod waiting;

use chronolith_base::DecodeError;
use chronolith_base::hash::{HashMap, HashSet};
use chronolith_block::BlockError;
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_format::prometheus::histograms::for_each_histogram;
use chronolith_format::prometheus::record::{self, Kind, SeriesRecords};
use chronolith_model::Columns;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};

use crate::open::OpenSeries;
use crate::output::Output;
use crate::refs::NONE;
use crate::report::HeadCounts;
use crate::series::SeriesTable;
use crate::slab::Slab;
use histograms::WaitingHistogram;
use late::LateSample;
pub(crate) use mapped::MappedChunks;
use starts::OpenStarts;

/// Told the names of blocks before they appear.
pub(crate) type Announce = Box<dyn FnMut(&[Ulid]) -> Result<(), BlockError>>;

/// Which log a record comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    /// Checkpoint and write-ahead log: samples mostly in order.
    Wal,
    /// Samples that came out of order.
    OutOfOrder,
}

/// Series and samples of the head so far.
pub(crate) struct Gather {
    table: SeriesTable,
    open: Vec<OpenSeries>,
    slab: Slab,
    output: Output,
    late: Vec<LateSample>,
    histograms: Vec<WaitingHistogram>,
    /// Bytes of them.
    histogram_bytes: usize,
    /// Series that have late samples or histograms in blocks.
    late_series: HashSet<u32>,
    chunks: MappedChunks,
    /// Newest time that m-mapped chunks of each series hold; as long as the last series that has any.
    mapped_until: Vec<i64>,
    /// Times of a series that its m-mapped chunks hold, if some of them are damaged: the log fills the gaps.
    covered: HashMap<u32, Vec<(i64, i64)>>,
    tombstones: Tombstones,
    /// Series that left memory: their samples are in a block of the source.
    dropped: HashSet<u32>,
    /// Samples before it are in blocks of the source.
    min_time: i64,
    chunk_samples: u16,
    /// The series behind that of the last sample.
    guess: u32,
    pub(crate) counts: HeadCounts,
    columns: Columns,
    /// Of the samples that wait in `open`.
    starts: OpenStarts,
    scratch: Vec<u8>,
    announce: Announce,
    blocks: Vec<Ulid>,
    /// What stopped the writing of blocks.
    failed: Option<BlockError>,
}

impl Gather {
    pub(crate) fn new(output: Output, chunks: MappedChunks, min_time: i64, announce: Announce) -> Gather {
        Gather {
            table: SeriesTable::default(),
            open: Vec::new(),
            slab: Slab::new(),
            chunk_samples: output.chunk_samples(),
            output,
            guess: 0,
            late: Vec::new(),
            histograms: Vec::new(),
            histogram_bytes: 0,
            late_series: HashSet::default(),
            chunks,
            mapped_until: Vec::new(),
            covered: HashMap::default(),
            tombstones: Tombstones::new(),
            dropped: HashSet::default(),
            min_time,
            counts: HeadCounts::default(),
            columns: Columns::default(),
            starts: OpenStarts::default(),
            scratch: Vec::new(),
            announce,
            blocks: Vec::new(),
            failed: None,
        }
    }

    /// Takes in one record. Gives what is wrong with it, if anything; what stands before that is taken.
    ///
    /// # Errors
    /// If a block cannot be written.
    pub(crate) fn record(&mut self, log: Log, bytes: &[u8]) -> Result<Option<String>, BlockError> {
        self.counts.records += 1;
        let done = match Kind::of(bytes) {
            None => Ok(()),
            Some(Kind::Samples) => match log {
                Log::Wal if self.starts.is_empty() => {
                    record::for_each_sample(bytes, &mut |series_ref, time, bits| {
                        self.sample(series_ref, time, bits);
                    })
                }
                Log::Wal => record::for_each_sample(bytes, &mut |series_ref, time, bits| {
                    self.sample_with_start(series_ref, time, bits, 0);
                }),
                Log::OutOfOrder => record::for_each_sample(bytes, &mut |series_ref, time, bits| {
                    self.late_sample(series_ref, time, bits, 0);
                }),
            },
            Some(Kind::SamplesWithStart) => {
                record::for_each_with_start(bytes, &mut |series_ref, time, bits, start_ms| match log {
                    Log::Wal => self.sample_with_start(series_ref, time, bits, start_ms),
                    Log::OutOfOrder => self.late_sample(series_ref, time, bits, start_ms),
                })
            }
            Some(Kind::Series) => self.series(bytes),
            Some(Kind::Tombstones) => record::tombstones(bytes).map(|all| self.delete(&all)),
            Some(Kind::Histograms) => for_each_histogram(bytes, &mut |record| self.histogram_record(&record)),
            Some(Kind::Exemplars) => record::entry_count(bytes).map(|count| self.counts.exemplars += count),
            Some(Kind::Metadata) => record::entry_count(bytes).map(|count| self.counts.metadata += count),
            // They say which samples are in m-mapped chunks too; those are told apart by their times.
            Some(Kind::MmapMarkers) => record::entry_count(bytes).map(drop),
            Some(Kind::Unknown(_)) => {
                self.counts.unknown_records += 1;
                Ok(())
            }
        };
        self.fail_now()?;
        Ok(done.err().map(|error| error.to_string()))
    }

    /// One sample of the log.
    ///
    /// PERF: nearly all belong to the series after that of the sample before and join its group. Anything
    /// else is a function call, so that this one is a few loads and compares, inlined into the loop over the
    /// record: 15 -> 12 % of the CPU time of an import (`perf`, CPU clock, 10 000 series x 10 000 samples).
    ///   cargo run --release -p chronolith-import --example import_speed
    #[inline]
    fn sample(&mut self, series_ref: u64, time: i64, bits: u64) {
        if self.table.has_ref(self.guess, series_ref)
            && let Some(open) = self.open.get_mut(self.guess as usize)
            && open.joins(time, self.chunk_samples)
        {
            open.join(time, bits);
            self.guess = self.guess.wrapping_add(1);
        } else {
            self.sample_of_any(series_ref, time, bits);
        }
    }

    /// As [`Gather::sample`] for any series and time.
    #[inline(never)]
    fn sample_of_any(&mut self, series_ref: u64, time: i64, bits: u64) {
        let series = self.table.of_ref_near(series_ref, self.guess);
        self.guess = series.wrapping_add(1);
        // Unknown series have no entry there.
        match self.open.get_mut(series as usize) {
            Some(open) if open.joins(time, self.chunk_samples) => open.join(time, bits),
            _ => self.other_sample(series, time, bits, 0),
        }
    }

    /// As [`Gather::sample`] once start times are known of any series.
    fn sample_with_start(&mut self, series_ref: u64, time: i64, bits: u64, start_ms: i64) {
        let series = self.table.of_ref_near(series_ref, self.guess);
        self.guess = series.wrapping_add(1);
        self.other_sample(series, time, bits, start_ms);
    }

    /// A sample that does not simply go behind the one before, or whose series nobody knows.
    fn other_sample(&mut self, series: u32, time: i64, bits: u64, start_ms: i64) {
        if series == NONE {
            self.counts.unknown_series_samples += 1;
        } else if time < self.min_time {
            self.counts.in_block_samples += 1;
        } else {
            self.append(series, time, bits, start_ms);
        }
    }

    fn append(&mut self, series: u32, time: i64, bits: u64, start_ms: i64) {
        let open = &mut self.open[series as usize];
        if time <= open.last_time {
            return self.not_newest(series, time, bits, start_ms);
        }
        let is_full = open.count == 0 || open.count == self.chunk_samples || time >= open.range_end;
        if is_full && !self.turn(series, time) {
            return;
        }
        self.open[series as usize].push(&mut self.slab, time, bits);
        if start_ms != 0 || !self.starts.is_empty() {
            self.starts.note(series, time, start_ms);
        }
    }

    /// Ends the chunk of a series; true if the next one may begin with `time`.
    #[cold]
    fn turn(&mut self, series: u32, time: i64) -> bool {
        self.seal(series);
        let legal = (TIME_MIN_MS..=TIME_MAX_MS).contains(&time);
        if legal {
            self.open[series as usize].range_end = self.output.range_of(time).end;
        } else {
            self.counts.out_of_bounds_samples += 1;
        }
        legal
    }

    /// Writes the waiting samples of a series.
    fn seal(&mut self, series: u32) {
        let open = &mut self.open[series as usize];
        if open.count == 0 {
            return;
        }
        open.drain(&mut self.slab, &mut self.scratch, &mut self.columns);
        let mut columns = std::mem::take(&mut self.columns);
        self.starts.drain(series, &mut columns);
        let first = columns.times.first().copied().unwrap_or_default();
        let range = self.output.range_of(first);
        if self.output.has_room(range) {
            let written = self.output.put(series, range, &columns);
            self.fail(written);
        } else {
            let samples = columns.times.iter().zip(&columns.values).enumerate();
            self.late.extend(samples.map(|(at, (&time, value))| LateSample {
                series,
                time,
                bits: value.to_bits(),
                start_ms: columns.start_time_at(at),
            }));
            self.bound_late();
        }
        self.columns = columns;
    }

    /// A sample that is not newer than all of its series.
    fn not_newest(&mut self, series: u32, time: i64, bits: u64, start_ms: i64) {
        let until = self.mapped_until.get(series as usize).copied().unwrap_or(i64::MIN);
        if time <= until && self.is_mapped(series, time) {
            self.counts.mapped_samples += 1;
            return;
        }
        let open = &self.open[series as usize];
        if time == open.last_time {
            let repeated = bits == open.last_bits();
            self.counts.repeated_samples += u64::from(repeated);
            self.counts.conflicting_samples += u64::from(!repeated);
        } else {
            self.push_late(series, time, bits, start_ms);
        }
    }

    /// Whether m-mapped chunks hold what a series has up to the end of its last one: without damage they hold
    /// all of it, which is Prometheus's rule too.
    fn is_mapped(&self, series: u32, time: i64) -> bool {
        let Some(ranges) = self.covered.get(&series) else { return !self.chunks.is_damaged() };
        let at = ranges.partition_point(|&(_, last)| last < time);
        ranges.get(at).is_some_and(|&(first, _)| first <= time)
    }

    fn late_sample(&mut self, series_ref: u64, time: i64, bits: u64, start_ms: i64) {
        match self.table.of_ref(series_ref) {
            NONE => self.counts.unknown_series_samples += 1,
            series => self.push_late(series, time, bits, start_ms),
        }
    }

    fn push_late(&mut self, series: u32, time: i64, bits: u64, start_ms: i64) {
        if !(TIME_MIN_MS..=TIME_MAX_MS).contains(&time) {
            self.counts.out_of_bounds_samples += 1;
            return;
        }
        if !self.output.has_room(self.output.range_of(time)) {
            // Waiting samples of this range become late ones too; they came first and stand in front.
            self.seal(series);
        }
        self.late.push(LateSample { series, time, bits, start_ms });
        self.bound_late();
    }

    fn fail(&mut self, done: Result<(), BlockError>) {
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }

    fn series(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut records = SeriesRecords::new(bytes);
        let (mut labels, mut before) = (Vec::new(), Vec::new());
        while let Some(series_ref) = records.next(&mut labels)? {
            match self.table.resolve(series_ref, &labels, &before) {
                Ok(series) => {
                    if series as usize == self.open.len() {
                        self.open.push(OpenSeries::NEW);
                    }
                    self.take_mapped(series_ref, series);
                    std::mem::swap(&mut labels, &mut before);
                }
                Err(_) => {
                    self.counts.rejected_series += 1;
                    before.clear();
                }
            }
        }
        Ok(())
    }

    fn delete(&mut self, all: &[record::Tombstone]) {
        for tombstone in all {
            if tombstone.is_whole_series() {
                if let Some(series) = self.table.forget(tombstone.series_ref) {
                    self.dropped.insert(series);
                }
                continue;
            }
            let series = self.table.of_ref(tombstone.series_ref);
            if series != NONE {
                self.counts.tombstones += 1;
                let interval = Interval { first: tombstone.first, last: tombstone.last };
                self.tombstones.add(u64::from(series), interval);
            }
        }
    }

    /// Completes all blocks; gives the counts and the names of the blocks.
    ///
    /// # Errors
    /// If a block cannot be written; those that were announced may be there.
    pub(crate) fn finish(mut self) -> Result<(HeadCounts, Vec<Ulid>), BlockError> {
        self.counts.unknown_series_chunks += self.chunks.left_count();
        self.table.freeze();
        let ranks = self.table.dictionary().ranks();
        let mut order: Vec<u32> = (0u32..).take(self.table.len()).collect();
        order.retain(|series| !self.dropped.contains(series));
        self.table.sort(&ranks, &mut order);
        let mut positions = vec![NONE; self.table.len()];
        for (position, &series) in (0u32..).zip(&order) {
            positions[series as usize] = position;
        }
        // In the order in which series came: their packed samples lie one behind the other.
        for series in (0u32..).take(self.table.len()) {
            if positions[series as usize] != NONE {
                self.seal(series);
            }
        }
        let dropped = self.dropped.iter().map(|&series| self.open[series as usize].count);
        self.counts.dropped_series_samples += dropped.map(u64::from).sum::<u64>();
        self.slab = Slab::new();
        self.fail_now()?;
        self.flush_late()?;
        self.flush_histograms()?;
        let is_live = |series: &&u32| {
            self.open[**series as usize].last_time != i64::MIN || self.late_series.contains(*series)
        };
        self.counts.series = order.iter().filter(is_live).count() as u64;
        drop(order);
        self.open = Vec::new();
        (self.announce)(&self.output.ulids())?;
        let tombstones = &self.tombstones;
        let deleted = |series: u32| tombstones.get(u64::from(series)).to_vec();
        let finished = self.output.finish(&self.table, &ranks, &positions, &deleted)?;
        self.counts.samples += finished.samples;
        self.counts.dropped_series_samples += finished.dropped_samples;
        self.blocks.extend(finished.blocks);
        Ok((self.counts, self.blocks))
    }

    fn fail_now(&mut self) -> Result<(), BlockError> {
        self.failed.take().map_or(Ok(()), Err)
    }
}
