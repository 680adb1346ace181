//! Buckets without observations go, and neighbouring spans become one.
//! Holds: the observations stay where they are, so histograms that say the same are found the same; runs of up to `empty_max` empty buckets inside stay or are filled in.

use super::{Buckets, Count, FloatHistogram, Histogram, HistogramOf};

impl Buckets<f64> {
    /// Leaves out empty buckets at both ends, and inside where more than `empty_max` follow each other; fills in
    /// shorter gaps. `compensation` goes along; a bucket with compensation is not empty.
    pub(super) fn compact(&mut self, compensation: Option<&mut Vec<f64>>, empty_max: usize) {
        let mut rests = compensation;
        let (mut out, mut out_rests, mut last) = (Buckets::default(), Vec::new(), None::<i32>);
        for (at, (idx, count)) in self.walk().enumerate() {
            let rest = rests.as_deref().and_then(|rests| rests.get(at)).copied().unwrap_or(0.0);
            if count == 0.0 && rest == 0.0 {
                continue;
            }
            let gap = last.map_or(0, |last| i64::from(idx) - i64::from(last) - 1);
            if gap > 0 && usize::try_from(gap).is_ok_and(|gap| gap <= empty_max) {
                while let Some(before) = last.filter(|&before| before + 1 < idx) {
                    out.push(last, before + 1, 0.0);
                    out_rests.push(0.0);
                    last = Some(before + 1);
                }
            }
            out.push(last, idx, count);
            out_rests.push(rest);
            last = Some(idx);
        }
        *self = out;
        if let Some(rests) = &mut rests {
            **rests = out_rests;
        }
    }
}

impl FloatHistogram {
    /// Leaves out empty buckets at both ends, and inside where more than `empty_max` follow each other; fills in
    /// shorter gaps.
    pub fn compact(&mut self, empty_max: usize) {
        self.positive.compact(None, empty_max);
        self.negative.compact(None, empty_max);
    }
}

impl<C: Count> HistogramOf<C> {
    /// Whether both say the same, bit for bit, but for the reset hint and for buckets without observations.
    #[must_use]
    pub fn says_same(&self, other: &HistogramOf<C>) -> bool {
        self.schema == other.schema
            && self.count.same(other.count)
            && self.sum.to_bits() == other.sum.to_bits()
            && self.zero_threshold == other.zero_threshold
            && self.zero_count.same(other.zero_count)
            && (!self.is_custom() || self.custom_values == other.custom_values)
            && self.negative.says_same(&other.negative)
            && self.positive.says_same(&other.positive)
    }
}

impl<C: Count> Buckets<C> {
    fn says_same(&self, other: &Buckets<C>) -> bool {
        let observed = |&(_, count): &(i32, C)| count != C::default();
        let (mut left, mut right) = (self.walk().filter(observed), other.walk().filter(observed));
        loop {
            match (left.next(), right.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if a.0 == b.0 && a.1.same(b.1) => {}
                _ => return false,
            }
        }
    }
}

impl Histogram {
    /// As [`HistogramOf::says_same`], for two of one kind.
    #[must_use]
    pub fn says_same(&self, other: &Histogram) -> bool {
        match (self, other) {
            (Histogram::Int(a), Histogram::Int(b)) => a.says_same(b),
            (Histogram::Float(a), Histogram::Float(b)) => a.says_same(b),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Span;
    use super::*;

    #[test]
    fn buckets_without_observations_say_nothing() {
        let of = |spans: &[(i32, u32)], counts: &[u64]| {
            let spans = spans.iter().map(|&(offset, length)| Span { offset, length }).collect();
            Histogram::Int(HistogramOf {
                positive: Buckets { spans, counts: counts.to_vec() },
                ..HistogramOf::default()
            })
        };
        let one = of(&[(1, 2), (3, 1)], &[4, 5, 6]);
        assert!(one.says_same(&of(&[(0, 7)], &[0, 4, 5, 0, 0, 0, 6])));
        assert!(one.says_same(&of(&[(1, 1), (0, 1), (3, 2)], &[4, 5, 6, 0])));
        assert!(!one.says_same(&of(&[(1, 2), (4, 1)], &[4, 5, 6])));
        assert!(!one.says_same(&of(&[(1, 2)], &[4, 5])));
        let float = Histogram::Float(HistogramOf::default());
        assert!(!of(&[], &[]).says_same(&float));
    }
}
