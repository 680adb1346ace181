//! Files of a local block: names, sizes, small files that are read as a whole.
//!
//! Invariants: segments are numbered from 1 without a gap; tombstones without an interval are left out; the
//! number of deleted intervals in the returned `meta.json` comes from the tombstones.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use chronolith_base::crc::Crc32c;
use chronolith_base::{Disk, DiskFile, Env};
use chronolith_format::block::meta::BlockMeta;
use chronolith_format::block::rollup::{ROLLUPS_DIR, archive_of_name};
use chronolith_format::block::tombstones::Tombstones;
use chronolith_format::bucket::catalogue::{RollupObject, SidecarObject};
use chronolith_format::bucket::mimir::ThanosMeta;
use chronolith_format::bucket::sidecar::SIDECAR_OBJECT;
use tokio::runtime::Handle;

use crate::BucketError;

pub(super) const META: &str = "meta.json";
pub(super) const TOMBSTONES: &str = "tombstones";
const INDEX: &str = "index";
const CHUNKS: &str = "chunks";
/// Bytes of a file that are read at once for its checksum.
const PIECE_BYTES: usize = 1 << 20;

/// Sidecar of a block, in a local file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarFile {
    /// The file, which need not lie in the directory of the block.
    pub path: PathBuf,
    /// Bytes of its head, which are its last ones.
    pub head_bytes: u32,
}

/// A block on the local disk.
pub(super) struct LocalBlock {
    pub(super) meta: BlockMeta,
    /// Section of `meta.json`, if the block was in a bucket before.
    pub(super) thanos: Option<ThanosMeta>,
    /// Segments by number, index, roll-ups, sidecar.
    pub(super) files: Vec<LocalFile>,
    /// Roll-up files among them.
    pub(super) rollups: Vec<RollupObject>,
    /// Content of the tombstones; `None` without deletions.
    pub(super) tombstones: Option<Bytes>,
    pub(super) sidecar: Option<SidecarObject>,
}

/// A file to upload.
pub(super) struct LocalFile {
    /// Name within the folder of the block.
    pub(super) name: String,
    pub(super) len: u64,
    pub(super) file: Arc<dyn DiskFile>,
}

impl LocalBlock {
    pub(super) fn index(&self) -> Option<&LocalFile> {
        self.files.iter().find(|file| file.name == INDEX)
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = &LocalFile> {
        self.files.iter().filter(|file| file.name.starts_with(CHUNKS))
    }
}

/// Reads small files and opens the others, on a thread of `handle` that may block.
pub(super) async fn open_local(
    env: &Env,
    handle: &Handle,
    dir: &Path,
    sidecar: Option<&SidecarFile>,
) -> Result<LocalBlock, BucketError> {
    let reader = LocalReader { disk: env.disk.clone(), dir: dir.to_owned(), sidecar: sidecar.cloned() };
    let shown = dir.display().to_string();
    let read = handle.spawn_blocking(move || reader.read()).await;
    let read = read.map_err(|_| BucketError::Canceled { what: format!("upload of {shown}") })?;
    read.map_err(|detail| BucketError::SourceFile { key: shown, detail })
}

/// Reads of one block directory. Errors name the file.
struct LocalReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    sidecar: Option<SidecarFile>,
}

impl LocalReader {
    fn read(&self) -> Result<LocalBlock, String> {
        let path = self.dir.join(META);
        let text = self.disk.read(&path).map_err(|error| in_file(&path, &error))?;
        let mut meta = BlockMeta::decode(&text).map_err(|error| in_file(&path, &error))?;
        let thanos = ThanosMeta::of(&meta).map_err(|error| in_file(&path, &error))?;
        let tombstones = self.tombstones(&meta)?;
        meta.stats.num_tombstones = tombstones.as_ref().map_or(0, |(_, count)| *count);
        let mut files = self.segments()?;
        files.push(self.open(INDEX.to_owned(), &self.dir.join(INDEX))?);
        let rollups = self.open_rollups(&mut files)?;
        let sidecar = match &self.sidecar {
            None => None,
            Some(sidecar) => {
                let file = self.open(SIDECAR_OBJECT.to_owned(), &sidecar.path)?;
                let crc = checksum(&file).map_err(|error| in_file(&sidecar.path, &error))?;
                let object = SidecarObject { len: file.len, head_len: sidecar.head_bytes, crc };
                files.push(file);
                Some(object)
            }
        };
        let tombstones = tombstones.map(|(body, _)| body);
        Ok(LocalBlock { meta, thanos, files, rollups, tombstones, sidecar })
    }

    /// Content of the tombstones and the number of their intervals; `None` without intervals.
    fn tombstones(&self, meta: &BlockMeta) -> Result<Option<(Bytes, u64)>, String> {
        let path = self.dir.join(TOMBSTONES);
        let body = match self.disk.read(&path) {
            Ok(body) => body,
            Err(error) if error.kind() == io::ErrorKind::NotFound && meta.stats.num_tombstones == 0 => {
                return Ok(None);
            }
            Err(error) => return Err(in_file(&path, &error)),
        };
        let tombstones = Tombstones::decode(&body).map_err(|error| in_file(&path, &error))?;
        let count = tombstones.interval_count() as u64;
        Ok((count > 0).then(|| (body.into(), count)))
    }

    fn segments(&self) -> Result<Vec<LocalFile>, String> {
        let dir = self.dir.join(CHUNKS);
        let entries = self.disk.list(&dir).map_err(|error| in_file(&dir, &error))?;
        let mut files = Vec::new();
        for (number, entry) in (1..).zip(entries.iter().filter(|entry| !entry.is_dir)) {
            if entry.name != format!("{number:06}") {
                return Err(in_file(&dir.join(&entry.name), &format!("expected segment {number:06}")));
            }
            files.push(self.open(format!("{CHUNKS}/{}", entry.name), &dir.join(&entry.name))?);
        }
        Ok(files)
    }

    /// Appends the roll-up files. A directory that is being replaced counts as none: the block is complete
    /// without them.
    fn open_rollups(&self, files: &mut Vec<LocalFile>) -> Result<Vec<RollupObject>, String> {
        let dir = self.dir.join(ROLLUPS_DIR);
        let Ok(entries) = self.disk.list(&dir) else { return Ok(Vec::new()) };
        let mut rollups = Vec::new();
        for entry in entries {
            let Some(span) = archive_of_name(&entry.name) else { continue };
            let file = self.open(format!("{ROLLUPS_DIR}/{}", entry.name), &dir.join(&entry.name))?;
            rollups.push(RollupObject { span, len: file.len });
            files.push(file);
        }
        Ok(rollups)
    }

    fn open(&self, name: String, path: &Path) -> Result<LocalFile, String> {
        let file = self.disk.open_read(path).map_err(|error| in_file(path, &error))?;
        let len = file.len().map_err(|error| in_file(path, &error))?;
        Ok(LocalFile { name, len, file: Arc::from(file) })
    }
}

fn in_file(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

fn checksum(file: &LocalFile) -> io::Result<u32> {
    let mut crc = Crc32c::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < file.len {
        let len = usize::try_from(file.len - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let piece = piece.get_mut(..len).unwrap_or_default();
        file.file.read_at(piece, offset)?;
        crc.update(piece);
        offset += len as u64;
    }
    Ok(crc.finish())
}
