//! Contract of a reader under test.
//!
//! Not here: generic changes of bytes (`mutate`), the loop (`session`).

use chronolith_base::Rng;

/// A reader with its seeds, its grammar and its properties.
pub(super) trait Reader {
    /// Valid inputs that cover each construct.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Pieces of the grammar that changes insert.
    fn tokens(&self) -> &'static [&'static [u8]];

    /// Changes an input by its structure.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>);

    /// Reads an input. Returns a text about the outcome: the error, or the constructs that were read.
    ///
    /// # Errors
    /// A text about a property that does not hold.
    fn read(&mut self, input: &[u8]) -> Result<String, String>;

    /// Bytes of an input at most.
    fn input_bytes_max(&self) -> usize {
        16 << 10
    }
}

/// Returns the texts as owned bytes.
pub(super) fn owned(texts: &[&[u8]]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.to_vec()).collect()
}

/// Returns an error with both sides if they differ.
pub(super) fn check_equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    first: &T,
    second: &T,
) -> Result<(), String> {
    if first == second { Ok(()) } else { Err(format!("{what}: {first:?} and {second:?}")) }
}
