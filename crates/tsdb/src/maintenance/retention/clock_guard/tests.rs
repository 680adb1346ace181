//! Clocks that jump, drift and return.

use super::{Change, ClockGuard};

const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const START_MS: i64 = 1_795_132_800_000;

/// A guard, and both clocks as they are.
struct Watch {
    guard: ClockGuard,
    now_ms: i64,
    mono_ms: i64,
}

impl Watch {
    fn new() -> Watch {
        let guard = ClockGuard::new(DAY_MS, None, Some(START_MS), START_MS, 0);
        Watch { guard, now_ms: START_MS, mono_ms: 0 }
    }

    /// Time passes, looked at every minute; the clock gains `gain_ms` each time.
    fn pass(&mut self, ms: i64, gain_ms: i64) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..ms / 60_000 {
            self.mono_ms += 60_000;
            self.now_ms += 60_000 + gain_ms;
            changes.push(self.guard.observe(self.now_ms, self.mono_ms));
        }
        changes.retain(|change| *change != Change::Nothing);
        changes
    }

    fn step(&mut self, ms: i64) -> Change {
        self.now_ms += ms;
        self.mono_ms += SECOND_MS;
        self.guard.observe(self.now_ms, self.mono_ms)
    }

    fn restart(&mut self) {
        self.guard = ClockGuard::new(DAY_MS, Some(self.guard.state()), None, self.now_ms, 0);
        self.mono_ms = 0;
    }
}

#[test]
fn a_step_waits_for_a_day_and_ageing_goes_on_meanwhile() {
    let mut watch = Watch::new();
    assert_eq!(watch.step(HOUR_MS), Change::Nothing, "an hour is no step");
    let mut watch = Watch::new();
    assert!(matches!(watch.step(30 * DAY_MS), Change::Jumped { .. }));
    assert_eq!(watch.guard.time_ms(), START_MS + SECOND_MS);
    assert_eq!(watch.pass(23 * HOUR_MS, 0), []);
    assert_eq!(watch.guard.time_ms(), START_MS + SECOND_MS + 23 * HOUR_MS);
    assert_eq!(watch.guard.remaining_ms(), Some(HOUR_MS));
    assert_eq!(watch.pass(HOUR_MS, 0), [Change::Trusted]);
    assert_eq!(watch.guard.time_ms(), watch.now_ms);
}

#[test]
fn a_clock_that_steps_back_is_trusted_at_once() {
    let mut watch = Watch::new();
    watch.step(30 * DAY_MS);
    watch.pass(HOUR_MS, 0);
    assert_eq!(watch.step(-30 * DAY_MS), Change::Returned);
    assert_eq!((watch.guard.time_ms(), watch.guard.remaining_ms()), (watch.now_ms, None));
    assert_eq!(watch.step(-30 * DAY_MS), Change::Nothing);
    assert_eq!(watch.guard.time_ms(), watch.now_ms, "never later than the clock");
}

/// Half an hour a day is a bad oscillator; ten minutes again and again is a jump in parts.
#[test]
fn drift_is_followed_and_many_small_steps_are_a_step() {
    let mut watch = Watch::new();
    assert_eq!(watch.pass(30 * DAY_MS, 30 * 60_000 / (24 * 60)), []);
    assert_eq!(watch.guard.time_ms(), watch.now_ms);
    let mut watch = Watch::new();
    let changes: Vec<Change> = (0..10).map(|_| watch.step(600_000)).collect();
    assert_eq!(changes.iter().filter(|change| **change != Change::Nothing).count(), 1);
    assert!(watch.guard.time_ms() < START_MS + 2 * HOUR_MS);
}

/// Restarts neither end the wait nor begin it again.
#[test]
fn a_restart_goes_on_waiting() {
    let mut watch = Watch::new();
    watch.step(30 * DAY_MS);
    for round in 0..24 {
        watch.restart();
        assert!(watch.guard.time_ms() < START_MS + DAY_MS + HOUR_MS, "round {round}");
        assert_eq!(watch.pass(HOUR_MS, 0), if round == 23 { vec![Change::Trusted] } else { vec![] });
    }
    watch.restart();
    assert_eq!((watch.guard.time_ms(), watch.guard.remaining_ms()), (watch.now_ms, None));
}

#[test]
fn a_second_step_begins_to_wait_anew() {
    let mut watch = Watch::new();
    watch.step(30 * DAY_MS);
    watch.pass(20 * HOUR_MS, 0);
    assert!(matches!(watch.step(30 * DAY_MS), Change::Jumped { .. }));
    assert_eq!(watch.guard.remaining_ms(), Some(DAY_MS));
}

#[test]
fn a_start_trusts_a_clock_up_to_a_day_past_what_it_knows() {
    let new = |newest_ms: Option<i64>| ClockGuard::new(DAY_MS, None, newest_ms, START_MS, 0);
    for (newest_ms, want_ms) in [
        (None, START_MS),
        (Some(START_MS - DAY_MS), START_MS),
        (Some(START_MS - DAY_MS - 1), START_MS - DAY_MS - 1),
        (Some(START_MS + DAY_MS), START_MS),
    ] {
        assert_eq!(new(newest_ms).time_ms(), want_ms);
    }
    assert_eq!(ClockGuard::new(0, None, Some(0), START_MS, 0).time_ms(), START_MS, "switched off");
}

/// A process that was stopped for long, or whose monotonic clock is faked along, did not watch the clock.
#[test]
fn time_that_nobody_watched_is_a_step() {
    let mut watch = Watch::new();
    watch.mono_ms += 30 * DAY_MS;
    assert!(matches!(watch.step(30 * DAY_MS), Change::Jumped { .. }));
    watch.mono_ms += 2 * DAY_MS;
    assert_eq!(watch.step(0), Change::Nothing, "nor does it end the wait");
    assert!(watch.guard.remaining_ms() > Some(23 * HOUR_MS));
}
