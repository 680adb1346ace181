//! Speed of the machine during a run, as the CPU time of a fixed piece of work.
//!
//! Virtual machines change their speed by a quarter within minutes, and work is slower while another step
//! uses the other core. So the work is repeated during the run, and a step is compared with the repetitions
//! in its time.

use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cpu;

/// Time between two repetitions, which take about 2 % of one core.
const PAUSE: Duration = Duration::from_secs(30);

/// Repetitions of the work, until this value is dropped.
pub(super) struct Speed {
    units: Arc<Units>,
    _end: SyncSender<()>,
}

/// Ends of the repetitions in order, each with the unit in seconds that it shows.
#[derive(Default)]
struct Units(Mutex<Vec<(Instant, f64)>>);

impl Speed {
    pub(super) fn start() -> Speed {
        let units = Arc::new(Units::default());
        units.measure();
        let of_thread = units.clone();
        let (end, ended) = mpsc::sync_channel(0);
        std::thread::spawn(move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                of_thread.measure();
            }
        });
        Speed { units, _end: end }
    }

    /// Mean unit in seconds of CPU within a time, or the unit of the repetition that ended last before it.
    pub(super) fn unit_s(&self, from: Instant, until: Instant) -> f64 {
        mean_within(&self.units.lock(), from, until)
    }

    /// Shortest and longest unit in seconds.
    pub(super) fn extremes_s(&self) -> (f64, f64) {
        let units = self.units.lock();
        let seconds = units.iter().map(|(_, unit)| *unit);
        (seconds.clone().fold(f64::INFINITY, f64::min), seconds.fold(0.0, f64::max))
    }
}

impl Units {
    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, f64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measure(&self) {
        let unit_s = cpu::unit().as_secs_f64();
        self.lock().push((Instant::now(), unit_s));
    }
}

fn mean_within(units: &[(Instant, f64)], from: Instant, until: Instant) -> f64 {
    let first = units.partition_point(|(end, _)| *end < from);
    let after = units.partition_point(|(end, _)| *end <= until);
    let within = if first < after { &units[first..after] } else { &units[first.saturating_sub(1)..][..1] };
    within.iter().map(|(_, unit)| unit).sum::<f64>() / within.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_mean_of_the_repetitions_in_the_time_of_a_step() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let units = [(at(10), 1.0), (at(20), 2.0), (at(30), 4.0)];
        let check = |from, until, want: f64| {
            assert!((mean_within(&units, at(from), at(until)) - want).abs() < 1e-9, "{from} to {until}");
        };
        check(0, 9, 1.0);
        check(0, 10, 1.0);
        check(5, 25, 1.5);
        check(10, 30, 7.0 / 3.0);
        check(21, 29, 2.0);
        check(31, 40, 4.0);
    }

    #[test]
    fn a_run_has_a_unit_from_its_start_on() {
        let speed = Speed::start();
        let (shortest, longest) = speed.extremes_s();
        assert!(shortest > 0.0 && shortest <= longest, "{shortest} {longest}");
        let now = Instant::now();
        assert!(speed.unit_s(now, now) >= shortest);
    }
}
