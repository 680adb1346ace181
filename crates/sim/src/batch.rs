//! Random content: batches to write, matchers and ranges to query.
//!
//! Invariants: a batch depends on its seed, the clock and the ledger only.
//! Not here: writing them (`write`), labels of series (`labels`).

use chronolith_base::Rng;
use chronolith_model::kind::{word_of_integer, word_of_unsigned};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::time::{TIME_MAX_MS, TIME_MAX_NS, TIME_MIN_MS, TIME_MIN_NS};
use chronolith_model::{MatchOp, Matcher, TimeRange, TimeUnit, WordKind};

use crate::labels::kind_of;
use crate::ledger::TenantLedger;
use crate::op::Shape;
use crate::setup::{DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Setup, pick};
use crate::value::Value;

/// Samples of one series per batch.
const RUN_COUNT_MAX: u64 = 400;
/// Series per scrape.
const SCRAPE_COUNT_MAX: u64 = 150;
const SCRAPE_STEP_MS: i64 = 15_000;
const WINDOW_MS: i64 = 2 * HOUR_MS;

/// Samples of one series, in the order in which they are written, times in the unit of the tenant.
pub(crate) type SeriesSamples = (u32, Vec<(i64, Value)>);

/// Generator of batches.
pub(crate) struct BatchGenerator<'a> {
    pub(crate) rng: &'a Rng,
    pub(crate) setup: &'a Setup,
    pub(crate) ledger: &'a TenantLedger,
    pub(crate) now_ms: i64,
}

