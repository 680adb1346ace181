//! Indicators of technical analysis: exponential moving averages, and indicators computed from them.
//!
//! Invariants: an indicator is fed with one value after the other; its first values, `warm_count` of them,
//! are left out unless a hold period is given.

use crate::rows::plan::{Indicator, IndicatorKind, Warmup};

/// Computes an indicator; returns the rows that have a value, and their values.
pub(crate) fn compute(arguments: Indicator, values: &[f64]) -> (Vec<usize>, Vec<f64>) {
    let period = arguments.period.max(1);
    // A ring that is longer than the input is never full, and its length makes no difference: the period is
    // the client's, and no reason to allocate more than the points need.
    let ring_len = period.min(values.len().saturating_add(2));
    let warmup = arguments.warmup.unwrap_or_default();
    let mut state: Box<dyn Formula> = match arguments.kind {
        IndicatorKind::ExponentialMovingAverage => Box::new(Average::new(period, warmup)),
        IndicatorKind::DoubleExponentialMovingAverage => {
            Box::new(Chain::new(period, warmup, ChainKind::Double))
        }
        IndicatorKind::TripleExponentialMovingAverage => {
            Box::new(Chain::new(period, warmup, ChainKind::Triple))
        }
        IndicatorKind::TripleExponentialDerivative => {
            Box::new(Chain::new(period, warmup, ChainKind::Derivative { last: 0.0 }))
        }
        IndicatorKind::RelativeStrengthIndex => Box::new(Strength::new(period, warmup)),
        IndicatorKind::ChandeMomentumOscillator => match arguments.warmup {
            None => Box::new(Momentum::new(ring_len)),
            Some(warmup) => Box::new(SmoothMomentum(Strength::new(period, warmup))),
        },
        IndicatorKind::KaufmansEfficiencyRatio => Box::new(Efficiency::new(ring_len)),
        IndicatorKind::KaufmansAdaptiveMovingAverage => {
            Box::new(Adaptive { efficiency: Efficiency::new(ring_len), last: 0.0 })
        }
    };
    let hold = arguments.hold.unwrap_or_else(|| state.warm_count());
    let mut rows = Vec::new();
    let mut out = Vec::new();
    for (row, value) in values.iter().enumerate() {
        let result = state.add(*value);
        if row >= hold && !result.is_infinite() {
            rows.push(row);
            out.push(result);
        }
    }
    (rows, out)
}

trait Formula {
    /// Values before the first one that is returned.
    fn warm_count(&self) -> usize;
    fn add(&mut self, value: f64) -> f64;
}

/// Exponential moving average.
struct Average {
    period: usize,
    alpha: f64,
    warmup: Warmup,
    count: usize,
    last: f64,
}

impl Average {
    fn new(period: usize, warmup: Warmup) -> Average {
        Average { period, alpha: 2.0 / (period as f64 + 1.0), warmup, count: 0, last: 0.0 }
    }

    /// Wilder's moving average: a factor of 1 / period, and one value more to warm up.
    fn smoothed(period: usize, warmup: Warmup) -> Average {
        Average { period: period.saturating_add(1), alpha: 1.0 / period as f64, warmup, count: 0, last: 0.0 }
    }

    fn is_warm(&self) -> bool {
        self.count == self.period
    }
}

impl Formula for Average {
    fn warm_count(&self) -> usize {
        self.period - 1
    }

    fn add(&mut self, value: f64) -> f64 {
        self.last = if self.count == 0 {
            value
        } else if !self.is_warm() && self.warmup == Warmup::Simple {
            let count = self.count as f64;
            (self.last * count + value) / (count + 1.0)
        } else {
            // While it warms up, the period is the number of values so far.
            let alpha = if self.is_warm() { self.alpha } else { 2.0 / (self.count + 2) as f64 };
            self.last + (value - self.last) * alpha
        };
        self.count = (self.count + 1).min(self.period);
        self.last
    }
}

/// Result of averages of averages.
enum ChainKind {
    Double,
    Triple,
    /// Change of the third one, in percent.
    Derivative {
        last: f64,
    },
}

/// Averages, each of the one before. With a simple warm-up each waits for the one before.
struct Chain {
    averages: Vec<Average>,
    kind: ChainKind,
}

impl Chain {
    fn new(period: usize, warmup: Warmup, kind: ChainKind) -> Chain {
        let count = if matches!(kind, ChainKind::Double) { 2 } else { 3 };
        Chain { averages: (0..count).map(|_| Average::new(period, warmup)).collect(), kind }
    }
}

impl Formula for Chain {
    fn warm_count(&self) -> usize {
        let one = self.averages[0].warm_count();
        let all = match self.averages[0].warmup {
            Warmup::Exponential => one,
            Warmup::Simple => one.saturating_mul(self.averages.len()),
        };
        all.saturating_add(usize::from(matches!(self.kind, ChainKind::Derivative { .. })))
    }

