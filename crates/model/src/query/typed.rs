//! Columns of one type: floats, integers, booleans, texts or histograms.
//!
//! Invariants: one value per time; all samples of a series that is read as a type are of that type.
//! Not here: numbers and histograms of one series together, as PromQL reads them ([`Columns`]).

use std::sync::Arc;

use crate::Columns;
use crate::kind::WordKind;
use crate::sample::is_stale;
use crate::{Histogram, kind};

/// Type of the samples of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ColumnType {
    /// `f64`. A reader of floats gets all types that are numbers, cast; histograms may be among the samples.
    #[default]
    Float,
    /// `i64`
    Integer,
    /// `u64`
    Unsigned,
    /// Read as floats: 0 and 1.
    Boolean,
    /// Never read as floats.
    Text,
    /// Native histograms alone.
    Histogram,
}

impl ColumnType {
    /// Type of the samples of a series of words.
    #[must_use]
    pub fn of_words(kind: WordKind) -> ColumnType {
        match kind {
            WordKind::Float => ColumnType::Float,
            WordKind::Boolean => ColumnType::Boolean,
            WordKind::Integer => ColumnType::Integer,
            WordKind::Unsigned => ColumnType::Unsigned,
            WordKind::Text => ColumnType::Text,
        }
    }
}

/// Values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum TypedValues {
    /// [`ColumnType::Float`]
    Floats(Vec<f64>),
    /// [`ColumnType::Integer`]
    Integers(Vec<i64>),
    /// [`ColumnType::Unsigned`]
    Unsigned(Vec<u64>),
    /// [`ColumnType::Boolean`]
    Booleans(Vec<bool>),
    /// [`ColumnType::Text`]: any bytes, nearly always UTF-8.
    Texts(Vec<Arc<[u8]>>),
    /// [`ColumnType::Histogram`]
    Histograms(Vec<Arc<Histogram>>),
}

impl TypedValues {
    /// Without values.
    #[must_use]
    pub fn new(column_type: ColumnType) -> TypedValues {
        match column_type {
            ColumnType::Float => TypedValues::Floats(Vec::new()),
            ColumnType::Integer => TypedValues::Integers(Vec::new()),
            ColumnType::Unsigned => TypedValues::Unsigned(Vec::new()),
            ColumnType::Boolean => TypedValues::Booleans(Vec::new()),
            ColumnType::Text => TypedValues::Texts(Vec::new()),
            ColumnType::Histogram => TypedValues::Histograms(Vec::new()),
        }
    }

    /// Type of the values.
    #[must_use]
    pub fn column_type(&self) -> ColumnType {
        match self {
            TypedValues::Floats(_) => ColumnType::Float,
            TypedValues::Integers(_) => ColumnType::Integer,
            TypedValues::Unsigned(_) => ColumnType::Unsigned,
            TypedValues::Booleans(_) => ColumnType::Boolean,
            TypedValues::Texts(_) => ColumnType::Text,
            TypedValues::Histograms(_) => ColumnType::Histogram,
        }
    }

    /// Appends value `idx` of `other`.
    ///
    /// # Panics
    /// If `other` has no such value, or is of another type.
    pub fn push_from(&mut self, other: &TypedValues, idx: usize) {
        match (self, other) {
            (TypedValues::Floats(values), TypedValues::Floats(other)) => values.push(other[idx]),
            (TypedValues::Integers(values), TypedValues::Integers(other)) => values.push(other[idx]),
            (TypedValues::Unsigned(values), TypedValues::Unsigned(other)) => values.push(other[idx]),
            (TypedValues::Booleans(values), TypedValues::Booleans(other)) => values.push(other[idx]),
            (TypedValues::Texts(values), TypedValues::Texts(other)) => values.push(other[idx].clone()),
            (TypedValues::Histograms(values), TypedValues::Histograms(other)) => {
                values.push(other[idx].clone());
            }
            (values, other) => panic!("{:?} among {:?}", other.column_type(), values.column_type()),
        }
    }

