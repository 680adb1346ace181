//! Schema of a store: its measurements, their fields and tags.

use crate::ast::{DataType, Measurement};

/// Fields and tags of measurements; databases and retention policies have been filled in.
pub trait Schema {
    /// Error of the store.
    type Error;

    /// Names of the measurements of `pattern`'s database and retention policy that it names or matches,
    /// ascending.
    ///
    /// # Errors
    /// Errors of the store.
    fn measurements(&self, pattern: &Measurement) -> Result<Vec<String>, Self::Error>;

    /// Fields of the measurements of `pattern` with the type of the highest rank, in any order.
    ///
    /// # Errors
    /// Errors of the store.
    fn fields(&self, pattern: &Measurement) -> Result<Vec<(String, DataType)>, Self::Error>;

    /// Returns true if a measurement of `pattern` has values of a type in a field, which may have others too.
    ///
    /// # Errors
    /// Errors of the store.
    fn has_values_of(&self, pattern: &Measurement, field: &str, kind: DataType) -> Result<bool, Self::Error>;

    /// Tag keys of the measurements of `pattern`, in any order.
    ///
    /// # Errors
    /// Errors of the store.
    fn tag_keys(&self, pattern: &Measurement) -> Result<Vec<String>, Self::Error>;

    /// Reserves memory for a part of the plan that is made next, and checks the deadline. A schema without
    /// limits has room for all.
    ///
    /// # Errors
    /// Errors of the store: no memory, no time, or the client has left.
    fn reserve(&self, _bytes: usize) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Reserves memory for the tables of one level of subqueries, which are freed before the next level
    /// allocates: the largest of all levels counts.
    ///
    /// # Errors
    /// Errors of [`Schema::reserve`].
    fn reserve_level(&self, _bytes: usize) -> Result<(), Self::Error> {
        Ok(())
    }
}
