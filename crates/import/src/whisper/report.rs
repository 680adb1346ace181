//! Report of an import of whisper files: imported files and points, and the number and reason of points left
//! out.
//!
//! Invariants: points that are left out are counted here; lists are bounded. Not here: printing
//! (`chronolith`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::path::PathReject;
use super::points::SlotCounts;
use super::rules::RuleReport;
use crate::{DAMAGES_NAMED_MAX, Damage};

/// Largest number of listed differences between files and their stored points.
pub const DIFFERENCES_NAMED_MAX: usize = 100;

/// Layouts that are listed.
pub const LAYOUTS_NAMED_MAX: usize = 200;
/// Name of the layouts beyond them.
const OTHER_LAYOUTS: &str = "other layouts";

/// Counts and losses of an import.
#[derive(Debug, Clone, Default)]
pub struct WhisperReport {
    /// Files that were read.
    pub files: u64,
    /// Files that an earlier import has brought.
    pub files_present: u64,
    /// Files that could not be opened or read; the next run reads them again.
    pub files_unreadable: u64,
    /// Bytes of the files that were read.
    pub bytes: u64,
    /// Slots of all archives by what became of them.
    pub slots: SlotCounts,
    /// Files by method, xFilesFactor and archives.
    pub layouts: BTreeMap<String, LayoutCounts>,
    /// Files whose archives or method differ from their rules.
    pub rules: RuleReport,
    /// Blocks that were written.
    pub blocks: u64,
    /// Files whose points were read again from the blocks and compared.
    pub files_compared: u64,
    /// Files whose points in the blocks differ, the first ones.
    pub differences: Vec<String>,
    /// Differences beyond [`DIFFERENCES_NAMED_MAX`].
    pub differences_unnamed: u64,
    /// Files without a series, with one of them.
    pub rejected: BTreeMap<PathReject, RejectedFiles>,
    /// Damaged files and archives, and files that cannot be read.
    pub damages: Vec<Damage>,
    /// Damages beyond [`DAMAGES_NAMED_MAX`].
    pub damages_unnamed: u64,
}

/// Files that were left out for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RejectedFiles {
    /// Number of files.
    pub files: u64,
    /// One of them.
    pub example: String,
}

/// Files of one layout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayoutCounts {
    /// Number of files.
    pub files: u64,
    /// Points taken of them.
    pub points: u64,
}

impl WhisperReport {
    /// Counts a file of a layout.
    pub(crate) fn count_layout(&mut self, layout: &str, points: u64) {
        let is_listed = self.layouts.contains_key(layout);
        let name = if is_listed || self.layouts.len() < LAYOUTS_NAMED_MAX { layout } else { OTHER_LAYOUTS };
        let counts = match self.layouts.get_mut(name) {
            Some(counts) => counts,
            None => self.layouts.entry(name.to_owned()).or_default(),
        };
        counts.files += 1;
        counts.points += points;
    }

    pub(crate) fn damage(&mut self, path: impl Into<PathBuf>, offset: u64, what: impl ToString) {
        let damage = Damage { path: path.into(), offset, what: what.to_string() };
        if self.damages.len() < DAMAGES_NAMED_MAX {
            self.damages.push(damage);
        } else {
            self.damages_unnamed += 1;
        }
    }

    /// Counts a file that is left out.
    pub fn reject(&mut self, path: &str, reject: PathReject) {
        let rejected = self.rejected.entry(reject).or_default();
        if rejected.files == 0 {
            path.clone_into(&mut rejected.example);
        }
        rejected.files += 1;
    }

    /// Adds a difference between files and target.
    pub fn differ(&mut self, what: String) {
        if self.differences.len() < DIFFERENCES_NAMED_MAX {
            self.differences.push(what);
        } else {
            self.differences_unnamed += 1;
        }
    }

    /// Adds the report of another part, or of the listing.
    pub fn add(&mut self, other: WhisperReport) {
        self.files += other.files;
        self.files_present += other.files_present;
        self.files_unreadable += other.files_unreadable;
        self.bytes += other.bytes;
        self.slots.add(&other.slots);
        for (layout, counts) in other.layouts {
            let is_listed = self.layouts.contains_key(&layout) || self.layouts.len() < LAYOUTS_NAMED_MAX;
            let name = if is_listed { layout } else { OTHER_LAYOUTS.to_owned() };
            let own = self.layouts.entry(name).or_default();
            own.files += counts.files;
            own.points += counts.points;
        }
        self.rules.add(other.rules);
        self.blocks += other.blocks;
        self.files_compared += other.files_compared;
        other.differences.into_iter().for_each(|what| self.differ(what));
        self.differences_unnamed += other.differences_unnamed;
        for (reject, files) in other.rejected {
            let own = self.rejected.entry(reject).or_default();
            if own.files == 0 {
                own.example = files.example;
            }
            own.files += files.files;
        }
        other.damages.into_iter().for_each(|one| self.damage(one.path, one.offset, one.what));
        self.damages_unnamed += other.damages_unnamed;
    }

    /// Returns true if all points of all files are in the target.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.damages.is_empty()
            && self.differences.is_empty()
            && self.rejected.is_empty()
            && self.slots.misplaced == 0
    }
}
