//! Parts that all writes share.

use chronolith_ingest::remote_write;

use super::batches::BatchPool;
use super::reject_log::RejectLog;

pub(crate) struct WriteContext {
    pub(crate) batches: BatchPool,
    pub(crate) reject_log: RejectLog,
}

impl Default for WriteContext {
    fn default() -> WriteContext {
        WriteContext { batches: BatchPool::new(remote_write::new_batch), reject_log: RejectLog::default() }
    }
}
