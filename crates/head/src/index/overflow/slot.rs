//! Destination of folded samples: a metric, or one bucket of a classic histogram, with its sum.

use chronolith_format::head::wal::OverflowSlot;
use chronolith_model::histogram::SCHEMA_CUSTOM;
use chronolith_model::metadata::MetricKind;
use chronolith_model::{FloatHistogram, Histogram, ResetHint};

use super::active::ActiveSums;
use super::histogram_sums::HistogramSums;

/// Slots of one tenant: metrics, and each bucket of a classic histogram.
pub(crate) const SLOT_COUNT_MAX: usize = 10_000;
/// Buckets of one metric.
pub(super) const BUCKET_COUNT_MAX: u16 = 128;

/// Bit of the number of a kind in files: [`Slot::is_further`].
pub(super) const KIND_FURTHER: u8 = 0x40;

/// Endings of names whose values are counters where the type is unknown.
const COUNTER_SUFFIXES: [&str; 4] = ["_total", "_count", "_sum", "_bucket"];

/// Distance of the samples of an overflow series: times are rounded up to a multiple.
const STEP_MS: i64 = 1000;

/// Rounds a time up to a sample time of overflow series.
pub(crate) fn step_of(time: i64) -> i64 {
    time.saturating_add(STEP_MS - 1).div_euclid(STEP_MS) * STEP_MS
}

/// Kind of the values of a slot: values of different classes cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ValueClass {
    Float,
    /// Native histograms with exponential buckets.
    Exponential,
    /// Native histograms with custom bounds.
    Custom,
}

impl ValueClass {
    pub(super) const ALL: [ValueClass; 3] = [ValueClass::Float, ValueClass::Exponential, ValueClass::Custom];

    /// Returns the class of a histogram that is no staleness marker.
    pub(crate) fn of(histogram: &Histogram) -> ValueClass {
        if histogram.schema() == SCHEMA_CUSTOM { ValueClass::Custom } else { ValueClass::Exponential }
    }

    /// Value of the label of overflow series of a slot that is not the first of its metric.
    fn label_value(self) -> &'static str {
        match self {
            ValueClass::Float => "float",
            ValueClass::Exponential => "exponential",
            ValueClass::Custom => "custom",
        }
    }
}

/// Meaning of the values of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// Increases are added.
    Counter,
    /// Values of active series are added.
    Gauge,
    /// Times of creation: active series are counted, a sum would have no meaning.
    Created,
    /// Increases of histograms are added.
    Histogram(ValueClass),
    /// Active histograms are added.
    GaugeHistogram(ValueClass),
}

impl SlotKind {
    /// Kinds by their number in files.
    const ALL: [SlotKind; 7] = [
        SlotKind::Counter,
        SlotKind::Gauge,
        SlotKind::Created,
        SlotKind::Histogram(ValueClass::Exponential),
        SlotKind::GaugeHistogram(ValueClass::Exponential),
        SlotKind::Histogram(ValueClass::Custom),
        SlotKind::GaugeHistogram(ValueClass::Custom),
    ];

    /// Returns the kind of the values of `metric`, whose type is `known`. Names without a type and without
    /// the suffix of a counter are gauges.
    pub(crate) fn of(metric: &str, known: Option<MetricKind>) -> SlotKind {
        if metric.ends_with("_created") {
            return SlotKind::Created;
        }
        let by_name = || match COUNTER_SUFFIXES.iter().any(|suffix| metric.ends_with(suffix)) {
            true => SlotKind::Counter,
            false => SlotKind::Gauge,
        };
        match known {
            Some(MetricKind::Counter) => SlotKind::Counter,
            // Series of a histogram or summary have the suffixes, and quantiles have none.
            Some(MetricKind::Histogram | MetricKind::Summary | MetricKind::Unknown) | None => by_name(),
            Some(_) => SlotKind::Gauge,
        }
    }

    /// Returns the kind of a metric whose first folded histogram is `first`, and whose type is `known`.
    pub(crate) fn of_histograms(first: &Histogram, known: Option<MetricKind>) -> SlotKind {
        let class = ValueClass::of(first);
        match (first.reset_hint(), known) {
            (ResetHint::Gauge, _) | (_, Some(MetricKind::GaugeHistogram)) => SlotKind::GaugeHistogram(class),
            _ => SlotKind::Histogram(class),
        }
    }

    /// Class of the values.
    pub(crate) fn class(self) -> ValueClass {
        match self {
            SlotKind::Histogram(class) | SlotKind::GaugeHistogram(class) => class,
            SlotKind::Counter | SlotKind::Gauge | SlotKind::Created => ValueClass::Float,
        }
    }

    /// Returns true if the sum is of increases.
    pub(super) fn is_counter(self) -> bool {
        matches!(self, SlotKind::Counter | SlotKind::Histogram(_))
    }

