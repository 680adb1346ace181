//! The parts of an owner that the thread of publications changes.

use chronolith_tsdb::Tsdb;

use super::status::StatusState;
use super::windows::OwnerWindows;

/// The parts of an owner that a publication, and a round of deletions, change.
#[derive(Clone, Copy)]
pub(super) struct Owned<'a> {
    pub(super) windows: &'a OwnerWindows,
    pub(super) tsdb: &'a Tsdb,
    pub(super) status: &'a StatusState,
}
