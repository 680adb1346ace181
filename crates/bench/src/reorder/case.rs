//! The 24 published cases and their samples: times 1..=N in units of the interval, values equal to them;
//! consecutive groups are reversed, the last one (incomplete or not) stays in order.

use anyhow::Result;
use chronolith_head::reorder::Sample;
use chronolith_model::reorder::Update;
use chronolith_model::{ReorderRule, ReorderRuleError};

/// Lengths of reversed groups; 1 is "not shuffled".
pub(super) const GROUPS: [usize; 4] = [1, 5, 50, 500];

/// One published benchmark.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) window_len: usize,
    pub(super) group_len: usize,
    pub(super) update: Update,
}

/// All, in the order in which they are published.
pub(super) const ALL: [Case; 24] = {
    let mut all = [Case { window_len: 10, group_len: 1, update: Update::Disallow }; 24];
    let windows = [10, 120, 600];
    let mut idx = 0;
    while idx < all.len() {
        all[idx].window_len = windows[idx % 3];
        all[idx].group_len = GROUPS[idx / 3 % 4];
        if idx >= 12 {
            all[idx].update = Update::Allow;
        }
        idx += 1;
    }
    all
};

impl Case {
    /// Published name of the case.
    pub(super) fn name(self) -> String {
        let shuffled =
            if self.group_len == 1 { String::new() } else { format!("Shuffled{}", self.group_len) };
        format!("ROB{}Add{shuffled}{:?}Update", self.window_len, self.update)
    }

    /// The most that an add may take, from the design's table of targets.
    pub(super) fn target_ns(self) -> f64 {
        if self.group_len == 1 { 4.0 } else { 6.0 }
    }

    pub(super) fn rule(self, interval_ms: u64) -> Result<ReorderRule, ReorderRuleError> {
        ReorderRule::new(interval_ms, self.window_len, self.update)
    }

    pub(super) fn samples(self, sample_count: usize, interval_ms: u64) -> Vec<Sample> {
        samples(sample_count, self.group_len, interval_ms)
    }

    /// The samples that are not too old when they come, by time.
    pub(super) fn kept(self, samples: &[Sample], interval_ms: u64) -> Vec<Sample> {
        let span_ms = (interval_ms * self.window_len as u64).cast_signed();
        let mut newest_ms = i64::MIN;
        let mut kept: Vec<Sample> = samples
            .iter()
            .filter(|sample| {
                newest_ms = newest_ms.max(sample.time_ms);
                newest_ms - sample.time_ms < span_ms
            })
            .copied()
            .collect();
        kept.sort_by_key(|sample| sample.time_ms);
        kept
    }
}

/// `sample_count` samples in groups of `group_len`.
pub(super) fn samples(sample_count: usize, group_len: usize, interval_ms: u64) -> Vec<Sample> {
    let count = sample_count as u64;
    let mut samples: Vec<Sample> = (1..=count)
        .map(|step| {
            let time_ms = (step * interval_ms).cast_signed();
            Sample { time_ms, value: time_ms as f64 }
        })
        .collect();
    let group_count = sample_count.saturating_sub(1) / group_len;
    samples[..group_count * group_len].chunks_mut(group_len).for_each(<[Sample]>::reverse);
    samples
}

#[cfg(test)]
mod tests {
    use super::{ALL, samples};

    #[test]
    fn names_are_those_published() {
        let names = ALL.map(super::Case::name);
        assert_eq!(names[0], "ROB10AddDisallowUpdate");
        assert_eq!(names[4], "ROB120AddShuffled5DisallowUpdate");
        assert_eq!(names[23], "ROB600AddShuffled500AllowUpdate");
    }

    #[test]
    fn all_groups_but_the_last_are_reversed() {
        let times = |count| samples(count, 3, 1).iter().map(|s| s.time_ms).collect::<Vec<i64>>();
        assert_eq!(times(6), [3, 2, 1, 4, 5, 6]);
        assert_eq!(times(7), [3, 2, 1, 6, 5, 4, 7]);
        assert_eq!(times(2), [1, 2]);
    }
}
