//! State of the numbered snapshots of a folder, of which the newest may be damaged or missing.
//!
//! Invariant: the numbers of a repair end after the newest one that ever was, so that a process that has the
//! lost snapshot sees the next one, and leave no gap.
//! Not here: creating them (`snapshots`), content of the next one (`upload::rebuild`, tools).

use std::sync::Arc;

use chronolith_format::bucket::{Hint, NumberedSnapshot};

use super::reader::{Loaded, SnapshotReader, StoredHint};
use crate::{BucketError, RequestContext};

/// State of the snapshots of one folder.
#[derive(Debug, Clone)]
pub struct SnapshotState<S> {
    /// Greatest number of an object; 0 without one.
    pub listed_number: u64,
    /// Greatest number that an object or the hint proves; 0 if there never was one.
    pub newest_number: u64,
    /// The newest one that can be read.
    pub readable: Option<Arc<S>>,
    /// Key of the newest one that existed.
    pub newest_key: String,
    /// Key of the hint, if it is missing or damaged.
    pub damaged_hint: Option<String>,
}

impl<S: NumberedSnapshot> SnapshotState<S> {
    /// Returns true if readers and writers refuse the folder.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.readable.as_ref().map_or(0, |snapshot| snapshot.stamp().number) < self.newest_number
    }

    /// Numbers to create, so that the last one follows all that ever were.
    pub(super) fn next_numbers(&self) -> std::ops::RangeInclusive<u64> {
        assert!(self.listed_number <= self.newest_number, "an object proves its number");
        self.listed_number + 1..=self.newest_number + 1
    }
}

impl<S: NumberedSnapshot> SnapshotReader<S> {
    /// Reads the state of the snapshots in the folder of `request`.
    ///
    /// Cost: hint, two listings, a read per snapshot until one can be read.
    ///
    /// # Errors
    /// As other requests.
    pub async fn state(&self, request: &RequestContext) -> Result<SnapshotState<S>, BucketError> {
        let hint = self.hint(request).await?;
        let mut listed = self.listed(request).await?;
        listed.extend(self.listed_by_directory(request).await?);
        let mut numbers: Vec<u64> = listed.into_iter().map(|(number, _)| number).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.dedup();
        let listed_number = numbers.first().copied().unwrap_or(0);
        let (proven, is_hint_sound) = match hint {
            StoredHint::Read(Hint::Checked(number)) => (number, true),
            StoredHint::Read(Hint::Unchecked(number)) => (number.min(1), true),
            StoredHint::Damaged => (1, false),
            StoredHint::Absent => (0, listed_number == 0),
        };
        let newest_number = listed_number.max(proven);
        let mut readable = None;
        for number in numbers {
            if let Loaded::Decoded(snapshot) = self.load(request, number).await? {
                readable = Some(snapshot);
                break;
            }
        }
        Ok(SnapshotState {
            listed_number,
            newest_number,
            readable,
            newest_key: self.key(&request.folder, newest_number),
            damaged_hint: (!is_hint_sound).then(|| self.hint_key(&request.folder)),
        })
    }
}
