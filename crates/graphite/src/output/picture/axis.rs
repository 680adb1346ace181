//! Axes: round steps of values with their labels, and steps of times.
//!
//! Invariant: a range of values is never empty; an axis has at most [`LABELS_MAX`] labels.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::options::{Bounds, Unit};

/// Labels of an axis.
const LABELS_MAX: usize = 64;
/// Pixels per label of a value axis.
const VALUE_LABEL_PIXELS: f64 = 40.0;
/// Pixels per label of the time axis.
const TIME_LABEL_PIXELS: f64 = 75.0;

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;
const DAY: i64 = 86_400;

/// Steps of the time axis in seconds, each with the format of its labels.
const TIME_STEPS: [(i64, &str); 19] = [
    (1, "%H:%M:%S"),
    (5, "%H:%M:%S"),
    (10, "%H:%M:%S"),
    (30, "%H:%M:%S"),
    (MINUTE, "%H:%M"),
    (2 * MINUTE, "%H:%M"),
    (5 * MINUTE, "%H:%M"),
    (10 * MINUTE, "%H:%M"),
    (30 * MINUTE, "%H:%M"),
    (HOUR, "%H:%M"),
    (2 * HOUR, "%H:%M"),
    (4 * HOUR, "%a %H:%M"),
    (12 * HOUR, "%a %H:%M"),
    (DAY, "%m/%d"),
    (2 * DAY, "%m/%d"),
    (7 * DAY, "%m/%d"),
    (30 * DAY, "%m/%d"),
    (90 * DAY, "%b %Y"),
    (365 * DAY, "%Y"),
];

/// A value axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ValueAxis {
    pub(super) min: f64,
    pub(super) max: f64,
    /// Values of the labels, ascending.
    pub(super) marks: Vec<f64>,
    log_base: Option<f64>,
    unit: Unit,
    step: f64,
}

impl ValueAxis {
    /// An axis for values from `low` to `high` on `pixels`.
    pub(super) fn new(
        low: f64,
        high: f64,
        bounds: Bounds,
        log_base: Option<f64>,
        unit: Unit,
        pixels: f64,
    ) -> ValueAxis {
        let min = bounds.min.unwrap_or(low);
        let mut max = bounds.max.unwrap_or(high);
        if max.is_nan() || max <= min {
            max = min + if min == 0.0 { 1.0 } else { min.abs() };
        }
        let log_base = log_base.filter(|_| max > 0.0);
        let axis = ValueAxis { min, max, marks: Vec::new(), log_base, unit, step: 1.0 };
        match log_base {
            Some(base) => axis.logarithmic(base),
            None => axis.linear(bounds, pixels),
        }
    }

    fn linear(mut self, bounds: Bounds, pixels: f64) -> ValueAxis {
        let count = (pixels / VALUE_LABEL_PIXELS).clamp(1.0, 20.0);
        self.step = round_step((self.max - self.min) / count, self.unit);
        if bounds.min.is_none() {
            self.min = (self.min / self.step).floor() * self.step;
        }
        if bounds.max.is_none() {
            self.max = (self.max / self.step).ceil() * self.step;
        }
        let first = (self.min / self.step).ceil();
        let marks = (0..LABELS_MAX).map(|idx| (first + idx as f64) * self.step);
        self.marks = marks.take_while(|mark| *mark <= self.max + self.step * 1e-9).collect();
        self
    }

    fn logarithmic(mut self, base: f64) -> ValueAxis {
        let lowest = if self.min > 0.0 { self.min } else { (self.max / base.powi(4)).min(1.0) };
        let first = lowest.log(base).floor();
        let last = self.max.log(base).ceil();
        self.min = base.powf(first);
        self.max = base.powf(last.max(first + 1.0));
        let marks = (0..LABELS_MAX).map(|idx| base.powf(first + idx as f64));
        self.marks = marks.take_while(|mark| *mark <= self.max * (1.0 + 1e-9)).collect();
        self
    }

    /// Returns the part of the axis below a value, from 0 to 1 within the bounds.
    pub(super) fn position(&self, value: f64) -> f64 {
        match self.log_base {
            Some(base) => {
                let low = self.min.log(base);
                (value.max(self.min).log(base) - low) / (self.max.log(base) - low)
            }
            None => (value - self.min) / (self.max - self.min),
        }
    }

