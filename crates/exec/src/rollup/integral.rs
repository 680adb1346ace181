//! `integral`: the area below the samples of a window, in value times seconds.
//! Invariants: NaN counts as zero; the first sample of a window opens an interval and adds nothing itself.
//! Sums are compensated, value by value in Prometheus's order, since the last bits show it.

use chronolith_model::histogram::kahan_add;

/// Value of the interval between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The value of the sample at the start of the interval.
    Left,
    /// The value of the sample at the end of the interval.
    Right,
    Trapezoid,
}

impl Rule {
    fn new(strategy: f64) -> Rule {
        match strategy {
            0.0 => Rule::Left,
            1.0 => Rule::Right,
            _ => Rule::Trapezoid,
        }
    }
}

/// Returns true if `strategy` names no rule; the trapezoidal one is used instead.
pub fn is_bad_strategy(strategy: f64) -> bool {
    ![0.0, 1.0, 2.0].contains(&strategy)
}

/// The integral over one or more samples.
pub fn integral(times: &[i64], values: &[f64], strategy: f64) -> f64 {
    let rule = Rule::new(strategy);
    let number = |value: f64| if value.is_nan() { 0.0 } else { value };
    let mut sum = 0.0;
    let mut rest = 0.0;
    for (times, values) in times.windows(2).zip(values.windows(2)) {
        let before = number(values[0]);
        let after = number(values[1]);
        let (value, value_rest) = match rule {
            Rule::Left => (before, 0.0),
            Rule::Right => (after, 0.0),
            Rule::Trapezoid => mean(before, after),
        };
        if value != 0.0 || value_rest != 0.0 {
            let seconds = (times[1] - times[0]) as f64 / 1000.0;
            (sum, rest) = kahan_add(value * seconds, sum, rest + value_rest * seconds);
        }
    }
    if sum.is_infinite() { sum } else { sum + rest }
}

/// The mean of two values, and what it lacks.
fn mean(before: f64, after: f64) -> (f64, f64) {
    let (sum, rest) = kahan_add(after, before, 0.0);
    if sum.is_infinite() && after.is_finite() && before.is_finite() {
        return kahan_add(after / 2.0, before / 2.0, 0.0);
    }
    (sum / 2.0, rest / 2.0)
}

#[cfg(test)]
mod tests {
    use super::integral;

    #[track_caller]
    fn check(values: &[f64], want: [f64; 3]) {
        let times: Vec<i64> = (0..values.len() as i64).map(|at| at * 10_000).collect();
        assert_eq!([0.0, 1.0, 2.0].map(|strategy| integral(&times, values, strategy)), want, "{values:?}");
    }

    #[test]
    fn area_of_steps_and_slopes() {
        check(&[1.0], [0.0; 3]);
        check(&[1.0, 3.0, 7.0], [40.0, 100.0, 70.0]);
        check(&[1.0, f64::NAN, 7.0], [10.0, 70.0, 40.0]);
        check(&[f64::INFINITY, 1.0], [f64::INFINITY, 10.0, f64::INFINITY]);
    }

    #[test]
    fn mean_of_huge_values_does_not_overflow() {
        let times = [0, 1];
        assert_eq!(integral(&times, &[f64::MAX, f64::MAX], 2.0), f64::MAX * 0.001);
    }
}
