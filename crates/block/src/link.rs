//! Hard links to the files of a block in another directory: nothing copied, the block not opened.
//!
//! Invariant: files of a block are replaced, never changed, so that the links stay as they are.
//! Not here: making the new directory visible at once (`tsdb`).

use std::path::Path;

use chronolith_base::Env;
use chronolith_format::block::meta::Ulid;

use crate::BlockError;
use crate::layout::{CHUNKS_DIR, INDEX_FILE, META_FILE, TOMBSTONES_FILE, block_dir};

/// Links the files of the block `ulid` of `from_parent` into `to_parent`, which exists, under the block's
/// name; durable when it returns, but for the name itself. A directory of that name must not be there.
///
/// # Errors
/// [`BlockError::Io`]; part of the files may be there then.
pub fn link_block(env: &Env, from_parent: &Path, ulid: Ulid, to_parent: &Path) -> Result<(), BlockError> {
    let disk = &env.disk;
    let (from, to) = (block_dir(from_parent, ulid), block_dir(to_parent, ulid));
    let (from_chunks, to_chunks) = (from.join(CHUNKS_DIR), to.join(CHUNKS_DIR));
    disk.create_dir_all(&to_chunks).map_err(BlockError::io(&to_chunks))?;
    let segments = disk.list(&from_chunks).map_err(BlockError::io(&from_chunks))?;
    for segment in segments.iter().filter(|entry| !entry.is_dir) {
        let target = to_chunks.join(&segment.name);
        disk.hard_link(&from_chunks.join(&segment.name), &target).map_err(BlockError::io(&target))?;
    }
    for name in [INDEX_FILE, META_FILE, TOMBSTONES_FILE] {
        let (source, target) = (from.join(name), to.join(name));
        // Blocks of others may have no tombstones.
        if name != TOMBSTONES_FILE || disk.exists(&source) {
            disk.hard_link(&source, &target).map_err(BlockError::io(&target))?;
        }
    }
    disk.sync_dir(&to_chunks).map_err(BlockError::io(&to_chunks))?;
    disk.sync_dir(&to).map_err(BlockError::io(&to))
}
