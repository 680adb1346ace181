//! Comparing and joining sets of buckets: buckets that only a new histogram or only the chunk has.
//!
//! Invariant: indices are 64 bits wide, so that no spans overflow them.

use chronolith_model::histogram::{Count, Span};

/// Difference between the buckets of a histogram and the chunk's, on one side of zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SideFit {
    /// The histogram has buckets that the chunk has not.
    pub(super) adds: bool,
    /// The chunk has buckets that the histogram has not.
    pub(super) lacks: bool,
}

/// Indices of the buckets that `spans` cover, ascending.
pub(super) fn indices(spans: &[Span]) -> impl Iterator<Item = i64> + '_ {
    let mut next = 0i64;
    spans.iter().flat_map(move |span| {
        let start = next + i64::from(span.offset);
        next = start + i64::from(span.length);
        start..next
    })
}

/// Compares buckets; `None` if a count of the chunk (`old`) is larger than the histogram's (`new`), which
/// counts 0 where it has no bucket.
pub(super) fn compare_counts<C: Count>(
    old_spans: &[Span],
    old: impl Iterator<Item = C>,
    new_spans: &[Span],
    new: &[C],
) -> Option<SideFit> {
    let mut fit = SideFit::default();
    let mut old = indices(old_spans).zip(old).peekable();
    let mut new = indices(new_spans).zip(new.iter().copied()).peekable();
    loop {
        match (old.peek().copied(), new.peek().copied()) {
            (None, None) => return Some(fit),
            (Some((a, was)), Some((b, is))) if a == b => {
                if was > is {
                    return None;
                }
                old.next();
                new.next();
            }
            (Some((a, was)), b) if b.is_none_or(|(b, _)| a < b) => {
                if was != C::default() {
                    return None;
                }
                fit.lacks = true;
                old.next();
            }
            _ => {
                fit.adds = true;
                new.next();
            }
        }
    }
}

/// As [`compare_counts`] for gauges, whose counts may be anything.
pub(super) fn compare_spans(old_spans: &[Span], new_spans: &[Span]) -> SideFit {
    let mut fit = SideFit::default();
    let (mut old, mut new) = (indices(old_spans).peekable(), indices(new_spans).peekable());
    loop {
        match (old.peek().copied(), new.peek().copied()) {
            (None, None) => return fit,
            (Some(a), Some(b)) if a == b => {
                old.next();
                new.next();
            }
            (Some(a), b) if b.is_none_or(|b| a < b) => {
                fit.lacks = true;
                old.next();
            }
            _ => {
                fit.adds = true;
                new.next();
            }
        }
    }
}

/// The fewest spans that cover the buckets of both; `None` if a gap between them does not fit an offset.
pub(super) fn union(a: &[Span], b: &[Span]) -> Option<Vec<Span>> {
    let (mut a, mut b) = (indices(a).peekable(), indices(b).peekable());
    let mut out: Vec<Span> = Vec::new();
    let mut next = 0i64;
    while let Some(idx) = match (a.peek().copied(), b.peek().copied()) {
        (Some(x), Some(y)) => Some(x.min(y)),
        (x, y) => x.or(y),
    } {
        if a.peek() == Some(&idx) {
            a.next();
        }
        if b.peek() == Some(&idx) {
            b.next();
        }
        match out.last_mut() {
            Some(span) if idx == next => span.length += 1,
            _ => out.push(Span { offset: i32::try_from(idx - next).ok()?, length: 1 }),
        }
        next = idx + 1;
    }
    Some(out)
}

/// The counts of buckets at `from`, in the buckets of `to`, which are those and more.
pub(super) fn spread<C: Count>(counts: &[C], from: &[Span], to: &[Span]) -> Vec<C> {
    let mut counts = indices(from).zip(counts.iter().copied()).peekable();
    let place = |idx| counts.next_if(|(at, _)| *at == idx).map_or_else(C::default, |(_, count)| count);
    indices(to).map(place).collect()
}