    /// Number of the kind in files.
    pub(super) fn number(self) -> u8 {
        (0..).zip(SlotKind::ALL).find(|(_, kind)| *kind == self).map_or(0, |(number, _)| number)
    }

    /// Returns the kind with this number.
    pub(super) fn from_number(number: u8) -> Option<SlotKind> {
        SlotKind::ALL.get(usize::from(number)).copied()
    }
}

/// Slot with its sum.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(super) metric: Box<str>,
    pub(super) le: Option<Box<str>>,
    pub(super) kind: SlotKind,
    /// Set if the metric had a slot of another class before: their overflow series have different labels.
    pub(super) is_further: bool,
    /// Time of the newest sample of the overflow series.
    pub(super) time: i64,
    pub(super) total: f64,
    pub(super) active: ActiveSums,
    /// Sums of native histograms; of these, `total` has no meaning and `active` the sums of observations.
    pub(super) histograms: Option<Box<HistogramSums>>,
    pub(super) series_count: u32,
    /// Last frame with samples of the slot, and the number of the slot in it.
    pub(super) last_frame: u64,
    pub(super) number_in_frame: u32,
    /// Last group with samples of the slot.
    pub(super) last_group: u64,
}

impl Slot {
    pub(super) fn new(metric: &str, le: Option<&str>, kind: SlotKind, is_further: bool) -> Slot {
        Slot {
            metric: metric.into(),
            le: le.map(Box::from),
            kind,
            is_further,
            time: i64::MIN,
            total: 0.0,
            active: ActiveSums::default(),
            histograms: (kind.class() != ValueClass::Float).then(Box::default),
            series_count: 0,
            last_frame: 0,
            number_in_frame: 0,
            last_group: 0,
        }
    }

    /// Name of the metric.
    pub(crate) fn metric(&self) -> &str {
        &self.metric
    }

    /// Bound of a bucket of a classic histogram.
    pub(crate) fn le(&self) -> Option<&str> {
        self.le.as_deref()
    }

    /// Time of the newest sample of the overflow series.
    pub(crate) fn time(&self) -> i64 {
        self.time
    }

    /// Sum of increases.
    pub(crate) fn total(&self) -> f64 {
        self.total
    }

    /// Returns the slot as files have it.
    pub(crate) fn as_stored(&self) -> OverflowSlot<'_> {
        let further = if self.is_further { KIND_FURTHER } else { 0 };
        OverflowSlot { metric: &self.metric, le: self.le.as_deref(), kind: self.kind.number() | further }
    }

    /// Returns the value of the overflow series at the time of the slot: `None` if it has none.
    pub(crate) fn sum(&self) -> Option<f64> {
        match self.kind {
            SlotKind::Counter => Some(self.total),
            SlotKind::Gauge => Some(self.active.at(self.time).0),
            SlotKind::Created | SlotKind::Histogram(_) | SlotKind::GaugeHistogram(_) => None,
        }
    }

    /// Returns the histogram of the overflow series at the time of the slot: `None` if it has none.
    pub(crate) fn histogram_sum(&self) -> Option<Histogram> {
        let sums = self.histograms.as_deref()?;
        if self.kind.is_counter() {
            return sums.total().cloned().map(Histogram::Float);
        }
        let (observation_sum, active_count) = self.active.at(self.time);
        let sum = if active_count > 0 { sums.gauges_at(self.time) } else { Some(FloatHistogram::default()) };
        let hint = ResetHint::Gauge;
        sum.map(|sum| Histogram::Float(FloatHistogram { sum: observation_sum, reset_hint: hint, ..sum }))
    }

    /// Value of the label of the overflow series.
    pub(crate) fn label_value(&self) -> &'static str {
        if self.is_further { self.kind.class().label_value() } else { "true" }
    }

    /// Returns the number of active series at the time of the slot, which counters do not have.
    pub(crate) fn active_count(&self) -> Option<u64> {
        (!self.kind.is_counter()).then(|| self.active.at(self.time).1)
    }

    /// Number of folded series.
    pub(crate) fn series_count(&self) -> u64 {
        u64::from(self.series_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_decides_before_the_name() {
        let check = |name: &str, known: Option<MetricKind>, want: SlotKind| {
            assert_eq!(SlotKind::of(name, known), want, "{name} {known:?}");
        };
        check("a_total", None, SlotKind::Counter);
        check("a_total", Some(MetricKind::Gauge), SlotKind::Gauge);
        check("a", Some(MetricKind::Counter), SlotKind::Counter);
        check("a", None, SlotKind::Gauge);
        check("a_bucket", Some(MetricKind::Histogram), SlotKind::Counter);
        check("a", Some(MetricKind::Summary), SlotKind::Gauge);
        let all = SlotKind::ALL.map(|kind| SlotKind::from_number(kind.number()));
        assert_eq!(all, SlotKind::ALL.map(Some));
        check("a_created", Some(MetricKind::Counter), SlotKind::Created);
    }
}
