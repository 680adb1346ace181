//! Files of the checkpoint that startup reads: series files and slices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::{Disk, Env};
use chronolith_format::head::series_file::{FILE_HEADER_BYTES, FileHeader};
use chronolith_format::head::slice::{self, SliceHeader};

use crate::index::overflow;
use crate::log_cache::LOG_CACHE_FILE;
use crate::options::{HeadError, TYPED_FILE, wal_dir};
use crate::series::sealed::sealed_dir;
use crate::texts;

/// Empty file in the directory of the WAL. Programs that know WAL versions 1 and 2 only refuse to start where
/// a file is named `checkpoint.*`; without it they would skip frames that they do not know.
const VERSION_FILE: &str = "checkpoint.wal-version-3";

/// Files of the checkpoint, in the directory of the WAL.
pub(super) struct CheckpointFiles {
    pub(super) dir: PathBuf,
    /// Existing copies of each slice.
    pub(super) slices: BTreeMap<u32, [bool; 2]>,
    /// Existing copies of the series file, by generation.
    pub(super) definitions: BTreeMap<u64, [bool; 2]>,
    /// Files of texts, by generation.
    pub(super) texts: BTreeMap<u64, Vec<PathBuf>>,
    /// Checkpoints of overflow tables, by generation.
    pub(super) overflow: BTreeMap<u64, Vec<PathBuf>>,
    /// Set if the directory is one of an owner of a partition of the replicated log.
    pub(super) is_log_cache: bool,
    /// Key of the WAL, which all files carry; 0 until the WAL is found if no file of the checkpoint has one.
    pub(super) key: u128,
}

impl CheckpointFiles {
    /// Creates missing directories, removes unfinished files, lists the others.
    pub(super) fn find(env: &Env, data_dir: &Path) -> Result<CheckpointFiles, HeadError> {
        let disk = &*env.disk;
        let dir = wal_dir(data_dir);
        for path in [&dir, &sealed_dir(data_dir)] {
            disk.create_dir_all(path).map_err(HeadError::io(path))?;
        }
        disk.sync_dir(data_dir).map_err(HeadError::io(data_dir))?;
        let mut files = CheckpointFiles {
            dir: dir.clone(),
            slices: BTreeMap::new(),
            definitions: BTreeMap::new(),
            texts: BTreeMap::new(),
            overflow: BTreeMap::new(),
            is_log_cache: false,
            key: 0,
        };
        for entry in disk.list(&dir).map_err(HeadError::io(&dir))? {
            files.take_entry(disk, &entry.name)?;
        }
        let version_file = dir.join(VERSION_FILE);
        if !disk.exists(&version_file) {
            disk.create(&version_file).map_err(HeadError::io(&version_file))?;
            disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
        }
        Ok(files)
    }

    fn take_entry(&mut self, disk: &dyn Disk, name: &str) -> Result<(), HeadError> {
        let path = self.dir.join(name);
        let number = |suffix: &str| name.strip_suffix(suffix).and_then(|n| n.parse::<u64>().ok());
        if [VERSION_FILE, TYPED_FILE].contains(&name) {
            return Ok(());
        }
        if name == LOG_CACHE_FILE {
            self.is_log_cache = true;
            return Ok(());
        }
        if name.ends_with(".tmp") {
            disk.remove_file(&path).map_err(HeadError::io(&path))?;
        } else if name.starts_with("checkpoint.") {
            let what =
                "is a checkpoint of an unreleased version that this one cannot read; stop that version \
                        cleanly after all windows became blocks, or move the directory away"
                    .to_owned();
            return Err(HeadError::Corrupt { path, what });
        } else if let Some(number) = texts::file::SUFFIXES.iter().find_map(|suffix| number(suffix)) {
            self.texts.entry(number).or_default().push(path);
        } else if let Some(number) = overflow::file::SUFFIXES.iter().find_map(|suffix| number(suffix)) {
            self.overflow.entry(number).or_default().push(path);
        } else if let Some(number) = number(".definitions") {
            self.definitions.entry(number).or_default()[0] = true;
        } else if let Some(number) = number(".definitions-mirror") {
            self.definitions.entry(number).or_default()[1] = true;
        } else {
            for copy_idx in 0..2 {
                let slice = number(&format!(".slice{copy_idx}")).and_then(|n| u32::try_from(n).ok());
                if let Some(slice) = slice {
                    self.slices.entry(slice).or_default()[copy_idx] = true;
                }
            }
        }
        Ok(())
    }

    /// Returns true if there is no file.
    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
            && self.definitions.is_empty()
            && self.texts.is_empty()
            && self.overflow.is_empty()
    }

    /// Returns the key of the WAL from the headers of the newest files that have a valid one.
    pub(super) fn known_key(&self, disk: &dyn Disk) -> Result<Option<u128>, HeadError> {
        let mut known = None;
        for (&generation, exists) in self.definitions.iter().rev() {
            for copy_idx in (0..2).filter(|&copy_idx| exists[copy_idx]) {
                let path = crate::checkpoint::definitions_path(&self.dir, generation, copy_idx);
                let head = read_head(disk, &path, FILE_HEADER_BYTES)?;
                known = known.or(FileHeader::decode(&head).ok().map(|h| h.key));
            }
        }
        for (&slice, exists) in &self.slices {
            if known.is_some() {
                break;
            }
            for copy_idx in (0..2).filter(|&copy_idx| exists[copy_idx]) {
                let path = crate::checkpoint::slice_path(&self.dir, slice, copy_idx);
                let head = read_head(disk, &path, slice::FILE_HEADER_BYTES)?;
                known = known.or(SliceHeader::decode(&head).ok().map(|h| h.key));
            }
        }
        Ok(known)
    }
}

/// Returns the first `len` bytes of a file, fewer if it is shorter.
pub(super) fn read_head(disk: &dyn Disk, path: &Path, len: usize) -> Result<Vec<u8>, HeadError> {
    let file = disk.open(path).map_err(HeadError::io(path))?;
    let file_len = file.len().map_err(HeadError::io(path))?;
    let mut head = vec![0; len.min(usize::try_from(file_len).unwrap_or(len))];
    file.read_at(&mut head, 0).map_err(HeadError::io(path))?;
    Ok(head)
}
