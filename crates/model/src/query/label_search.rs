//! Search in the sorted values of a label, among series that have no other label.
//!
//! Invariant: a cursor returns values in their byte order, each once.
//! Not here: values of selected series ([`Queryable::label_values`](super::Queryable::label_values)).

use chronolith_base::MemoryBudget;

use super::error::QueryError;
use crate::TimeRange;

/// Search for the values of a label among series that have no other label. Series of blocks and head windows
/// that overlap the range are included.
#[derive(Debug, Clone, Copy)]
pub struct SoleLabelValues<'a> {
    /// Name of the label.
    pub name: &'a str,
    /// Range of the samples.
    pub range: TimeRange,
}

/// Scan of the values of a label among all series whose blocks or head windows overlap a range.
#[derive(Debug, Clone, Copy)]
pub struct LabelValueScan<'a> {
    /// Name of the label.
    pub name: &'a str,
    /// Only values that begin with it are visited.
    pub prefix: &'a str,
    /// Range of the samples.
    pub range: TimeRange,
}

impl LabelValueScan<'_> {
    /// As [`LabelValueScan::visit_sorted`], with the memory of the values reserved meanwhile.
    ///
    /// # Errors
    /// [`QueryError::Memory`] if the budget has no room for them.
    pub fn visit_listed(
        &self,
        values: &[String],
        budget: &MemoryBudget,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        let bytes: usize = values.iter().map(|value| value.len() + size_of::<String>()).sum();
        let _held = budget.reserve(bytes as u64)?;
        self.visit_sorted(values, visit);
        Ok(())
    }

    /// Visits the `values` that begin with the prefix, until `visit` returns false; `values` ascend.
    pub fn visit_sorted(&self, values: &[String], visit: &mut dyn FnMut(&str) -> bool) {
        let first = values.partition_point(|value| value.as_str() < self.prefix);
        let after = values.get(first..).unwrap_or_default();
        let with_prefix = after.iter().take_while(|value| value.starts_with(self.prefix));
        for value in with_prefix {
            if !visit(value) {
                return;
            }
        }
    }
}

/// Position in the values that a search finds. Series that are created after the start of the search may be
/// missing.
pub trait LabelValueCursor {
    /// Returns the first value that is at least `start`; `None` if there is none. Cost: the logarithm of the
    /// distance from the last position if `start` ascends, and of the number of values if it does not.
    ///
    /// # Errors
    /// As the source.
    fn seek(&mut self, start: &str) -> Result<Option<&str>, QueryError>;
}

/// Search of a source, from which [`Repeated`] makes a cursor.
pub trait LabelValueSearch {
    /// Writes the first value that is at least `start` to `found`; returns false if there is none.
    ///
    /// # Errors
    /// As the source.
    fn search(&mut self, start: &str, found: &mut String) -> Result<bool, QueryError>;
}

/// Cursor that searches only if the result of the last search is not the next one too.
#[derive(Debug, Default)]
pub struct Repeated<T> {
    /// The search.
    pub source: T,
    start: String,
    found: String,
    last: LastSearch,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LastSearch {
    #[default]
    None,
    Found,
    Ended,
}

impl<T> Repeated<T> {
    /// Returns a cursor that has searched for nothing.
    pub fn new(source: T) -> Repeated<T> {
        Repeated { source, start: String::new(), found: String::new(), last: LastSearch::None }
    }

    /// Returns true if a search from `start` on has the result of the last one.
    fn is_answered(&self, start: &str) -> bool {
        match self.last {
            LastSearch::None => false,
            LastSearch::Found => self.start.as_str() <= start && start <= self.found.as_str(),
            LastSearch::Ended => self.start.as_str() <= start,
        }
    }
}

impl<T: LabelValueSearch> LabelValueCursor for Repeated<T> {
    fn seek(&mut self, start: &str) -> Result<Option<&str>, QueryError> {
        if !self.is_answered(start) {
            self.last = LastSearch::None;
            let has_found = self.source.search(start, &mut self.found)?;
            start.clone_into(&mut self.start);
            self.last = if has_found { LastSearch::Found } else { LastSearch::Ended };
        }
        Ok((self.last == LastSearch::Found).then_some(self.found.as_str()))
    }
}

/// Cursor over values that are in memory.
#[derive(Debug, Default)]
pub struct SortedValues {
    values: Vec<String>,
}

impl SortedValues {
    /// `values` must ascend.
    #[must_use]
    pub fn new(values: Vec<String>) -> SortedValues {
        debug_assert!(values.is_sorted(), "values ascend");
        SortedValues { values }
    }
}

impl LabelValueCursor for SortedValues {
    fn seek(&mut self, start: &str) -> Result<Option<&str>, QueryError> {
        let first = self.values.partition_point(|value| value.as_str() < start);
        Ok(self.values.get(first).map(String::as_str))
    }
}
