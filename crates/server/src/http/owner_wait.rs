//! Wait of an owner until it has applied the records that a read has to see.
//!
//! Invariant: the wait ends at its deadline, and takes no permit and no thread while it lasts.
//! Not here: headers of clients (`consistency`), calls of other nodes (`internal`), application of records
//! (`cluster`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_cluster::owner::PartitionOwner;
use chronolith_model::min_offsets::{OtherTopic, ReadConsistency};
use tokio::time::sleep;

/// Pause between two looks at the position of the owner.
const POLL_PAUSE: Duration = Duration::from_millis(2);

/// Reason why a read cannot see what it has to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WaitError {
    /// Offsets of another log.
    #[error(transparent)]
    OtherTopic(#[from] OtherTopic),
    /// The records are not applied in time, or the end of the log is not known.
    #[error("{0}")]
    Unavailable(String),
}

/// Waits until `owner` has applied all records of its partition that `consistency` names, at most until
/// `deadline_ns` of `clock`.
///
/// # Errors
/// [`WaitError`].
pub(super) async fn wait(
    owner: &Arc<dyn PartitionOwner>,
    consistency: &ReadConsistency,
    clock: &dyn Clock,
    deadline_ns: u64,
) -> Result<(), WaitError> {
    let mut next_offset = 0;
    if let Some(offsets) = &consistency.offsets {
        let newest = offsets.of(owner.partition())?;
        next_offset = newest.map_or(0, |newest| newest.saturating_add(1));
    }
    if consistency.is_strong {
        next_offset = next_offset.max(end_of_log(owner).await?);
    }
    while owner.status().next_offset.is_none_or(|next| next < next_offset) {
        if clock.mono_ns() >= deadline_ns {
            return Err(not_reached(&**owner, next_offset));
        }
        sleep(POLL_PAUSE).await;
    }
    Ok(())
}

/// Returns the offset that the next record of the partition gets.
async fn end_of_log(owner: &Arc<dyn PartitionOwner>) -> Result<u64, WaitError> {
    let owner = owner.clone();
    let unavailable = |why: String| WaitError::Unavailable(format!("reading the end of the log: {why}"));
    let end = tokio::task::spawn_blocking(move || owner.log_end()).await;
    end.map_err(|error| unavailable(error.to_string()))?.map_err(|error| unavailable(error.to_string()))
}

fn not_reached(owner: &dyn PartitionOwner, next_offset: u64) -> WaitError {
    let status = owner.status();
    let at = status.next_offset.map_or_else(|| "not read yet".to_owned(), |next| format!("at offset {next}"));
    let why = status.fault.map_or_else(String::new, |fault| format!(": {}", fault.text));
    let number = owner.partition().number;
    let text = format!("partition {number} is {at}, and the request waits for offset {next_offset}{why}");
    WaitError::Unavailable(text)
}
