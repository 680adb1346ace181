//! Sample of either kind, and the decision what becomes of it.
//!
//! Invariants: [`decide`] is the only place where a sample of the head is accepted, ignored or refused.
//! Not here: writing accepted samples (`collect`), duplicates among buffered samples (`ooo_buffer`).

use std::sync::Arc;

use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{Columns, Histogram};

use crate::read::log_reader::Log;
use crate::write::report::SkippedSamples;

/// Value of a sample.
#[derive(Debug, Clone)]
pub(super) enum SampleValue {
    /// Bits of a float.
    Float(u64),
    Histogram(Arc<Histogram>),
}

impl SampleValue {
    /// Returns true if both are floats with the same bits, or equal histograms of one kind.
    pub(super) fn is_same(&self, other: &SampleValue) -> bool {
        match (self, other) {
            (SampleValue::Float(a), SampleValue::Float(b)) => a == b,
            (SampleValue::Histogram(a), SampleValue::Histogram(b)) => a.is_equivalent(b),
            _ => false,
        }
    }
}

/// Sample of a known series.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) time: i64,
    /// Start timestamp; 0 if it is unknown.
    pub(super) start_ms: i64,
    pub(super) value: SampleValue,
}

impl Sample {
    /// Returns sample `idx` of `columns`.
    pub(super) fn of_columns(columns: &Columns, idx: usize) -> Sample {
        let value = match columns.histogram_at(idx) {
            Some(histogram) => SampleValue::Histogram(histogram.clone()),
            None => SampleValue::Float(columns.values[idx].to_bits()),
        };
        Sample { time: columns.times[idx], start_ms: columns.start_time_at(idx), value }
    }

    /// Appends the sample to `columns`.
    pub(super) fn push_to(&self, columns: &mut Columns) {
        match &self.value {
            SampleValue::Float(bits) => columns.push(self.time, f64::from_bits(*bits)),
            SampleValue::Histogram(histogram) => columns.push_histogram(self.time, histogram.clone()),
        }
        if self.start_ms != 0 {
            columns.set_start_time(self.start_ms);
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.value {
            SampleValue::Float(_) => 0,
            SampleValue::Histogram(histogram) => histogram.memory_bytes(),
        }
    }
}

/// Newest float of a series that was appended in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewestFloat {
    /// `i64::MIN` without one.
    pub(super) time: i64,
    pub(super) bits: u64,
}

/// Outcome of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Append to the open chunk.
    AppendInOrder,
    /// Add to the out-of-order buffer. Histograms always take this way: open chunks hold floats.
    Buffer,
    /// Ignore: a block of the source holds it.
    InBlock,
    /// Ignore: an m-mapped chunk holds it.
    Mapped,
    /// Ignore: the newest float has this timestamp and value.
    Duplicate,
    /// Refuse: the newest float has this timestamp and another value.
    Conflict,
    /// Refuse: the timestamp cannot be stored.
    OutOfBounds,
}

/// Decides what becomes of `sample`. `min_time` is the end of the newest in-order block of the source;
/// `is_mapped` says whether m-mapped chunks of the series hold the timestamp.
pub(super) fn decide(
    log: Log,
    sample: &Sample,
    newest: NewestFloat,
    min_time: i64,
    is_mapped: impl FnOnce() -> bool,
) -> Decision {
    let in_bounds = (TIME_MIN_MS..=TIME_MAX_MS).contains(&sample.time);
    // Samples of the WBL are in no in-order block and no in-order chunk.
    if log == Log::Wbl {
        return if in_bounds { Decision::Buffer } else { Decision::OutOfBounds };
    }
    let float = match sample.value {
        SampleValue::Float(bits) => Some(bits),
        SampleValue::Histogram(_) => None,
    };
    let is_newer_float = float.is_some() && sample.time > newest.time;
    if sample.time < min_time {
        Decision::InBlock
    } else if !is_newer_float && is_mapped() {
        Decision::Mapped
    } else if !in_bounds {
        Decision::OutOfBounds
    } else if is_newer_float {
        Decision::AppendInOrder
    } else if let Some(bits) = float.filter(|_| sample.time == newest.time) {
        if bits == newest.bits { Decision::Duplicate } else { Decision::Conflict }
    } else {
        Decision::Buffer
    }
}

impl SkippedSamples {
    /// Counts an outcome. Samples that are kept are counted when they are written.
    pub(super) fn count(&mut self, decision: Decision) {
        match decision {
            Decision::AppendInOrder | Decision::Buffer => {}
            Decision::InBlock => self.in_block += 1,
            Decision::Mapped => self.mapped += 1,
            Decision::Duplicate => self.repeated += 1,
            Decision::Conflict => self.conflicting += 1,
            Decision::OutOfBounds => self.out_of_bounds += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use chronolith_model::IntHistogram;

    use super::*;

    const FLOAT: SampleValue = SampleValue::Float(7);
    const OTHER_FLOAT: SampleValue = SampleValue::Float(8);

    fn histogram() -> SampleValue {
        SampleValue::Histogram(Arc::new(Histogram::Int(IntHistogram::default())))
    }

    /// Checks a decision for a series whose newest float is (100, 7), with m-mapped chunks up to 50 and
    /// blocks up
    #[track_caller]
    fn check(log: Log, time: i64, value: SampleValue, want: Decision) {
        let newest = NewestFloat { time: 100, bits: 7 };
        let got = decide(log, &Sample { time, start_ms: 0, value }, newest, 10, || time <= 50);
        assert_eq!(got, want, "{log:?} {time}");
    }

    #[test]
    fn wal_floats() {
        check(Log::Wal, 101, FLOAT, Decision::AppendInOrder);
        check(Log::Wal, 100, FLOAT, Decision::Duplicate);
        check(Log::Wal, 100, OTHER_FLOAT, Decision::Conflict);
        check(Log::Wal, 99, FLOAT, Decision::Buffer);
        check(Log::Wal, 50, FLOAT, Decision::Mapped);
        check(Log::Wal, 9, FLOAT, Decision::InBlock);
        check(Log::Wal, i64::MAX, FLOAT, Decision::OutOfBounds);
    }

    #[test]
    fn wal_histograms() {
        check(Log::Wal, 101, histogram(), Decision::Buffer);
        check(Log::Wal, 100, histogram(), Decision::Buffer);
        check(Log::Wal, 50, histogram(), Decision::Mapped);
        check(Log::Wal, 9, histogram(), Decision::InBlock);
        check(Log::Wal, i64::MAX, histogram(), Decision::OutOfBounds);
    }

    #[test]
    fn wbl_samples_of_either_kind_are_in_no_block_and_no_in_order_chunk() {
        for value in [FLOAT, histogram()] {
            check(Log::Wbl, 101, value.clone(), Decision::Buffer);
            check(Log::Wbl, 50, value.clone(), Decision::Buffer);
            check(Log::Wbl, 9, value.clone(), Decision::Buffer);
            check(Log::Wbl, i64::MIN, value, Decision::OutOfBounds);
        }
    }

    #[test]
    fn values_of_different_kinds_differ() {
        assert!(histogram().is_same(&histogram()) && FLOAT.is_same(&FLOAT));
        assert!(!FLOAT.is_same(&OTHER_FLOAT) && !FLOAT.is_same(&histogram()));
    }
}
