//! Behaviour of Metrictank's buffer as a table, its published loads, and millions of random adds against a
//! map.

mod model;

use chronolith_model::{ReorderRule, ReorderRuleError};

use super::{Added, Refused, ReorderBuffer, Sample, TIME_MAX_MS, TIME_MIN_MS, Update};
use Refused::{OutOfBounds, TimestampTaken, TooOld};
use Update::{Allow, Disallow};

/// Expected result of one add of a script. Values equal the (unrounded) timestamp unless given.
#[derive(Debug)]
enum Want {
    /// Newest; these timestamps are emitted.
    Pass(&'static [i64]),
    Late,
    Updated,
    Refused(Refused),
}

struct Script {
    buffer: ReorderBuffer,
    passed: Vec<Sample>,
}

impl Script {
    fn new(interval_ms: u64, window_len: usize, update: Update) -> Script {
        let rule = ReorderRule::new(interval_ms, window_len, update).unwrap();
        Script { buffer: ReorderBuffer::new(rule), passed: vec![Sample::EMPTY; window_len] }
    }

    #[track_caller]
    fn add_value(&mut self, time_ms: i64, value: f64, want: &Want) -> &mut Script {
        let before = self.waiting();
        let got = self.buffer.add(time_ms, value, &mut self.passed);
        let matches = match (want, &got) {
            (Want::Pass(times), Ok(Added::Newest(count))) => {
                self.passed.iter().take(*count as usize).map(|s| s.time_ms).eq(times.iter().copied())
            }
            (Want::Late, Ok(Added::Late)) | (Want::Updated, Ok(Added::Updated)) => true,
            (Want::Refused(want), Err(refused)) => want == refused && before == self.waiting(),
            _ => false,
        };
        assert!(matches, "add({time_ms}): want {want:?}, got {got:?}, passed {:?}", self.passed);
        self
    }

    #[track_caller]
    fn add(&mut self, time_ms: i64, want: &Want) -> &mut Script {
        self.add_value(time_ms, time_ms as f64, want)
    }

    #[track_caller]
    fn check_waiting(&mut self, want: &[(i64, f64)]) -> &mut Script {
        assert_eq!(self.waiting(), want);
        assert_eq!(self.buffer.is_empty(), want.is_empty());
        self
    }

    fn waiting(&self) -> Vec<(i64, f64)> {
        self.buffer.iter().map(|s| (s.time_ms, s.value)).collect()
    }

