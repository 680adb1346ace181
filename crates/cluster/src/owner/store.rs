//! Opening of the store of an owner: a directory that cannot be continued is emptied, since the log and the
//! bucket have its samples.

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_tsdb::{Bucket, HeadError, OpenError, ReplayProgress, Tsdb, TsdbOptions, discard_log_cache};

/// Opens the store of the owner of `options.wal.log`. Returns the reason why its directory was made empty, if
/// it was; the owner then reads from the offset that the bucket names.
///
/// # Errors
/// [`OpenError`]: the directory is one of a single server, of another partition, or cannot be read.
pub fn open_store(
    env: &Env,
    options: &TsdbOptions,
    progress: &Arc<ReplayProgress>,
    bucket: Option<&Arc<Bucket>>,
) -> Result<(Arc<Tsdb>, Option<String>), OpenError> {
    let open = || Tsdb::open_with_bucket(env.clone(), options.clone(), progress.clone(), bucket.cloned());
    let why = match open() {
        Err(OpenError::Head(HeadError::LogCache(why))) => why,
        opened => return opened.map(|tsdb| (tsdb, None)),
    };
    let dir = options.data_dir.display();
    tracing::error!(%dir, why, "emptying the data directory, its records are read from the log again");
    discard_log_cache(env, &options.data_dir).map_err(OpenError::Head)?;
    Ok((open()?, Some(why)))
}
