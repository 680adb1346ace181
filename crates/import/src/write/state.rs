//! State file of a tenant: blocks and heads that were imported, and blocks of an import that has not ended.
//!
//! Invariants: a change is durable before its effects are visible in the blocks directory.
//! Not here: the text of the file (`format::block::imports`).

use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_block::BlockError;
use chronolith_format::block::imports::{HeadState, ImportState};
use chronolith_format::block::meta::Ulid;

use super::copy::io;
use super::head_blocks::Announce;
use crate::ImportError;

/// The file with its content.
pub(crate) struct StateFile {
    path: PathBuf,
    state: ImportState,
}

impl StateFile {
    /// Reads the file at `path`; a missing one is an empty state.
    pub(crate) fn open(env: &Env, path: &Path) -> Result<StateFile, ImportError> {
        let path = path.to_owned();
        if !env.disk.exists(&path) {
            return Ok(StateFile { path, state: ImportState::new() });
        }
        let text = match env.disk.read(&path) {
            Ok(text) => text,
            Err(error) => return Err(ImportError::Io { path, error }),
        };
        match ImportState::decode(&text) {
            Ok(state) => Ok(StateFile { path, state }),
            Err(error) => Err(ImportError::State { path, what: error.to_string() }),
        }
    }

    fn save(&self, env: &Env) -> Result<(), ImportError> {
        Ok(write_state(env, &self.path, &self.state)?)
    }

    /// Returns true if the block was copied before.
    pub(crate) fn has_block(&self, ulid: Ulid) -> bool {
        self.state.blocks.contains(&ulid)
    }

    /// Records a copied block.
    pub(crate) fn add_block(&mut self, env: &Env, ulid: Ulid) -> Result<(), ImportError> {
        self.state.blocks.push(ulid);
        self.save(env)
    }

    /// Returns true if the head of `source` was imported with this fingerprint.
    pub(crate) fn has_head(&self, source: &str, fingerprint: &str) -> bool {
        self.state.heads.iter().any(|head| head.source == source && head.fingerprint == fingerprint)
    }

    /// Records an imported head. Blocks that an earlier import made of the same source are pending deletion
    /// afterwards.
    pub(crate) fn replace_head(&mut self, env: &Env, head: HeadState) -> Result<(), ImportError> {
        let heads = &mut self.state.heads;
        let before = heads.iter().position(|known| known.source == head.source);
        self.state.pending = before.map(|idx| heads.remove(idx).blocks).unwrap_or_default();
        self.state.heads.push(head);
        self.save(env)
    }

    /// Heads that were imported, or parts of other sources.
    pub(crate) fn heads(&self) -> &[HeadState] {
        &self.state.heads
    }

    /// Records blocks as pending, in addition to those that are.
    pub(crate) fn announce(&mut self, env: &Env, ulids: &[Ulid]) -> Result<(), BlockError> {
        self.state.pending.extend_from_slice(ulids);
        write_state(env, &self.path, &self.state)
    }

    /// Records an imported part whose blocks were announced, while others are imported, and removes the
    /// blocks that an earlier import made of it.
    pub(crate) fn complete(
        &mut self,
        env: &Env,
        blocks_dir: &Path,
        head: HeadState,
    ) -> Result<(), ImportError> {
        let heads = &mut self.state.heads;
        let before = heads.iter().position(|known| known.source == head.source);
        let replaced = before.map(|idx| heads.swap_remove(idx).blocks).unwrap_or_default();
        self.state.pending.retain(|ulid| !head.blocks.contains(ulid));
        self.state.pending.extend_from_slice(&replaced);
        self.state.heads.push(head);
        self.save(env)?;
        if replaced.is_empty() {
            return Ok(());
        }
        self.state.pending.retain(|ulid| !replaced.contains(ulid));
        remove_blocks(env, blocks_dir, &replaced)?;
        self.save(env)
    }

    /// Removes the blocks that are pending from `blocks_dir`.
    pub(crate) fn remove_pending_blocks(&mut self, env: &Env, blocks_dir: &Path) -> Result<(), ImportError> {
        if self.state.pending.is_empty() {
            return Ok(());
        }
        remove_blocks(env, blocks_dir, &std::mem::take(&mut self.state.pending))?;
        self.save(env)
    }

    /// Returns a function that records blocks as pending before they appear.
    pub(crate) fn pending_writer(&self, env: &Env) -> Announce {
        let (env, path, mut state) = (env.clone(), self.path.clone(), self.state.clone());
        Box::new(move |ulids: &[Ulid]| {
            state.pending.extend_from_slice(ulids);
            write_state(&env, &path, &state)
        })
    }
}

/// Removes the blocks with these ULIDs that exist.
fn remove_blocks(env: &Env, blocks_dir: &Path, ulids: &[Ulid]) -> Result<(), ImportError> {
    for ulid in ulids {
        let dir = blocks_dir.join(ulid.to_string());
        if env.disk.exists(&dir) {
            chronolith_block::remove(env, &dir)?;
        }
    }
    Ok(())
}

fn write_state(env: &Env, path: &Path, state: &ImportState) -> Result<(), BlockError> {
    env.disk.write_atomic(path, &state.encode()).map_err(io(path))
}

/// Creates `dir` durably.
pub(crate) fn make_dir(env: &Env, dir: &Path) -> Result<(), ImportError> {
    let failed = |error| ImportError::Io { path: dir.to_owned(), error };
    chronolith_base::disk::make_dir(&*env.disk, dir).map_err(failed)
}