    fn flush(&mut self) -> Vec<(i64, f64)> {
        let count = self.buffer.flush(&mut self.passed);
        self.passed.iter().take(count as usize).map(|s| (s.time_ms, s.value)).collect()
    }
}

const NONE: Want = Want::Pass(&[]);

#[test]
fn times_are_rounded_up_to_the_interval() {
    let cases = [(1, 10), (9, 10), (10, 10), (11, 20), (20, 20), (0, 0), (-1, 0), (-10, -10), (-19, -10)];
    for (time_ms, want) in cases {
        // As the first sample, as the newest after another, and as an out-of-order one.
        let mut script = Script::new(10, 5, Disallow);
        script.add_value(time_ms, 0.5, &NONE).check_waiting(&[(want, 0.5)]);
        script = Script::new(10, 5, Disallow);
        script.add(want - 20, &NONE).add_value(time_ms, 0.5, &NONE);
        script.check_waiting(&[(want - 20, (want - 20) as f64), (want, 0.5)]);
        script = Script::new(10, 5, Disallow);
        script.add(want + 20, &NONE).add_value(time_ms, 0.5, &Want::Late);
        script.check_waiting(&[(want, 0.5), (want + 20, (want + 20) as f64)]);
    }
}

#[test]
fn in_order_samples_are_emitted_when_the_window_is_full() {
    let mut script = Script::new(1, 3, Disallow);
    script.add(1, &NONE).add(2, &NONE).add(3, &NONE);
    script.add(4, &Want::Pass(&[1])).add(5, &Want::Pass(&[2]));
    script.check_waiting(&[(3, 3.0), (4, 4.0), (5, 5.0)]);
}

#[test]
fn the_window_excludes_its_start() {
    let mut script = Script::new(10, 3, Disallow);
    script.add(100, &NONE);
    script.add(70, &Want::Refused(TooOld)).add(61, &Want::Refused(TooOld)).add(1, &Want::Refused(TooOld));
    // 71 is rounded up to 80, the oldest slot of (70, 100].
    script.add(71, &Want::Late).check_waiting(&[(80, 71.0), (100, 100.0)]);
}

#[test]
fn a_window_of_one_holds_the_newest_only() {
    let mut script = Script::new(1, 1, Disallow);
    script.add(5, &NONE).add(4, &Want::Refused(TooOld)).add(5, &Want::Refused(TimestampTaken));
    script.add(6, &Want::Pass(&[5])).add(60, &Want::Pass(&[6])).check_waiting(&[(60, 60.0)]);
}

#[test]
fn a_used_timestamp_is_refused_without_updates_even_for_an_equal_value() {
    let mut script = Script::new(10, 3, Disallow);
    script.add(20, &NONE).add(10, &Want::Late);
    for time_ms in [10, 1, 20, 11] {
        script.add_value(time_ms, 10.0, &Want::Refused(TimestampTaken));
        script.add_value(time_ms, 99.0, &Want::Refused(TimestampTaken));
    }
    script.check_waiting(&[(10, 10.0), (20, 20.0)]);
}

#[test]
fn a_used_timestamp_is_overwritten_with_updates() {
    let mut script = Script::new(10, 3, Allow);
    script.add(20, &NONE).add(10, &Want::Late);
    // Both the newest and an out-of-order one; nothing is emitted, nothing counts as reordered.
    script.add_value(15, 1.5, &Want::Updated).add_value(10, 2.5, &Want::Updated);
    script.check_waiting(&[(10, 2.5), (20, 1.5)]);
    // Emitted samples cannot be updated.
    script.add(40, &Want::Pass(&[10])).add(10, &Want::Refused(TooOld));
}

#[test]
fn too_old_goes_before_taken() {
    let mut script = Script::new(1, 2, Allow);
    script.add(1, &NONE).add(2, &NONE).add(3, &Want::Pass(&[1])).add(1, &Want::Refused(TooOld));
}

#[test]
fn a_step_of_several_intervals_emits_the_samples_before_the_window() {
    let mut script = Script::new(1, 5, Disallow);
    script.add(1, &NONE).add(3, &NONE).add(2, &Want::Late).add(5, &NONE);
    script.add(8, &Want::Pass(&[1, 2, 3])).check_waiting(&[(5, 5.0), (8, 8.0)]);
    // Slots of emitted samples are free again.
    script.add(7, &Want::Late).add(6, &Want::Late).add(4, &Want::Late).add(3, &Want::Refused(TooOld));
    script.add(9, &Want::Pass(&[4])).check_waiting(&[(5, 5.0), (6, 6.0), (7, 7.0), (8, 8.0), (9, 9.0)]);
}

#[test]
fn a_step_of_the_whole_window_or_more_emits_everything() {
    for ahead_ms in [50, 51, 100, 1_000_003, TIME_MAX_MS - 1000] {
        let mut script = Script::new(10, 5, Disallow);
        script.add(50, &NONE).add(30, &Want::Late);
        script.add_value(50 + ahead_ms, 7.0, &Want::Pass(&[30, 50]));
        let newest_ms = (50 + ahead_ms + 9) / 10 * 10;
        script.check_waiting(&[(newest_ms, 7.0)]);
        script.add(newest_ms - 50, &Want::Refused(TooOld)).add(newest_ms - 49, &Want::Late);
        script.check_waiting(&[(newest_ms - 40, (newest_ms - 49) as f64), (newest_ms, 7.0)]);
    }
}

#[test]
fn early_times_are_not_too_old() {
    // The window reaches before the first valid timestamp: unsigned arithmetic wraps here.
    let mut script = Script::new(10, 600, Disallow);
    script.add(20, &NONE).add(10, &Want::Late).add(30, &NONE).add(5, &Want::Refused(TimestampTaken));
    script.check_waiting(&[(10, 10.0), (20, 20.0), (30, 30.0)]);
}

#[test]
fn early_groups_in_reverse_are_all_taken() {
    // Metrictank's PR 2006: window 10, 1..=100 in reversed groups of 5, no error, exactly 90 are emitted, in
    // order.
    let mut script = Script::new(1, 10, Disallow);
    let mut passed_times = Vec::new();
    for group in 0..20 {
        for time_ms in (group * 5 + 1..=group * 5 + 5).rev() {
            if let Added::Newest(count) = script.buffer.add(time_ms, 0.0, &mut script.passed).unwrap() {
                passed_times.extend(script.passed.iter().take(count as usize).map(|s| s.time_ms));
            }
        }
    }
    assert_eq!(passed_times, (1..=90).collect::<Vec<i64>>());
}

#[test]
fn flush_returns_buffered_samples_and_resets() {
    let mut script = Script::new(10, 3, Disallow);
    assert_eq!(script.flush(), []);
    script.add(50, &NONE).add(70, &NONE).add(55, &Want::Late);
    assert_eq!(script.flush(), [(50, 50.0), (60, 55.0), (70, 70.0)]);
    // Timestamps before the flush are accepted again, as in a buffer that has never been used.
    script.check_waiting(&[]).add(10, &NONE).add(20, &NONE).check_waiting(&[(10, 10.0), (20, 20.0)]);
    assert_eq!(script.flush(), [(10, 10.0), (20, 20.0)]);
}

#[test]
fn reset_drops_buffered_samples() {
    let mut script = Script::new(10, 3, Disallow);
    script.add(50, &NONE).add(70, &NONE);
    script.buffer.reset();
    script.check_waiting(&[]).add(60, &NONE).check_waiting(&[(60, 60.0)]);
}

#[test]
fn values_are_kept_bit_exact() {
    let stale = chronolith_model::sample::STALE_NAN;
    let mut script = Script::new(1, 2, Disallow);
    for (time_ms, value) in [(1, stale), (2, -0.0), (3, f64::NEG_INFINITY), (5, 1.0)] {
        script.buffer.add(time_ms, value, &mut script.passed).unwrap();
        let got = script.passed.first().map(|s| s.value.to_bits());
        match time_ms {
            3 => assert_eq!(got, Some(stale.to_bits())),
            5 => assert_eq!(got, Some((-0.0_f64).to_bits())),
            _ => {}
        }
    }
}

#[test]
fn times_that_cannot_be_stored_are_refused() {
    for time_ms in [i64::MIN, i64::MIN + 1, TIME_MIN_MS - 1, TIME_MAX_MS + 1, i64::MAX] {
        let mut script = Script::new(10, 3, Allow);
        script.add(time_ms, &Want::Refused(OutOfBounds)).check_waiting(&[]);
        script.add(1000, &NONE).add(time_ms, &Want::Refused(OutOfBounds));
        for near_ms in [TIME_MIN_MS, TIME_MAX_MS] {
            let mut script = Script::new(10, 3, Allow);
            script.add(near_ms, &NONE).add(time_ms, &Want::Refused(OutOfBounds));
        }
    }
    // A multiple of the interval, so that it is emitted unchanged.
    const EARLIEST: [i64; 1] = [TIME_MIN_MS];
    Script::new(8, 3, Allow).add(TIME_MIN_MS, &NONE).add(TIME_MAX_MS, &Want::Pass(&EARLIEST));
}

#[test]
fn error_texts_are_those_of_metrictank() {
    assert_eq!(TooOld.to_string(), "metric too old");
    assert_eq!(TimestampTaken.to_string(), "new value for existing timestamp");
}

#[test]
fn rules_without_a_window_are_refused() {
    let of =
        |interval_ms, window_len| ReorderRule::new(interval_ms, window_len, Allow).map(|rule| rule.span_ms());
    assert_eq!(of(10, 3), Ok(30));
    assert_eq!(of(86_400_000, 366), Ok(31_622_400_000));
    assert_eq!(of(10, 0), Err(ReorderRuleError::WindowLen { found: 0 }));
    assert_eq!(of(10, 65_537), Err(ReorderRuleError::WindowLen { found: 65_537 }));
    for (interval_ms, window_len) in [(0, 1), (1 << 32, 1), (1 << 31, 5), (u64::MAX, 2)] {
        assert_eq!(of(interval_ms, window_len), Err(ReorderRuleError::Interval { interval_ms, window_len }));
    }
}

#[test]
fn division_by_multiplication_is_exact() {
    for interval_ms in [1, 2, 3, 7, 10, 999, 1000, 60_000, 86_400_000, (1 << 24) - 1, 1 << 24] {
        let rule = ReorderRule::new(interval_ms, WINDOW_LONG, Allow)
            .or_else(|_| ReorderRule::new(interval_ms, 1, Allow));
        let rule = rule.unwrap();
        for count in 0..rule.window_len() as u64 {
            for distance_ms in [count * interval_ms, count * interval_ms + interval_ms - 1] {
                assert_eq!(rule.whole_intervals(distance_ms) as u64, distance_ms / interval_ms);
            }
        }
    }
}

const WINDOW_LONG: usize = 2000;
