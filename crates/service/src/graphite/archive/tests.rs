//! Choice of an archive, and points of each method.

use chronolith_base::MemoryBudget;

use super::*;

struct Samples(Vec<(i64, f64)>);

impl SampleSource for Samples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        self.0
            .iter()
            .filter(|sample| range.contains(sample.0))
            .for_each(|sample| out.push(sample.0, sample.1));
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }
}

/// Points of an archive of 60 s over points every 20 s that start at 0.
#[track_caller]
fn check(method: AggregationMethod, x_files_factor: f64, times_s: &[i64], want: &[f64]) {
    let archive =
        ChosenArchive { step_s: 60, fine_step_s: 20, method, x_files_factor, from_s: 0, until_s: 0 };
    let samples = times_s.iter().map(|time| (time * 1000, 100.0 - *time as f64)).collect();
    let budget = MemoryBudget::new("points", 1 << 20);
    let mut reader = PointReader::new(budget.reserve(0).expect("room"));
    let mut out = vec![f64::NAN; want.len()];
    reader.read_archive(&archive, &Samples(samples), 0, &mut out).expect("no source that fails");
    let is_equal = |(got, want): (&f64, &f64)| got == want || got.is_nan() && want.is_nan();
    assert!(out.iter().zip(want).all(is_equal), "{method} {times_s:?}: {out:?}, not {want:?}");
}

#[test]
fn a_point_is_made_of_all_points_of_its_interval() {
    let times = [0, 20, 40, 60, 100, 180];
    let nan = f64::NAN;
    check(AggregationMethod::Average, 0.0, &times, &[80.0, 20.0, nan, -80.0]);
    check(AggregationMethod::AverageZero, 0.0, &times, &[80.0, 40.0 / 3.0, nan, -80.0 / 3.0]);
    check(AggregationMethod::Sum, 0.0, &times, &[240.0, 40.0, nan, -80.0]);
    check(AggregationMethod::Count, 0.0, &times, &[3.0, 2.0, nan, 1.0]);
    check(AggregationMethod::Max, 0.0, &times, &[100.0, 40.0, nan, -80.0]);
    check(AggregationMethod::Min, 0.0, &times, &[60.0, 0.0, nan, -80.0]);
    check(AggregationMethod::First, 0.0, &times, &[100.0, 40.0, nan, -80.0]);
    check(AggregationMethod::Last, 0.0, &times, &[60.0, 0.0, nan, -80.0]);
    check(AggregationMethod::AbsMax, 0.0, &[90, 115], &[nan, -15.0]);
    check(AggregationMethod::AbsMin, 0.0, &[90, 115], &[nan, 10.0]);
    // Enough of the points must be there; the last one of a slot counts.
    check(AggregationMethod::Sum, 0.5, &times, &[240.0, 40.0, nan, nan]);
    check(AggregationMethod::Count, 0.5, &[0, 1, 19, 60, 61, 80], &[nan, 2.0]);
    check(AggregationMethod::Sum, 0.0, &[0, 1, 19, 60], &[81.0, 40.0]);
    // Points after the end of the grid are left out.
    check(AggregationMethod::Last, 0.0, &[0, 60, 120], &[100.0]);
}

#[test]
fn the_method_asked_for_is_taken_if_it_is_kept() {
    let kept = [AggregationMethod::Sum, AggregationMethod::Max];
    assert_eq!(method_of(&kept, None), AggregationMethod::Sum);
    assert_eq!(method_of(&kept, Some(&Consolidation::Max)), AggregationMethod::Max);
    assert_eq!(method_of(&kept, Some(&Consolidation::Min)), AggregationMethod::Sum);
    // Averages and sums follow from one another.
    assert_eq!(method_of(&kept, Some(&Consolidation::Average)), AggregationMethod::Average);
    let kept = [AggregationMethod::Average];
    assert_eq!(method_of(&kept, Some(&Consolidation::Sum)), AggregationMethod::Sum);
    assert_eq!(method_of(&kept, Some(&Consolidation::Last)), AggregationMethod::Average);
}

/// Samples at even distances are copied, others go step by step; a NaN takes no value away.
#[test]
fn the_finest_archive_has_the_last_value_of_each_step() {
    let budget = MemoryBudget::new("points", 1 << 20);
    for seed in 0..300 {
        let rng = chronolith_base::Rng::from_seed(seed);
        let mut time_ms = rng.below(50_000) as i64;
        let mut samples = Vec::new();
        for _ in 0..rng.below(900) {
            let value = if rng.below(20) == 0 { f64::NAN } else { rng.below(1000) as f64 };
            samples.push((time_ms, value));
            time_ms += if rng.below(100) == 0 { 1 + rng.below(40_000) as i64 } else { 10_000 };
        }
        let (start_s, len) = (10 * rng.below(30) as i64, 1 + rng.below(800) as usize);
        let mut want = vec![f64::NAN; len];
        for (time_ms, value) in samples.iter().filter(|(_, value)| !value.is_nan()) {
            let slot = usize::try_from((time_ms - start_s * 1000).div_euclid(10_000));
            if let Some(slot) = slot.ok().and_then(|slot| want.get_mut(slot)) {
                *slot = *value;
            }
        }
        let method = AggregationMethod::Average;
        let archive =
            ChosenArchive { step_s: 10, fine_step_s: 10, method, x_files_factor: 0.0, from_s: 0, until_s: 0 };
        let mut reader = PointReader::new(budget.reserve(0).expect("room"));
        let mut out = vec![f64::NAN; len];
        reader.read_archive(&archive, &Samples(samples), start_s, &mut out).expect("no source that fails");
        let differs =
            out.iter().zip(&want).position(|(got, want)| got != want && !(got.is_nan() && want.is_nan()));
        assert_eq!(differs, None, "seed {seed}");
    }
}
