//! Set of evaluation steps, stored as runs of consecutive steps: the steps to which an annotation applies, so
//! that the result cache can return it with exactly those steps.
//!
//! Invariants: runs ascend and do not touch; a set has at most `RUNS_MAX` runs.

/// Sets with more runs are not kept: the steps count as unknown.
const RUNS_MAX: usize = 32;

/// Consecutive steps, both ends included, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRun {
    /// First step.
    pub first_ms: i64,
    /// Last step.
    pub last_ms: i64,
}

/// A set of steps. Runs ascend, and at least one step lies between two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSet {
    step_ms: i64,
    runs: Vec<StepRun>,
}

impl StepSet {
    /// Union of these runs, which come in any order; `None` if they are too many.
    pub fn new(step_ms: i64, runs: impl IntoIterator<Item = StepRun>) -> Option<StepSet> {
        let mut runs: Vec<StepRun> = runs.into_iter().take(2 * RUNS_MAX + 1).collect();
        runs.sort_unstable_by_key(|run| run.first_ms);
        let mut joined: Vec<StepRun> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(last) if run.first_ms <= last.last_ms.saturating_add(step_ms) => {
                    last.last_ms = last.last_ms.max(run.last_ms);
                }
                _ => joined.push(run),
            }
        }
        (joined.len() <= RUNS_MAX).then_some(StepSet { step_ms, runs: joined })
    }

    /// The runs, ascending.
    #[must_use]
    pub fn runs(&self) -> &[StepRun] {
        &self.runs
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Steps of either; `None` if the runs are too many.
    #[must_use]
    pub fn union(&self, other: &StepSet) -> Option<StepSet> {
        StepSet::new(self.step_ms, self.runs.iter().chain(&other.runs).copied())
    }

    /// The steps from `first_ms` to `last_ms`, both of which are steps.
    #[must_use]
    pub fn within(&self, first_ms: i64, last_ms: i64) -> StepSet {
        let clip = |run: &StepRun| {
            let first_ms = run.first_ms.max(first_ms);
            let last_ms = run.last_ms.min(last_ms);
            (first_ms <= last_ms).then_some(StepRun { first_ms, last_ms })
        };
        StepSet { step_ms: self.step_ms, runs: self.runs.iter().filter_map(clip).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(runs: &[(i64, i64)]) -> Option<StepSet> {
        StepSet::new(10, runs.iter().map(|&(first_ms, last_ms)| StepRun { first_ms, last_ms }))
    }

    #[test]
    fn neighbouring_runs_are_one() {
        assert_eq!(set(&[(50, 60), (0, 10), (20, 30)]), set(&[(0, 30), (50, 60)]));
        let both = set(&[(0, 30)]).expect("few").union(&set(&[(40, 40)]).expect("few"));
        assert_eq!(both, set(&[(0, 40)]));
        assert_eq!(both.expect("few").within(10, 30), set(&[(10, 30)]).expect("few"));
        assert!(set(&[(0, 30)]).expect("few").within(40, 90).is_empty());
    }

    #[test]
    fn a_set_of_many_runs_is_not_kept() {
        let scattered = |count: i64| (0..count).map(|k| (k * 100, k * 100)).collect::<Vec<_>>();
        assert!(set(&scattered(32)).is_some());
        assert!(set(&scattered(33)).is_none());
        assert!(set(&scattered(1000)).is_none());
    }
}
