//! Points into the columns of a batch: limits of a path, the prefix of a listener, rewrite rules.
//!
//! Invariants: a point is in the batch as a series of one sample, or counted as refused; a path that neither
//! prefix nor rule changes is not copied one by one, but is a range of the input within the batch.
//! Not here: the forms of the input (`line`, `pickle`, `metrics20`), labels (`key`).

use std::ops::Range;

use chronolith_model::{BatchSeries, WriteBatch};

use super::key::canonical_path;
use super::limits::{BATCH_BYTES_MAX, INPUT_BYTES_MAX, LINE_BYTES_MAX, NODE_BYTES_MAX, PREFIX_BYTES_MAX};
use super::refused::{Refused, RefusedReason};
use super::rewrite::{Rewriter, Rewritten};

/// Receiver of points: a batch and the counters of those that are not stored.
pub struct PointWriter<'a> {
    batch: &'a mut WriteBatch,
    refused: &'a mut Refused,
    now_ms: i64,
    prefix: &'a str,
    rewriter: Option<&'a mut Rewriter>,
    /// Prefix and path of the point at hand.
    scratch: Vec<u8>,
}

impl<'a> PointWriter<'a> {
    /// A writer that appends to `batch` and `refused`. `now_ms` is the clock: the time of points without one.
    pub fn new(batch: &'a mut WriteBatch, refused: &'a mut Refused, now_ms: i64) -> PointWriter<'a> {
        PointWriter { batch, refused, now_ms, prefix: "", rewriter: None, scratch: Vec::new() }
    }

    /// Puts `prefix` in front of every path, as it is: one that ends a node ends with a dot.
    ///
    /// # Panics
    /// If the prefix is longer than [`PREFIX_BYTES_MAX`].
    #[must_use]
    pub fn with_prefix(mut self, prefix: &'a str) -> PointWriter<'a> {
        assert!(prefix.len() <= PREFIX_BYTES_MAX, "the settings limit the prefix");
        self.prefix = prefix;
        self
    }

    /// Applies rewrite rules to every path, after the prefix.
    #[must_use]
    pub fn with_rewriter(mut self, rewriter: &'a mut Rewriter) -> PointWriter<'a> {
        self.rewriter = Some(rewriter);
        self
    }

    /// Time of points without one, in milliseconds.
    pub(super) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Copies an input to the wire keys, whose paths are pushed by [`PointWriter::push_kept`] as ranges of
    /// it. Returns its offset there.
    ///
    /// # Panics
    /// If the batch or the input is larger than its limit.
    pub(super) fn begin(&mut self, input: &[u8]) -> usize {
        assert!(input.len() <= INPUT_BYTES_MAX, "the caller limits the size of inputs");
        assert!(self.batch.raw.len() <= BATCH_BYTES_MAX, "the caller limits the size of batches");
        let base = self.batch.raw.len();
        if self.keeps_paths() {
            self.batch.raw.extend_from_slice(input);
        }
        base
    }

    /// Returns true if wire keys are the paths as sent.
    pub(super) fn keeps_paths(&self) -> bool {
        self.prefix.is_empty() && self.rewriter.is_none()
    }

    /// Pushes a point whose path is a range of the wire keys.
    // PERF: inlined into the walk over the lines.
    //   cargo bench -p chronolith-ingest --bench carbon_speed
    #[inline]
    pub(super) fn push_kept(&mut self, path: Range<usize>, value: f64, time_ms: i64) {
        let at = index(self.batch.times.len());
        let raw = index(path.start)..index(path.end);
        self.batch.series.push(BatchSeries { raw, samples: at..at + 1 });
        self.batch.times.push(time_ms);
        self.batch.values.push(value);
    }

    /// Pushes a point whose path was checked, in canonical form if it has tags: they may be in any order.
    pub(super) fn push_checked(&mut self, path: &[u8], value: f64, time_ms: i64) {
        match std::str::from_utf8(path) {
            Ok(text) if may_have_tags(path) => {
                self.push_path(canonical_path(text).as_bytes(), value, time_ms);
            }
            _ => self.push_path(path, value, time_ms),
        }
    }

    /// Pushes a point whose path is not in the wire keys, with prefix and rewrite rules.
    pub(super) fn push_path(&mut self, path: &[u8], value: f64, time_ms: i64) {
        if self.keeps_paths() {
            self.push_copy(path, value, time_ms);
            return;
        }
        let mut whole = std::mem::take(&mut self.scratch);
        whole.clear();
        whole.extend_from_slice(self.prefix.as_bytes());
        whole.extend_from_slice(path);
        let start = self.batch.raw.len();
        match self.rewriter.as_mut().map_or(Rewritten::Same, |rewriter| rewriter.rewrite(&whole)) {
            Rewritten::Same => self.push_copy(&whole, value, time_ms),
            Rewritten::Path(path) => {
                self.batch.raw.extend_from_slice(path);
                self.push_kept(start..self.batch.raw.len(), value, time_ms);
            }
            Rewritten::Refused(reason) => self.refuse(reason, &whole),
        }
        self.scratch = whole;
    }

    fn push_copy(&mut self, path: &[u8], value: f64, time_ms: i64) {
        let start = self.batch.raw.len();
        self.batch.raw.extend_from_slice(path);
        self.push_kept(start..start + path.len(), value, time_ms);
    }

    /// Counts a point that is not stored, with the text that it came as.
    #[cold]
    pub(super) fn refuse(&mut self, reason: RefusedReason, text: &[u8]) {
        self.refused.note(reason, text, self.now_ms);
    }
}

/// Returns true if the path may have tags, in one of both forms.
pub(super) fn may_have_tags(path: &[u8]) -> bool {
    path.contains(&b';') || path.ends_with(b"\"}")
}

/// Checks the limits of a path, and that it has no control characters.
pub(super) fn check_path(path: &[u8]) -> Result<(), RefusedReason> {
    if path.iter().all(|byte| *byte == b'.') {
        return Err(RefusedReason::EmptyPath);
    }
    if path.len() > LINE_BYTES_MAX {
        return Err(RefusedReason::LineTooLong);
    }
    if path.iter().any(u8::is_ascii_control) {
        return Err(RefusedReason::ControlByte);
    }
    if std::str::from_utf8(path).is_err() {
        return Err(RefusedReason::InvalidUtf8);
    }
    if path.len() <= NODE_BYTES_MAX {
        return Ok(());
    }
    let name_end = path.iter().position(|byte| *byte == b';').unwrap_or(path.len());
    let mut nodes = path.get(..name_end).unwrap_or(path).split(|byte| *byte == b'.');
    if nodes.any(|node| node.len() > NODE_BYTES_MAX) {
        return Err(RefusedReason::NodeTooLong);
    }
    Ok(())
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a batch fit u32")
}
