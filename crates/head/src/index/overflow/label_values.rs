//! Estimates of distinct label values of folded series, by metric and label: HyperLogLog with 128 registers,
//! and linear counting for few values. The standard error is 9 %.
//!
//! Invariant: at most [`METRIC_COUNT_MAX`] metrics with [`LABEL_COUNT_MAX`] labels each; a label is added to
//! when a series is folded for the first time, never per sample.
//! Not here: bytes in the checkpoint (`format::head::overflow_file`).

use std::collections::BTreeMap;

/// Metrics with estimates.
const METRIC_COUNT_MAX: usize = 64;
/// Labels of a metric with estimates.
const LABEL_COUNT_MAX: usize = 32;
/// Registers of an estimate.
const REGISTER_COUNT: usize = 128;
const REGISTER_BITS: u32 = REGISTER_COUNT.ilog2();

const _: () = assert!(REGISTER_COUNT.is_power_of_two(), "the first bits of a hash select a register");
const _: () = assert!(
    METRIC_COUNT_MAX * LABEL_COUNT_MAX * REGISTER_COUNT <= 256 << 10,
    "the estimates of a tenant are small"
);

/// Estimate of distinct values: the highest rank of a hash by register.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ValueEstimate(Box<[u8; REGISTER_COUNT]>);

impl Default for ValueEstimate {
    fn default() -> ValueEstimate {
        ValueEstimate(Box::new([0; REGISTER_COUNT]))
    }
}

impl ValueEstimate {
    /// Adds a value by its hash.
    fn add(&mut self, hash: u64) {
        let register = &mut self.0[(hash >> (u64::BITS - REGISTER_BITS)) as usize];
        // The bit after the hash bounds the rank.
        let rank = ((hash << REGISTER_BITS) | (1 << (REGISTER_BITS - 1))).leading_zeros() + 1;
        *register = (*register).max(rank as u8);
    }

    /// Returns the number of distinct values that were added.
    pub(crate) fn count(&self) -> u64 {
        let size = REGISTER_COUNT as f64;
        let empty = self.0.iter().filter(|&&register| register == 0).count() as f64;
        let sum: f64 = self.0.iter().map(|&register| (-f64::from(register)).exp2()).sum();
        let raw = 0.7213 / (1.0 + 1.079 / size) * size * size / sum;
        let count = if raw <= 2.5 * size && empty > 0.0 { size * (size / empty).ln() } else { raw };
        count.round() as u64
    }

    /// Registers, for a checkpoint.
    pub(crate) fn registers(&self) -> &[u8] {
        &self.0[..]
    }

    /// Returns the estimate with these registers; `None` if there are more or fewer.
    fn from_registers(registers: &[u8]) -> Option<ValueEstimate> {
        let registers = <[u8; REGISTER_COUNT]>::try_from(registers).ok()?;
        // A hash of zeros has the highest rank.
        let rank_max = (u64::BITS - REGISTER_BITS + 1) as u8;
        Some(ValueEstimate(Box::new(registers.map(|register| register.min(rank_max)))))
    }
}

/// Labels of the folded series of one metric.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MetricLabels {
    since_ms: i64,
    labels: BTreeMap<Box<str>, ValueEstimate>,
}

impl MetricLabels {
    /// Returns the labels of a checkpoint; a label with an invalid estimate is left out.
    pub(crate) fn from_registers<'a>(
        since_ms: i64,
        labels: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> MetricLabels {
        let labels = labels
            .filter_map(|(label, registers)| Some((label.into(), ValueEstimate::from_registers(registers)?)));
        MetricLabels { since_ms, labels: labels.collect() }
    }

    /// Clock time at which a series of the metric was folded for the first time, in milliseconds.
    pub(crate) fn since_ms(&self) -> i64 {
        self.since_ms
    }

    /// Iterates over the labels with their estimates.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &ValueEstimate)> {
        self.labels.iter().map(|(label, estimate)| (&**label, estimate))
    }
}

/// Labels of the folded series of one tenant.
#[derive(Debug, Default)]
pub(crate) struct LabelValues(BTreeMap<Box<str>, MetricLabels>);