impl BatchGenerator<'_> {
    /// Draws a batch.
    pub(crate) fn draw(&self, shape: Shape) -> Vec<SeriesSamples> {
        if shape == Shape::Repeated {
            return self.repeated();
        }
        let mut parts = self.draw_in_ms(shape);
        if self.ledger.unit() == TimeUnit::Nano {
            let is_aligned = self.rng.below(3) == 0;
            for (time, _) in parts.iter_mut().flat_map(|(_, samples)| samples) {
                *time = self.in_nanoseconds(*time, is_aligned);
            }
        }
        parts
    }

    /// Returns a time within the millisecond, often next to its start; a bound of milliseconds becomes the
    /// bound of nanoseconds.
    fn in_nanoseconds(&self, time_ms: i64, is_aligned: bool) -> i64 {
        if time_ms < TIME_MIN_MS + 2 {
            return if time_ms == i64::MIN { time_ms } else { TIME_MIN_NS + (time_ms - TIME_MIN_MS) };
        }
        if time_ms > TIME_MAX_MS - 2 {
            return if time_ms == i64::MAX { time_ms } else { TIME_MAX_NS + (time_ms - TIME_MAX_MS) };
        }
        let within = match self.rng.below(4) {
            0 => self.below(1_000_000),
            _ => self.below(3),
        };
        TimeUnit::Nano.from_ms(time_ms).saturating_add(if is_aligned { 0 } else { within })
    }

    fn draw_in_ms(&self, shape: Shape) -> Vec<SeriesSamples> {
        match shape {
            Shape::Scrape => self.scrape(),
            Shape::Run => self.runs(self.run_count_max(), self.now_ms - self.below(HOUR_MS), self.step()),
            Shape::Shuffled => self.shuffled(),
            Shape::OutOfOrder => self.spread(20, 8, || self.now_ms - self.below(10 * MINUTE_MS)),
            Shape::Old => {
                let end_ms = self.now_ms - self.below(10 * DAY_MS);
                if self.rng.below(2) == 0 {
                    self.runs(self.run_count_max(), end_ms, self.step())
                } else {
                    self.spread(4, 60, || end_ms - self.below(5 * HOUR_MS))
                }
            }
            Shape::Future => self.spread(10, 6, || self.now_ms + self.below(12 * MINUTE_MS)),
            Shape::Repeated => self.repeated(),
            Shape::Boundary => self.spread(2, 3, || self.boundary_time()),
        }
    }

    fn below(&self, bound_ms: i64) -> i64 {
        self.rng.below(bound_ms.unsigned_abs()) as i64
    }

    /// Mostly short runs, so that control operations are not too rare.
    fn run_count_max(&self) -> u64 {
        if self.rng.below(6) == 0 { RUN_COUNT_MAX } else { RUN_COUNT_MAX / 8 }
    }

    fn step(&self) -> i64 {
        match self.rng.below(4) {
            0 => 1 + self.below(50),
            1 => 1 + self.below(10 * MINUTE_MS),
            _ => pick(self.rng, &[1000, SCRAPE_STEP_MS, MINUTE_MS]),
        }
    }

    /// Draws an active series, at times one that was replaced.
    fn number(&self) -> u32 {
        let replaced = (self.now_ms - START_MS).max(0) / self.setup.churn_ms;
        let replaced = if self.rng.below(10) == 0 { self.below(replaced + 1) } else { replaced };
        (replaced as u32).wrapping_add(self.rng.below(u64::from(self.setup.series_count)) as u32)
    }

    fn value(&self, number: u32, time: i64) -> Value {
        match kind_of(number) {
            WordKind::Boolean => {
                // Values of sensors: mostly as before, some that change all the time.
                let is_on = time.div_euclid(7 * MINUTE_MS) % 2 == 0;
                return Value::float(f64::from(u8::from(is_on != (self.rng.below(9) == 0))));
            }
            WordKind::Integer => return Value::Float(word_of_integer(self.integer(number, time))),
            WordKind::Unsigned => {
                return Value::Float(word_of_unsigned(self.integer(number, time).cast_unsigned()));
            }
            WordKind::Text => return Value::Float(self.text(time)),
            WordKind::Float => {}
        }
        if self.is_histogram(number, time) {
            let is_end = self.rng.below(40) == 0;
            return if is_end {
                Value::float(STALE_NAN)
            } else {
                Value::draw_histogram(self.rng, number, time)
            };
        }
        Value::float(self.float(number, time))
    }

    fn integer(&self, number: u32, time: i64) -> i64 {
        match (self.rng.below(30), number % 3) {
            (0, _) => pick(self.rng, &[i64::MIN, i64::MAX, 0, -1, (1 << 53) + 1]),
            (1, _) => self.rng.next_u64().cast_signed(),
            (_, 0) => (time / 1000).wrapping_mul(i64::from(number)),
            (_, 1) => self.rng.below(1_000_000).cast_signed(),
            _ => i64::from(number),
        }
    }

    /// Number of a text: of a few states, or of one that is written once.
    fn text(&self, time: i64) -> u64 {
        match self.rng.below(12) {
            0 => self.rng.next_u64(),
            1 => time.cast_unsigned(),
            _ => (time / (3 * MINUTE_MS)).cast_unsigned() % 5,
        }
    }

    /// Returns true for histograms: a tenth of the series of words has them, another tenth alternates between
    /// both kinds.
    fn is_histogram(&self, number: u32, time: i64) -> bool {
        let usual = match number % 10 {
            3 => true,
            6 => time.div_euclid(23 * MINUTE_MS) % 2 == 0,
            _ => return false,
        };
        usual != (self.rng.below(30) == 0)
    }

    fn float(&self, number: u32, time: i64) -> f64 {
        match (self.rng.below(40), number % 8) {
            (0, _) => STALE_NAN,
            (1, _) => pick(self.rng, &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE]),
            (2, _) | (_, 0) => f64::from_bits(self.rng.next_u64()),
            (_, 1) => f64::from(number),
            (_, 2 | 3) => (time / 1000) as f64,
            (_, 4) => self.rng.below(100_000) as f64 / 100.0,
            _ => self.rng.below(50) as f64,
        }
    }

    fn series(&self, number: u32, times: impl Iterator<Item = i64>) -> SeriesSamples {
        (number, times.map(|time| (time, self.value(number, time))).collect())
    }

    fn scrape(&self) -> Vec<SeriesSamples> {
        let first = self.number();
        let jitter_ms = if self.rng.below(4) == 0 { 1 + self.below(40) } else { 1 };
        let most = if self.rng.below(4) == 0 { SCRAPE_COUNT_MAX } else { SCRAPE_COUNT_MAX / 10 };
        let count = 1 + self.rng.below(most.min(u64::from(self.setup.series_count)));
        let rounds = 1 + self.below(3);
        let present_ms = self.now_ms - self.now_ms.rem_euclid(SCRAPE_STEP_MS);
        let times = || (0..rounds).rev().map(|k| present_ms - k * SCRAPE_STEP_MS + self.below(jitter_ms));
        (0..count as u32).map(|idx| self.series(first.wrapping_add(idx), times())).collect()
    }

    fn runs(&self, count_max: u64, end_ms: i64, step_ms: i64) -> Vec<SeriesSamples> {
        let run = |_| {
            let count = 1 + self.rng.below(count_max) as i64;
            self.series(self.number(), (0..count).rev().map(|k| end_ms - k * step_ms))
        };
        (0..1 + self.rng.below(2)).map(run).collect()
    }

    fn shuffled(&self) -> Vec<SeriesSamples> {
        let mut parts = self.runs(self.run_count_max(), self.now_ms - self.below(DAY_MS), self.step());
        for (_, samples) in &mut parts {
            for last in (1..samples.len()).rev() {
                samples.swap(last, self.rng.below(last as u64 + 1) as usize);
            }
        }
        parts
    }

    fn spread(&self, series_max: u64, sample_max: u64, time: impl Fn() -> i64) -> Vec<SeriesSamples> {
        let series = |_| self.series(self.number(), (0..=self.rng.below(sample_max)).map(|_| time()));
        (0..=self.rng.below(series_max)).map(series).collect()
    }

    /// Samples that are stored, some with another value.
    fn repeated(&self) -> Vec<SeriesSamples> {
        let mut parts = Vec::new();
        let is_old = self.rng.below(2) == 0;
        for _ in 0..=self.rng.below(12) {
            let number = self.number();
            let Some(series) = self.ledger.series.get(&number) else { continue };
            let age_ms = self.below(if is_old { 5 * DAY_MS } else { 10 * MINUTE_MS });
            let first = self.ledger.unit().from_ms(self.now_ms - age_ms);
            let from = series.samples.range(first..).take(1 + self.rng.below(20) as usize);
            let samples: Vec<(i64, Value)> = from
                .map(|(&time, expected)| {
                    let same = expected.value().filter(|_| self.rng.below(5) < 3);
                    (time, same.unwrap_or_else(|| self.value(number, self.ledger.unit().to_ms(time))))
                })
                .collect();
            if !samples.is_empty() {
                parts.push((number, samples));
            }
        }
        parts
    }

    fn boundary_time(&self) -> i64 {
        let border_ms = (self.now_ms - self.below(3 * DAY_MS)).div_euclid(WINDOW_MS) * WINDOW_MS;
        match self.rng.below(6) {
            0 => border_ms,
            1 => border_ms - 1,
            2 => pick(self.rng, &[0, -1, 1, -WINDOW_MS]),
            3 => pick(self.rng, &[TIME_MIN_MS, TIME_MAX_MS, TIME_MIN_MS - 1, TIME_MAX_MS + 1]),
            4 => pick(self.rng, &[i64::MIN, i64::MAX]),
            _ => self.below(1_000_000),
        }
    }
}

