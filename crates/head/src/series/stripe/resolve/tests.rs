//! Resolution against a map, and merging of two resolved runs.

use std::collections::BTreeMap;

use chronolith_base::Env;

use super::*;

fn pairs(samples: &Columns) -> Vec<(i64, u64)> {
    samples.times.iter().copied().zip(samples.values.iter().map(|value| value.to_bits())).collect()
}

#[test]
fn equal_timestamps_are_resolved_as_by_a_map() {
    for seed in 0..200 {
        let (env, _, _) = Env::fake(0, seed);
        let mut runs = [Arrivals::default(), Arrivals::default()];
        let mut want: BTreeMap<i64, u64> = BTreeMap::new();
        let times = 1 + env.rng.below(60);
        for run in &mut runs {
            for _ in 0..env.rng.below(40) {
                let (time, bits, replaces) =
                    (env.rng.below(times) as i64, env.rng.below(100), env.rng.below(2) == 0);
                run.add(replaces, |samples| samples.push(time, f64::from_bits(bits)));
                if replaces {
                    want.insert(time, bits);
                } else {
                    want.entry(time).or_insert(bits);
                }
            }
            run.resolve();
        }
        let start = env.rng.below(times) as i64;
        let range = TimeRange::new(start, start + env.rng.below(times) as i64);
        let mut out = Columns::default();
        runs[0].merge(&runs[1], range, &mut out);
        let want: Vec<(i64, u64)> = want.into_iter().filter(|(time, _)| range.contains(*time)).collect();
        assert_eq!(pairs(&out), want, "seed {seed}");
    }
}

#[test]
fn runs_end_at_windows_and_where_precedence_changes() {
    let mut arrivals = Arrivals::default();
    for (time, replaces) in [(1, false), (2, false), (3, true), (10, true), (11, true), (12, false)] {
        arrivals.add(replaces, |samples| samples.push(time, 0.0));
    }
    let want = vec![(0..2, false), (2..3, true), (3..5, true), (5..6, false)];
    assert_eq!(arrivals.runs(|time| time / 10), want);
}