    fn add(&mut self, value: f64) -> f64 {
        // An average that still waits has the value of the one before.
        let mut results = [0.0; 3];
        let mut last = value;
        let mut waits = false;
        for (result, average) in results.iter_mut().zip(&mut self.averages) {
            last = if waits { last } else { average.add(last) };
            *result = last;
            waits |= average.warmup == Warmup::Simple && !average.is_warm();
        }
        match &mut self.kind {
            ChainKind::Double => 2.0 * results[0] - results[1],
            ChainKind::Triple => 3.0 * results[0] - 3.0 * results[1] + results[2],
            ChainKind::Derivative { last: before } => {
                let rate = (last / *before - 1.0) * 100.0;
                *before = last;
                rate
            }
        }
    }
}

/// Relative strength index over averages of gains and losses.
struct Strength {
    gains: Average,
    losses: Average,
    /// 0 before the first value, whose change is its value.
    last: f64,
}

impl Strength {
    fn new(period: usize, warmup: Warmup) -> Strength {
        let average = || Average::smoothed(period, warmup);
        Strength { gains: average(), losses: average(), last: 0.0 }
    }

    fn push(&mut self, value: f64) {
        let change = value - self.last;
        self.gains.add(change.max(0.0));
        self.losses.add((-change).max(0.0));
        self.last = value;
    }
}

impl Formula for Strength {
    fn warm_count(&self) -> usize {
        self.gains.warm_count()
    }

    fn add(&mut self, value: f64) -> f64 {
        self.push(value);
        100.0 - 100.0 / (1.0 + self.gains.last / self.losses.last)
    }
}

/// Chande momentum oscillator over smoothed averages.
struct SmoothMomentum(Strength);

impl Formula for SmoothMomentum {
    fn warm_count(&self) -> usize {
        self.0.warm_count()
    }

    fn add(&mut self, value: f64) -> f64 {
        self.0.push(value);
        let gain = self.0.gains.last;
        let loss = self.0.losses.last;
        100.0 * ((gain - loss) / (gain + loss))
    }
}

/// Chande momentum oscillator over the sums of the changes of a period.
struct Momentum {
    changes: Vec<f64>,
    at: usize,
    gain: f64,
    loss: f64,
    last: Option<f64>,
}

impl Momentum {
    fn new(period: usize) -> Momentum {
        Momentum { changes: vec![0.0; period], at: 0, gain: 0.0, loss: 0.0, last: None }
    }
}

impl Formula for Momentum {
    fn warm_count(&self) -> usize {
        self.changes.len() - 1
    }

    fn add(&mut self, value: f64) -> f64 {
        let change = self.last.map_or(0.0, |last| value - last);
        self.last = Some(value);
        self.at = (self.at + 1) % self.changes.len();
        let leaving = std::mem::replace(&mut self.changes[self.at], change);
        if leaving < 0.0 {
            self.loss += leaving;
        } else {
            self.gain -= leaving;
        }
        if change < 0.0 {
            self.loss -= change;
        } else {
            self.gain += change;
        }
        if self.gain == 0.0 && self.loss == 0.0 {
            return 0.0;
        }
        100.0 * ((self.gain - self.loss) / (self.gain + self.loss))
    }
}

/// Kaufman's efficiency ratio: change over a period, by the sum of its single changes.
struct Efficiency {
    values: Vec<f64>,
    changes: Vec<f64>,
    at: usize,
    noise: f64,
    count: usize,
}

impl Efficiency {
    fn new(period: usize) -> Efficiency {
        let zeros = vec![0.0; period];
        Efficiency { values: zeros.clone(), changes: zeros, at: 0, noise: 0.0, count: 0 }
    }

    fn is_warm(&self) -> bool {
        self.count > self.values.len()
    }
}

impl Formula for Efficiency {
    fn warm_count(&self) -> usize {
        self.values.len()
    }

    fn add(&mut self, value: f64) -> f64 {
        let oldest = (self.at + 1) % self.values.len();
        let signal = (value - self.values[oldest]).abs();
        let change = (value - self.values[self.at]).abs();
        // In two steps: the difference of both changes may have another last digit.
        self.noise -= self.changes[oldest];
        self.noise += change;
        self.at = oldest;
        self.values[oldest] = value;
        self.changes[oldest] = change;
        self.count = (self.count + 1).min(self.values.len() + 1);
        if signal == 0.0 || self.noise == 0.0 { 0.0 } else { signal / self.noise }
    }
}

/// Kaufman's adaptive moving average: its factor follows the efficiency ratio.
struct Adaptive {
    efficiency: Efficiency,
    last: f64,
}

impl Formula for Adaptive {
    fn warm_count(&self) -> usize {
        self.efficiency.warm_count()
    }

    fn add(&mut self, value: f64) -> f64 {
        const SLOWEST: f64 = 2.0 / 31.0;
        // 2/3 - 2/31, rounded once.
        const SPAN: f64 = 56.0 / 93.0;
        let ratio = self.efficiency.add(value);
        let factor = (ratio * SPAN + SLOWEST).powi(2);
        let average = self.last + factor * (value - self.last);
        // Until it is warm, each average starts at the value before.
        self.last = if self.efficiency.is_warm() { average } else { value };
        average
    }
}
