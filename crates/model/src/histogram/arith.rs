//! Sums, differences and multiples of histograms.
//!
//! Histograms with different buckets are reconciled: both are reduced to the coarser schema, the zero bucket
//! is widened until it splits no populated bucket of either, and only common custom bounds are kept.
//! Invariants: sums of many histograms use compensated summation (Kahan, Neumaier), one compensation per
//! count, so that the order affects only the last bits. Exponential buckets and custom bounds cannot be
//! combined.

use super::bounds::exponential_bound;
use super::buckets::Buckets;
use super::kahan::kahan_add;
use super::schema::SCHEMA_CUSTOM;
use super::sparse::{FloatHistogram, ResetHint};

/// Exponential buckets and custom bounds were combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot apply this operation on histograms with a mix of exponential and custom bucket schemas")]
pub struct Incompatible;

/// Annotations of a merge of two histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merged {
    /// The reset hints contradict each other.
    pub hints_collide: bool,
    /// Custom bounds were different.
    pub bounds_reconciled: bool,
}

impl Merged {
    /// Union of both.
    #[must_use]
    pub fn or(self, other: Merged) -> Merged {
        Merged {
            hints_collide: self.hints_collide || other.hints_collide,
            bounds_reconciled: self.bounds_reconciled || other.bounds_reconciled,
        }
    }
}

/// Compensations of a sum, one per count. Belongs to one histogram and has the same buckets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compensation {
    zero_count: f64,
    count: f64,
    sum: f64,
    positive: Vec<f64>,
    negative: Vec<f64>,
}

impl Compensation {
    /// Zero compensations for `histogram`.
    #[must_use]
    pub fn of(histogram: &FloatHistogram) -> Compensation {
        Compensation {
            positive: vec![0.0; histogram.positive.counts.len()],
            negative: vec![0.0; histogram.negative.counts.len()],
            ..Compensation::default()
        }
    }

    /// Multiplies all by `factor`, after the histogram was multiplied.
    pub fn scale(&mut self, factor: f64) {
        self.each(|value| value * factor);
    }

    /// Divides all by `divisor`, after the histogram was divided.
    pub fn divide(&mut self, divisor: f64) {
        self.each(|value| value / divisor);
    }

    fn each(&mut self, scaled: impl Fn(f64) -> f64) {
        let counts = self.positive.iter_mut().chain(&mut self.negative);
        for value in counts.chain([&mut self.zero_count, &mut self.count, &mut self.sum]) {
            *value = scaled(*value);
        }
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        (self.positive.len() + self.negative.len()) * size_of::<f64>()
    }
}

/// A widened zero bucket.
pub(super) struct WideZero {
    /// Observations in it.
    pub(super) count: f64,
    /// Compensation of the count.
    pub(super) rest: f64,
    /// Upper bound: at least the requested one.
    pub(super) threshold: f64,
}

/// Sign of the other histogram: added or subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
}

impl Sign {
    fn of(self, value: f64) -> f64 {
        if self == Sign::Plus { value } else { -value }
    }
}

impl FloatHistogram {
    /// Multiplies all counts and the sum. A negative factor makes it a gauge.
    pub fn multiply(&mut self, factor: f64) {
        self.scale(factor, |value| value * factor);
    }

    /// Divides all counts and the sum. Division by zero removes all buckets.
    pub fn divide(&mut self, divisor: f64) {
        self.scale(divisor, |value| value / divisor);
        if divisor == 0.0 {
            (self.positive, self.negative) = (Buckets::default(), Buckets::default());
        }
    }

    fn scale(&mut self, by: f64, scaled: impl Fn(f64) -> f64) {
        if self.is_custom() {
            // Custom bounds have no zero bucket; an infinite factor would make its count NaN.
            self.zero_count = 0.0;
        }
        let counts = self.positive.counts.iter_mut().chain(&mut self.negative.counts);
        for value in counts.chain([&mut self.zero_count, &mut self.count, &mut self.sum]) {
            *value = scaled(*value);
        }
        if by < 0.0 {
            self.reset_hint = ResetHint::Gauge;
        }
    }