    /// Returns the text of a label.
    pub(super) fn label(&self, value: f64) -> String {
        if value == 0.0 {
            return "0".to_owned();
        }
        let is_linear = self.log_base.is_none();
        let scale = value.abs().max(if is_linear { self.step } else { 0.0 });
        let prefix = prefixes_of(self.unit).iter().find(|(size, _)| scale >= *size);
        let (divisor, suffix) = prefix.copied().unwrap_or((1.0, ""));
        let step = if is_linear { self.step } else { value.abs() } / divisor;
        let decimals = if step > 0.0 { (-step.log10().floor()).clamp(0.0, 6.0) } else { 0.0 } as usize;
        let text = format!("{:.decimals$}", value / divisor);
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        let text = if text == "-0" { "0" } else { text };
        if suffix.is_empty() { text.to_owned() } else { format!("{text} {suffix}") }
    }
}

/// Units from the largest down, with their sizes.
fn prefixes_of(unit: Unit) -> &'static [(f64, &'static str)] {
    match unit {
        Unit::Si => &[(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")],
        Unit::Binary => &[
            (1_125_899_906_842_624.0, "Pi"),
            (1_099_511_627_776.0, "Ti"),
            (1_073_741_824.0, "Gi"),
            (1_048_576.0, "Mi"),
            (1024.0, "Ki"),
        ],
        Unit::Seconds => &[
            (31_536_000.0, "Y"),
            (2_592_000.0, "M"),
            (86_400.0, "D"),
            (3600.0, "h"),
            (60.0, "m"),
            (1.0, "s"),
        ],
        Unit::Milliseconds => &[
            (31_536_000_000.0, "Y"),
            (2_592_000_000.0, "M"),
            (86_400_000.0, "D"),
            (3_600_000.0, "h"),
            (60_000.0, "m"),
            (1000.0, "s"),
            (1.0, "ms"),
        ],
        Unit::Plain => &[],
    }
}

/// Round numbers of seconds.
const SECOND_STEPS: [f64; 18] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0,
    21_600.0, 43_200.0, 86_400.0,
];

/// Returns the smallest of 1, 2, 5 times a power of ten that is not below `step`; a power of two for binary
/// units, and a round number of seconds for units of time.
fn round_step(step: f64, unit: Unit) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 1.0;
    }
    if unit == Unit::Binary && step >= 1.0 {
        return 2f64.powf(step.log2().ceil());
    }
    let second = if unit == Unit::Milliseconds { 1000.0 } else { 1.0 };
    if matches!(unit, Unit::Seconds | Unit::Milliseconds)
        && step > second
        && let Some(round) = SECOND_STEPS.iter().find(|round| **round * second >= step * (1.0 - 1e-9))
    {
        return round * second;
    }
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// Labels of the time axis over `[from, until]`: times in seconds and texts.
pub(super) fn time_labels(
    from: i64,
    until: i64,
    pixels: f64,
    zone: &TimeZone,
    format: Option<&str>,
) -> Vec<(i64, String)> {
    let count = (pixels / TIME_LABEL_PIXELS).clamp(1.0, LABELS_MAX as f64);
    let wanted = (until.saturating_sub(from)) as f64 / count;
    let last = TIME_STEPS[TIME_STEPS.len() - 1];
    let (step, default) = TIME_STEPS.into_iter().find(|(step, _)| *step as f64 >= wanted).unwrap_or(last);
    // Multiples of the step in wall time.
    let offset = Timestamp::from_second(from).map_or(0, |time| i64::from(zone.to_offset(time).seconds()));
    let first = (from + offset).div_euclid(step).saturating_add(1).saturating_mul(step) - offset;
    let label = |time: i64| {
        let wall = zone.to_datetime(Timestamp::from_second(time).ok()?);
        let text = jiff::fmt::strtime::format(format.unwrap_or(default), wall);
        Some((time, text.or_else(|_| jiff::fmt::strtime::format(default, wall)).ok()?))
    };
    let times = (0..LABELS_MAX as i64).map(|idx| first.saturating_add(idx.saturating_mul(step)));
    times.take_while(|time| *time <= until).filter_map(label).collect()
}
