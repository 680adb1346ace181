//! Open chunks of all series: in-order floats that wait until their chunk is full.
//!
//! Invariants: the samples of an open chunk ascend and lie in one range; runs of start timestamps ascend with
//! them.
//! Memory: 112 bytes per series, packed samples, and 16 bytes per change of a start timestamp.
//! Not here: packing (`open_chunk`), choice of the samples (`sample::decide`).

use chronolith_base::hash::HashMap;
use chronolith_format::chunk::starts::{self, StartRun};
use chronolith_model::Columns;

use super::open_chunk::OpenChunk;
use super::sample::NewestFloat;
use super::slab::Slab;

/// The chunks, by series.
pub(super) struct OpenChunks {
    chunks: Vec<OpenChunk>,
    slab: Slab,
    /// Samples of a full chunk.
    sample_count_max: u16,
    /// Start timestamps of open samples as a step function, for the few series that have any.
    start_runs: HashMap<u32, Vec<StartRun>>,
    /// Reused for packed bytes.
    scratch: Vec<u8>,
}

impl OpenChunks {
    pub(super) fn new(sample_count_max: u16) -> OpenChunks {
        OpenChunks {
            chunks: Vec::new(),
            slab: Slab::new(),
            sample_count_max,
            start_runs: HashMap::default(),
            scratch: Vec::new(),
        }
    }

    /// Adds an empty chunk for `series` if it is the first unknown one.
    pub(super) fn add_series(&mut self, series: u32) {
        if series as usize == self.chunks.len() {
            self.chunks.push(OpenChunk::EMPTY);
        }
    }

    /// Returns true if start timestamps of any series are known: samples need [`OpenChunks::append`] then.
    pub(super) fn has_start_timestamps(&self) -> bool {
        !self.start_runs.is_empty()
    }

    /// Appends a sample that continues the group of its series. Returns false, without effect, for any other
    /// sample and for unknown series.
    #[inline]
    pub(super) fn join_group(&mut self, series: u32, time: i64, bits: u64) -> bool {
        match self.chunks.get_mut(series as usize) {
            Some(chunk) if chunk.joins(time, self.sample_count_max) => {
                chunk.join(time, bits);
                true
            }
            _ => false,
        }
    }

    /// Appends a sample that continues the open chunk of its series. Returns false, without effect, for any
    /// other sample and for unknown series. Only for series without start timestamps.
    #[inline]
    pub(super) fn continue_chunk(&mut self, series: u32, time: i64, bits: u64) -> bool {
        match self.chunks.get_mut(series as usize) {
            Some(chunk) if chunk.continues(time, self.sample_count_max) => {
                chunk.push(&mut self.slab, time, bits);
                true
            }
            _ => false,
        }
    }

    pub(super) fn newest(&self, series: u32) -> NewestFloat {
        let chunk = &self.chunks[series as usize];
        NewestFloat { time: chunk.last_time(), bits: chunk.last_bits() }
    }

    /// Returns true if a sample of `time`, newer than all of `series`, continues its open chunk.
    pub(super) fn is_continued(&self, series: u32, time: i64) -> bool {
        self.chunks[series as usize].continues(time, self.sample_count_max)
    }

    /// Begins the next chunk of `series`, which has no open samples, with the end of its range.
    pub(super) fn begin(&mut self, series: u32, range_end: i64) {
        self.chunks[series as usize].begin(range_end);
    }

    /// Appends a sample newer than all of `series`.
    pub(super) fn append(&mut self, series: u32, time: i64, bits: u64, start_ms: i64) {
        self.chunks[series as usize].push(&mut self.slab, time, bits);
        // Without runs the start timestamp of a series is unknown anyway.
        let is_known = start_ms != 0 || self.start_runs.contains_key(&series);
        if is_known {
            let runs = self.start_runs.entry(series).or_default();
            if runs.last().map_or(0, |run| run.start_ms) != start_ms {
                runs.push(StartRun { time, start_ms });
            }
        }
    }

    /// Replaces `columns` by the open samples of `series`, which has none afterwards. Returns true if there
    /// are any.
    pub(super) fn take(&mut self, series: u32, columns: &mut Columns) -> bool {
        let chunk = &mut self.chunks[series as usize];
        if chunk.sample_count() == 0 {
            return false;
        }
        chunk.drain(&mut self.slab, &mut self.scratch, columns);
        if let Some(runs) = self.start_runs.get_mut(&series) {
            starts::fill(runs, 0, columns);
            // The last run continues in the next chunk.
            runs.drain(..runs.len().saturating_sub(1));
        }
        true
    }

    pub(super) fn sample_count(&self, series: u32) -> u16 {
        self.chunks[series as usize].sample_count()
    }

    /// Returns true if `series` ever had an in-order float.
    pub(super) fn has_samples(&self, series: u32) -> bool {
        self.chunks[series as usize].last_time() != i64::MIN
    }

    /// Frees the memory of samples. Only [`OpenChunks::has_samples`] may be called afterwards.
    pub(super) fn free_samples(&mut self) {
        self.slab = Slab::new();
    }
}
