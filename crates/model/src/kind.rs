//! Kind of the 64-bit words of a series, as part of its name: the reserved label `__kind__`, absent for
//! floats.
//!
//! Invariants: all words of a series are of one kind, so no sample names its kind; reserved labels are set by
//! protocols whose values have a type, and readers of PromQL never see them (`tsdb::query`).
//! Not here: native histograms, which are no words; encodings of chunks (`format::chunk`).

use crate::Labels;

/// Name of the label that holds the kind.
pub const KIND_LABEL: &str = "__kind__";
/// Labels that name no property of a target: the kind, and the field of a measurement.
pub const RESERVED_LABELS: [&str; 2] = [KIND_LABEL, "__field__"];

/// Returns true if clients of untyped protocols may not use the label name.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED_LABELS.contains(&name)
}

/// Kind of the words of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WordKind {
    /// Any `f64`, bit for bit.
    #[default]
    Float,
    /// +0.0 for false and 1.0 for true.
    Boolean,
}

impl WordKind {
    /// All kinds that a label names.
    pub const LABELED: [WordKind; 1] = [WordKind::Boolean];

    /// Value of the label; empty for floats, which have none.
    #[must_use]
    pub fn label_value(self) -> &'static str {
        match self {
            WordKind::Float => "",
            WordKind::Boolean => "bool",
        }
    }

    /// Returns the kind of a series. A value of a later version is read as floats.
    #[must_use]
    pub fn of(labels: &Labels) -> WordKind {
        // The label sorts before the metric name.
        let value = labels.iter().take_while(|(name, _)| *name <= KIND_LABEL).last();
        let value = value.filter(|(name, _)| *name == KIND_LABEL).map_or("", |(_, value)| value);
        let found = WordKind::LABELED.into_iter().find(|kind| kind.label_value() == value);
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_series_is_a_label() {
        let labels = [("A", "x"), ("__name__", "up"), ("job", "node")];
        assert_eq!(WordKind::of(&Labels::from_pairs(labels)), WordKind::Float);
        for kind in WordKind::LABELED {
            let typed = labels.into_iter().chain([(KIND_LABEL, kind.label_value())]);
            assert_eq!(WordKind::of(&Labels::from_pairs(typed)), kind);
        }
        assert_eq!(WordKind::of(&Labels::from_pairs([(KIND_LABEL, "later")])), WordKind::Float);
    }
}
