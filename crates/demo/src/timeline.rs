//! Timeline of the generated data: steps of 15 s from the start to the end, and the events among them.
//!
//! Invariants: start and end are whole minutes; the history has the steps after the start up to the end; in a
//! short history the events are shorter, and none leaves it.

/// Interval of samples.
pub(crate) const STEP_MS: i64 = 15_000;
/// Interval of samples that change slowly.
pub(crate) const SLOW_STEP_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const INCIDENT_MS: i64 = 40 * 60_000;
const BURST_MS: i64 = HOUR_MS;
const OUTAGE_MS: i64 = 2 * HOUR_MS;
/// Part of the incident in which it grows, and in which it ends.
const RAMP: f64 = 0.12;

/// Times in `[start_ms, end_ms)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
}

impl Event {
    pub(crate) fn contains(self, time_ms: i64) -> bool {
        (self.start_ms..self.end_ms).contains(&time_ms)
    }
}

/// One time at which samples are taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(super) time_ms: i64,
    /// Load of all services, from 0.1 at night to 1 at noon.
    pub(super) load: f64,
    /// 0 outside of the incident, 1 at its height.
    pub(super) incident: f64,
    /// Returns true once, at the first step after the incident.
    pub(super) is_incident_over: bool,
    pub(super) is_burst: bool,
    pub(super) is_outage: bool,
    /// Returns true each minute.
    pub(super) is_slow: bool,
}

/// Start, end and events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline {
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
    /// Errors and latency of one service and its callers rise.
    pub(super) incident: Event,
    /// A label has ids as values.
    pub(super) burst: Event,
    /// Devices have no network; they send their samples after the history.
    pub(super) outage: Event,
}

impl Timeline {
    /// `hours` up to the whole minute before `end_ms`.
    pub(crate) fn new(end_ms: i64, hours: u32) -> Timeline {
        let end_ms = end_ms.div_euclid(SLOW_STEP_MS) * SLOW_STEP_MS;
        let length_ms = i64::from(hours) * HOUR_MS;
        // Lengths shrink with the history; positions count from the end.
        let event = |before_end_ms: i64, event_ms: i64| {
            let start_ms =
                end_ms - before_end_ms * length_ms.min(DAY_MS) / DAY_MS / SLOW_STEP_MS * SLOW_STEP_MS;
            Event { start_ms, end_ms: start_ms + event_ms.min(length_ms / 12) }
        };
        Timeline {
            start_ms: end_ms - length_ms,
            end_ms,
            incident: event(3 * HOUR_MS, INCIDENT_MS),
            burst: event(8 * HOUR_MS, BURST_MS),
            outage: event(14 * HOUR_MS, OUTAGE_MS),
        }
    }

    /// The hours of the history, each with its steps.
    pub(crate) fn windows(&self) -> impl Iterator<Item = Vec<Step>> + use<'_> {
        let count = self.window_count() as i64;
        (0..count).map(|idx| {
            let start_ms = self.start_ms + idx * HOUR_MS;
            let steps = HOUR_MS / STEP_MS;
            (1..=steps).map(|step| self.step(start_ms + step * STEP_MS)).collect()
        })
    }

    pub(crate) fn window_count(&self) -> usize {
        ((self.end_ms - self.start_ms) / HOUR_MS) as usize
    }

    /// The step at `time_ms`, which may be after the end.
    pub(crate) fn step(&self, time_ms: i64) -> Step {
        let day = time_ms.rem_euclid(DAY_MS) as f64 / DAY_MS as f64;
        // Highest at noon, lowest at midnight.
        let load = 0.55 - 0.45 * (day * std::f64::consts::TAU).cos();
        let over_ms = time_ms - self.incident.end_ms;
        Step {
            time_ms,
            load,
            incident: self.incident_at(time_ms),
            is_incident_over: (0..STEP_MS).contains(&over_ms),
            is_burst: self.burst.contains(time_ms),
            is_outage: self.outage.contains(time_ms),
            is_slow: time_ms.rem_euclid(SLOW_STEP_MS) == 0,
        }
    }

    fn incident_at(&self, time_ms: i64) -> f64 {
        if !self.incident.contains(time_ms) {
            return 0.0;
        }
        let length_ms = (self.incident.end_ms - self.incident.start_ms) as f64;
        let part = (time_ms - self.incident.start_ms) as f64 / length_ms;
        (part / RAMP).min((1.0 - part) / RAMP).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{HOUR_MS, STEP_MS, Timeline};

    #[test]
    fn events_lie_within_the_history_and_do_not_overlap() {
        for hours in [1, 2, 24, 168] {
            let line = Timeline::new(1_763_640_012_345, hours);
            assert_eq!(line.end_ms, 1_763_640_000_000);
            let events = [line.outage, line.burst, line.incident];
            let mut before_ms = line.start_ms;
            for event in events {
                assert!(before_ms < event.start_ms && event.start_ms < event.end_ms, "{hours} h: {line:?}");
                assert_eq!(event.start_ms % STEP_MS, 0);
                before_ms = event.end_ms;
            }
            assert!(before_ms < line.end_ms);
        }
    }

    #[test]
    fn windows_have_each_step_after_the_start_once() {
        let line = Timeline::new(1_763_640_000_000, 2);
        let times: Vec<i64> = line.windows().flatten().map(|step| step.time_ms).collect();
        assert_eq!(times.len(), 480);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == STEP_MS));
        assert_eq!((times[0], times[479]), (line.start_ms + STEP_MS, line.end_ms));
        assert_eq!(line.end_ms - line.start_ms, 2 * HOUR_MS);
    }

    #[test]
    fn the_incident_rises_and_ends_once() {
        let line = Timeline::new(1_763_640_000_000, 24);
        let steps: Vec<_> = line.windows().flatten().collect();
        assert_eq!(steps.iter().filter(|step| step.is_incident_over).count(), 1);
        assert!(steps.iter().any(|step| step.incident == 1.0));
        assert_eq!(steps.iter().filter(|step| step.incident > 0.0).count(), 159);
    }
}