    /// Adds `other`.
    ///
    /// # Errors
    /// [`Incompatible`]; the histogram is unchanged.
    pub fn add(&mut self, other: &FloatHistogram) -> Result<Merged, Incompatible> {
        self.merge(other, Sign::Plus)
    }

    /// Subtracts `other`. The hint is merged as for a sum; the operator `-` makes it a gauge afterwards.
    ///
    /// # Errors
    /// [`Incompatible`]; the histogram is unchanged.
    pub fn subtract(&mut self, other: &FloatHistogram) -> Result<Merged, Incompatible> {
        self.merge(other, Sign::Minus)
    }

    fn merge(&mut self, other: &FloatHistogram, sign: Sign) -> Result<Merged, Incompatible> {
        if self.is_custom() != other.is_custom() {
            return Err(Incompatible);
        }
        let hints_collide = self.merge_hint(other.reset_hint);
        if !self.is_custom() {
            let zero = self.reconcile_zero(other, None);
            self.zero_count += sign.of(zero.count);
        }
        self.count += sign.of(other.count);
        self.sum += sign.of(other.sum);
        if self.is_custom() && self.custom_values != other.custom_values {
            self.merge_custom(other, sign, None);
            return Ok(Merged { hints_collide, bounds_reconciled: true });
        }
        let steps = self.meet_schema(other, None);
        let fold = |sum: f64, value: f64| sum + sign.of(value);
        let hidden = Hidden::of(self);
        let coarse = (steps > 0).then(|| (other.positive.coarser(steps), other.negative.coarser(steps)));
        let (positive, negative) =
            coarse.as_ref().map_or((&other.positive, &other.negative), |(p, n)| (p, n));
        merge_plain(&mut self.positive, positive, hidden, fold);
        merge_plain(&mut self.negative, negative, hidden, fold);
        Ok(Merged { hints_collide, bounds_reconciled: false })
    }

    /// Adds `other` with the compensations `rest` of this histogram.
    ///
    /// # Errors
    /// [`Incompatible`]; the histogram is unchanged.
    pub fn add_compensated(
        &mut self,
        other: &FloatHistogram,
        rest: &mut Compensation,
    ) -> Result<Merged, Incompatible> {
        if self.is_custom() != other.is_custom() {
            return Err(Incompatible);
        }
        let hints_collide = self.merge_hint(other.reset_hint);
        if !self.is_custom() {
            let zero = self.reconcile_zero(other, Some(rest));
            let (count, lacking) = kahan_add(zero.count, self.zero_count, rest.zero_count);
            (self.zero_count, rest.zero_count) = kahan_add(zero.rest, count, lacking);
        }
        (self.count, rest.count) = kahan_add(other.count, self.count, rest.count);
        (self.sum, rest.sum) = kahan_add(other.sum, self.sum, rest.sum);
        if self.is_custom() && self.custom_values != other.custom_values {
            self.merge_custom(other, Sign::Plus, Some(rest));
            return Ok(Merged { hints_collide, bounds_reconciled: true });
        }
        let steps = self.meet_schema(other, Some(rest));
        let hidden = Hidden::of(self);
        let sides = [
            (&mut self.positive, &other.positive, &mut rest.positive),
            (&mut self.negative, &other.negative, &mut rest.negative),
        ];
        for (side, other, rests) in sides {
            if steps == 0 {
                merge_compensated(side, rests, other, &[], hidden);
            } else {
                let (coarse, coarse_rests) = other.coarser_compensated(&vec![0.0; other.counts.len()], steps);
                merge_compensated(side, rests, &coarse, &coarse_rests, hidden);
            }
        }
        Ok(Merged { hints_collide, bounds_reconciled: false })
    }

    /// Adds the compensations to the counts and the sum.
    pub fn add_compensation(&mut self, rest: &Compensation) {
        self.zero_count += rest.zero_count;
        self.count += rest.count;
        self.sum += rest.sum;
        let sides = [(&mut self.positive, &rest.positive), (&mut self.negative, &rest.negative)];
        for (side, rests) in sides {
            side.counts.iter_mut().zip(rests).for_each(|(count, rest)| *count += rest);
        }
    }

