//! The file behind the metadata, in two copies with the same bytes: read at the start, appended to, written
//! anew when it has grown to twice what it says.
//!
//! Holds: what is acknowledged is in both copies, so damage to one of them loses nothing; after any failure
//! the file is not appended to any more, but written anew under another name: what a failed write or sync
//! left in it is never counted on.
//! Not here: what is kept (the parent), bytes (`format::head::metadata`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::{DecodeError, DiskFile, Env, Mapped};
use chronolith_format::head::metadata::{
    EntriesReader, FILE_HEADER_BYTES, FileHeader, KIND_ENTRIES, put_entry, put_tenant,
};
use chronolith_format::head::wal::{FrameHeader, STRIPE_NONE, Scan, scan_segment_from};
use chronolith_head::{WalError, WriteError};
use chronolith_model::{MetadataEntry, TenantId};

use crate::options::OpenError;

/// Name in the data directory.
pub(crate) const FILE_NAME: &str = "metadata.log";
/// Name of the second copy.
pub(crate) const MIRROR_NAME: &str = "metadata.mirror";
/// A payload ends when it has as many bytes.
const PAYLOAD_BYTES: usize = 1 << 20;
/// A file may grow by this much over twice its bytes when it was written anew.
const GROWTH_BYTES_MIN: u64 = 1 << 20;

/// Frames that are to be written, in order.
pub(super) struct Frames {
    key: u128,
    sequence: u64,
    bytes: Vec<u8>,
    payload: Vec<u8>,
}

impl Frames {
    /// Frames under `key`.
    pub(super) fn new(key: u128) -> Frames {
        Frames { key, sequence: 0, bytes: Vec::new(), payload: Vec::new() }
    }

    /// Bytes of whole frames.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds entries of `tenant`, which is that of the entries since the last [`Frames::end_frame`].
    pub(super) fn put<'a>(&mut self, tenant: &TenantId, entries: impl Iterator<Item = &'a MetadataEntry>) {
        if self.payload.is_empty() {
            put_tenant(tenant.as_str(), &mut self.payload);
        }
        entries.for_each(|entry| put_entry(entry, &mut self.payload));
        if self.payload.len() >= PAYLOAD_BYTES {
            self.end_frame();
        }
    }

    /// Makes a frame of the entries since the last one.
    pub(super) fn end_frame(&mut self) {
        if self.payload.is_empty() {
            return;
        }
        self.sequence += 1;
        let header = FrameHeader::for_payload(KIND_ENTRIES, STRIPE_NONE, &self.payload);
        FrameHeader { sequence: self.sequence, ..header }.put_frame(self.key, &self.payload, &mut self.bytes);
        self.payload.clear();
    }

    /// The beginning of a file under the same key.
    pub(super) fn anew(&self) -> Frames {
        let mut frames = Frames::new(self.key);
        frames.bytes.extend_from_slice(&FileHeader { key: self.key, is_mirrored: true }.encode());
        frames
    }

    /// Gives the frames; later ones go on behind them.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// The file as it is on disk.
pub(super) struct LogFile {
    env: Env,
    paths: [PathBuf; 2],
    /// Open to be appended to; without them the copies are to be written anew.
    files: Option<[Box<dyn DiskFile>; 2]>,
    len: u64,
    len_max: u64,
    unsynced: bool,
}

impl LogFile {
    /// Whether the next bytes are a file of their own.
    pub(super) fn is_due_anew(&self, more: usize) -> bool {
        self.files.is_none() || self.len + more as u64 > self.len_max
    }

