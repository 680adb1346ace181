//! Files of a bucket directory: temporary files, placement under a key, open files.
//!
//! Invariants: a name that this process placed is durable before the call returns; at most
//! [`OPEN_FILES_MAX`] files stay open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use bytes::Bytes;
use chronolith_base::hash::{HashMap, HashSet};
use chronolith_base::{DiskFile, Env};
use parking_lot::Mutex;

/// Directory of temporary files. No key begins with it.
pub(super) const TEMPORARY_DIR: &str = ".chronolith-tmp";
/// Files kept open for positional reads.
const OPEN_FILES_MAX: usize = 256;
/// Directories whose names are known to be durable.
const SYNCED_DIRS_MAX: usize = 10_000;
/// Age at which a temporary file is taken for a leftover of a crash.
const LEFTOVER_AGE_MS: i64 = 24 * 60 * 60 * 1000;

pub(super) struct Files {
    env: Env,
    root: PathBuf,
    synced_dirs: Mutex<HashSet<PathBuf>>,
    open: Mutex<OpenFiles>,
    /// Leftovers are removed by the first write: a reader writes nothing.
    cleaned: Once,
}

/// Open files by key; the one used longest ago makes room.
#[derive(Default)]
struct OpenFiles {
    by_key: HashMap<String, OpenFile>,
    uses: u64,
}

struct OpenFile {
    file: Arc<dyn DiskFile>,
    last_use: u64,
}

impl OpenFiles {
    fn get(&mut self, key: &str) -> Option<Arc<dyn DiskFile>> {
        self.uses += 1;
        let found = self.by_key.get_mut(key)?;
        found.last_use = self.uses;
        Some(Arc::clone(&found.file))
    }

    fn insert(&mut self, key: &str, file: Arc<dyn DiskFile>) {
        if self.by_key.len() >= OPEN_FILES_MAX {
            let oldest = self.by_key.iter().min_by_key(|(_, open)| open.last_use).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.by_key.remove(&oldest);
            }
        }
        self.by_key.insert(key.to_owned(), OpenFile { file, last_use: self.uses });
    }
}

