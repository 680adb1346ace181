//! Work on several blocks that runs while its caller does something else.
//!
//! Invariant: work ends with the value that stands for it.
//! Not here: the blocks, and the work (`catalog`).

use std::sync::Arc;

use chronolith_model::{QueryError, ReadContext};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::block::{BucketBlock, OpenedBlock, ReaderChoice};
use crate::recovery::Recovery;
use crate::sidecar_builder::request_sidecar;

/// Results of work that was started.
pub struct StartedWork<T> {
    task: AbortOnDrop<T>,
    handle: Handle,
}

struct AbortOnDrop<T>(JoinHandle<Result<Vec<T>, QueryError>>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Send + 'static> StartedWork<T> {
    pub(super) fn new(
        handle: &Handle,
        work: impl Future<Output = Result<Vec<T>, QueryError>> + Send + 'static,
    ) -> StartedWork<T> {
        StartedWork { task: AbortOnDrop(handle.spawn(work)), handle: handle.clone() }
    }

    /// Waits on the calling thread, which is none of the runtime, until all work has ended or the time of
    /// sources has.
    ///
    /// # Errors
    /// The first error in the order of the blocks.
    pub fn wait(mut self) -> Result<Vec<T>, QueryError> {
        self.handle.block_on(&mut self.task.0).unwrap_or(Err(QueryError::Canceled))
    }
}

/// Runs `work` for a block after its header was read, again after damage.
pub(super) async fn run_opened<T: Send + 'static>(
    handle: Handle,
    block: Arc<BucketBlock>,
    choice: ReaderChoice,
    ctx: ReadContext,
    work: impl Fn(&BucketBlock, &OpenedBlock) -> Result<T, QueryError> + Clone + Send + 'static,
) -> Result<T, QueryError> {
    let mut recovery = Recovery::default();
    loop {
        let opened = block.open(choice, block.deadline_ns(&ctx)).await?;
        let worked_on = block.clone();
        let reading = opened.clone();
        let work = work.clone();
        // A blocking thread waits for nothing but requests, which need no thread of its kind.
        let task = handle.spawn_blocking(move || work(&worked_on, &reading));
        let result = task.await.map_err(|_| QueryError::Canceled)?;
        block.note_memory();
        match result {
            Err(error) if recovery.may_retry(&block, &opened, &error) => {}
            result => {
                if choice == ReaderChoice::Any && result.is_ok() {
                    request_sidecar(&block, &opened);
                }
                return result;
            }
        }
    }
}