    /// Bytes of the values, for budgets; shared texts and histograms are counted in full.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            TypedValues::Floats(values) => size_of_val(&**values),
            TypedValues::Integers(values) => size_of_val(&**values),
            TypedValues::Unsigned(values) => size_of_val(&**values),
            TypedValues::Booleans(values) => size_of_val(&**values),
            TypedValues::Texts(values) => values.iter().map(|text| text.len() + size_of::<Arc<[u8]>>()).sum(),
            TypedValues::Histograms(values) => values.iter().map(|one| one.memory_bytes() + 8).sum(),
        }
    }
}

/// Samples of a series as columns of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedColumns {
    /// Ascending, in the unit of the store.
    pub times: Vec<i64>,
    /// One per time.
    pub values: TypedValues,
}

impl TypedColumns {
    /// Without samples.
    #[must_use]
    pub fn new(column_type: ColumnType) -> TypedColumns {
        TypedColumns { times: Vec::new(), values: TypedValues::new(column_type) }
    }

    /// Appends samples that have been read as floats. Staleness markers are left out, and so is what the type
    /// cannot hold: integers and texts are never read as floats and back.
    pub fn extend_cast(&mut self, columns: &Columns) {
        let live = columns.times.iter().zip(&columns.values).enumerate();
        let live = live.filter(|(_, (_, value))| !is_stale(**value));
        for (idx, (&time, &value)) in live {
            match (&mut self.values, columns.histogram_at(idx)) {
                (TypedValues::Histograms(values), Some(histogram)) => values.push(histogram.clone()),
                (TypedValues::Floats(values), None) => values.push(value),
                (TypedValues::Booleans(values), None) => values.push(value != 0.0),
                _ => continue,
            }
            self.times.push(time);
        }
    }

    /// Appends samples of which `read` appends the words, if they are integers; returns false for columns of
    /// another type. Cost: no allocation but for the columns themselves if they are empty.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn extend_words<E>(&mut self, read: impl FnOnce(&mut Columns) -> Result<(), E>) -> Result<bool, E> {
        if !matches!(self.values, TypedValues::Integers(_) | TypedValues::Unsigned(_)) {
            return Ok(false);
        }
        let mut words = Columns::default();
        read(&mut words)?;
        let bits = words.values.into_iter().map(f64::to_bits);
        match &mut self.values {
            // A vector of eight bytes each is converted in its own memory.
            TypedValues::Integers(values) if values.is_empty() => {
                *values = bits.map(kind::integer_of_word).collect();
            }
            TypedValues::Integers(values) => values.extend(bits.map(kind::integer_of_word)),
            TypedValues::Unsigned(values) if values.is_empty() => {
                *values = bits.map(kind::unsigned_of_word).collect();
            }
            TypedValues::Unsigned(values) => values.extend(bits.map(kind::unsigned_of_word)),
            _ => {}
        }
        if self.times.is_empty() {
            self.times = words.times;
        } else {
            self.times.extend(words.times);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IntHistogram;
    use crate::sample::STALE_NAN;

    #[test]
    fn what_was_read_as_floats_is_cast_by_kind() {
        let histogram = Arc::new(Histogram::Int(IntHistogram::default()));
        let mut columns = Columns::default();
        columns.push(1, 0.0);
        columns.push(2, STALE_NAN);
        columns.push_histogram(3, histogram.clone());
        columns.push(4, 1.0);
        let cast = |column_type| {
            let mut out = TypedColumns::new(column_type);
            out.extend_cast(&columns);
            assert_eq!(out.values.column_type(), column_type);
            (out.times, out.values)
        };
        assert_eq!(cast(ColumnType::Float), (vec![1, 4], TypedValues::Floats(vec![0.0, 1.0])));
        assert_eq!(cast(ColumnType::Boolean), (vec![1, 4], TypedValues::Booleans(vec![false, true])));
        assert_eq!(cast(ColumnType::Histogram), (vec![3], TypedValues::Histograms(vec![histogram])));
        for other in [ColumnType::Integer, ColumnType::Unsigned, ColumnType::Text] {
            assert_eq!(cast(other), (Vec::new(), TypedValues::new(other)));
        }
    }
}
