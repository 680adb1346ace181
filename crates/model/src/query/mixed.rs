//! Columns with histograms: append, remove, merge, runs of one kind.
//!
//! Invariants: histograms keep the index of their sample; columns of floats have no extra cost. The reset
//! hint `NotReset` is kept only while the previous sample stays the same.

use std::ops::Range;
use std::sync::Arc;

use crate::Columns;
use crate::histogram::ResetHint;
use crate::{Histogram, TimeRange};

/// Returns the histogram for use after another previous sample: a hint that denies a reset becomes unknown.
fn without_reset_claim(histogram: &Arc<Histogram>) -> Arc<Histogram> {
    if histogram.reset_hint() != ResetHint::NotReset {
        return histogram.clone();
    }
    let mut histogram = Histogram::clone(histogram);
    histogram.set_reset_hint(ResetHint::Unknown);
    Arc::new(histogram)
}

impl Columns {
    /// Appends sample `idx` of `other`, whose previous sample was another one.
    ///
    /// # Panics
    /// If `other` has no such sample.
    pub fn push_after_gap(&mut self, other: &Columns, idx: usize) {
        self.push_from(other, idx);
        if other.histograms.is_empty() {
            return;
        }
        if let Some((at, last)) = self.histograms.last_mut()
            && *at as usize + 1 == self.times.len()
        {
            *last = without_reset_claim(last);
        }
    }

    /// Appends the samples of `other` at `indices`; the first one as [`Columns::push_after_gap`] does.
    ///
    /// # Panics
    /// If `other` has no such samples.
    pub fn extend_from(&mut self, other: &Columns, indices: Range<usize>) {
        if other.histograms.is_empty() && other.start_times.is_empty() {
            self.times.extend_from_slice(&other.times[indices.clone()]);
            self.values.extend_from_slice(&other.values[indices]);
            return;
        }
        for idx in indices.clone() {
            if idx == indices.start {
                self.push_after_gap(other, idx);
            } else {
                self.push_from(other, idx);
            }
        }
    }

    /// Returns the indices of the samples in `range`.
    #[must_use]
    pub fn indices_in(&self, range: TimeRange) -> Range<usize> {
        let start = self.times.partition_point(|&time| time < range.start);
        start..self.times.partition_point(|&time| time < range.end).max(start)
    }

    /// Removes the samples at `indices`; the hint of the sample after them is adjusted.
    ///
    /// # Panics
    /// If there are no such samples.
    pub fn remove(&mut self, indices: Range<usize>) {
        self.times.drain(indices.clone());
        self.values.drain(indices.clone());
        if !self.start_times.is_empty() {
            let end = indices.end.min(self.start_times.len());
            self.start_times.drain(indices.start.min(end)..end);
        }
        let removed = indices.len() as u32;
        self.histograms.retain_mut(|(idx, histogram)| {
            if indices.contains(&(*idx as usize)) {
                return false;
            }
            if *idx as usize >= indices.end {
                if *idx as usize == indices.end && removed > 0 {
                    *histogram = without_reset_claim(histogram);
                }
                *idx -= removed;
            }
            true
        });
    }

    /// Keeps the first `len` samples.
    pub fn truncate(&mut self, len: usize) {
        self.times.truncate(len);
        self.values.truncate(len);
        self.start_times.truncate(len);
        let kept = self.histograms.partition_point(|(idx, _)| (*idx as usize) < len);
        self.histograms.truncate(kept);
    }

    /// Returns the runs of samples of one kind, in order.
    pub fn runs(&self) -> impl Iterator<Item = (Range<usize>, SampleKind)> + '_ {
        let (mut at, mut next) = (0, 0);
        std::iter::from_fn(move || {
            if at == self.times.len() {
                return None;
            }
            let start = at;
            let first = self.histograms.get(next).map_or(self.times.len(), |(idx, _)| *idx as usize);
            if first > at {
                at = first;
                return Some((start..at, SampleKind::Float));
            }
            while self.histograms.get(next).is_some_and(|(idx, _)| *idx as usize == at) {
                (at, next) = (at + 1, next + 1);
            }
            Some((start..at, SampleKind::Histogram))
        })
    }

    /// Returns the histograms of a run, one per sample.
    pub fn histograms_at(&self, indices: Range<usize>) -> impl Iterator<Item = &Arc<Histogram>> {
        let start = self.histograms.partition_point(|(idx, _)| (*idx as usize) < indices.start);
        let end = self.histograms.partition_point(|(idx, _)| (*idx as usize) < indices.end);
        self.histograms[start..end].iter().map(|(_, histogram)| histogram)
    }
}

