//! Hard links to the files of a block in another directory: nothing copied, the block not opened.
//!
//! Invariant: files of a block are replaced, never changed, so that the links stay as they are.
//! Not here: making the new directory visible at once (`tsdb`).

use std::path::Path;
use std::sync::Arc;

use chronolith_base::{Disk, Env};
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::rollup::ROLLUPS_DIR;

use crate::BlockError;
use crate::layout::{CHUNKS_DIR, INDEX_FILE, META_FILE, TOMBSTONES_FILE, block_dir};

/// Links the files of the block `ulid`, its roll-ups included, of `from_parent` into `to_parent`, which
/// exists, under the block's name; durable when it returns, but for the name itself. A directory of that
/// name must not be there.
///
/// # Errors
/// [`BlockError::Io`]; part of the files may be there then.
pub fn link_block(env: &Env, from_parent: &Path, ulid: Ulid, to_parent: &Path) -> Result<(), BlockError> {
    let disk = &env.disk;
    let (from, to) = (block_dir(from_parent, ulid), block_dir(to_parent, ulid));
    let (from_chunks, to_chunks) = (from.join(CHUNKS_DIR), to.join(CHUNKS_DIR));
    link_files(disk, &from_chunks, &to_chunks)?;
    let from_rollups = from.join(ROLLUPS_DIR);
    if disk.exists(&from_rollups) {
        link_files(disk, &from_rollups, &to.join(ROLLUPS_DIR))?;
    }
    for name in [INDEX_FILE, META_FILE, TOMBSTONES_FILE] {
        let (source, target) = (from.join(name), to.join(name));
        // Blocks of others may have no tombstones.
        if name != TOMBSTONES_FILE || disk.exists(&source) {
            disk.hard_link(&source, &target).map_err(BlockError::io(&target))?;
        }
    }
    disk.sync_dir(&to).map_err(BlockError::io(&to))
}

/// Links the files of one directory into another one, which is made and synced.
fn link_files(disk: &Arc<dyn Disk>, from: &Path, to: &Path) -> Result<(), BlockError> {
    disk.create_dir_all(to).map_err(BlockError::io(to))?;
    let files = disk.list(from).map_err(BlockError::io(from))?;
    for file in files.iter().filter(|entry| !entry.is_dir) {
        let target = to.join(&file.name);
        disk.hard_link(&from.join(&file.name), &target).map_err(BlockError::io(&target))?;
    }
    disk.sync_dir(to).map_err(BlockError::io(to))
}
