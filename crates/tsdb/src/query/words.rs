//! Samples of a typed series: words as the values that they stand for.
//!
//! Invariants: integers are exact as integers, and the nearest float as floats; texts are never floats.
//! Not here: words (`model::kind`), the kind of a series (`kinds`).

use chronolith_model::kind::{WordKind, integer_of_word, unsigned_of_word};
use chronolith_model::query::{ColumnType, TypedColumns};
use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

/// Samples of words of one kind.
pub(super) struct TypedSource {
    pub(super) words: Box<dyn SampleSource>,
    pub(super) kind: WordKind,
    /// Type that readers see: the type of the kind, or floats.
    pub(super) column_type: ColumnType,
}

fn to_floats(values: &mut [f64], float_of_word: impl Fn(u64) -> f64) {
    values.iter_mut().for_each(|value| *value = float_of_word(value.to_bits()));
}

impl SampleSource for TypedSource {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        if self.kind == WordKind::Text {
            return Ok(());
        }
        let start = out.values.len();
        let done = self.words.read(range, out);
        let added = out.values.get_mut(start..).unwrap_or_default();
        match self.kind {
            WordKind::Integer => to_floats(added, |word| integer_of_word(word) as f64),
            WordKind::Unsigned => to_floats(added, |word| unsigned_of_word(word) as f64),
            WordKind::Float | WordKind::Boolean | WordKind::Text => {}
        }
        done
    }

    fn column_type(&self) -> ColumnType {
        self.column_type
    }

    /// Integers as integers of their own type; all types that are numbers as floats.
    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        let is_of_kind = out.values.column_type() == ColumnType::of_words(self.kind);
        if is_of_kind && self.kind == WordKind::Text {
            return self.words.read_typed(range, out);
        }
        if is_of_kind && out.extend_words(|words| self.words.read(range, words))? {
            return Ok(());
        }
        let mut columns = Columns::default();
        self.read(range, &mut columns)?;
        out.extend_cast(&columns);
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.words.sample_count_hint()
    }

    fn prefetch(&self) {
        self.words.prefetch();
    }

    fn chunk_count_hint(&self) -> usize {
        self.words.chunk_count_hint()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        self.words.time_bounds()
    }
}
