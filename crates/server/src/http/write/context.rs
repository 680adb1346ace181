//! Parts that all writes share.

use chronolith_ingest::remote_write;
use chronolith_service::activity::rejects::Rejects;
use chronolith_service::options::WriteOptions;
use chronolith_service::write::batches::BatchPool;
use chronolith_service::write::reject_log::RejectLog;

use crate::carbon::CarbonContext;

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
