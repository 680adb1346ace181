//! Verification of all of a block: lists every damage, for `chronolith check` and the scrub after a start.
//!
//! Invariant: damage to one item does not hide damage to others that the index leads to.
//! Not here: choice of the blocks to verify, and pace (`tsdb`).

use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::hash::hash_bytes;
use chronolith_base::{DecodeError, MemoryBudget};
use chronolith_format::block::index::{ChunkMeta, SeriesEntry};
use chronolith_model::{Columns, Labels, QueryError, TimeRange};

use crate::Block;
use crate::chunk::{self, ChunkError};
use crate::contents::BlockContents;
use crate::damage::{DAMAGES_MAX, Damage};
use crate::label_queries::for_each_list;
use crate::layout::META_FILE;
use crate::series_reader::SeriesReader;
use crate::source::{BlockFile, RangeBytes};

/// Cost of a series in a step, without its chunks.
const SERIES_BYTES: usize = 64;
/// Cost of a histogram in a step.
const HISTOGRAM_BYTES: usize = 64;

impl Block {
    /// Reads and checks everything: every postings list, every series, every chunk down to its samples, and
    /// the counts of `meta.json`. Returns at most 1000 damages, in order of finding. Cost: one pass over all
    /// bytes.
    #[must_use]
    pub fn verify(&self) -> Vec<Damage> {
        let mut verification = BlockVerification::new(self);
        while !verification.step(u64::MAX) {}
        verification.damages
    }
}

/// The next part that a verification reads.
enum Phase {
    /// Postings of the label name with this index.
    Postings(usize),
    /// The rest of the series.
    Series(Box<SeriesReader>),
    Done,
}

#[derive(Default)]
struct Counts {
    series: u64,
    chunks: u64,
    float_samples: u64,
    histogram_samples: u64,
}

/// Verification of all of a block, as [`Block::verify`] does it, in steps of bounded cost.
pub struct BlockVerification {
    contents: Arc<BlockContents>,
    budget: MemoryBudget,
    phase: Phase,
    damages: Vec<Damage>,
    /// Labels of the series before.
    last: Option<Labels>,
    scratch: Columns,
    /// Bytes that the step may still read.
    left_bytes: u64,
    counts: Counts,
    /// Sum over all (label pair, series) of the postings lists.
    sum_of_postings: u64,
    /// Sum over all (label pair, series) of the labels of all series.
    sum_of_series: u64,
}

fn pair_hash(name: &str, value: &str) -> u64 {
    hash_bytes(name.as_bytes()).rotate_left(1) ^ hash_bytes(value.as_bytes())
}

