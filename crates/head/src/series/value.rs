//! Values of every kind: borrowed ones of new samples, and owned ones of stored samples.
//!
//! Not here: choice between two values (`decide`), open chunks of a kind (`stripe::kind`).

use std::sync::Arc;

use chronolith_format::head::wal;
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, Histogram};

use crate::series::decide::Stored;

/// Bits of the last value of a series whose newest sample is a histogram. A word may have them too.
pub(crate) const HISTOGRAM_BITS: u64 = 0x7ff4_c8d0_4815_7061;

/// New sample of a series.
#[derive(Clone, Copy)]
pub(crate) struct Sample<'a> {
    pub(crate) time: i64,
    pub(crate) value: Value<'a>,
    /// Start timestamp in milliseconds; 0 = unknown.
    pub(crate) start_ms: i64,
}

/// Value of any kind.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    /// Bits of a 64-bit word; words of floats are compared by them.
    Word(u64),
    Histogram(&'a Arc<Histogram>),
}

impl Value<'_> {
    fn is_stale(self) -> bool {
        match self {
            Value::Word(bits) => is_stale(f64::from_bits(bits)),
            Value::Histogram(histogram) => is_stale(histogram.sum()),
        }
    }

    /// Returns the bits that the record of a series has if this is its newest value.
    pub(crate) fn newest_bits(self) -> u64 {
        match self {
            Value::Word(bits) => bits,
            Value::Histogram(_) => HISTOGRAM_BITS,
        }
    }

    pub(crate) fn to_owned(self) -> SampleValue {
        match self {
            Value::Word(bits) => SampleValue::Word(bits),
            Value::Histogram(histogram) => SampleValue::Histogram(histogram.clone()),
        }
    }

    /// Compares the stored value with the one of a new sample.
    pub(crate) fn compare(stored: Option<Value<'_>>, new: Value<'_>) -> Stored {
        let is_same = match (stored, new) {
            (None, _) => return Stored::Nothing,
            (Some(Value::Word(stored)), Value::Word(new)) => stored == new,
            // Histogram chunks add or drop buckets without observations; the comparison ignores those.
            (Some(Value::Histogram(stored)), Value::Histogram(new)) if !is_stale(stored.sum()) => {
                stored.is_equivalent(new)
            }
            // A staleness marker ends a series, whatever the kind in which it was written.
            (Some(stored), new) => stored.is_stale() && new.is_stale(),
        };
        if is_same { Stored::Same } else { Stored::Different }
    }

    /// Appends a sample of series `id` to the samples of a WAL frame.
    pub(crate) fn put_logged(self, id: u32, time: i64, start_ms: i64, out: &mut wal::Samples) {
        match self {
            Value::Word(bits) => out.push(id, time, bits),
            Value::Histogram(histogram) => out.push_histogram(id, time, histogram.clone()),
        }
        if start_ms != 0 {
            out.set_last_start(start_ms);
        }
    }
}

/// Value of a sample that owns its histogram.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SampleValue {
    /// Bits of a 64-bit word.
    Word(u64),
    Histogram(Arc<Histogram>),
}

impl SampleValue {
    /// Returns the value of sample `idx` of `columns`.
    pub(crate) fn at(columns: &Columns, idx: usize) -> SampleValue {
        match columns.histogram_at(idx) {
            Some(histogram) => SampleValue::Histogram(histogram.clone()),
            None => SampleValue::Word(columns.values[idx].to_bits()),
        }
    }

    pub(crate) fn as_value(&self) -> Value<'_> {
        match self {
            SampleValue::Word(bits) => Value::Word(*bits),
            SampleValue::Histogram(histogram) => Value::Histogram(histogram),
        }
    }

    /// Appends the sample to `out`.
    pub(crate) fn push_to(&self, time: i64, start_ms: i64, out: &mut Columns) {
        match self {
            SampleValue::Word(bits) => out.push(time, f64::from_bits(*bits)),
            SampleValue::Histogram(histogram) => out.push_histogram(time, histogram.clone()),
        }
        if start_ms != 0 {
            out.set_start_time(start_ms);
        }
    }
}

/// Reads the values of a WAL frame in the order of its samples.
pub(crate) struct LoggedValues<'a> {
    words: &'a [u64],
    histograms: &'a [(u32, Arc<Histogram>)],
}

impl<'a> LoggedValues<'a> {
    pub(crate) fn new(samples: &'a wal::Samples) -> LoggedValues<'a> {
        LoggedValues { words: &samples.values, histograms: &samples.histograms }
    }

    /// Returns the value of sample `idx`; each call has a higher index. `None` if the frame has start
    /// timestamps only.
    pub(crate) fn get(&mut self, idx: usize) -> Option<Value<'a>> {
        let word = *self.words.get(idx)?;
        while let [(of, histogram), rest @ ..] = self.histograms
            && *of as usize <= idx
        {
            self.histograms = rest;
            if *of as usize == idx {
                return Some(Value::Histogram(histogram));
            }
        }
        Some(Value::Word(word))
    }
}

#[cfg(test)]
mod tests;
