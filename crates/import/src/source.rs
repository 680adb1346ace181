//! What a Prometheus data directory holds, by name.
//!
//! Holds: nothing is opened here but directories. Not here: reading the files.

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_base::disk::DirEntry;
use chronolith_format::block::meta::Ulid;

const CHECKPOINT_PREFIX: &str = "checkpoint.";

/// Files of a Prometheus data directory, in the order in which Prometheus reads them.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Block directories by name.
    pub(crate) blocks: Vec<(Ulid, PathBuf)>,
    /// Files of m-mapped head chunks.
    pub(crate) head_chunks: Vec<LogFile>,
    /// Segments of the last checkpoint, then those of the write-ahead log behind it.
    pub(crate) wal: Vec<LogFile>,
    /// Segments of the out-of-order log.
    pub(crate) wbl: Vec<LogFile>,
    /// What is worth saying.
    pub(crate) notes: Vec<String>,
}

/// A file with its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogFile {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
}

impl Source {
    /// Looks into `dir`.
    ///
    /// # Errors
    /// If `dir` or a directory in it cannot be listed.
    pub(crate) fn look(env: &Env, dir: &Path) -> Result<Source, (PathBuf, io::Error)> {
        let mut source = Source::default();
        for entry in list(env, dir)? {
            if let Some(ulid) = entry.name.parse::<Ulid>().ok().filter(|_| entry.is_dir) {
                source.blocks.push((ulid, dir.join(&entry.name)));
            }
        }
        source.head_chunks = numbered(env, &dir.join("chunks_head"), &mut source.notes)?;
        let wal_dir = dir.join("wal");
        if env.disk.exists(&wal_dir) {
            source.look_at_wal(env, &wal_dir)?;
        }
        source.wbl = numbered(env, &dir.join("wbl"), &mut source.notes)?;
        Ok(source)
    }

    fn look_at_wal(&mut self, env: &Env, dir: &Path) -> Result<(), (PathBuf, io::Error)> {
        let number = |entry: &DirEntry| -> Option<u64> {
            entry.name.strip_prefix(CHECKPOINT_PREFIX)?.parse().ok().filter(|_| entry.is_dir)
        };
        let entries = list(env, dir)?;
        let last = entries.iter().filter_map(|entry| Some((number(entry)?, &entry.name))).max();
        let mut segments = numbered(env, dir, &mut self.notes)?;
        if let Some((number, name)) = last {
            self.wal = numbered(env, &dir.join(name), &mut self.notes)?;
            segments.retain(|file| number_of(&file.path).is_some_and(|segment| segment > number));
        }
        self.wal.append(&mut segments);
        Ok(())
    }

    /// Bytes of the head's files.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.head_chunks.iter().chain(&self.wal).chain(&self.wbl).map(|file| file.len).sum()
    }
}

fn list(env: &Env, dir: &Path) -> Result<Vec<DirEntry>, (PathBuf, io::Error)> {
    env.disk.list(dir).map_err(|error| (dir.to_owned(), error))
}

/// The files of `dir` whose names are numbers, ascending; none if there is no such directory.
fn numbered(env: &Env, dir: &Path, notes: &mut Vec<String>) -> Result<Vec<LogFile>, (PathBuf, io::Error)> {
    if !env.disk.exists(dir) {
        return Ok(Vec::new());
    }
    let mut files: Vec<LogFile> = list(env, dir)?
        .into_iter()
        .filter(|entry| !entry.is_dir)
        .map(|entry| LogFile { path: dir.join(entry.name), len: entry.len })
        .filter(|file| number_of(&file.path).is_some())
        .collect();
    files.sort_by_key(|file| number_of(&file.path));
    for two in files.windows(2) {
        if let [Some(before), Some(next)] = [number_of(&two[0].path), number_of(&two[1].path)]
            && next > before + 1
        {
            notes.push(format!("{}: files between {before} and {next} are missing", dir.display()));
        }
    }
    Ok(files)
}

fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    if digits { name.parse().ok() } else { None }
}