    /// Returns true if a count or the sum is infinite.
    #[must_use]
    pub fn has_overflow(&self) -> bool {
        let counts = self.positive.counts.iter().chain(&self.negative.counts);
        counts.chain([&self.zero_count, &self.count, &self.sum]).any(|value| value.is_infinite())
    }

    /// Merges the hint of another histogram into this one's. Returns true if they contradict each other.
    fn merge_hint(&mut self, other: ResetHint) -> bool {
        let (merged, collide) = match (self.reset_hint, other) {
            (a, b) if a == b => (a, false),
            (ResetHint::Gauge, _) | (_, ResetHint::Gauge) => (ResetHint::Gauge, false),
            (ResetHint::Unknown, _) | (_, ResetHint::Unknown) => (ResetHint::Unknown, false),
            _ => (ResetHint::Unknown, true),
        };
        self.reset_hint = merged;
        collide
    }

    /// Reduces this histogram to the schema of `other` if that is coarser; otherwise returns the steps by
    /// which `other` has to be reduced.
    fn meet_schema(&mut self, other: &FloatHistogram, rest: Option<&mut Compensation>) -> u32 {
        let Ok(steps) = u32::try_from(self.schema - other.schema) else {
            return (other.schema - self.schema).unsigned_abs();
        };
        if steps == 0 {
            return 0;
        }
        match rest {
            None => {
                self.positive = self.positive.coarser(steps);
                self.negative = self.negative.coarser(steps);
            }
            Some(rest) => {
                (self.positive, rest.positive) = self.positive.coarser_compensated(&rest.positive, steps);
                (self.negative, rest.negative) = self.negative.coarser_compensated(&rest.negative, steps);
            }
        }
        self.schema = other.schema;
        0
    }

    /// Returns the zero bucket widened to `threshold` (at least its own), or, if that splits a populated
    /// bucket, to the bound of that bucket.
    pub(super) fn widened_zero(&self, threshold: f64, rest: Option<&Compensation>) -> WideZero {
        let own_rest = rest.map_or(0.0, |rest| rest.zero_count);
        let mut zero = WideZero { count: self.zero_count, rest: own_rest, threshold };
        while threshold != self.zero_threshold && !self.add_zero_buckets(&mut zero, rest) {
            zero = WideZero { count: self.zero_count, rest: own_rest, threshold: zero.threshold };
        }
        zero
    }

    /// Adds the buckets within the threshold. Returns false if a negative bucket moved the threshold, so that
    /// the caller has to start again.
    fn add_zero_buckets(&self, zero: &mut WideZero, rest: Option<&Compensation>) -> bool {
        let take = |zero: &mut WideZero, count: f64, rest: Option<f64>| {
            (zero.count, zero.rest) = kahan_add(count, zero.count, zero.rest);
            if let Some(rest) = rest {
                (zero.count, zero.rest) = kahan_add(rest, zero.count, zero.rest);
            }
        };
        for (at, bucket) in self.positive_buckets().enumerate() {
            if bucket.lower >= zero.threshold {
                break;
            }
            take(zero, bucket.count, rest.and_then(|rest| rest.positive.get(at)).copied());
            if bucket.upper > zero.threshold {
                if bucket.count != 0.0 {
                    zero.threshold = bucket.upper;
                }
                break;
            }
        }
        for (at, bucket) in self.negative_buckets().enumerate() {
            if bucket.upper <= -zero.threshold {
                break;
            }
            take(zero, bucket.count, rest.and_then(|rest| rest.negative.get(at)).copied());
            if bucket.lower < -zero.threshold {
                if bucket.count != 0.0 {
                    zero.threshold = -bucket.lower;
                    return false;
                }
                break;
            }
        }
        true
    }