impl Files {
    pub(super) fn open(env: &Env, root: PathBuf) -> io::Result<Files> {
        // An absent directory may be a file system that is not mounted.
        env.disk.list(&root)?;
        Ok(Files {
            env: env.clone(),
            root,
            synced_dirs: Mutex::default(),
            open: Mutex::default(),
            cleaned: Once::new(),
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }

    /// Path of the file of a key.
    ///
    /// # Errors
    /// `InvalidInput` for a key that could name anything but an object below the root.
    pub(super) fn path(&self, key: &str) -> io::Result<PathBuf> {
        let is_safe = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && !part.chars().any(|c| c == '\\' || c.is_control())
        };
        if !key.split('/').all(is_safe) || key.split('/').next() == Some(TEMPORARY_DIR) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "key is not a relative path"));
        }
        Ok(self.root.join(key))
    }

    pub(super) fn open_key(&self, key: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.env.disk.open_read(&self.path(key)?)?;
        if file.stat()?.is_dir {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Arc::from(file))
    }

    pub(super) fn read_at(&self, key: &str, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let open = self.open.lock().get(key);
        let file = match open {
            Some(file) => file,
            None => {
                let file = self.open_key(key)?;
                self.open.lock().insert(key, Arc::clone(&file));
                file
            }
        };
        file.read_at(out, offset)
    }

    /// Name of a temporary file that does not exist yet.
    pub(super) fn new_temporary(&self) -> io::Result<String> {
        self.cleaned.call_once(|| self.remove_leftovers());
        self.env.disk.create_dir_all(&self.root.join(TEMPORARY_DIR))?;
        let random = self.env.rng.next_u64();
        Ok(format!("{:016x}-{random:016x}", self.env.clock.now_ms().max(0)))
    }

    /// Writes and syncs a temporary file.
    pub(super) fn write_temporary<'b>(
        &self,
        id: &str,
        pieces: impl Iterator<Item = &'b Bytes>,
    ) -> io::Result<()> {
        let file = self.env.disk.create(&self.temporary(id)?)?;
        write_all(&*file, 0, pieces)?;
        file.sync_data()
    }

    /// Writes into a temporary file; [`Files::sync_temporary`] makes it durable.
    pub(super) fn write_part<'b>(
        &self,
        id: &str,
        offset: u64,
        pieces: impl Iterator<Item = &'b Bytes>,
    ) -> io::Result<()> {
        let file = self.env.disk.open(&self.temporary(id)?)?;
        write_all(&*file, offset, pieces)?;
        file.start_writeback();
        Ok(())
    }

    pub(super) fn sync_temporary(&self, id: &str) -> io::Result<()> {
        self.env.disk.open(&self.temporary(id)?)?.sync_data()
    }

    /// Renames a synced temporary file to the name of `key`, replacing an existing file.
    pub(super) fn replace(&self, id: &str, key: &str) -> io::Result<()> {
        let target = self.path(key)?;
        let parent = self.parent(&target)?;
        self.env.disk.rename(&self.temporary(id)?, &target)?;
        self.open.lock().by_key.remove(key);
        self.env.disk.sync_dir(&parent)
    }

    /// Gives a synced temporary file the name of `key` as well.
    ///
    /// # Errors
    /// `AlreadyExists`; the name that exists is durable then.
    pub(super) fn create(&self, id: &str, key: &str) -> io::Result<()> {
        let target = self.path(key)?;
        let parent = self.parent(&target)?;
        let linked = self.env.disk.hard_link(&self.temporary(id)?, &target);
        if linked.is_ok() || linked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
        {
            self.env.disk.sync_dir(&parent)?;
        }
        linked
    }

    /// Removes a temporary file. One that stays is removed as a leftover later.
    pub(super) fn discard(&self, id: &str) {
        if let Ok(path) = self.temporary(id) {
            let _ = self.env.disk.remove_file(&path);
        }
    }

    /// Removes an object; an absent one is no error.
    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        let path = self.path(key)?;
        self.open.lock().by_key.remove(key);
        match self.env.disk.remove_file(&path) {
            Ok(()) => self.env.disk.sync_dir(path.parent().unwrap_or(&self.root)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Directory of a file, created durably.
    fn parent(&self, path: &Path) -> io::Result<PathBuf> {
        let parent = path.parent().unwrap_or(&self.root).to_owned();
        if self.synced_dirs.lock().contains(&parent) && self.env.disk.exists(&parent) {
            return Ok(parent);
        }
        self.env.disk.create_dir_all(&parent)?;
        // A directory that another process created may not be durable yet either.
        for above in parent.ancestors().skip(1).take_while(|above| above.starts_with(&self.root)) {
            self.env.disk.sync_dir(above)?;
        }
        let mut synced = self.synced_dirs.lock();
        if synced.len() >= SYNCED_DIRS_MAX {
            synced.clear();
        }
        synced.insert(parent.clone());
        Ok(parent)
    }

    fn temporary(&self, id: &str) -> io::Result<PathBuf> {
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "id of an upload"));
        }
        Ok(self.root.join(TEMPORARY_DIR).join(id))
    }

    fn remove_leftovers(&self) {
        let dir = self.root.join(TEMPORARY_DIR);
        let Ok(entries) = self.env.disk.list(&dir) else { return };
        let now_ms = self.env.clock.now_ms();
        for entry in entries {
            let begun_ms = entry.name.split('-').next().and_then(|text| i64::from_str_radix(text, 16).ok());
            if begun_ms.is_some_and(|begun_ms| now_ms.saturating_sub(begun_ms) > LEFTOVER_AGE_MS) {
                self.discard(&entry.name);
            }
        }
    }
}

#[cfg(test)]
impl Files {
    pub(super) fn open_count(&self) -> usize {
        self.open.lock().by_key.len()
    }
}

fn write_all<'b>(
    file: &dyn DiskFile,
    mut offset: u64,
    pieces: impl Iterator<Item = &'b Bytes>,
) -> io::Result<()> {
    for piece in pieces {
        file.write_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}
