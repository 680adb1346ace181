//! Data directories that another process has open: errors of the tools, each with what to do.
//! Not here: the lock (`chronolith-tsdb`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::foreign_dir;
use chronolith_base::Env;
use chronolith_base::disk::LockGuard;
use chronolith_tsdb::{OpenError, ReplayProgress, Tsdb, TsdbOptions};

/// Advice for a tool that reads a data directory: a snapshot is one that no server has open.
const READ_A_SNAPSHOT: &str = "stop the server; or, with --web.enable-admin-api, take a snapshot of it \
    (curl -X POST http://HOST:PORT/api/v1/admin/tsdb/snapshot) and name that directory: DIR/snapshots/NAME";

/// Advice for a tool that writes to a data directory.
const STOP_THE_SERVER: &str = "stop the server, and start it again after the import; `import influx --url`, \
    `import influx --path` and `import whisper` without --data-dir write to a running server";

/// Advice for a backfill of rules.
const BACKFILL_OVER_HTTP: &str = "a server that runs does the backfill itself: `rules backfill --url URL`, with \
    --web.enable-admin-api; or stop it first";

/// Error of a directory that is to be read and that a server has open.
pub(crate) fn in_use(dir: &Path) -> anyhow::Error {
    explain(OpenError::Locked(dir.to_owned()), READ_A_SNAPSHOT)
}

/// Opens the store of a stopped server, or of a snapshot, to read it.
pub(crate) fn open_to_read(env: &Env, dir: PathBuf) -> anyhow::Result<Arc<Tsdb>> {
    foreign_dir::require_own(&*env.disk, &dir)?;
    Tsdb::open(env.clone(), TsdbOptions::new(dir), Arc::new(ReplayProgress::default()))
        .map_err(|error| explain(error, READ_A_SNAPSHOT))
}

/// Takes the lock of a data directory to write to it.
pub(crate) fn lock_to_write(env: &Env, dir: &Path) -> anyhow::Result<Box<dyn LockGuard>> {
    foreign_dir::refuse_foreign(&*env.disk, dir)?;
    chronolith_tsdb::lock_data_dir(env, dir).map_err(|error| explain(error, STOP_THE_SERVER))
}

/// Error of a directory in which rules were to be backfilled.
pub(crate) fn explain_backfill(error: OpenError) -> anyhow::Error {
    explain(error, BACKFILL_OVER_HTTP)
}

fn explain(error: OpenError, advice: &str) -> anyhow::Error {
    match error {
        OpenError::Locked(_) => anyhow::anyhow!("{error}\n  {advice}"),
        error => error.into(),
    }
}
