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
    /// Prefix and path of the current point.
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

    /// Pushes a point, in canonical form if it has tags: they may be in any order.
    pub(super) fn push_checked(&mut self, path: &CheckedPath<'_>, value: f64, time_ms: i64) {
        match std::str::from_utf8(path.bytes) {
            Ok(text) if path.may_have_tags => {
                self.push_path(canonical_path(text).as_bytes(), value, time_ms);
            }
            _ => self.push_path(path.bytes, value, time_ms),
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

    /// Counts a point that is not stored, with the text that it came as or a text about it.
    #[cold]
    pub fn refuse(&mut self, reason: RefusedReason, text: &[u8]) {
        self.refused.note(reason, text, self.now_ms);
    }
}

/// A path within the limits.
pub(super) struct CheckedPath<'a> {
    pub(super) bytes: &'a [u8],
    /// Set if the path may have tags, in one of both forms.
    pub(super) may_have_tags: bool,
}

/// Kinds of bytes that a path has.
#[derive(Default)]
struct PathBytes {
    /// Masks of special bytes; 0 if the path has no byte of the kind.
    control: u64,
    semicolon: u64,
    wide: u64,
}

/// Lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// Highest bit of each byte.
const HIGHS: u64 = 0x8080_8080_8080_8080;

impl PathBytes {
    // PERF: eight bytes at a time, the last eight again for the rest: 155 -> 128 ns and 1756 -> 1462
    // instructions per pickled point. A loop over bytes becomes vectors only for the first 16 of 26.
    //   cargo bench -p chronolith-ingest --bench carbon_speed -- pickle
    fn of(bytes: &[u8]) -> PathBytes {
        let mut found = PathBytes::default();
        for eight in bytes.as_chunks::<8>().0 {
            found.add(u64::from_le_bytes(*eight));
        }
        let last = bytes.last_chunk::<8>().copied().unwrap_or_else(|| {
            let mut padded = [b'a'; 8];
            padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            padded
        });
        found.add(u64::from_le_bytes(last));
        found
    }

    fn add(&mut self, word: u64) {
        // A subtraction borrows from the highest bit of a byte only if the byte is below the subtrahend, or
        // if one before it is.
        let has_below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word & HIGHS;
        self.control |= has_below(word, 0x20) | has_below(word ^ (ONES * 0x7f), 1);
        self.semicolon |= has_below(word ^ (ONES * u64::from(b';')), 1);
        self.wide |= word & HIGHS;
    }
}

/// Checks the limits of a path, and that it has no control characters.
pub(super) fn check_path(bytes: &[u8]) -> Result<CheckedPath<'_>, RefusedReason> {
    if bytes.iter().all(|byte| *byte == b'.') {
        return Err(RefusedReason::EmptyPath);
    }
    if bytes.len() > LINE_BYTES_MAX {
        return Err(RefusedReason::LineTooLong);
    }
    let found = PathBytes::of(bytes);
    if found.control != 0 {
        return Err(RefusedReason::ControlByte);
    }
    if found.wide != 0 && std::str::from_utf8(bytes).is_err() {
        return Err(RefusedReason::InvalidUtf8);
    }
    if bytes.len() > NODE_BYTES_MAX && has_long_node(bytes) {
        return Err(RefusedReason::NodeTooLong);
    }
    Ok(CheckedPath { bytes, may_have_tags: found.semicolon != 0 || bytes.ends_with(b"\"}") })
}

/// Returns true if a node of the name is too long.
fn has_long_node(path: &[u8]) -> bool {
    let name_end = path.iter().position(|byte| *byte == b';').unwrap_or(path.len());
    let mut nodes = path.get(..name_end).unwrap_or(path).split(|byte| *byte == b'.');
    nodes.any(|node| node.len() > NODE_BYTES_MAX)
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a batch fit u32")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte at each offset of paths of each length, also with a byte of another kind before it.
    #[test]
    fn kinds_of_bytes_are_found_at_any_place() {
        for len in 1..20 {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut path = vec![b'a'; len];
                    path[at / 2] = b';';
                    path[at] = byte;
                    let found = PathBytes::of(&path);
                    assert_eq!(found.control != 0, byte.is_ascii_control(), "{byte} at {at} of {len}");
                    assert_eq!(found.semicolon != 0, path.contains(&b';'), "{byte} at {at} of {len}");
                    assert_eq!(found.wide != 0, byte >= 0x80, "{byte} at {at} of {len}");
                }
            }
        }
    }
}
