//! Verification of the roll-ups of a block: names every damage, for `chronolith check` and the scrub after a
//! start.
//!
//! Invariants: damage to one section does not hide damage to others; offsets of damage are offsets of the
//! file.
//! Not here: verification of samples (`crate::verify`), rewriting of files (`tsdb`).

use std::sync::Arc;

use super::files::{Rollups, SectionIndex};
use crate::damage::{DAMAGES_MAX, Damage};

/// Cost of a section in a step, apart from its bytes.
const SECTION_BYTES: usize = 64;

/// Verification of the roll-ups of a block, in steps of bounded cost.
pub struct RollupVerification {
    /// `None` if the block has none.
    rollups: Option<Arc<Rollups>>,
    next: SectionIndex,
    damages: Vec<Damage>,
}

impl RollupVerification {
    /// A verification of the roll-ups of a block, which has read nothing yet.
    pub(crate) fn new(rollups: Option<Arc<Rollups>>) -> RollupVerification {
        let damages = rollups.as_ref().map_or_else(Vec::new, |rollups| rollups.opening_damages().to_vec());
        RollupVerification { rollups, next: SectionIndex::default(), damages }
    }

    /// Goes on until about `bytes_max` bytes are read, one section more at most. Returns true once everything
    /// is verified.
    pub fn step(&mut self, bytes_max: u64) -> bool {
        let Some(rollups) = &self.rollups else { return true };
        let mut left_bytes = bytes_max;
        while self.next.file_idx < rollups.file_count() {
            if left_bytes == 0 {
                return false;
            }
            let read_bytes = match rollups.verify_section(self.next) {
                Some(Ok(bytes)) => bytes,
                Some(Err(damage)) => {
                    if self.damages.len() < DAMAGES_MAX {
                        self.damages.push(damage);
                    }
                    0
                }
                None => {
                    self.next = SectionIndex { file_idx: self.next.file_idx + 1, section_idx: 0 };
                    continue;
                }
            };
            self.next.section_idx += 1;
            left_bytes = left_bytes.saturating_sub((read_bytes + SECTION_BYTES) as u64);
        }
        true
    }

    /// Goes on to the end; returns the damages.
    pub(crate) fn finish(mut self) -> Vec<Damage> {
        while !self.step(u64::MAX) {}
        self.damages
    }

    /// Damages found up to here, at most 1000.
    #[must_use]
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }
}
