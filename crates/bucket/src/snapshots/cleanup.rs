//! Removal of old snapshots by the writers of new ones.
//!
//! Invariant: snapshots are removed one after the other, oldest first, and the first failure ends the
//! removal, so the numbers that remain have no gap.

use chronolith_format::bucket::NumberedSnapshot;

use super::reader::SnapshotReader;
use crate::store::list::ListedObject;
use crate::{BucketError, RequestContext};

/// Snapshots that are kept whatever their age.
const KEPT_COUNT: usize = 16;
/// Distance of the numbers whose writers remove old snapshots.
const CLEANUP_STEP: u64 = 16;
/// Snapshots that one writer removes.
const REMOVED_MAX: usize = 64;

impl<S: NumberedSnapshot> SnapshotReader<S> {
    /// Removes old snapshots if it is the turn of the writer of `number`. Another writer repeats what fails.
    pub(super) async fn remove_old(&self, request: &RequestContext, number: u64) {
        if !number.is_multiple_of(CLEANUP_STEP) {
            return;
        }
        if let Err(error) = self.try_remove_old(request).await {
            tracing::debug!(%error, "removing old snapshots failed");
        }
    }

    async fn try_remove_old(&self, request: &RequestContext) -> Result<(), BucketError> {
        let listed = self.listed(request).await?;
        let Some((_, newest)) = listed.last() else { return Ok(()) };
        let removable = listed.len().saturating_sub(KEPT_COUNT).min(REMOVED_MAX);
        let kept_age_ms = i64::try_from(self.kept_age.as_millis()).unwrap_or(i64::MAX);
        let mut old_count = 0;
        for (idx, (number, object)) in listed.iter().take(removable).enumerate() {
            match self.age_ms(request, *number, object, newest).await? {
                Some(age_ms) if age_ms < kept_age_ms => break,
                Some(_) => old_count = idx + 1,
                // Damaged: older than the one after it.
                None => {}
            }
        }
        assert!(old_count == 0 || old_count + KEPT_COUNT <= listed.len(), "the newest snapshots stay");
        for (_, object) in listed.iter().take(old_count) {
            self.store.remove(request, &object.key).await?;
        }
        Ok(())
    }

    /// Age of a snapshot by the clock of the storage; by the clocks of the writers where that has none.
    async fn age_ms(
        &self,
        request: &RequestContext,
        number: u64,
        object: &ListedObject,
        newest: &ListedObject,
    ) -> Result<Option<i64>, BucketError> {
        if let (Some(created_ms), Some(newest_ms)) = (object.modified_ms, newest.modified_ms) {
            return Ok(Some(newest_ms.saturating_sub(created_ms)));
        }
        let now_ms = self.clock.now_ms();
        let snapshot = self.load(request, number).await?.into_snapshot();
        Ok(snapshot.map(|snapshot| now_ms.saturating_sub(snapshot.stamp().created_ms)))
    }
}
