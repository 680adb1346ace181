//! Six families of values as servers' metrics have them, two kinds of clocks, and the mix of a usual server.
//! Invariants: reproducible; the same samples for every server.
//! Not here: the names of the series (`traffic`).

use crate::traffic::{self, STEP_MS};

/// Pattern of the values of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Whole numbers that rise by a Poisson draw a step and start again at 0 now and then.
    Counter,
    /// Two decimals, pulled back to a mean.
    Gauge,
    /// Seven in ten never change, the others once in about a hundred samples.
    Constant,
    /// A sum of durations in full precision.
    FloatSum,
    /// Memory in steps of 4 KiB.
    Pages,
    /// Small whole numbers that are noise.
    SmallInteger,
}

impl Family {
    /// All, in the order of reports.
    pub(crate) const ALL: [Family; 6] = [
        Family::Counter,
        Family::Gauge,
        Family::Constant,
        Family::FloatSum,
        Family::Pages,
        Family::SmallInteger,
    ];

    /// Name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Counter => "counter",
            Family::Gauge => "gauge, 2 decimals",
            Family::Constant => "mostly constant",
            Family::FloatSum => "float sum",
            Family::Pages => "4 KiB steps",
            Family::SmallInteger => "small integers",
        }
    }

    /// Part of the mix in percent (assumed).
    pub(crate) fn percent(self) -> u64 {
        match self {
            Family::Counter => 30,
            Family::Gauge => 10,
            Family::Constant => 40,
            Family::FloatSum => 5,
            Family::Pages => 8,
            Family::SmallInteger => 7,
        }
    }

    /// The family of a series of the mix.
    pub(crate) fn of_mix(series_idx: usize) -> Family {
        let mut rest = traffic::mix(series_idx as u64 ^ 0x5eed) % 100;
        for family in Family::ALL {
            if rest < family.percent() {
                return family;
            }
            rest -= family.percent();
        }
        unreachable!("the parts of the mix are 100 percent")
    }
}

/// Clock of a scraper: the times of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockKind {
    /// Every 15 s to the millisecond; one in 2000 is missed.
    Regular,
    /// Around every 15 s: a normal deviation of 3 ms, and up to 200 ms late once in a hundred.
    Jittered,
    /// The same, but series of one pod have equal times, as series of one scrape do.
    Scraped,
}

impl ClockKind {
    /// All, in the order of reports.
    pub(crate) const ALL: [ClockKind; 3] = [ClockKind::Regular, ClockKind::Jittered, ClockKind::Scraped];

    /// Name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ClockKind::Regular => "regular",
            ClockKind::Jittered => "jittered",
            ClockKind::Scraped => "jittered, shared by a pod,",
        }
    }
}

/// One series in motion.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    draws: Draws,
    family: Family,
    current: f64,
    /// Constant of the family: rate, mean, or whether the series ever changes.
    shape: f64,
}

impl Walk {
    /// The series before its first sample.
    pub(crate) fn new(family: Family, series_idx: usize) -> Walk {
        let mut draws = Draws(traffic::mix(series_idx as u64 ^ ((family as u64) << 56)));
        let (current, shape) = match family {
            // Rates between 0.1 and 500 a step, equally many in each power of ten.
            Family::Counter => ((draws.unit() * 1e6).floor(), 0.1 * 5000_f64.powf(draws.unit())),
            Family::Gauge => (draws.unit() * 100.0, draws.unit() * 100.0),
            Family::Constant => ((draws.unit() * 1000.0).floor(), draws.unit()),
            Family::FloatSum => (draws.unit() * 1000.0, 0.01 + draws.unit()),
            Family::Pages => ((draws.unit() * 65_536.0).floor() * 4096.0, 0.0),
            Family::SmallInteger => (0.0, 3.0 + (draws.unit() * 20.0).floor()),
        };
        Walk { draws, family, current, shape }
    }

    /// The next value.
    pub(crate) fn next(&mut self) -> f64 {
        let Walk { draws, family, current, shape } = self;
        match family {
            Family::Counter if draws.one_in(5000) => *current = 0.0,
            Family::Counter => *current += draws.poisson(*shape),
            Family::Gauge => {
                *current += 0.05 * (*shape - *current) + draws.normal();
                return (*current * 100.0).round() / 100.0;
            }
            Family::Constant if *shape > 0.7 && draws.one_in(100) => *current += draws.below(21) - 10.0,
            Family::Constant => {}
            Family::FloatSum => *current += draws.unit() * *shape,
            Family::Pages => *current = (*current + (draws.normal() * 8.0).round() * 4096.0).max(0.0),
            Family::SmallInteger => *current = draws.below(*shape as u64),
        }
        *current
    }
}

/// All samples of a series: `step_count` steps from `start_ms`, without those that the clock misses.
pub(crate) fn samples(
    family: Family,
    clock: ClockKind,
    series_idx: usize,
    start_ms: i64,
    step_count: usize,
) -> Vec<(i64, f64)> {
    let mut walk = Walk::new(family, series_idx);
    let clock_idx = if clock == ClockKind::Scraped { series_idx / traffic::POD_SERIES } else { series_idx };
    let mut draws = Draws(traffic::mix(!(clock_idx as u64)));
    let mut samples = Vec::with_capacity(step_count);
    for step in 0..step_count as i64 {
        let time_ms = start_ms + step * STEP_MS;
        let value = walk.next();
        match clock {
            ClockKind::Regular if draws.one_in(2000) => {}
            ClockKind::Regular => samples.push((time_ms, value)),
            ClockKind::Jittered | ClockKind::Scraped if draws.one_in(100) => {
                samples.push((time_ms + draws.below(200) as i64, value));
            }
            // Never before the start: that would be another window of time.
            ClockKind::Jittered | ClockKind::Scraped => {
                samples.push(((time_ms + (draws.normal() * 3.0).round() as i64).max(start_ms), value));
            }
        }
    }
    samples
}

/// Random numbers of one series.
#[derive(Debug, Clone)]
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        traffic::mix(self.0)
    }

    /// From 0 to before 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A whole number from 0 to before `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> f64 {
        (self.unit() * bound as f64).floor()
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.bits().is_multiple_of(count)
    }

    /// Mean 0, deviation 1: the sum of twelve uniform draws, which cannot be distinguished from the real one
    /// here.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 30.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let floor = (-mean).exp();
        let mut product = self.unit();
        let mut count = 0.0;
        while product > floor {
            product *= self.unit();
            count += 1.0;
        }
        count
    }
}

#[cfg(test)]
#[path = "families/tests.rs"]
mod tests;
