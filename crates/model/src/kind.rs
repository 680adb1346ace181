//! Kind of the 64-bit words of a series, as part of its name: the reserved label `__kind__`, absent for
//! floats.
//!
//! Invariants: all words of a series are of one kind, so no sample names its kind; reserved labels are set by
//! protocols whose values have a type, and readers of PromQL never see them (`tsdb::query`).
//! Not here: native histograms, which are no words; encodings of chunks (`format::chunk`).

use crate::Labels;

/// Name of the label that holds the kind.
pub const KIND_LABEL: &str = "__kind__";
/// Name of the label that holds the field of a measurement.
pub const FIELD_LABEL: &str = "__field__";
/// Labels that name no property of a target: the kind, and the field of a measurement.
pub const RESERVED_LABELS: [&str; 2] = [KIND_LABEL, FIELD_LABEL];

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
    /// `i64`, see [`word_of_integer`].
    Integer,
    /// `u64`, see [`word_of_unsigned`].
    Unsigned,
    /// Text: inside a store the id in a dictionary; its meaning ends where the dictionary is unknown.
    Text,
}

/// Returns the word of an integer: zig-zag, then the bits in reverse order, so that the bits that change are
/// the first ones and an XOR chunk stores small differences in few bits.
#[must_use]
pub fn word_of_integer(value: i64) -> u64 {
    (((value << 1) ^ (value >> 63)) as u64).reverse_bits()
}

/// Returns the integer of a word, the inverse of [`word_of_integer`].
#[must_use]
pub fn integer_of_word(word: u64) -> i64 {
    let zigzag = word.reverse_bits();
    (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)
}

/// Returns the word of an unsigned integer: its bits in reverse order.
#[must_use]
pub fn word_of_unsigned(value: u64) -> u64 {
    value.reverse_bits()
}

/// Returns the unsigned integer of a word, the inverse of [`word_of_unsigned`].
#[must_use]
pub fn unsigned_of_word(word: u64) -> u64 {
    word.reverse_bits()
}

impl WordKind {
    /// All kinds, in the order in which the types of a field are tried: floats, which have no label, first.
    pub const ALL: [WordKind; 5] =
        [WordKind::Float, WordKind::Boolean, WordKind::Integer, WordKind::Unsigned, WordKind::Text];

    /// All kinds that a label names.
    pub const LABELED: [WordKind; 4] = {
        let [WordKind::Float, labeled @ ..] = WordKind::ALL else { panic!("floats are the first kind") };
        labeled
    };

    /// Value of the label; empty for floats, which have none.
    #[must_use]
    pub fn label_value(self) -> &'static str {
        match self {
            WordKind::Float => "",
            WordKind::Boolean => "bool",
            WordKind::Integer => "int",
            WordKind::Unsigned => "uint",
            WordKind::Text => "text",
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

    #[test]
    fn each_kind_is_in_the_list_once_with_a_label_of_its_own() {
        // A kind that is added is missing here until the list has it.
        let place = |kind| match kind {
            WordKind::Float => 0,
            WordKind::Boolean => 1,
            WordKind::Integer => 2,
            WordKind::Unsigned => 3,
            WordKind::Text => 4,
        };
        assert_eq!(WordKind::ALL.map(place), [0, 1, 2, 3, 4]);
        let labels: std::collections::BTreeSet<&str> = WordKind::ALL.map(WordKind::label_value).into();
        assert_eq!(labels.len(), WordKind::ALL.len());
        assert_eq!(WordKind::LABELED, WordKind::ALL[1..]);
    }

    #[test]
    fn words_of_integers_round_trip() {
        for value in [0, 1, -1, 2, 1 << 53, -(1 << 53) - 1, i64::MAX, i64::MIN] {
            assert_eq!(integer_of_word(word_of_integer(value)), value);
        }
        for value in [0, 1, 2, (1 << 53) + 1, u64::MAX] {
            assert_eq!(unsigned_of_word(word_of_unsigned(value)), value);
        }
        assert_eq!(word_of_integer(-1), 1 << 63);
    }
}
