//! Second read of chunks that failed their checksums, and first read of deferred ones, on the thread that
//! decodes them.
//!
//! Invariants: the cache drops damaged bytes before they are requested; the thread waits no longer than its
//! query, and its requests end when it stops to wait.
//! Not here: damage of lists and entries, which the task of the selection meets (`select`).

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use chronolith_block::source::{ByteRange, FetchedBatch, Reread};
use chronolith_model::{QueryError, ReadContext};

use crate::block::BucketBlock;
use crate::remote::RemoteFiles;

/// Longest wait between two checks for cancellation.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Second and later reads of one query and block.
pub(super) struct QueryReread {
    block: Arc<BucketBlock>,
    files: Arc<RemoteFiles>,
    /// End of the requests.
    deadline_ns: u64,
    ctx: ReadContext,
}

impl QueryReread {
    pub(super) fn new(
        block: Arc<BucketBlock>,
        files: Arc<RemoteFiles>,
        deadline_ns: u64,
        ctx: ReadContext,
    ) -> QueryReread {
        QueryReread { block, files, deadline_ns, ctx }
    }
}

impl Reread for QueryReread {
    fn reread(&self, ranges: Vec<ByteRange>) -> Result<FetchedBatch, QueryError> {
        self.files.remove_ranges(&ranges);
        // The entries that name the chunks may be another block's: the next query reads them again.
        self.block.reopen();
        self.fetch(ranges)
    }

    /// A task sends the requests, as a thread of the runtime may be the caller.
    fn fetch(&self, ranges: Vec<ByteRange>) -> Result<FetchedBatch, QueryError> {
        let files = self.files.clone();
        let handle = files.remote.handle.clone();
        let budget = self.ctx.budget.clone();
        let deadline_ns = self.deadline_ns;
        let (sender, receiver) = sync_channel(1);
        let task = handle.spawn(async move {
            let batch = files.read_cached(ranges, &budget, deadline_ns).await;
            // The receiver is gone if the query has ended.
            let _ = sender.send(batch);
        });
        loop {
            match receiver.recv_timeout(WAIT_MAX) {
                Ok(batch) => return batch,
                Err(RecvTimeoutError::Disconnected) => return Err(QueryError::Canceled),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Err(ended) = self.ctx.check_source() {
                task.abort();
                return Err(ended);
            }
        }
    }
}
