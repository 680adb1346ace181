//! Refused lines and messages of one body: counts by reason, and the first of them with position and text.
//!
//! Invariants: each refused line or message is counted; the kept errors are bounded. Not here: HTTP answers
//! (`server`).

use chronolith_model::ExemplarRejects;

use super::fault::{ExpositionError, Reason};

/// Errors that are kept at most.
const ERROR_COUNT_MAX: usize = 10;

/// Consequence of a line or message that is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The line is counted and reported, and all others are stored: push and import.
    #[default]
    Lenient,
    /// The body is refused at its first error, as Prometheus does with a scrape.
    Strict,
}

/// Lines and messages of a body that are not in its batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Lines or messages, by [`Reason`].
    pub counts: [u64; Reason::COUNT],
    /// The first of them, at most ten.
    pub errors: Vec<ExpositionError>,
    /// Exemplars that were dropped while their samples are in the batch.
    pub exemplars: ExemplarRejects,
}

impl Refused {
    /// Returns true if nothing was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Number of refused lines or messages.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Number of lines or messages that were refused for one reason.
    #[must_use]
    pub fn of(&self, reason: Reason) -> u64 {
        self.counts.get(reason as usize).copied().unwrap_or(0)
    }

    /// Counts `error`, or returns it if the first one refuses the body.
    #[cold]
    pub(super) fn note(&mut self, mode: Mode, error: ExpositionError) -> Result<(), ExpositionError> {
        if mode == Mode::Strict {
            return Err(error);
        }
        if let Some(count) = self.counts.get_mut(error.reason as usize) {
            *count += 1;
        }
        if self.errors.len() < ERROR_COUNT_MAX {
            self.errors.push(error);
        }
        Ok(())
    }
}
