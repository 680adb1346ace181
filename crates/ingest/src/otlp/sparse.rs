//! Dense counts of OTLP to sparse buckets.
//!
//! Invariant: counts are added, never lost; a sum beyond 64 bits and an index beyond 32 bits are errors.
//! Not here: meaning of indices (`explicit`, `exponential`).

use chronolith_model::histogram::{Buckets, Span};

/// Empty buckets that cost less than a further span.
const GAP_MAX: i64 = 2;

/// Returns the buckets for counts of indices from `first` on, each index shifted right by `shift`.
///
/// # Errors
/// A text for the sender.
pub(super) fn sparse_buckets(counts: &[u64], first: i64, shift: u32) -> Result<Buckets<u64>, String> {
    let mut out = Buckets::default();
    let mut last: Option<i64> = None;
    for (at, &count) in (0i64..).zip(counts).filter(|(_, count)| **count > 0) {
        let idx = (first + at) >> shift.min(63);
        match out.counts.last_mut() {
            Some(sum) if last == Some(idx) => {
                *sum = u64::checked_add(*sum, count).ok_or("bucket has a count beyond 64 bits")?;
            }
            _ => push(&mut out, last, idx, count)?,
        }
        last = Some(idx);
    }
    let span_total: u64 = out.spans.iter().map(|span| u64::from(span.length)).sum();
    debug_assert_eq!(span_total, out.counts.len() as u64, "spans name a bucket per count");
    debug_assert!(out.counts.len() <= counts.len(), "empty buckets between others were sent as such");
    Ok(out)
}

fn push(out: &mut Buckets<u64>, last: Option<i64>, idx: i64, count: u64) -> Result<(), String> {
    i32::try_from(idx).map_err(|_| format!("bucket index {idx} has more than 32 bits"))?;
    let gap = idx - last.map_or(0, |last| last + 1);
    debug_assert!(last.is_none() || gap >= 0, "indices ascend");
    let is_near = last.is_some() && gap <= GAP_MAX;
    match out.spans.last_mut() {
        Some(span) if is_near => {
            span.length += gap as u32 + 1;
            out.counts.extend(std::iter::repeat_n(0, gap as usize));
        }
        _ => {
            // A gap of two indices of 32 bits has up to 33.
            let offset = i32::try_from(gap).map_err(|_| format!("bucket index {idx} is too far away"))?;
            out.spans.push(Span { offset, length: 1 });
        }
    }
    out.counts.push(count);
    Ok(())
}
