//! A second name for a block in another directory: every file hard-linked, nothing copied.
//! Holds: files of a block are replaced, never changed, so the copy stays what it is.
//! Not here: making the new place visible at once (`tsdb`).

use std::path::Path;

use chronolith_base::Env;
use chronolith_format::chunks;

use crate::{Block, BlockError, CHUNKS_DIR, INDEX_FILE, META_FILE, TOMBSTONES_FILE};

impl Block {
    /// Links the block's files into `parent_dir`, which exists, under the block's name; durable when it returns, but
    /// for the name itself. A directory of that name must not be there.
    ///
    /// # Errors
    /// [`BlockError::Io`]; part of the files may be there then.
    pub fn link_into(&self, env: &Env, parent_dir: &Path) -> Result<(), BlockError> {
        let (disk, files) = (&env.disk, &self.files);
        let dir = parent_dir.join(files.meta.ulid.to_string());
        let chunks_dir = dir.join(CHUNKS_DIR);
        disk.create_dir_all(&chunks_dir).map_err(BlockError::io(&chunks_dir))?;
        for (segment_idx, _) in (0u32..).zip(&files.segments) {
            let name = chunks::segment_name(segment_idx);
            let (from, to) = (files.dir.join(CHUNKS_DIR).join(&name), chunks_dir.join(&name));
            disk.hard_link(&from, &to).map_err(BlockError::io(&to))?;
        }
        for name in [INDEX_FILE, META_FILE, TOMBSTONES_FILE] {
            let (from, to) = (files.dir.join(name), dir.join(name));
            // Blocks of others may have no tombstones.
            if disk.exists(&from) {
                disk.hard_link(&from, &to).map_err(BlockError::io(&to))?;
            }
        }
        disk.sync_dir(&chunks_dir).map_err(BlockError::io(&chunks_dir))?;
        disk.sync_dir(&dir).map_err(BlockError::io(&dir))
    }
}
