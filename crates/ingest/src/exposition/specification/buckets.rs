//! Buckets, count and sum of one group of a histogram family at one time.
//!
//! Invariant: a group is checked as a whole when the next one begins.

use crate::exposition::rule::Rule;

/// Labels of a sample but the one in which a group's samples differ, sorted.
pub(super) type Group = Vec<(String, String)>;

/// Part of a histogram that a sample is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Part {
    Bucket(f64),
    Count,
    Sum,
    GaugeSum,
    Created,
}

/// Checks of the histograms of a family.
#[derive(Debug, Default)]
pub(super) struct BucketCheck {
    at: Option<(Group, Option<i64>)>,
    histogram: Parts,
}

/// Parts of the histogram at hand.
#[derive(Debug, Default)]
struct Parts {
    last_bound: Option<f64>,
    last_value: f64,
    count: Option<f64>,
    has_sum: bool,
    has_gauge_sum: bool,
    is_gauge_sum_negative: bool,
    has_negative_bound: bool,
}

impl BucketCheck {
    /// Adds a sample of a group at a time.
    pub(super) fn add(&mut self, at: (Group, Option<i64>), part: Part, value: f64) -> Result<(), Rule> {
        if self.at.as_ref() != Some(&at) {
            self.end()?;
            self.histogram = Parts::default();
            self.at = Some(at);
        }
        let histogram = &mut self.histogram;
        match part {
            Part::Bucket(bound) => {
                histogram.has_negative_bound |= bound < 0.0;
                if histogram.last_bound.is_some_and(|last| bound <= last) {
                    return Err(Rule::BucketOrder);
                }
                if value < histogram.last_value {
                    return Err(Rule::BucketValues);
                }
                (histogram.last_bound, histogram.last_value) = (Some(bound), value);
            }
            Part::Count => histogram.count = Some(value),
            Part::Sum => histogram.has_sum = true,
            Part::GaugeSum => {
                histogram.has_gauge_sum = true;
                histogram.is_gauge_sum_negative |= value < 0.0;
            }
            Part::Created => {}
        }
        Ok(())
    }

    /// Checks the histogram at hand as a whole.
    pub(super) fn end(&self) -> Result<(), Rule> {
        if self.at.is_none() {
            return Ok(());
        }
        let histogram = &self.histogram;
        let any_sum = histogram.has_sum || histogram.has_gauge_sum;
        if histogram.last_bound != Some(f64::INFINITY) {
            return Err(Rule::NoInfinity);
        }
        if histogram.count.is_some_and(|count| count != histogram.last_value) {
            return Err(Rule::CountMismatch);
        }
        if any_sum != histogram.count.is_some() {
            return Err(Rule::SumAndCount);
        }
        if histogram.has_negative_bound && histogram.has_sum {
            return Err(Rule::SumOfNegative);
        }
        if !histogram.has_negative_bound && histogram.is_gauge_sum_negative {
            return Err(Rule::NegativeSum);
        }
        Ok(())
    }
}
