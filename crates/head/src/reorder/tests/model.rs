//! Millions of random adds against a sorted map that implements the description literally.
//! A failure prints its seed; each seed has its own rule, disorder and gaps.

use std::collections::BTreeMap;

use chronolith_base::Rng;

use chronolith_model::ReorderRule;

use super::super::{Added, Refused, ReorderBuffer, Sample, Update};

const SEED_COUNT: u64 = 500;
const ADDS_PER_SEED: u64 = 10_000;

/// The description with a map instead of a ring.
struct Model {
    interval_ms: i64,
    span_ms: i64,
    update: Update,
    waiting: BTreeMap<i64, f64>,
    passed: Vec<(i64, f64)>,
}

impl Model {
    fn add(&mut self, time_ms: i64, value: f64) -> Result<Added, Refused> {
        self.passed.clear();
        let time_ms = (time_ms + self.interval_ms - 1).div_euclid(self.interval_ms) * self.interval_ms;
        let newest_ms = self.waiting.last_key_value().map(|(time_ms, _)| *time_ms);
        if newest_ms.is_some_and(|newest_ms| time_ms < newest_ms && newest_ms - time_ms >= self.span_ms) {
            return Err(Refused::TooOld);
        }
        if let Some(old) = self.waiting.get_mut(&time_ms) {
            if self.update == Update::Disallow {
                return Err(Refused::TimestampTaken);
            }
            *old = value;
            return Ok(Added::Updated);
        }
        self.waiting.insert(time_ms, value);
        if newest_ms.is_some_and(|newest_ms| time_ms < newest_ms) {
            return Ok(Added::Late);
        }
        while let Some(oldest) = self.waiting.first_entry().filter(|o| *o.key() <= time_ms - self.span_ms) {
            self.passed.push(oldest.remove_entry());
        }
        Ok(Added::Newest(u32::try_from(self.passed.len()).unwrap()))
    }
}

fn check(seed: u64) {
    let rng = Rng::from_seed(seed);
    let pick = |bound: u64| i64::try_from(rng.below(bound)).unwrap();
    let interval_ms = [1, 1, 2, 7, 10, 1000, 15_000, 86_400_000][rng.below(8) as usize];
    let window_len = [1, 2, 3, 5, 10, 16, 120, 600][rng.below(8) as usize];
    let update = if rng.below(2) == 0 { Update::Allow } else { Update::Disallow };
    let rule = ReorderRule::new(interval_ms, window_len, update).unwrap();
    let interval_ms = i64::try_from(interval_ms).unwrap();
    let span_ms = i64::try_from(rule.span_ms()).unwrap();
    let mut model = Model { interval_ms, span_ms, update, waiting: BTreeMap::new(), passed: Vec::new() };
    let mut buffer = ReorderBuffer::new(rule);
    let mut passed = vec![Sample::EMPTY; window_len];
    let as_pairs = |samples: &[Sample]| samples.iter().map(|s| (s.time_ms, s.value)).collect::<Vec<_>>();
    // Around 0 as often as elsewhere: there unsigned timestamps wrap.
    let mut now_ms = [0, 1, -span_ms, 1_700_000_000_123][rng.below(4) as usize];
    // Few or many gaps, little or much disorder.
    let (gap_odds, ooo_span_ms) = (1 + rng.below(20), 1 + rng.below(2 * rule.span_ms()));
    let mut passed_last_ms = i64::MIN;
    for step in 0..ADDS_PER_SEED {
        now_ms += match rng.below(4 * gap_odds) {
            0 => pick(3 * rule.span_ms()),
            1..4 => pick(4 * rule.interval_ms()),
            _ => interval_ms,
        };
        let time_ms = if rng.below(3) == 0 { now_ms } else { now_ms - pick(ooo_span_ms) };
        let want = model.add(time_ms, step as f64);
        let got = buffer.add(time_ms, step as f64, &mut passed);
        assert_eq!(got, want, "seed {seed}, step {step}, time {time_ms}");
        let count = if let Ok(Added::Newest(count)) = got { count } else { 0 };
        assert_eq!(as_pairs(&passed[..count as usize]), model.passed, "seed {seed}, step {step}");
        for (passed_ms, _) in &model.passed {
            assert!(*passed_ms > passed_last_ms, "seed {seed}, step {step}: {passed_ms} passes too late");
            passed_last_ms = *passed_ms;
        }
        if rng.below(500) == 0 {
            let waiting: Vec<(i64, f64)> = model.waiting.iter().map(|(time_ms, v)| (*time_ms, *v)).collect();
            assert_eq!(as_pairs(&buffer.iter().collect::<Vec<_>>()), waiting, "seed {seed}, step {step}");
            if rng.below(4) == 0 {
                let count = buffer.flush(&mut passed);
                assert_eq!(as_pairs(&passed[..count as usize]), waiting, "seed {seed}, step {step}: flush");
                model.waiting.clear();
                passed_last_ms = i64::MIN;
            }
        }
        assert_eq!(buffer.is_empty(), model.waiting.is_empty(), "seed {seed}, step {step}");
    }
}

#[test]
fn random_adds_match_a_sorted_map() {
    println!("seeds 0..{SEED_COUNT}, {ADDS_PER_SEED} adds each");
    for seed in 0..SEED_COUNT {
        check(seed);
    }
}