    /// Widens the zero bucket until it contains the zero bucket of `other` and splits no populated bucket of
    /// either; returns the zero bucket of `other` with the same bounds.
    fn reconcile_zero(&mut self, other: &FloatHistogram, rest: Option<&mut Compensation>) -> WideZero {
        let mut rest = rest;
        let mut theirs = WideZero { count: other.zero_count, rest: 0.0, threshold: other.zero_threshold };
        // NaN would never become equal. Valid senders do not write it, but stored bytes may have it.
        let ordered = !theirs.threshold.is_nan() && !self.zero_threshold.is_nan();
        while ordered && theirs.threshold != self.zero_threshold {
            if self.zero_threshold > theirs.threshold {
                theirs = other.widened_zero(self.zero_threshold, None);
            }
            if theirs.threshold > self.zero_threshold {
                let ours = self.widened_zero(theirs.threshold, rest.as_deref());
                (self.zero_count, self.zero_threshold) = (ours.count, ours.threshold);
                if let Some(rest) = rest.as_deref_mut() {
                    rest.zero_count = ours.rest;
                }
                self.drop_hidden(rest.as_deref_mut());
            }
        }
        theirs
    }

    /// Removes the buckets within the zero bucket, which includes their observations already.
    fn drop_hidden(&mut self, rest: Option<&mut Compensation>) {
        let threshold = self.zero_threshold;
        let positive = self.positive_buckets().take_while(|b| b.lower < threshold).count();
        let negative = self.negative_buckets().take_while(|b| b.upper > -threshold).count();
        let (mut positive_rest, mut negative_rest) = match rest {
            Some(rest) => (Some(&mut rest.positive), Some(&mut rest.negative)),
            None => (None, None),
        };
        let sides = [
            (&mut self.positive, &mut positive_rest, positive),
            (&mut self.negative, &mut negative_rest, negative),
        ];
        for (side, rests, hidden) in sides {
            side.counts.iter_mut().take(hidden).for_each(|count| *count = 0.0);
            if let Some(rests) = rests {
                rests.iter_mut().take(hidden).for_each(|rest| *rest = 0.0);
            }
            side.compact(rests.as_deref_mut(), 0);
        }
    }

    /// Merges a histogram with other custom bounds: common bounds are kept.
    fn merge_custom(&mut self, other: &FloatHistogram, sign: Sign, rest: Option<&mut Compensation>) {
        let ours = &self.custom_values;
        let bounds: Vec<f64> = common_bounds(ours, &other.custom_values).collect();
        let mut sums = vec![(0.0, 0.0); bounds.len() + 1];
        // Buckets without a common upper bound go to the bucket of the next common bound.
        let place = |idx: i32, own: &[f64]| {
            let upper = usize::try_from(idx).ok().and_then(|at| own.get(at));
            upper.map_or(bounds.len(), |upper| bounds.partition_point(|bound| bound < upper))
        };
        for (at, (idx, count)) in self.positive.walk().enumerate() {
            let slot = &mut sums[place(idx, ours)];
            *slot = kahan_add(count, slot.0, slot.1);
            if let Some(&lacking) = rest.as_deref().and_then(|rest| rest.positive.get(at)) {
                *slot = kahan_add(lacking, slot.0, slot.1);
            }
        }
        for (idx, count) in other.positive.walk() {
            let slot = &mut sums[place(idx, &other.custom_values)];
            *slot = kahan_add(sign.of(count), slot.0, slot.1);
        }
        let (mut out, mut rests, mut last) = (Buckets::default(), Vec::new(), None);
        let populated = sums.into_iter().zip(0i32..).filter(|((sum, rest), _)| *sum != 0.0 || *rest != 0.0);
        for ((sum, lacking), idx) in populated {
            out.push(last, idx, sum);
            rests.push(lacking);
            last = Some(idx);
        }
        self.positive = out;
        self.custom_values = bounds.into();
        if let Some(rest) = rest {
            rest.positive = rests;
        }
    }
}

/// Iterates the common bounds. Both ascend.
pub(super) fn common_bounds<'a>(a: &'a [f64], b: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    let mut rest = b.iter().peekable();
    a.iter().copied().filter(move |bound| {
        while rest.next_if(|other| *other < bound).is_some() {}
        rest.next_if(|other| *other == bound).is_some()
    })
}

/// Zero bucket, which hides the buckets at the start that end within it.
#[derive(Clone, Copy)]
struct Hidden {
    schema: i32,
    threshold: f64,
}

impl Hidden {
    fn of(histogram: &FloatHistogram) -> Hidden {
        Hidden { schema: histogram.schema, threshold: histogram.zero_threshold }
    }