    /// Whether there are bytes that a power loss may take.
    pub(super) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let files = self.files.as_ref().ok_or(io::ErrorKind::NotFound)?;
        self.unsynced = true;
        files.iter().try_for_each(|file| file.write_at(bytes, self.len))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Puts a whole file in the place of the one that is there; durable in every sync mode.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unsynced = true;
        self.files = None;
        for path in self.paths.iter().rev() {
            self.env.disk.write_atomic(path, bytes)?;
        }
        self.files = Some([self.env.disk.open(&self.paths[0])?, self.env.disk.open(&self.paths[1])?]);
        self.len = bytes.len() as u64;
        self.len_max = 2 * self.len + GROWTH_BYTES_MIN;
        self.unsynced = false;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        if !self.unsynced {
            return Ok(());
        }
        self.files.as_ref().ok_or(io::ErrorKind::NotFound)?.iter().try_for_each(|file| file.sync_data())?;
        self.unsynced = false;
        Ok(())
    }

    /// Gives the file up after `error`.
    pub(super) fn fail(&mut self, error: &io::Error) -> WriteError {
        self.files = None;
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::Wal(WalError::DiskFull),
            _ => WriteError::Metadata(format!("{}: {error}", self.paths[0].display())),
        }
    }
}

/// Reads the file in `dir`, entry by entry, and gives it with frames that continue it.
///
/// # Errors
/// [`OpenError`] if it cannot be read or is of a later version.
pub(super) fn load(
    env: &Env,
    dir: &Path,
    notes: &mut Vec<String>,
    repaired: &mut Vec<String>,
    mut keep: impl FnMut(&TenantId, &MetadataEntry),
) -> Result<(LogFile, Frames), OpenError> {
    let paths = [dir.join(FILE_NAME), dir.join(MIRROR_NAME)];
    let fresh = Frames::new(u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64()));
    let none =
        LogFile { env: env.clone(), paths: paths.clone(), files: None, len: 0, len_max: 0, unsynced: false };
    let Some((copy, is_mirrored)) = choose(env, &paths, notes, repaired)? else { return Ok((none, fresh)) };
    let path = &copy.path;
    let (bytes, key) = match (&copy.bytes, copy.header) {
        (Some(bytes), Ok(header)) => (bytes, header.key),
        (_, Err(what)) => {
            notes.push(format!("{}: metadata is left out: {what}", path.display()));
            return Ok((none, fresh));
        }
        (None, Ok(_)) => return Ok((none, fresh)),
    };
    let scan = &copy.scan;
    for damage in scan.damage.iter().filter(|damage| damage.followed) {
        let (offset, len) = (damage.offset, damage.len);
        notes.push(format!("{}: damaged at offset {offset}: {len} bytes are left out", path.display()));
    }
    let mut is_whole = is_mirrored;
    for frame in scan.frames.iter().filter(|frame| frame.header.kind == KIND_ENTRIES) {
        let payload = bytes.get(frame.payload.clone()).unwrap_or(&[]);
        if let Err(error) = keep_entries(payload, &mut keep) {
            notes.push(format!("{}: frame at offset {}: {error}", path.display(), frame.payload.start));
            is_whole = false;
        }
    }
    if !is_whole {
        return Ok((none, fresh));
    }
    let sequence = scan.frames.last().map_or(0, |frame| frame.header.sequence);
    let len = bytes.len() as u64;
    let open =
        |path: &PathBuf| env.disk.open(path).map_err(|error| OpenError::Io { path: path.clone(), error });
    let files = Some([open(&paths[0])?, open(&paths[1])?]);
    let file = LogFile { files, len, len_max: 2 * len + GROWTH_BYTES_MIN, ..none };
    Ok((file, Frames { sequence, ..Frames::new(key) }))
}

/// One of the two copies.
struct Copy {
    path: PathBuf,
    /// `None` if there is no such file.
    bytes: Option<Mapped>,
    /// The error is for people.
    header: Result<FileHeader, String>,
    scan: Scan,
}

