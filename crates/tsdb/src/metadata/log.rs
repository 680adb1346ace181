//! Metadata log: frames with metadata entries in two copies with equal bytes, read at the start and appended
//! to.
//!
//! Invariants: an acknowledged entry is in both copies, so damage to one of them loses nothing.
//! Not here: replacement after growth or a failure (`base::append_file`), the entries in memory (the parent),
//! bytes (`format::head::metadata`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::{AppendFile, DecodeError, Env, Mapped};
use chronolith_format::head::frame_log::{CopyState, FrameWriter};
use chronolith_format::head::metadata::{
    EntriesReader, FILE_HEADER_BYTES, FileHeader, KIND_ENTRIES, put_entry, put_tenant,
};
use chronolith_format::head::wal::{Damage, FrameRef, Scan, scan_segment_from};
use chronolith_head::{WalError, WriteError};
use chronolith_model::{MetadataEntry, TenantId};

use crate::options::OpenError;

/// Name in the data directory.
pub(crate) const FILE_NAME: &str = "metadata.log";
/// Name of the second copy.
pub(crate) const MIRROR_NAME: &str = "metadata.mirror";
/// Size at which a payload ends.
const PAYLOAD_BYTES: usize = 1 << 20;

/// Queue of frames to be written, in order.
pub(super) struct Frames {
    frames: FrameWriter,
    payload: Vec<u8>,
}

impl Frames {
    /// Frames under `key`.
    pub(super) fn new(key: u128) -> Frames {
        Frames { frames: FrameWriter::new(key, 0), payload: Vec::new() }
    }

    /// Bytes of whole frames.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Adds entries of `tenant`; all entries since the last [`Frames::end_frame`] belong to one tenant.
    pub(super) fn put<'a>(&mut self, tenant: &TenantId, entries: impl Iterator<Item = &'a MetadataEntry>) {
        if self.payload.is_empty() {
            put_tenant(tenant.as_str(), &mut self.payload);
        }
        entries.for_each(|entry| put_entry(entry, &mut self.payload));
        if self.payload.len() >= PAYLOAD_BYTES {
            self.end_frame();
        }
    }

    /// Ends the frame of the entries since the last one.
    pub(super) fn end_frame(&mut self) {
        if self.payload.is_empty() {
            return;
        }
        self.frames.put(KIND_ENTRIES, &self.payload);
        self.payload.clear();
    }

    /// Returns the frames of an empty file with the same key.
    pub(super) fn restarted(&self) -> Frames {
        let key = self.frames.key();
        let header = FileHeader { key, is_mirrored: true }.encode();
        Frames { frames: FrameWriter::with_header(key, &header), payload: Vec::new() }
    }

    /// Takes the frames; later ones continue their sequence.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.frames.take()
    }
}

/// Returns the error of a write to `file`, which is replaced by the next one.
pub(super) fn write_error(file: &AppendFile, error: &io::Error) -> WriteError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::Wal(WalError::DiskFull),
        _ => WriteError::Metadata(format!("{}: {error}", file.path().display())),
    }
}

/// Reads the file in `dir` and calls `keep` with each entry. Returns the file, and frames that continue it.
///
/// # Errors
/// [`OpenError`] if it cannot be read or is of a later version.
pub(super) fn load(
    env: &Env,
    dir: &Path,
    notes: &mut Vec<String>,
    repaired: &mut Vec<String>,
    mut keep: impl FnMut(&TenantId, &MetadataEntry),
) -> Result<(AppendFile, Frames), OpenError> {
    let paths = [dir.join(FILE_NAME), dir.join(MIRROR_NAME)];
    let fresh = Frames::new(u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64()));
    let mut file = AppendFile::new(env.disk.clone(), paths.to_vec());
    let Some((copy, is_mirrored)) = choose(env, &paths, notes, repaired)? else { return Ok((file, fresh)) };
    let path = &copy.path;
    if let Some(what) = &copy.state.header_damage {
        notes.push(format!("{}: metadata is left out: {what}", path.display()));
        return Ok((file, fresh));
    }
    let Some(bytes) = &copy.bytes else { return Ok((file, fresh)) };
    for damage in &copy.damage {
        let (offset, len) = (damage.offset, damage.len);
        notes.push(format!("{}: damaged at offset {offset}: {len} bytes are left out", path.display()));
    }
    let mut is_whole = is_mirrored;
    for frame in copy.frames.iter().filter(|frame| frame.header.kind == KIND_ENTRIES) {
        let payload = bytes.get(frame.payload.clone()).unwrap_or(&[]);
        if let Err(error) = keep_entries(payload, &mut keep) {
            notes.push(format!("{}: frame at offset {}: {error}", path.display(), frame.payload.start));
            is_whole = false;
        }
    }
    if !is_whole {
        return Ok((file, fresh));
    }
    let sequence = copy.frames.last().map_or(0, |frame| frame.header.sequence);
    file.open(bytes.len() as u64).map_err(|error| OpenError::Io { path: path.clone(), error })?;
    Ok((file, Frames { frames: FrameWriter::new(copy.key, sequence), payload: Vec::new() }))
}