    /// Number of hidden buckets of the other histogram.
    fn count(self, buckets: &Buckets<f64>) -> usize {
        if self.schema == SCHEMA_CUSTOM {
            return 0;
        }
        buckets.walk().take_while(|(idx, _)| exponential_bound(*idx, self.schema) <= self.threshold).count()
    }
}

/// Adds the counts of `other` to the counts of `side`; buckets that only `other` has start from zero.
fn merge_plain(
    side: &mut Buckets<f64>,
    other: &Buckets<f64>,
    hidden: Hidden,
    fold: impl Fn(f64, f64) -> f64,
) {
    let hidden_count = hidden.count(other);
    if hidden_count == 0 && side.spans == other.spans {
        side.counts.iter_mut().zip(&other.counts).for_each(|(sum, &value)| *sum = fold(*sum, value));
        return;
    }
    let mut out = Buckets::default();
    let mut last = None;
    join(side, other, hidden_count, |idx, ours, theirs| {
        let ours = ours.map(|(_, count)| count);
        let count = match (ours, theirs) {
            (ours, Some((_, value))) => fold(ours.unwrap_or(0.0), value),
            (ours, None) => ours.unwrap_or(0.0),
        };
        out.push(last, idx, count);
        last = Some(idx);
    });
    *side = out;
}

/// As [`merge_plain`], with compensations. Empty `other_rests` are zeros.
fn merge_compensated(
    side: &mut Buckets<f64>,
    rests: &mut Vec<f64>,
    other: &Buckets<f64>,
    other_rests: &[f64],
    hidden: Hidden,
) {
    let add = |sum: (f64, f64), at: usize, value: f64| {
        let sum = kahan_add(value, sum.0, sum.1);
        match other_rests.get(at) {
            Some(&rest) if rest != 0.0 => kahan_add(rest, sum.0, sum.1),
            _ => sum,
        }
    };
    let hidden_count = hidden.count(other);
    if hidden_count == 0 && side.spans == other.spans {
        let sums = side.counts.iter_mut().zip(rests.iter_mut());
        for ((at, &value), (sum, rest)) in other.counts.iter().enumerate().zip(sums) {
            (*sum, *rest) = add((*sum, *rest), at, value);
        }
        return;
    }
    let (mut out, mut out_rests, mut last) = (Buckets::default(), Vec::new(), None);
    join(side, other, hidden_count, |idx, ours, theirs| {
        let sum = match (ours, theirs) {
            (Some((at, count)), Some((other_at, value))) => {
                add((count, rests.get(at).copied().unwrap_or(0.0)), other_at, value)
            }
            (Some((at, count)), None) => (count, rests.get(at).copied().unwrap_or(0.0)),
            (None, Some((at, value))) => (value, other_rests.get(at).copied().unwrap_or(0.0)),
            (None, None) => return,
        };
        out.push(last, idx, sum.0);
        out_rests.push(sum.1);
        last = Some(idx);
    });
    (*side, *rests) = (out, out_rests);
}

/// Joins by merging: calls `visit` with every index of `ours` or `theirs`, ascending, and position and count
/// in each. The first `hidden_count` buckets of `theirs` are skipped.
fn join(
    ours: &Buckets<f64>,
    theirs: &Buckets<f64>,
    hidden_count: usize,
    mut visit: impl FnMut(i32, Option<(usize, f64)>, Option<(usize, f64)>),
) {
    let mut ours = ours.walk().enumerate().peekable();
    let mut theirs = theirs.walk().enumerate().skip(hidden_count).peekable();
    loop {
        let (a, b) = (ours.peek().map(|(_, (idx, _))| *idx), theirs.peek().map(|(_, (idx, _))| *idx));
        let idx = match (a, b) {
            (Some(a), Some(b)) => a.min(b),
            (Some(idx), None) | (None, Some(idx)) => idx,
            (None, None) => return,
        };
        let place = |(at, (_, count))| (at, count);
        let our = ours.next_if(|(_, (at, _))| *at == idx).map(place);
        let their = theirs.next_if(|(_, (at, _))| *at == idx).map(place);
        visit(idx, our, their);
    }
}
