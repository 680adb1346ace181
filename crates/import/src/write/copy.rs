//! Copies block directories of Prometheus unchanged.
//!
//! Invariants: a copy appears complete or not at all; a block that cannot be opened is not copied.
//! Not here: the content of blocks (`block`), choice of the blocks (`import`).

use std::path::Path;

use chronolith_base::Env;
use chronolith_block::{Block, BlockError, SUFFIX_CREATING};

/// Bytes per read and write.
const COPY_BYTES: usize = 1 << 20;
/// Directory levels below the block.
const DEPTH_MAX: usize = 2;

/// Copies the block in `from` to `to`, durably.
pub(crate) fn copy_block(
    env: &Env,
    from: &Path,
    to: &Path,
    copied: &mut dyn FnMut(u64),
) -> Result<(), BlockError> {
    let mut name = to.as_os_str().to_owned();
    name.push(SUFFIX_CREATING);
    let creating = Path::new(&name);
    let done = copy_dir(env, from, creating, DEPTH_MAX, copied).and_then(|()| {
        Block::open(env, creating)?;
        env.disk.rename(creating, to).map_err(io(to))?;
        match to.parent() {
            Some(parent) => env.disk.sync_dir(parent).map_err(io(parent)),
            None => Ok(()),
        }
    });
    if done.is_err() && env.disk.exists(creating) {
        // If this fails, the next start of the server removes the directory by its suffix.
        let _ = env.disk.remove_dir_all(creating);
    }
    done
}

fn copy_dir(
    env: &Env,
    from: &Path,
    to: &Path,
    depth: usize,
    copied: &mut dyn FnMut(u64),
) -> Result<(), BlockError> {
    env.disk.create_dir_all(to).map_err(io(to))?;
    for entry in env.disk.list(from).map_err(io(from))? {
        let (source, target) = (from.join(&entry.name), to.join(&entry.name));
        if !entry.is_dir {
            copy_file(env, &source, &target, entry.len)?;
            copied(entry.len);
        } else if depth > 0 {
            copy_dir(env, &source, &target, depth - 1, copied)?;
        }
    }
    env.disk.sync_dir(to).map_err(io(to))
}

fn copy_file(env: &Env, from: &Path, to: &Path, len: u64) -> Result<(), BlockError> {
    let source = env.disk.open_read(from).map_err(io(from))?;
    let target = env.disk.create(to).map_err(io(to))?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    while offset < len {
        let count = (len - offset).min(COPY_BYTES as u64) as usize;
        let part = buffer.get_mut(..count).unwrap_or_default();
        source.read_at(part, offset).map_err(io(from))?;
        target.write_at(part, offset).map_err(io(to))?;
        offset += count as u64;
    }
    target.sync_data().map_err(io(to))
}

/// Returns a function that adds `path` to an I/O error.
pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BlockError {
    let path = path.to_owned();
    move |error| BlockError::Io { path, error }
}
