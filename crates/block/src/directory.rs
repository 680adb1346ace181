//! A directory of blocks: opens all, clears what a crash left behind, removes one.
//! Holds: a block disappears under its name at once (rename), its files afterwards.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::block::meta::Ulid;

use crate::layout::{SUFFIX_CREATING, SUFFIX_DELETING};
use crate::{Block, BlockError};

/// Opens every block in `dir`, by start time and name. What cannot be opened is reported and left as it is.
/// Directories that a crash left half written or half removed are removed. No directory is no blocks.
#[must_use]
pub fn open_dir(env: &Env, dir: &Path) -> (Vec<Arc<Block>>, Vec<(PathBuf, BlockError)>) {
    let (mut blocks, mut failed) = (Vec::new(), Vec::new());
    let entries = match env.disk.list(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (blocks, failed),
        Err(error) => {
            failed.push((dir.to_owned(), BlockError::Io { path: dir.to_owned(), error }));
            return (blocks, failed);
        }
    };
    for entry in entries.iter().filter(|e| e.is_dir) {
        let path = dir.join(&entry.name);
        if is_leftover(&entry.name) {
            if let Err(error) = env.disk.remove_dir_all(&path) {
                failed.push((path.clone(), BlockError::Io { path, error }));
            }
        } else if entry.name.parse::<Ulid>().is_ok() {
            match Block::open(env, &path) {
                Ok(block) => blocks.push(block),
                Err(error) => failed.push((path, error)),
            }
        }
    }
    blocks.sort_by_key(|b| (b.meta().min_time, b.meta().ulid));
    (blocks, failed)
}

/// Returns true if this version's or Prometheus's writer or remover named it; other names are not ours to
/// remove.
#[must_use]
pub fn is_leftover(name: &str) -> bool {
    let stem = name.strip_suffix(SUFFIX_CREATING).or_else(|| name.strip_suffix(SUFFIX_DELETING));
    stem.is_some_and(|stem| stem.parse::<Ulid>().is_ok())
}

/// Removes the block in directory `dir`; after a failure it may be called again, and one that is gone is no error. Open
/// readers of it stay usable.
///
/// # Errors
/// [`BlockError::Io`]; the block is either there as before or gone under its name.
pub fn remove(env: &Env, dir: &Path) -> Result<(), BlockError> {
    let mut doomed = dir.as_os_str().to_owned();
    doomed.push(SUFFIX_DELETING);
    let doomed = PathBuf::from(doomed);
    if env.disk.exists(dir) {
        env.disk.rename(dir, &doomed).map_err(BlockError::io(dir))?;
    } else if !env.disk.exists(&doomed) {
        return Ok(());
    }
    // A call before may have come as far as the rename without making it durable.
    if let Some(parent) = dir.parent() {
        env.disk.sync_dir(parent).map_err(BlockError::io(parent))?;
    }
    env.disk.remove_dir_all(&doomed).map_err(BlockError::io(&doomed))
}
