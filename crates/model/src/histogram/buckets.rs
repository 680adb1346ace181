//! Sparse buckets of one sign: spans of consecutive indices, and a count per bucket.
//!
//! Invariants: an iteration ends where spans or counts end or where an index exceeds 32 bits, whichever is
//! first. Validation refuses an index beyond 32 bits; stored bytes may have one, which would name a bucket
//! near zero if it wrapped around.
//! Not here: bounds of buckets (`bounds`), validation (`validate`).

use super::fault::{self, HistogramError};

/// Consecutive buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Index of the first bucket relative to the end of the previous span; of the first span relative to 0.
    pub offset: i32,
    /// Bucket count.
    pub length: u32,
}

/// The populated buckets of one sign.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets<C> {
    /// Indices of the buckets.
    pub spans: Vec<Span>,
    /// Observations per bucket, absolute.
    pub counts: Vec<C>,
}

impl<C> Default for Buckets<C> {
    fn default() -> Buckets<C> {
        Buckets { spans: Vec::new(), counts: Vec::new() }
    }
}

/// Count of observations: integer or float.
pub trait Count: Copy + PartialEq + PartialOrd + Default + std::ops::AddAssign + sealed::Sealed {
    /// Returns true if both are equal, bit for bit.
    fn is_identical(self, other: Self) -> bool;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for f64 {}
}

impl Count for u64 {
    fn is_identical(self, other: u64) -> bool {
        self == other
    }
}

impl Count for f64 {
    fn is_identical(self, other: f64) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl<C: Copy> Buckets<C> {
    /// Iterates from the lowest index to the highest.
    #[must_use]
    pub fn walk(&self) -> BucketWalk<'_, C> {
        BucketWalk { spans: self.spans.iter(), counts: self.counts.iter(), idx: 0, left: 0 }
    }

    /// Appends a bucket after the last one, whose index is `last` (`None` without one).
    pub(super) fn push(&mut self, last: Option<i32>, idx: i32, count: C) {
        // Two indices may be further apart than an offset of 32 bits; an empty span takes the remainder.
        let mut offset = i64::from(idx) - last.map_or(0, |last| i64::from(last) + 1);
        while i32::try_from(offset).is_err() {
            let step = if offset > 0 { i32::MAX } else { i32::MIN };
            self.spans.push(Span { offset: step, length: 0 });
            offset -= i64::from(step);
        }
        match self.spans.last_mut() {
            Some(span) if offset == 0 && span.length > 0 => span.length += 1,
            _ => self.spans.push(Span { offset: offset as i32, length: 1 }),
        }
        self.counts.push(count);
    }
}

impl<C: Count> Buckets<C> {
    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.spans.len() * size_of::<Span>() + self.counts.len() * size_of::<C>()
    }

    /// Returns true if both have the same counts in the same buckets.
    pub(super) fn is_identical(&self, other: &Buckets<C>) -> bool {
        self.counts.len() == other.counts.len()
            && self.counts.iter().zip(&other.counts).all(|(&a, &b)| a.is_identical(b))
            && (self.spans == other.spans || normal_spans(&self.spans).eq(normal_spans(&other.spans)))
    }
}

/// Iterates offset and length of the spans that are not empty; offsets of empty ones are added to the next
/// offset.
fn normal_spans(spans: &[Span]) -> impl Iterator<Item = (i64, u32)> + '_ {
    let mut before = 0i64;
    spans.iter().filter_map(move |span| {
        let offset = i64::from(span.offset).saturating_add(before);
        before = if span.length == 0 { offset } else { 0 };
        (span.length > 0).then_some((offset, span.length))
    })
}

impl Buckets<u64> {
    /// Converts from deltas, as on the wire and in chunks: the first count, then the difference of each
    /// further one.
    ///
    /// # Errors
    /// If a count is negative (Prometheus's text, without the side) or exceeds 63 bits.
    pub fn from_deltas(
        spans: Vec<Span>,
        deltas: impl IntoIterator<Item = i64>,
    ) -> Result<Buckets<u64>, HistogramError> {
        let mut count = 0i64;
        let mut counts = Vec::new();
        for (at, delta) in deltas.into_iter().enumerate() {
            count = count.checked_add(delta).ok_or_else(|| fault::count_overflow(at + 1))?;
            counts.push(u64::try_from(count).map_err(|_| fault::negative_bucket(at + 1, &count))?);
        }
        Ok(Buckets { spans, counts })
    }

    /// Inverse of [`Buckets::from_deltas`]. Counts beyond 63 bits wrap around.
    pub fn deltas(&self) -> impl Iterator<Item = i64> + '_ {
        let mut before = 0u64;
        self.counts.iter().map(move |&count| count.wrapping_sub(std::mem::replace(&mut before, count)) as i64)
    }
}

impl<C: Count> Buckets<C> {
    pub(super) fn is_equivalent(&self, other: &Buckets<C>) -> bool {
        let observed = |&(_, count): &(i32, C)| count != C::default();
        let (mut left, mut right) = (self.walk().filter(observed), other.walk().filter(observed));
        loop {
            match (left.next(), right.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if a.0 == b.0 && a.1.is_identical(b.1) => {}
                _ => return false,
            }
        }
    }
}

/// Indices and counts of buckets, ascending by index.
#[derive(Debug, Clone)]
pub struct BucketWalk<'a, C> {
    spans: std::slice::Iter<'a, Span>,
    counts: std::slice::Iter<'a, C>,
    /// Index of the next bucket; spans may lead beyond 32 bits.
    idx: i64,
    /// Buckets left in the span.
    left: u32,
}

impl<C: Copy> Iterator for BucketWalk<'_, C> {
    type Item = (i32, C);

    fn next(&mut self) -> Option<(i32, C)> {
        while self.left == 0 {
            let span = self.spans.next()?;
            self.idx = self.idx.saturating_add(i64::from(span.offset));
            self.left = span.length;
        }
        let (idx, count) = (i32::try_from(self.idx).ok()?, *self.counts.next()?);
        self.idx += 1;
        self.left -= 1;
        Some((idx, count))
    }
}
