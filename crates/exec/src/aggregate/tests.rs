//! Folds of columns next to folds of single steps.

use chronolith_base::Rng;

use super::*;

const STEPS: usize = 37;

/// Folds series of values chosen from `palette` into columns, and compares each step with a fold of its
/// own.
#[track_caller]
fn check_folds(palette: &[f64]) {
    let rng = Rng::from_seed(palette.len() as u64);
    for op in [Aggregation::Min, Aggregation::Max, Aggregation::Count, Aggregation::Group] {
        let mut columns = Columns::new(op, STEPS);
        let mut present: Vec<Vec<f64>> = vec![Vec::new(); STEPS];
        for _ in 0..20 {
            let values: Vec<f64> =
                (0..STEPS).map(|_| palette[rng.below(palette.len() as u64) as usize]).collect();
            columns.add(&values);
            for (present, &value) in present.iter_mut().zip(&values) {
                present.extend(Some(value).filter(|value| !is_absent(*value)));
            }
        }
        let mut found = Vec::new();
        columns.finish(op, &StepScalar::Constant(0.0), &mut found);
        let want = present.iter().map(|present| {
            let folded = match op {
                Aggregation::Min => present.iter().copied().reduce(moments::lesser),
                Aggregation::Max => present.iter().copied().reduce(moments::greater),
                Aggregation::Count => Some(present.len() as f64).filter(|count| *count > 0.0),
                _ => present.first().map(|_| 1.0),
            };
            folded.unwrap_or(ABSENT).to_bits()
        });
        let found = found.iter().map(|value| value.to_bits());
        assert!(found.eq(want), "{op:?} of {palette:?}");
    }
}

#[test]
fn columns_are_folded_as_single_steps() {
    check_folds(&[1.0]);
    check_folds(&[ABSENT]);
    check_folds(&[1.0, ABSENT]);
    check_folds(&[0.1, 0.2, 0.3, -0.7]);
    check_folds(&[-0.0, 0.0]);
    check_folds(&[0.0, -0.0, ABSENT]);
    check_folds(&[f64::INFINITY, f64::NEG_INFINITY, 3.5]);
    check_folds(&[f64::NAN, ABSENT]);
    check_folds(&[f64::NAN, 1.0, 2.0, ABSENT]);
    check_folds(&[f64::NAN, f64::INFINITY, f64::MIN, f64::MAX, 5e-324]);
    check_folds(&[1e308, 1e-308, f64::NEG_INFINITY, ABSENT, -5.5]);
}
