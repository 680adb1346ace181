//! Unit tests of rules: the test files of promtool 3.16, run over traits.
//!
//! Invariants: a test passes exactly if it passes in promtool; the exceptions are listed in `docs/rules.md`.
//! A test depends on its file and the rule files alone: no clock, no order of hash maps.
//! Not here: reading of files (the caller), storage and queries (the caller implements the traits).

use crate::document;
use crate::faults::Faults;
use crate::file::FileError;
use crate::yaml::Bounds;

mod compare;
mod context;
pub mod coverage;
mod decode;
mod input;
mod run;
mod test_file;
#[cfg(test)]
mod tests;
mod text;

pub use context::{CreateStorage, ROUNDS_MAX, TestContext, TestOutcome, TestStorage};
pub use run::run;
pub use test_file::{
    AlertTest, ExpectedAlert, ExpectedSample, ExprTest, InputSeries, Test, TestFile, TestedGroup,
};

/// Bytes of a test file, and of its values after aliases are replaced.
pub const FILE_BYTES_MAX: usize = 32 << 20;
/// Values of a test file.
const VALUES_MAX: usize = 2_000_000;
/// Reads a test file. Unknown fields are errors.
///
/// # Errors
/// All faults that can be found.
pub fn parse(file: &str, bytes: &[u8]) -> Result<TestFile, Vec<FileError>> {
    let mut faults = Faults::default();
    let bounds = Bounds { nodes_max: VALUES_MAX, bytes_max: FILE_BYTES_MAX };
    let document = document::read(bytes, bounds, &mut faults);
    let parsed = document.map(|document| decode::test_file(document.root.as_deref(), &mut faults));
    match parsed {
        Some(parsed) if faults.is_empty() => Ok(parsed),
        _ => Err(FileError::of_faults(file, faults)),
    }
}

/// Sorts groups by `group_eval_order`. As in promtool, a group that is not listed is as early as the first
/// listed one; groups of one rank keep their order.
pub fn order_groups(groups: &mut [TestedGroup], file: &TestFile) {
    groups.sort_by_key(|group| file.group_order.get(&group.entry.name).copied().unwrap_or(0));
}
