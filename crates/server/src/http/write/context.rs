//! Parts that all writes share.

use chronolith_ingest::remote_write;

use super::batches::BatchPool;
use super::reject_log::RejectLog;
use crate::activity::rejects::Rejects;
use crate::carbon::CarbonContext;
use crate::options::WriteOptions;

pub(crate) struct WriteContext {
    pub(crate) batches: BatchPool,
    pub(crate) reject_log: RejectLog,
    pub(crate) rejects: Rejects,
    pub(crate) carbon: CarbonContext,
}

impl WriteContext {
    pub(crate) fn new(options: &WriteOptions) -> WriteContext {
        WriteContext {
            batches: BatchPool::new(remote_write::new_batch),
            reject_log: RejectLog::default(),
            rejects: Rejects::default(),
            carbon: CarbonContext::new(&options.carbon.listeners),
        }
    }
}
