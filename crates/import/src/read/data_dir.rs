//! Directory listing of a Prometheus data directory: blocks, m-mapped head chunks, WAL and WBL segments.
//!
//! Invariants: only directories are opened here. Not here: reading the files (`head_chunks`, `log_reader`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_base::crc::Crc32c;
use chronolith_base::disk::DirEntry;
use chronolith_format::block::meta::Ulid;

const CHECKPOINT_PREFIX: &str = "checkpoint.";

/// Files of a Prometheus data directory, in the order in which Prometheus reads them.
#[derive(Debug, Default)]
pub(crate) struct DataDir {
    /// Block directories by name.
    pub(crate) blocks: Vec<(Ulid, PathBuf)>,
    /// Files of `chunks_head`.
    pub(crate) head_chunks: Vec<SourceFile>,
    /// Segments of the last checkpoint, then the WAL segments after it.
    pub(crate) wal: Vec<SourceFile>,
    pub(crate) wbl: Vec<SourceFile>,
    /// Findings that an operator should see, such as missing segments.
    pub(crate) notes: Vec<String>,
}

/// A file with its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
}

impl DataDir {
    /// Lists `dir`.
    ///
    /// # Errors
    /// If `dir` or a directory in it cannot be listed.
    pub(crate) fn list(env: &Env, dir: &Path) -> Result<DataDir, (PathBuf, io::Error)> {
        let mut source = DataDir::default();
        for entry in list_entries(env, dir)? {
            if let Some(ulid) = entry.name.parse::<Ulid>().ok().filter(|_| entry.is_dir) {
                source.blocks.push((ulid, dir.join(&entry.name)));
            }
        }
        source.head_chunks = numbered_files(env, &dir.join("chunks_head"), &mut source.notes)?;
        let wal_dir = dir.join("wal");
        if env.disk.exists(&wal_dir) {
            source.list_wal(env, &wal_dir)?;
        }
        source.wbl = numbered_files(env, &dir.join("wbl"), &mut source.notes)?;
        Ok(source)
    }

    fn list_wal(&mut self, env: &Env, dir: &Path) -> Result<(), (PathBuf, io::Error)> {
        let number = |entry: &DirEntry| -> Option<u64> {
            entry.name.strip_prefix(CHECKPOINT_PREFIX)?.parse().ok().filter(|_| entry.is_dir)
        };
        let entries = list_entries(env, dir)?;
        let last = entries.iter().filter_map(|entry| Some((number(entry)?, &entry.name))).max();
        let mut segments = numbered_files(env, dir, &mut self.notes)?;
        if let Some((number, name)) = last {
            self.wal = numbered_files(env, &dir.join(name), &mut self.notes)?;
            segments.retain(|file| number_of(&file.path).is_some_and(|segment| segment > number));
        }
        self.wal.append(&mut segments);
        Ok(())
    }

    /// Bytes of the head's files.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.head_chunks.iter().chain(&self.wal).chain(&self.wbl).map(|file| file.len).sum()
    }

    /// Hash of the names and lengths of the head's files, by which a repeated import finds the head
    /// unchanged.
    pub(crate) fn fingerprint(&self) -> String {
        let mut sum = Crc32c::new();
        let mut total = 0;
        for file in self.head_chunks.iter().chain(&self.wal).chain(&self.wbl) {
            sum.update(file.path.as_os_str().as_encoded_bytes());
            sum.update(&file.len.to_le_bytes());
            total += file.len;
        }
        format!("{:08x}-{total}", sum.finish())
    }
}

fn list_entries(env: &Env, dir: &Path) -> Result<Vec<DirEntry>, (PathBuf, io::Error)> {
    env.disk.list(dir).map_err(|error| (dir.to_owned(), error))
}

/// Returns the files of `dir` whose names are numbers, ascending; none if the directory does not exist.
fn numbered_files(
    env: &Env,
    dir: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<SourceFile>, (PathBuf, io::Error)> {
    if !env.disk.exists(dir) {
        return Ok(Vec::new());
    }
    let mut files: Vec<SourceFile> = list_entries(env, dir)?
        .into_iter()
        .filter(|entry| !entry.is_dir)
        .map(|entry| SourceFile { path: dir.join(entry.name), len: entry.len })
        .filter(|file| number_of(&file.path).is_some())
        .collect();
    files.sort_by_key(|file| number_of(&file.path));
    for pair in files.windows(2) {
        if let [Some(before), Some(next)] = [number_of(&pair[0].path), number_of(&pair[1].path)]
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