/// Kind of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SampleKind {
    /// A float.
    Float,
    /// A native histogram.
    Histogram,
}

/// K-way merge of columns that ascend: of equal timestamps, the sample of the first column stays.
#[must_use]
pub fn merged(ranked: &[Columns]) -> Columns {
    let mut next = vec![0usize; ranked.len()];
    let mut out = Columns::default();
    let mut last = None;
    loop {
        let first = |&at: &usize| ranked[at].times.get(next[at]).map(|&time| (time, at));
        let Some((time, at)) = (0..ranked.len()).filter_map(|at| first(&at)).min() else { return out };
        if last == Some(at) {
            out.push_from(&ranked[at], next[at]);
        } else {
            out.push_after_gap(&ranked[at], next[at]);
        }
        last = Some(at);
        for (next, columns) in next.iter_mut().zip(ranked) {
            *next += usize::from(columns.times.get(*next) == Some(&time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IntHistogram;

    fn histogram(sum: f64, hint: ResetHint) -> Arc<Histogram> {
        Arc::new(Histogram::Int(IntHistogram { sum, reset_hint: hint, ..IntHistogram::default() }))
    }

    /// Letters are histograms, digits floats; the time is the offset in the text.
    fn columns(text: &str) -> Columns {
        let mut out = Columns::default();
        for (time, sign) in text.chars().enumerate() {
            match sign {
                ' ' => {}
                '0'..='9' => out.push(time as i64, f64::from(sign as u32)),
                _ => out.push_histogram(time as i64, histogram(f64::from(sign as u32), ResetHint::NotReset)),
            }
        }
        out
    }

    fn text(columns: &Columns) -> String {
        let mut out = String::new();
        for (at, &time) in columns.times.iter().enumerate() {
            out.extend(std::iter::repeat_n(' ', time as usize - out.len()));
            let sign = char::from(columns.values[at] as u8);
            let is_histogram = columns.histogram_at(at).is_some();
            assert_eq!(is_histogram, !sign.is_ascii_digit());
            out.push(sign);
        }
        out
    }

    #[test]
    fn removed_samples_take_their_histograms_with_them() {
        let whole = columns("ab12c3d");
        for start in 0..7 {
            for end in start..=7 {
                let mut cut = whole.clone();
                cut.remove(start..end);
                let mut want = Columns::default();
                want.extend_from(&whole, 0..start);
                (end..7).for_each(|at| want.push_from(&whole, at));
                assert_eq!(text(&cut), text(&want));
            }
            let mut cut = whole.clone();
            cut.truncate(start);
            assert_eq!(text(&cut), &"ab12c3d"[..start]);
        }
    }

    /// A reset hint refers to the previous sample. If that was deleted, a counter reset at it would be
    /// denied.
    #[test]
    fn the_reset_hint_after_removed_samples_is_unknown() {
        use ResetHint::{NotReset, Unknown};
        let hints = |indices: Range<usize>| {
            let mut cut = columns("abcd");
            cut.remove(indices);
            cut.histograms.iter().map(|(_, one)| one.reset_hint()).collect::<Vec<_>>()
        };
        assert_eq!(hints(1..3), [NotReset, Unknown]);
        assert_eq!(hints(0..1), [Unknown, NotReset, NotReset]);
        assert_eq!(hints(3..4), [NotReset; 3]);
        assert_eq!(hints(2..2), [NotReset; 4]);
    }

    #[test]
    fn runs_are_of_one_kind() {
        let lens = |text: &str| {
            columns(text)
                .runs()
                .map(|(run, kind)| (run.len(), kind == SampleKind::Histogram))
                .collect::<Vec<_>>()
        };
        assert_eq!(lens("ab12c3d"), [(2, true), (2, false), (1, true), (1, false), (1, true)]);
        assert_eq!(lens("12"), [(2, false)]);
        assert_eq!(lens(""), []);
        let whole = columns("1ab2");
        assert_eq!(whole.histograms_at(1..3).count(), 2);
    }

    #[test]
    fn merging_keeps_the_first_column_and_hints_of_adjacent_samples() {
        let out = merged(&[columns("  x  1"), columns("ab cd "), columns("9  9 9z")]);
        assert_eq!(text(&out), "abxcd1z");
        let hints: Vec<ResetHint> = out.histograms.iter().map(|(_, one)| one.reset_hint()).collect();
        use ResetHint::{NotReset, Unknown};
        assert_eq!(hints, [Unknown, NotReset, Unknown, Unknown, NotReset, Unknown]);
    }
}
