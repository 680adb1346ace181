//! A directory of blocks: opens all, removes leftovers of a crash, removes one.
//!
//! Invariant: a removed block disappears under its name at once (rename), its files afterwards.
//! Not here: choice of the removed blocks (`tsdb`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::block::meta::Ulid;

use crate::layout::{SUFFIX_CREATING, SUFFIX_DELETING};
use crate::{Block, BlockError};

/// Opens every block in `dir`, by start time and name. Blocks that cannot be opened are returned with their
/// error. Directories that a crash left half written or half removed are removed. A missing directory has no
/// blocks.
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
    blocks.sort_by_key(|b| (b.range().start, b.meta().ulid));
    (blocks, failed)
}

/// Returns true for names of directories that a writer or remover (of this program or Prometheus) did not
/// finish.
#[must_use]
pub fn is_leftover(name: &str) -> bool {
    let stem = name.strip_suffix(SUFFIX_CREATING).or_else(|| name.strip_suffix(SUFFIX_DELETING));
    stem.is_some_and(|stem| stem.parse::<Ulid>().is_ok())
}

/// Removes the block in directory `dir`. After a failure it may be called again; a missing block is no error.
/// Open readers stay usable.
///
/// # Errors
/// [`BlockError::Io`]; the block either exists as before or no longer has its name.
pub fn remove(env: &Env, dir: &Path) -> Result<(), BlockError> {
    let mut deleting = dir.as_os_str().to_owned();
    deleting.push(SUFFIX_DELETING);
    let deleting = PathBuf::from(deleting);
    if env.disk.exists(dir) {
        env.disk.rename(dir, &deleting).map_err(BlockError::io(dir))?;
    } else if !env.disk.exists(&deleting) {
        return Ok(());
    }
    // An earlier call may have renamed the directory without making the rename durable.
    if let Some(parent) = dir.parent() {
        env.disk.sync_dir(parent).map_err(BlockError::io(parent))?;
    }
    env.disk.remove_dir_all(&deleting).map_err(BlockError::io(&deleting))
}
