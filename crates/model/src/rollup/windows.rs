//! Windows of a series and their values, as columns.

use std::ops::Range;

use super::methods::{RollupMethod, RollupMethods};

/// Windows with samples, ascending, and a column of values per method.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RolledWindows {
    methods: RollupMethods,
    starts: Vec<i64>,
    /// One per method, by their numbers; as long as `starts`.
    columns: Vec<Vec<f64>>,
}

impl RolledWindows {
    /// No windows, for values of `methods`.
    #[must_use]
    pub fn new(methods: RollupMethods) -> RolledWindows {
        RolledWindows { methods, starts: Vec::new(), columns: vec![Vec::new(); methods.len()] }
    }

    /// Methods of the columns.
    #[must_use]
    pub fn methods(&self) -> RollupMethods {
        self.methods
    }

    /// Starts of the windows in milliseconds, ascending.
    #[must_use]
    pub fn starts(&self) -> &[i64] {
        &self.starts
    }

    /// Number of windows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns true if there is no window.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Makes room for `count` more windows.
    pub fn reserve(&mut self, count: usize) {
        self.starts.reserve(count);
        self.columns.iter_mut().for_each(|column| column.reserve(count));
    }

    /// Removes all windows.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Removes all windows but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.starts.truncate(len);
        self.columns.iter_mut().for_each(|column| column.truncate(len));
    }

    /// Values of a method, one per window; `None` if it has no column.
    #[must_use]
    pub fn column(&self, method: RollupMethod) -> Option<&[f64]> {
        let at = self.methods.iter().position(|other| other == method)?;
        self.columns.get(at).map(Vec::as_slice)
    }

    /// Appends a window with the values that `value` returns.
    ///
    /// # Panics
    /// In debug builds, if it is not later than the last one.
    pub fn push(&mut self, start_ms: i64, value: impl Fn(RollupMethod) -> f64) {
        debug_assert!(self.starts.last().is_none_or(|last| *last < start_ms), "windows ascend");
        self.starts.push(start_ms);
        for (method, column) in self.methods.iter().zip(&mut self.columns) {
            column.push(value(method));
        }
    }

    /// Appends windows of `other`, which has all methods of this one.
    pub fn extend_from(&mut self, other: &RolledWindows, windows: Range<usize>) {
        self.starts.extend_from_slice(other.starts.get(windows.clone()).unwrap_or_default());
        for (method, column) in self.methods.iter().zip(&mut self.columns) {
            let values = other.column(method).and_then(|values| values.get(windows.clone()));
            column.extend_from_slice(values.unwrap_or_default());
        }
    }

    /// Appends windows whose columns `columns` appends, one call per method; removes the appended values if
    /// one of them fails or has another number of values.
    ///
    /// # Errors
    /// The error of `columns`; `Ok(false)` if a column has another number of values than there are windows.
    pub fn extend_columns<E>(
        &mut self,
        starts: impl Iterator<Item = i64>,
        mut columns: impl FnMut(RollupMethod, &mut Vec<f64>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let len_before = self.starts.len();
        self.starts.extend(starts);
        let len = self.starts.len();
        for (method, column) in self.methods.iter().zip(&mut self.columns) {
            let appended = columns(method, column);
            if appended.is_err() || column.len() != len {
                self.truncate(len_before);
                return appended.map(|()| false);
            }
        }
        Ok(true)
    }
}