/// Draws typical matchers, at least one.
pub(crate) fn draw_matchers(rng: &Rng, ledger: &TenantLedger, owner: Option<usize>) -> Vec<Matcher> {
    let regex = |name, op, pattern: &str| Matcher::new(name, op, pattern).expect("a valid regex");
    let number = ledger.series.keys().nth(rng.below(ledger.series.len().max(1) as u64) as usize);
    let id = number.copied().unwrap_or(0).to_string();
    let name = format!("m{}", rng.below(8));
    let mut all = match rng.below(7) {
        0 => vec![Matcher::equal("id", &id)],
        1 => vec![Matcher::equal("__name__", &name)],
        2 => vec![regex("__name__", MatchOp::Regex, "m[1-4]"), regex("job", MatchOp::NotEqual, "j1")],
        3 => vec![regex("id", MatchOp::Regex, &format!(".*{}", rng.below(10)))],
        4 => vec![Matcher::equal("__name__", &name), Matcher::equal("zone", "")],
        5 => vec![regex("zone", MatchOp::Regex, "z1|z2|z3"), regex("id", MatchOp::NotRegex, "1.*")],
        _ => vec![regex("__name__", MatchOp::Regex, ".+")],
    };
    all.extend(owner.map(|owner| Matcher::equal("owner", &owner.to_string())));
    all
}

/// Returns matchers that select all series of `owner`.
pub(crate) fn match_all(owner: Option<usize>) -> Vec<Matcher> {
    match owner {
        Some(owner) => vec![Matcher::equal("owner", &owner.to_string())],
        None => vec![Matcher::new("__name__", MatchOp::Regex, ".+").expect("a valid regex")],
    }
}

/// Draws a range in the unit of a tenant: all time, a window, or two random times.
pub(crate) fn draw_range(rng: &Rng, unit: TimeUnit, now_ms: i64) -> TimeRange {
    let range = draw_range_in_ms(rng, now_ms);
    if range == TimeRange::ALL || unit == TimeUnit::Milli {
        return range;
    }
    // Neighbouring nanoseconds come apart.
    let shift = rng.below(4) as i64;
    let range = unit.range_from_ms(range);
    TimeRange::new(range.start + shift, range.end + shift)
}

fn draw_range_in_ms(rng: &Rng, now_ms: i64) -> TimeRange {
    let below = |bound_ms: i64| rng.below(bound_ms.unsigned_abs()) as i64;
    let start = now_ms - below(pick(rng, &[HOUR_MS, DAY_MS, 11 * DAY_MS]));
    match rng.below(4) {
        0 => TimeRange::ALL,
        1 => TimeRange::window_of(start, WINDOW_MS),
        2 => TimeRange::new(start, start + 1 + below(HOUR_MS)),
        _ => TimeRange::new(start, start + 1 + below(3 * DAY_MS)),
    }
}
