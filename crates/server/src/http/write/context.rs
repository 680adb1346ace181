//! Parts that all writes share.

use super::batches::BatchPool;
use super::reject_log::RejectLog;

#[derive(Default)]
pub(crate) struct WriteContext {
    pub(crate) batches: BatchPool,
    pub(crate) reject_log: RejectLog,
}
