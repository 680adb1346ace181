//! Opening of the store of an owner: a directory that cannot be continued is emptied, since the log and the
//! bucket have its samples.

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_tsdb::{Bucket, HeadError, OpenError, ReplayProgress, Tsdb, TsdbOptions, discard_log_cache};

use super::windows::{read_file, remove_file};

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
        Err(error) => return Err(error),
        Ok(tsdb) => {
            let next = tsdb.records().and_then(|records| records.next());
            let unusable = next.and_then(|next| read_file(env, &options.data_dir, next).err());
            match unusable {
                Some(why) => why,
                None => return Ok((tsdb, None)),
            }
        }
    };
    let dir = options.data_dir.display();
    tracing::error!(%dir, why, "emptying the data directory, its records are read from the log again");
    discard_log_cache(env, &options.data_dir).map_err(OpenError::Head)?;
    let io = |error| OpenError::Io { path: options.data_dir.clone(), error };
    remove_file(env, &options.data_dir).map_err(io)?;
    Ok((open()?, Some(why)))
}
