//! Declaration of a metric: name, type, labels and help text, with the function that reads its value. A table
//! of them stands in the file of the counters that it reads; `/metrics`, the self-scrape, metadata and
//! docs/reference/metrics.md come from the tables.
//! Invariants: samples have the labels of the declaration, in its order. The unit is the last word of the
//! name before `_total` and is written nowhere else.
//! Not here: text formats (`server::metrics::exposition`), the list of tables (`server::metrics::gather`).

use super::family::{Family, FamilyKind, FamilySample};
use crate::counter::Seconds;

/// Name, type, labels and help text of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// Name, with unit and `_total`.
    pub name: &'static str,
    /// Type.
    pub kind: FamilyKind,
    /// Names of the labels, in order.
    pub labels: &'static [&'static str],
    /// Help text.
    pub help: &'static str,
}

/// A metric that is read from `S`.
pub struct Metric<S> {
    definition: Definition,
    read: Read<S>,
}

enum Read<S> {
    Value(fn(&S) -> f64),
    /// The metric is left out if there is no value.
    Optional(fn(&S) -> Option<f64>),
    Samples(fn(&S, &mut Samples)),
}

impl<S> Metric<S> {
    /// A counter without labels.
    pub const fn counter(name: &'static str, help: &'static str, read: fn(&S) -> f64) -> Metric<S> {
        Metric::new(name, FamilyKind::Counter, &[], help, Read::Value(read))
    }

    /// A gauge without labels.
    pub const fn gauge(name: &'static str, help: &'static str, read: fn(&S) -> f64) -> Metric<S> {
        Metric::new(name, FamilyKind::Gauge, &[], help, Read::Value(read))
    }

    /// A counter that may have no value.
    pub const fn optional_counter(
        name: &'static str,
        help: &'static str,
        read: fn(&S) -> Option<f64>,
    ) -> Metric<S> {
        Metric::new(name, FamilyKind::Counter, &[], help, Read::Optional(read))
    }

    /// A gauge that may have no value.
    pub const fn optional_gauge(
        name: &'static str,
        help: &'static str,
        read: fn(&S) -> Option<f64>,
    ) -> Metric<S> {
        Metric::new(name, FamilyKind::Gauge, &[], help, Read::Optional(read))
    }

    /// Counters by labels.
    pub const fn counters(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S, &mut Samples),
    ) -> Metric<S> {
        Metric::new(name, FamilyKind::Counter, labels, help, Read::Samples(read))
    }

    /// Gauges by labels.
    pub const fn gauges(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S, &mut Samples),
    ) -> Metric<S> {
        Metric::new(name, FamilyKind::Gauge, labels, help, Read::Samples(read))
    }

    /// Histograms by labels.
    pub const fn histograms(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        read: fn(&S, &mut Samples),
    ) -> Metric<S> {
        Metric::new(name, FamilyKind::Histogram, labels, help, Read::Samples(read))
    }

    const fn new(
        name: &'static str,
        kind: FamilyKind,
        labels: &'static [&'static str],
        help: &'static str,
        read: Read<S>,
    ) -> Metric<S> {
        Metric { definition: Definition { name, kind, labels, help }, read }
    }

    /// The declaration, for the page of metrics.
    #[must_use]
    pub fn definition(&self) -> Definition {
        self.definition
    }

    fn family(&self, source: &S) -> Option<Family> {
        let Definition { name, kind, labels, help } = self.definition;
        let mut samples = Samples { labels, out: Vec::new() };
        match self.read {
            Read::Value(read) => samples.push(&[], read(source)),
            Read::Optional(read) => samples.push(&[], read(source)?),
            Read::Samples(read) => read(source, &mut samples),
        }
        Some(Family { name: name.to_owned(), kind, help, samples: samples.out })
    }
}

/// Appends the families of a table.
pub fn collect<S>(table: &[Metric<S>], source: &S, families: &mut Vec<Family>) {
    families.extend(table.iter().filter_map(|metric| metric.family(source)));
}

/// Samples of one metric.
pub struct Samples {
    labels: &'static [&'static str],
    out: Vec<FamilySample>,
}

impl Samples {
    /// Adds a sample with these values of the labels.
    pub fn push(&mut self, label_values: &[&str], value: f64) {
        let labels = self.label_pairs(label_values);
        self.out.push(FamilySample { suffix: "", labels, value });
    }

    /// Adds a histogram: buckets, sum and count.
    pub fn push_histogram(&mut self, label_values: &[&str], seconds: &Seconds) {
        let labels = self.label_pairs(label_values);
        let (buckets, sum) = seconds.cumulative();
        let count = buckets.last().map_or(0, |(_, count)| *count);
        for (bound, count) in buckets {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let labels = labels.iter().cloned().chain([("le", bound)]).collect();
            self.out.push(FamilySample { suffix: "_bucket", labels, value: count as f64 });
        }
        self.out.push(FamilySample { suffix: "_sum", labels: labels.clone(), value: sum });
        self.out.push(FamilySample { suffix: "_count", labels, value: count as f64 });
    }

    fn label_pairs(&self, values: &[&str]) -> Vec<(&'static str, String)> {
        debug_assert_eq!(values.len(), self.labels.len(), "one value for each of {:?}", self.labels);
        self.labels.iter().zip(values).map(|(label, value)| (*label, (*value).to_owned())).collect()
    }
}
