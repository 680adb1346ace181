//! Walks all of a block and names every damage, for `chronolith check` and the verification after a start.
//! Holds: damage to one item does not hide that of others, as far as the index leads to them.

use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::DecodeError;
use chronolith_base::hash::hash_bytes;
use chronolith_format::block::index::{ChunkMeta, SeriesEntry};
use chronolith_model::{Columns, Labels, TimeRange};

use crate::block::{BlockFiles, ChunkError};
use crate::{Block, INDEX_FILE, META_FILE};

/// Damages that are listed at most; more of them say nothing new.
const DAMAGES_MAX: usize = 1000;
/// Cost of a series in a step, its chunks aside.
const SERIES_BYTES: usize = 64;
/// Cost of a histogram in a step.
const HISTOGRAM_BYTES: usize = 64;

/// Something in a block that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// File.
    pub path: PathBuf,
    /// Where in the file.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

impl Block {
    /// Reads and checks everything: every postings list, every series, every chunk down to its samples, and the
    /// counts of `meta.json`. Returns at most 1000 damages, in order of finding. Cost: one pass over all bytes.
    #[must_use]
    pub fn verify(&self) -> Vec<Damage> {
        let mut verification = BlockVerification::new(self);
        while !verification.step(u64::MAX) {}
        verification.damages
    }
}

/// The next step of a verification.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Postings of the label name with this index.
    Postings(usize),
    /// Series from this index on.
    Series(usize),
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
    files: Arc<BlockFiles>,
    phase: Phase,
    damages: Vec<Damage>,
    /// Labels of the series before.
    last: Option<Labels>,
    entry: SeriesEntry,
    scratch: Columns,
    /// Bytes that the step may still read.
    left_bytes: u64,
    counts: Counts,
    /// Sum over all (label pair, series) of the postings lists.
    sum_of_postings: u64,
    /// The same over all labels of all series.
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
    /// Begins with nothing read.
    #[must_use]
    pub fn new(block: &Block) -> BlockVerification {
        BlockVerification {
            files: block.files.clone(),
            phase: Phase::Postings(0),
            damages: Vec::new(),
            last: None,
            entry: SeriesEntry::new(),
            scratch: Columns::default(),
            left_bytes: 0,
            counts: Counts::default(),
            sum_of_postings: 0,
            sum_of_series: 0,
        }
    }

    /// Goes on until about `bytes_max` bytes are read: the postings of one label name, or one series, more at most.
    /// Returns true once everything is verified.
    pub fn step(&mut self, bytes_max: u64) -> bool {
        self.left_bytes = bytes_max;
        while self.left_bytes > 0 {
            self.phase = match self.phase {
                Phase::Postings(name_idx) => self.postings(name_idx),
                Phase::Series(first) => self.series(first),
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
        self.report(self.files.dir.join(INDEX_FILE), error.offset() as u64, error.to_string());
    }

    fn postings(&mut self, name_idx: usize) -> Phase {
        let files = self.files.clone();
        let Some(name) = files.index.label_names().nth(name_idx) else { return Phase::Series(0) };
        let (mut errors, mut bytes) = (Vec::new(), name.len());
        let visited = files.index.for_each_value(name, "", &mut |value| {
            match files.index.postings(name, value) {
                Ok(list) => {
                    bytes += value.len() + size_of::<u32>() * list.len();
                    let pair = pair_hash(name, value);
                    let sum = list.iter().fold(0u64, |sum, r| sum.wrapping_add(membership_hash(pair, r)));
                    self.sum_of_postings = self.sum_of_postings.wrapping_add(sum);
                }
                Err(error) => errors.push(error),
            }
            errors.len() < DAMAGES_MAX
        });
        errors.iter().chain(visited.err().as_ref()).for_each(|error| self.index_damage(error));
        self.count_bytes(bytes);
        Phase::Postings(name_idx + 1)
    }

    fn series(&mut self, first: usize) -> Phase {
        let files = self.files.clone();
        let postings = match files.index.all_postings() {
            Ok(postings) => postings,
            Err(error) => {
                self.index_damage(&error);
                return Phase::Done;
            }
        };
        for (series_idx, series_ref) in postings.iter().enumerate().skip(first) {
            if self.left_bytes == 0 {
                return Phase::Series(series_idx);
            }
            self.one_series(series_ref);
        }
        self.compare_postings();
        if self.damages.is_empty() {
            self.meta();
        }
        Phase::Done
    }

    fn one_series(&mut self, series_ref: u32) {
        let mut entry = std::mem::take(&mut self.entry);
        self.count_bytes(SERIES_BYTES);
        match self.files.index.series(series_ref, &mut entry) {
            Ok(()) => self.series_entry(series_ref, &mut entry),
            Err(error) => self.index_damage(&error),
        }
        self.entry = entry;
    }

    fn series_entry(&mut self, series_ref: u32, entry: &mut SeriesEntry) {
        let labels = entry.labels();
        let offset = self.files.index.series_offset(series_ref);
        if self.last.as_ref().is_some_and(|last| *last >= labels) {
            let what = format!("series {labels} is out of order");
            self.report(self.files.dir.join(INDEX_FILE), offset, what);
        }
        for (name, value) in labels.iter() {
            let hash = membership_hash(pair_hash(name, value), series_ref);
            self.sum_of_series = self.sum_of_series.wrapping_add(hash);
        }
        self.last = Some(labels);
        self.counts.series += 1;
        let mut scratch = std::mem::take(&mut self.scratch);
        entry.chunks.iter().for_each(|chunk| self.chunk(chunk, &mut scratch));
        self.scratch = scratch;
    }

    /// A series that is missing in the postings of one of its labels would be invisible to matchers, one too many
    /// would be found by the wrong ones. Comparing sums finds that in one pass, but not which it is.
    fn compare_postings(&mut self) {
        if self.damages.is_empty() && self.sum_of_postings != self.sum_of_series {
            let offset = self.files.index.toc().postings;
            let what = "postings do not agree with the labels of the series".to_owned();
            self.report(self.files.dir.join(INDEX_FILE), offset, what);
        }
    }

    fn chunk(&mut self, chunk: &ChunkMeta, scratch: &mut Columns) {
        self.counts.chunks += 1;
        let files = self.files.clone();
        let offset = u64::from(chunk.chunk_ref.offset());
        let path = files.segment_path(chunk.chunk_ref);
        scratch.clear();
        match files.decode(chunk, TimeRange::ALL, scratch) {
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
        let range = files.range();
        if !range.contains(chunk.min_time) || !range.contains(chunk.max_time) {
            let what = "chunk lies outside the time of meta.json".to_owned();
            self.report(path, offset, what);
        }
    }

    fn meta(&mut self) {
        let stats = &self.files.meta.stats;
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
            self.report(self.files.dir.join(META_FILE), 0, what);
        }
    }
}
