//! Faults that are found while a file is read.
//!
//! Invariant: a bounded number is kept, the others are counted.

use chronolith_model::quote::write_quoted;

use crate::yaml::Position;

/// Errors that are kept of one file.
pub(super) const ERRORS_MAX: usize = 1000;

/// A fault while the file is read.
pub(super) struct Fault {
    pub(super) position: Position,
    pub(super) message: String,
}

/// Faults in the order of their finding, a bounded number of them.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) kept: Vec<Fault>,
    pub(super) dropped_count: usize,
}

impl Faults {
    pub(super) fn add(&mut self, position: Position, message: impl Into<String>) {
        if self.kept.len() < ERRORS_MAX {
            self.kept.push(Fault { position, message: message.into() });
        } else {
            self.dropped_count += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

/// `text` as Go's `%q` prints it.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    // A string takes everything.
    write_quoted(&mut out, text).unwrap_or_default();
    out
}