fn membership_hash(pair: u64, series_ref: u32) -> u64 {
    // An odd factor and a shift spread the bits, so that sums of wrong sets do not agree by chance.
    let mixed = (pair ^ u64::from(series_ref)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl BlockVerification {
    /// A verification that has read nothing yet.
    #[must_use]
    pub fn new(block: &Block) -> BlockVerification {
        BlockVerification {
            contents: block.contents().clone(),
            budget: MemoryBudget::new("verification", u64::MAX),
            phase: Phase::Postings(0),
            damages: Vec::new(),
            last: None,
            scratch: Columns::default(),
            left_bytes: 0,
            counts: Counts::default(),
            sum_of_postings: 0,
            sum_of_series: 0,
        }
    }

    /// Goes on until about `bytes_max` bytes are read: the postings of one label name, or one series, more at
    /// most. Returns true once everything is verified.
    pub fn step(&mut self, bytes_max: u64) -> bool {
        self.left_bytes = bytes_max;
        while self.left_bytes > 0 {
            self.phase = match std::mem::replace(&mut self.phase, Phase::Done) {
                Phase::Postings(name_idx) => self.postings(name_idx),
                Phase::Series(series) => self.series(series),
                Phase::Done => return true,
            };
        }
        matches!(self.phase, Phase::Done)
    }

    /// Damages found up to here, at most 1000.
    #[must_use]
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    fn count_bytes(&mut self, bytes: usize) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes as u64);
    }

    fn report(&mut self, path: PathBuf, offset: u64, what: String) {
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(Damage { path, offset, what });
        }
    }

    fn index_damage(&mut self, error: &DecodeError) {
        let path = self.contents.files().path(BlockFile::Index);
        self.report(path, error.offset() as u64, error.to_string());
    }

    /// Records a part that cannot be read; errors of the disk count as damage.
    fn read_damage(&mut self, error: &QueryError) {
        self.report(self.contents.files().path(BlockFile::Index), 0, error.to_string());
    }

    fn postings(&mut self, name_idx: usize) -> Phase {
        let contents = self.contents.clone();
        let Some(name) = contents.header().label_names().nth(name_idx) else { return self.all_series() };
        let (mut errors, mut bytes) = (Vec::new(), name.len());
        let visited = for_each_list(&contents, name, &self.budget, &mut |value, list| {
            match list {
                Ok(list) => {
                    bytes += value.len() + size_of::<u32>() * list.len();
                    let pair = pair_hash(name, value);
                    let sum = list.iter().fold(0u64, |sum, r| sum.wrapping_add(membership_hash(pair, r)));
                    self.sum_of_postings = self.sum_of_postings.wrapping_add(sum);
                }
                Err(error) => errors.push(error),
            }
            Ok(errors.len() < DAMAGES_MAX)
        });
        errors.iter().for_each(|error| self.index_damage(error));
        if let Err(error) = visited {
            self.read_damage(&error);
        }
        self.count_bytes(bytes);
        Phase::Postings(name_idx + 1)
    }

    /// Begins to read the series.
    fn all_series(&mut self) -> Phase {
        let contents = self.contents.clone();
        let mut refs = Ok(Vec::new());
        let visited = for_each_list(&contents, "", &self.budget, &mut |_, list| {
            refs = list.map(|list| list.iter().collect());
            Ok(false)
        });
        if let Err(error) = visited {
            self.read_damage(&error);
            return Phase::Done;
        }
        match refs {
            Ok(refs) => Phase::Series(Box::new(SeriesReader::new(refs))),
            Err(error) => {
                self.index_damage(&error);
                Phase::Done
            }
        }
    }

    fn series(&mut self, mut series: Box<SeriesReader>) -> Phase {
        let contents = self.contents.clone();
        while self.left_bytes > 0 {
            match series.next_ref(&contents, &self.budget) {
                Ok(Some(series_ref)) => self.one_series(&mut series, series_ref),
                Ok(None) => {
                    self.compare_postings();
                    if self.damages.is_empty() {
                        self.meta();
                    }
                    return Phase::Done;
                }
                Err(error) => {
                    self.read_damage(&error);
                    return Phase::Done;
                }
            }
        }
        Phase::Series(series)
    }

    fn one_series(&mut self, series: &mut SeriesReader, series_ref: u32) {
        let contents = self.contents.clone();
        self.count_bytes(SERIES_BYTES);
        match series.decode(&contents, series_ref) {
            Ok(entry) => self.series_entry(series_ref, entry),
            Err(error) => self.index_damage(&error),
        }
    }

    fn series_entry(&mut self, series_ref: u32, entry: &mut SeriesEntry) {
        let labels = entry.labels();
        if self.last.as_ref().is_some_and(|last| *last >= labels) {
            let offset = self.contents.header().series_offset(series_ref);
            let what = format!("series {labels} is out of order");
            self.report(self.contents.files().path(BlockFile::Index), offset, what);
        }
        for (name, value) in labels.iter() {
            let hash = membership_hash(pair_hash(name, value), series_ref);
            self.sum_of_series = self.sum_of_series.wrapping_add(hash);
        }
        self.last = Some(labels);
        self.counts.series += 1;
        let wave = [entry.chunks.as_slice()];
        match self.contents.read(&self.contents.chunk_wave(&wave), &self.budget) {
            Ok(bytes) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                entry.chunks.iter().for_each(|chunk| self.chunk(&bytes, chunk, &mut scratch));
                self.scratch = scratch;
            }
            Err(error) => self.read_damage(&error),
        }
    }

    /// Compares postings with labels. A series that is missing in the postings of one of its labels would be
    /// invisible to matchers, one too many would be found by the wrong ones. Comparing sums finds that in one
    /// pass, but not which it is.
    fn compare_postings(&mut self) {
        if self.damages.is_empty() && self.sum_of_postings != self.sum_of_series {
            let offset = self.contents.header().toc().postings;
            let what = "postings do not match the labels of the series".to_owned();
            self.report(self.contents.files().path(BlockFile::Index), offset, what);
        }
    }

    fn chunk(&mut self, bytes: &RangeBytes, chunk: &ChunkMeta, scratch: &mut Columns) {
        self.counts.chunks += 1;
        let offset = u64::from(chunk.chunk_ref.offset());
        let path = bytes.files().path(BlockFile::Segment(chunk.chunk_ref.segment_idx()));
        scratch.clear();
        match chunk::decode(bytes, chunk, TimeRange::ALL, scratch) {
            Ok(()) => {}
            Err(ChunkError::Segment(error)) => {
                return self.report(path, error.offset() as u64, error.to_string());
            }
            Err(ChunkError::Content(what)) => return self.report(path, offset, what),
        }
        let histogram_count = scratch.histograms.len() as u64;
        // A float sample takes about a byte.
        self.count_bytes(scratch.len() + HISTOGRAM_BYTES * histogram_count as usize);
        self.counts.histogram_samples += histogram_count;
        self.counts.float_samples += scratch.len() as u64 - histogram_count;
        let ends = (scratch.times.first().copied(), scratch.times.last().copied());
        if ends != (Some(chunk.min_time), Some(chunk.max_time)) {
            let (min_time, max_time) = (chunk.min_time, chunk.max_time);
            let what =
                format!("chunk times: expected {min_time} to {max_time} as in the index, found {ends:?}");
            return self.report(path, offset, what);
        }
        let range = self.contents.range();
        if !range.contains(chunk.min_time) || !range.contains(chunk.max_time) {
            let what = "chunk is outside the time range of meta.json".to_owned();
            self.report(path, offset, what);
        }
    }

    fn meta(&mut self) {
        let stats = &self.contents.meta().stats;
        let floats = stats.num_samples.saturating_sub(stats.num_histogram_samples);
        let histograms_unknown = stats.num_float_samples == 0 && stats.num_histogram_samples == 0;
        let counts = &self.counts;
        let wrong = [
            ("numSeries", stats.num_series, counts.series),
            ("numChunks", stats.num_chunks, counts.chunks),
            ("numSamples", floats, counts.float_samples),
            ("numHistogramSamples", stats.num_histogram_samples, counts.histogram_samples),
        ]
        .into_iter()
        .filter(|(_, expected, found)| expected != found)
        .filter(|(what, _, _)| *what != "numHistogramSamples" || !histograms_unknown)
        // Prometheus 2 counts histogram samples without telling them apart.
        .filter(|(what, expected, found)| !(*what == "numSamples" && histograms_unknown && found < expected))
        .map(|(what, expected, found)| format!("{what}: expected {expected}, found {found}"))
        .collect::<Vec<_>>();
        for what in wrong {
            self.report(self.contents.dir().join(META_FILE), 0, what);
        }
    }
}