impl Copy {
    /// # Errors
    /// [`OpenError`] if it cannot be read or is of a later version.
    fn read(env: &Env, path: &Path) -> Result<Copy, OpenError> {
        let path = path.to_owned();
        if !env.disk.exists(&path) {
            return Ok(Copy {
                path,
                bytes: None,
                header: Err("is missing".to_owned()),
                scan: Scan::default(),
            });
        }
        let bytes = env.disk.map(&path).map_err(|error| OpenError::Io { path: path.clone(), error })?;
        let (header, scan) = match FileHeader::decode(&bytes) {
            Ok(header) => (Ok(header), scan_segment_from(&bytes, header.key, FILE_HEADER_BYTES, 0)),
            Err(error @ DecodeError::Invalid { what: "metadata version", .. }) => {
                return Err(OpenError::Corrupt { path, what: error.to_string() });
            }
            Err(error) => (Err(error.to_string()), Scan::default()),
        };
        Ok(Copy { path, bytes: Some(bytes), header, scan })
    }

    /// Returns true if every byte belongs to a good frame.
    fn is_clean(&self) -> bool {
        let len = self.bytes.as_ref().map_or(0, |bytes| bytes.len());
        self.header.is_ok() && self.scan.damage.is_empty() && self.scan.end == len
    }

    /// Returns true if bytes behind the last good frame belong to none.
    fn has_cut_end(&self) -> bool {
        self.scan.damage.iter().any(|damage| !damage.followed)
    }

    /// What is wrong with it, besides an end that was cut off.
    fn damage(&self) -> Option<String> {
        let damage = self.scan.damage.iter().find(|damage| damage.followed);
        let text = damage.map(|d| format!("{} bytes at offset {} are damaged", d.len, d.offset));
        self.header.as_ref().err().cloned().or(text)
    }
}

/// Gives the copy to be read, and whether both have the same bytes.
fn choose(
    env: &Env,
    paths: &[PathBuf; 2],
    notes: &mut Vec<String>,
    repaired: &mut Vec<String>,
) -> Result<Option<(Copy, bool)>, OpenError> {
    if !paths.iter().any(|path| env.disk.exists(path)) {
        return Ok(None);
    }
    let primary = Copy::read(env, &paths[0])?;
    if primary.is_clean() && env.disk.exists(&paths[1]) {
        let io = |error| OpenError::Io { path: paths[1].clone(), error };
        let mirror = env.disk.map(&paths[1]).map_err(io)?;
        if primary.bytes.as_ref().is_some_and(|bytes| bytes[..] == mirror[..]) {
            return Ok(Some((primary, true)));
        }
    }
    // A version that wrote one copy leaves no second one.
    if primary.is_clean() && primary.header.as_ref().is_ok_and(|header| !header.is_mirrored) {
        return Ok(Some((primary, false)));
    }
    let mirror = Copy::read(env, &paths[1])?;
    let rank = |copy: &Copy| (copy.header.is_ok(), copy.damage().is_none(), copy.scan.end);
    let (best, other) = if rank(&mirror) > rank(&primary) { (mirror, primary) } else { (primary, mirror) };
    // A kill leaves at most one of them so, and a power cut both only if it met a write of both.
    if best.has_cut_end() && (other.has_cut_end() || other.damage().is_some()) {
        let (path, offset) = (best.path.display(), best.scan.end);
        notes.push(format!(
            "{path}: neither copy is whole behind offset {offset}: metadata written last is lost (not acknowledged if \
             the power was cut)"
        ));
    }
    if let (None, Some(what)) = (best.damage(), other.damage()) {
        let path = other.path.display();
        repaired.push(format!("{path}: {what}; its copy is whole and nothing is lost"));
    }
    Ok(Some((best, false)))
}

/// Keeps the entries of a payload; the error is for people.
fn keep_entries(payload: &[u8], keep: &mut impl FnMut(&TenantId, &MetadataEntry)) -> Result<(), String> {
    let mut entries = EntriesReader::decode(payload).map_err(|error| error.to_string())?;
    let tenant = TenantId::new(entries.tenant).map_err(|error| error.to_string())?;
    while let Some(entry) = entries.next_entry().map_err(|error| error.to_string())? {
        keep(&tenant, &entry.to_entry());
    }
    Ok(())
}