/// One of the two copies.
struct Copy {
    path: PathBuf,
    /// `None` if there is no such file.
    bytes: Option<Mapped>,
    key: u128,
    is_mirrored: bool,
    frames: Vec<FrameRef>,
    /// Damaged ranges that are followed by valid frames.
    damage: Vec<Damage>,
    state: CopyState,
}

impl Copy {
    /// # Errors
    /// [`OpenError`] if it cannot be read or is of a later version.
    fn read(env: &Env, path: &Path) -> Result<Copy, OpenError> {
        let path = path.to_owned();
        if !env.disk.exists(&path) {
            let state = CopyState::new(Some("is missing".to_owned()), &[], 0, 0);
            let (frames, damage) = (Vec::new(), Vec::new());
            return Ok(Copy { path, bytes: None, key: 0, is_mirrored: false, frames, damage, state });
        }
        let bytes = env.disk.map(&path).map_err(|error| OpenError::Io { path: path.clone(), error })?;
        let (header, header_damage) = match FileHeader::decode(&bytes) {
            Ok(header) => (Some(header), None),
            Err(error @ DecodeError::Invalid { what: "metadata version", .. }) => {
                return Err(OpenError::Corrupt { path, what: error.to_string() });
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let key = header.map_or(0, |header| header.key);
        let scan = match header {
            Some(_) => scan_segment_from(&bytes, key, FILE_HEADER_BYTES, 0),
            None => Scan::default(),
        };
        let state = CopyState::new(header_damage, &scan.damage, scan.end as u64, bytes.len() as u64);
        let is_mirrored = header.is_some_and(|header| header.is_mirrored);
        let damage = scan.damage.into_iter().filter(|damage| damage.followed).collect();
        Ok(Copy { path, bytes: Some(bytes), key, is_mirrored, frames: scan.frames, damage, state })
    }
}

/// Returns the copy to be read, and true if both have equal bytes.
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
    if primary.state.is_clean() && env.disk.exists(&paths[1]) {
        let io = |error| OpenError::Io { path: paths[1].clone(), error };
        let mirror = env.disk.map(&paths[1]).map_err(io)?;
        if primary.bytes.as_ref().is_some_and(|bytes| bytes[..] == mirror[..]) {
            return Ok(Some((primary, true)));
        }
    }
    // An earlier version wrote one copy only.
    if primary.state.is_clean() && !primary.is_mirrored {
        return Ok(Some((primary, false)));
    }
    let mirror = Copy::read(env, &paths[1])?;
    let rank = |copy: &Copy| {
        let CopyState { header_damage, damage, frames_end, .. } = &copy.state;
        (header_damage.is_none(), damage.is_none(), *frames_end)
    };
    let (best, other) = if rank(&mirror) > rank(&primary) { (mirror, primary) } else { (primary, mirror) };
    // A kill leaves at most one of them so; a power cut leaves both so only during a write of both.
    if best.state.has_cut_end && (other.state.has_cut_end || other.state.damage().is_some()) {
        let (path, offset) = (best.path.display(), best.state.frames_end);
        notes.push(format!(
            "{path}: neither copy is complete after offset {offset}: metadata written last is lost (not acknowledged if \
             the power was cut)"
        ));
    }
    if let (None, Some(what)) = (best.state.damage(), other.state.damage()) {
        let path = other.path.display();
        repaired.push(format!("{path}: {what}; its copy is complete and nothing is lost"));
    }
    Ok(Some((best, false)))
}

/// Calls `keep` with the entries of a payload; the error text is for operators.
fn keep_entries(payload: &[u8], keep: &mut impl FnMut(&TenantId, &MetadataEntry)) -> Result<(), String> {
    let mut entries = EntriesReader::decode(payload).map_err(|error| error.to_string())?;
    let tenant = TenantId::stored(entries.tenant).map_err(|error| error.to_string())?;
    while let Some(entry) = entries.next_entry().map_err(|error| error.to_string())? {
        keep(&tenant, &entry.to_entry());
    }
    Ok(())
}
