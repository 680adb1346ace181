//! File with the position of an interrupted backfill.
//!
//! Invariant: a file of another command is refused, not used.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use chronolith_base::Env;
use serde::{Deserialize, Serialize};

/// Numbers of a backfill, over all its runs. A chunk that was evaluated again counts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Counts {
    pub(super) rounds: u64,
    pub(super) failed_rounds: u64,
    pub(super) series: u64,
    pub(super) added: u64,
    pub(super) replaced: u64,
    pub(super) removed: u64,
    pub(super) equal: u64,
    pub(super) rejected: u64,
}

impl Counts {
    pub(super) fn plus(self, other: Counts) -> Counts {
        Counts {
            rounds: self.rounds + other.rounds,
            failed_rounds: self.failed_rounds + other.failed_rounds,
            series: self.series.max(other.series),
            added: self.added + other.added,
            replaced: self.replaced + other.replaced,
            removed: self.removed + other.removed,
            equal: self.equal + other.equal,
            rejected: self.rejected + other.rejected,
        }
    }
}

/// Content of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProgressFile {
    /// Hash of the command.
    pub(super) hash: String,
    /// First and last time, in milliseconds.
    pub(super) range_ms: (i64, i64),
    /// Position; `None` before the first chunk.
    pub(super) resume: Option<String>,
    pub(super) counts: Counts,
}

impl ProgressFile {
    pub(super) fn new(hash: String, range_ms: (i64, i64)) -> ProgressFile {
        ProgressFile { hash, range_ms, resume: None, counts: Counts::default() }
    }

    /// Reads the file of the command with this hash, if there is one.
    ///
    /// # Errors
    /// The file is of another command, or no progress file.
    pub(super) fn read(env: &Env, path: &Path, hash: String) -> anyhow::Result<Option<ProgressFile>> {
        let shown = path.display();
        let bytes = match env.disk.read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {shown}")),
        };
        let found: ProgressFile =
            serde_json::from_slice(&bytes).with_context(|| format!("{shown} is no progress file"))?;
        anyhow::ensure!(
            found.hash == hash,
            "{shown} is of a backfill of other rules or another range: name another --progress-file, or remove it"
        );
        Ok(Some(found))
    }

    pub(super) fn write(&self, env: &Env, path: &Path) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec(self).context("progress")?;
        env.disk.write_atomic(path, &bytes).with_context(|| format!("writing {}", path.display()))
    }

    /// Removes the file, if there is one.
    pub(super) fn remove(env: &Env, path: &Path) -> anyhow::Result<()> {
        match env.disk.remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}