impl LabelValues {
    /// Adds the labels of a series that is folded for the first time; `hash` hashes a value.
    pub(crate) fn add(
        &mut self,
        metric: &str,
        labels: &[(&str, &str)],
        now_ms: i64,
        hash: impl Fn(&str) -> u64,
    ) {
        if !self.0.contains_key(metric) {
            if self.0.len() >= METRIC_COUNT_MAX {
                return;
            }
            self.0.insert(metric.into(), MetricLabels { since_ms: now_ms, labels: BTreeMap::new() });
        }
        let Some(found) = self.0.get_mut(metric) else { return };
        for &(name, value) in labels {
            let has_room = found.labels.len() < LABEL_COUNT_MAX;
            match found.labels.get_mut(name) {
                Some(estimate) => estimate.add(hash(value)),
                None if has_room => {
                    found.labels.entry(name.into()).or_default().add(hash(value));
                }
                None => {}
            }
        }
    }

    /// Restores the labels of a metric of a checkpoint.
    pub(crate) fn load(&mut self, metric: &str, labels: MetricLabels) {
        if self.0.len() < METRIC_COUNT_MAX && labels.labels.len() <= LABEL_COUNT_MAX {
            self.0.insert(metric.into(), labels);
        }
    }

    /// Returns the labels of a metric.
    pub(crate) fn of(&self, metric: &str) -> Option<&MetricLabels> {
        self.0.get(metric)
    }

    /// Iterates over all metrics.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = (&str, &MetricLabels)> {
        self.0.iter().map(|(metric, labels)| (&**metric, labels))
    }

    /// Removes the metrics for which `is_used` returns false.
    pub(crate) fn retain(&mut self, is_used: impl Fn(&str) -> bool) {
        self.0.retain(|metric, _| is_used(metric));
    }

    /// Bytes of heap memory, without the texts.
    pub(crate) fn heap_bytes(&self) -> usize {
        let label_count: usize = self.0.values().map(|metric| metric.labels.len()).sum();
        label_count * (REGISTER_COUNT + size_of::<(Box<str>, ValueEstimate)>())
            + self.0.len() * size_of::<(Box<str>, MetricLabels)>()
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    fn hash(value: &str) -> u64 {
        xxh3_64(value.as_bytes())
    }

    #[test]
    fn an_estimate_is_within_three_standard_errors() {
        for count in [1u64, 2, 10, 100, 300, 1_000, 20_000, 300_000] {
            let mut estimate = ValueEstimate::default();
            for _ in 0..2 {
                (0..count).for_each(|value| estimate.add(hash(&value.to_string())));
            }
            let found = estimate.count();
            let error_max = (count as f64 * 0.27).max(0.5);
            assert!((found as f64 - count as f64).abs() <= error_max, "{count}: {found}");
            let again = ValueEstimate::from_registers(estimate.registers()).unwrap();
            assert_eq!(again, estimate);
        }
        assert_eq!(ValueEstimate::default().count(), 0);
        let mut extremes = ValueEstimate::default();
        [0, u64::MAX, 1, 1 << 63].into_iter().for_each(|hash| extremes.add(hash));
        assert!(extremes.count() >= 2);
        assert!(ValueEstimate::from_registers(&[255; REGISTER_COUNT]).unwrap().count() > 0);
        assert!(ValueEstimate::from_registers(&[0; 3]).is_none());
    }

    #[test]
    fn metrics_and_labels_are_bounded_and_unused_metrics_make_room() {
        let mut values = LabelValues::default();
        let names: Vec<String> = (0..2 * LABEL_COUNT_MAX).map(|idx| format!("l{idx}")).collect();
        let labels: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
        for idx in 0..2 * METRIC_COUNT_MAX {
            values.add(&format!("m{idx}"), &labels, idx as i64, hash);
        }
        assert_eq!(values.all().len(), METRIC_COUNT_MAX);
        assert!(values.all().all(|(_, metric)| metric.labels.len() == LABEL_COUNT_MAX));
        assert!(values.heap_bytes() < 512 << 10, "{}", values.heap_bytes());
        values.retain(|metric| metric == "m7");
        values.add("new", &labels[..1], 99, hash);
        values.add("new", &labels[..1], 100, hash);
        assert_eq!(values.of("m7").map(|found| found.since_ms), Some(7));
        let found = values.of("new").unwrap();
        assert_eq!((found.since_ms, found.labels["l0"].count()), (99, 1));
    }
}
