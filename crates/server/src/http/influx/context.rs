//! Parts that all requests of the InfluxDB API share.

use chronolith_ingest::line_protocol;

use super::password::Passwords;
use super::running::RunningQueries;
use super::watched::ContinuousQueries;
use crate::http::write::batches::BatchPool;

/// Parts that all requests share.
pub(crate) struct InfluxContext {
    pub(crate) batches: BatchPool,
    pub(crate) passwords: Passwords,
    pub(crate) queries: RunningQueries,
    pub(crate) continuous: ContinuousQueries,
}

impl Default for InfluxContext {
    fn default() -> InfluxContext {
        InfluxContext {
            batches: BatchPool::new(line_protocol::new_batch),
            passwords: Passwords::default(),
            queries: RunningQueries::default(),
            continuous: ContinuousQueries::default(),
        }
    }
}
