//! Order of arrival of the samples of a part of the series.
//! Invariants: every sample arrives once; a sample in time arrives in the step of its time, a late one in any
//! later step with equal chance.

use crate::body::Body;
use crate::families::{Draws, Family, Walk};
use crate::traffic;

/// Time between two samples of a series.
pub(super) const STEP_MS: i64 = 60_000;

/// Samples of some series in order of arrival.
pub(super) struct Arrivals {
    /// Series and step of each.
    order: Vec<(usize, usize)>,
    /// Values by series, from `first_series` on.
    values: Vec<Vec<f64>>,
    first_series: usize,
    /// Number of out-of-order samples.
    pub(super) late_count: usize,
}

impl Arrivals {
    /// All series, in `part_count` parts.
    pub(super) fn dealt(
        series_count: usize,
        step_count: usize,
        late_percent: u64,
        part_count: usize,
    ) -> Vec<Arrivals> {
        let part_len = series_count.div_ceil(part_count);
        (0..series_count)
            .step_by(part_len)
            .map(|first| Arrivals::new(first..series_count.min(first + part_len), step_count, late_percent))
            .collect()
    }

    fn new(series: std::ops::Range<usize>, step_count: usize, late_percent: u64) -> Arrivals {
        let mut draws = Draws(series.start as u64);
        let mut late: Vec<Vec<(usize, usize)>> = vec![Vec::new(); step_count];
        let mut order = Vec::with_capacity(series.len() * step_count);
        let mut late_count = 0;
        for step in 0..step_count {
            for idx in series.clone() {
                let later_count = (step_count - step - 1) as u64;
                if later_count > 0 && draws.below(100) < late_percent as f64 {
                    late[step + 1 + draws.below(later_count) as usize].push((idx, step));
                    late_count += 1;
                } else {
                    order.push((idx, step));
                }
            }
            order.append(&mut late[step]);
        }
        let values = series.clone().map(|idx| {
            let mut walk = Walk::new(Family::of_mix(idx), idx);
            (0..step_count).map(|_| walk.next()).collect()
        });
        Arrivals { values: values.collect(), order, first_series: series.start, late_count }
    }

    /// Requests of `batch_len` samples, each with its labels, as senders write them.
    pub(super) fn bodies(&self, start_ms: i64, batch_len: usize) -> Vec<Body> {
        let body = |part: &[(usize, usize)]| {
            let mut body = Body::new(part.iter().map(|(idx, _)| traffic::labels(*idx)));
            body.set_each(part.iter().map(|(idx, step)| {
                (start_ms + *step as i64 * STEP_MS, self.values[idx - self.first_series][*step])
            }));
            body
        };
        self.order.chunks(batch_len).map(body).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Arrivals;

    #[test]
    fn every_sample_arrives_once_and_the_wanted_part_late() {
        for percent in [0, 10, 50, 100] {
            let parts = Arrivals::dealt(30, 200, percent, 4);
            let mut all: Vec<(usize, usize)> = parts.iter().flat_map(|part| part.order.clone()).collect();
            all.sort_unstable();
            let expected: Vec<_> = (0..30).flat_map(|idx| (0..200).map(move |step| (idx, step))).collect();
            assert_eq!(all, expected);
            let late_count: usize = parts.iter().map(|part| part.late_count).sum();
            let wanted = 60 * percent as usize;
            assert!(late_count.abs_diff(wanted) <= 200, "{late_count} of {wanted}");
        }
    }

    #[test]
    fn late_is_behind_a_newer_sample_of_the_series() {
        let part = &Arrivals::dealt(5, 300, 20, 1)[0];
        let mut newest = [None; 5];
        let behind = part.order.iter().filter(|(idx, step)| {
            let late = newest[*idx] > Some(*step);
            newest[*idx] = newest[*idx].max(Some(*step));
            late
        });
        // An out-of-order sample may still be the newest of its series, if the ones before it are late, too.
        let behind_count = behind.count();
        assert!(behind_count <= part.late_count && behind_count * 10 > part.late_count * 8, "{behind_count}");
    }
}
