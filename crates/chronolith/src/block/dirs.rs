//! Directories of blocks that arguments name.
//!
//! Invariant: a directory without a block is an error, so that a wrong path is never a clean result.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chronolith_base::Env;
use chronolith_format::block::meta::Ulid;

const META_FILE: &str = "meta.json";

/// Returns the directories of blocks: each argument that is one, and the blocks in each other, by ULID.
pub(super) fn block_dirs<'a>(
    env: &Env,
    arguments: impl Iterator<Item = &'a String>,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for argument in arguments {
        let dir = Path::new(argument);
        let is_block = |dir: &Path| dir.file_name().and_then(|name| name.to_str()).is_some_and(is_ulid);
        // A block whose meta.json is missing is damaged, not a directory of blocks.
        if is_block(dir) || env.disk.exists(&dir.join(META_FILE)) {
            found.push(dir.to_owned());
            continue;
        }
        let entries = env.disk.list(dir).with_context(|| format!("reading {}", dir.display()))?;
        let before = found.len();
        let names = entries.iter().filter(|entry| entry.is_dir && is_ulid(&entry.name));
        found.extend(names.map(|entry| dir.join(&entry.name)));
        anyhow::ensure!(found.len() > before, "no block in {}", dir.display());
        if let Some(added) = found.get_mut(before..) {
            added.sort_unstable();
        }
    }
    Ok(found)
}

fn is_ulid(name: &str) -> bool {
    name.parse::<Ulid>().is_ok()
}
