//! Choice between the two copies of a frame log at a start, and reading of the better one.
//!
//! Invariants: an acknowledged frame is in both copies, so damage to one of them loses nothing; a file of a
//! later version is never read in part.
//! Not here: replacement after growth or a failure (`base::append_file`), headers and payloads (`format`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::disk::is_short_of_files;
use chronolith_base::{AppendFile, DecodeError, Env, Mapped};
use chronolith_format::head::frame_log::{CopyState, FrameWriter};
use chronolith_format::head::wal::{Damage, FrameRef, Scan, scan_segment_from};
use chronolith_head::{WalError, WriteError};

use crate::options::OpenError;

/// Content of a header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyHeader {
    pub(crate) key: u128,
    /// False if the file was written by a version that wrote one copy.
    pub(crate) is_mirrored: bool,
}

/// Format of a frame log.
pub(crate) struct LogFormat {
    /// Content, for messages to operators about damage.
    pub(crate) content: &'static str,
    /// Entries, for a message to operators about a failed repair.
    pub(crate) entries: &'static str,
    /// Names of the two copies in the data directory.
    pub(crate) names: [&'static str; 2],
    pub(crate) header_bytes: usize,
    /// Field of [`DecodeError::Invalid`] that names a later version.
    pub(crate) version_field: &'static str,
    pub(crate) decode_header: fn(&[u8]) -> Result<CopyHeader, DecodeError>,
    /// Returns the header of a new file by its key.
    pub(crate) encode_header: fn(u128) -> Vec<u8>,
    /// Kind of the frames with entries.
    pub(crate) entry_kind: u8,
    /// Number of entries of a frame of any kind, all of which are read.
    pub(crate) entry_count: fn(u8, &[u8]) -> Result<u64, DecodeError>,
    /// True if each start draws the key of a new file, false if only a write without a file does.
    pub(crate) draws_key_at_open: bool,
}

/// Damage that a start found, as texts for operators.
pub(crate) struct Findings<'a> {
    /// Losses, one text each.
    pub(crate) notes: &'a mut Vec<String>,
    /// Copies that were damaged without a loss.
    pub(crate) repaired: &'a mut Vec<String>,
}

/// Reads the frames of the better copy and calls `keep` with kind and payload of each; an error of it is a
/// note. Returns the file, and a writer that continues it, or one under `fresh_key` if both copies must be
/// written again.
///
/// # Errors
/// [`OpenError`] if it cannot be read or is of a later version.
pub(super) fn load(
    env: &Env,
    format: &LogFormat,
    fresh_key: u128,
    paths: [PathBuf; 2],
    findings: &mut Findings<'_>,
    mut keep: impl FnMut(u8, &[u8]) -> Result<(), String>,
) -> Result<(AppendFile, FrameWriter), OpenError> {
    let fresh = FrameWriter::new(fresh_key, 0);
    let mut file = AppendFile::new(env.disk.clone(), paths.to_vec());
    let Some((copy, is_mirrored)) = choose(env, format, &paths, findings)? else { return Ok((file, fresh)) };
    let path = &copy.path;
    if let Some(what) = &copy.state.header_damage {
        findings.notes.push(format!("{}: {} is left out: {what}", path.display(), format.content));
        return Ok((file, fresh));
    }
    let Some(bytes) = &copy.bytes else { return Ok((file, fresh)) };
    for damage in &copy.damage {
        let (offset, len) = (damage.offset, damage.len);
        let note = format!("{}: damaged at offset {offset}: {len} bytes are left out", path.display());
        findings.notes.push(note);
    }
    let mut is_whole = is_mirrored;
    for frame in &copy.frames {
        let payload = bytes.get(frame.payload.clone()).unwrap_or(&[]);
        if let Err(error) = keep(frame.header.kind, payload) {
            let offset = frame.payload.start;
            findings.notes.push(format!("{}: frame at offset {offset}: {error}", path.display()));
            is_whole = false;
        }
    }
    if !is_whole {
        return Ok((file, fresh));
    }
    let sequence = copy.frames.last().map_or(0, |frame| frame.header.sequence);
    file.open(bytes.len() as u64).map_err(|error| OpenError::Io { path: path.clone(), error })?;
    Ok((file, FrameWriter::new(copy.key, sequence)))
}

/// Returns the error of a write to `file`, which is replaced by the next one.
pub(super) fn write_error(file: &AppendFile, error: &io::Error) -> WriteError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::Wal(WalError::DiskFull),
        _ if is_short_of_files(error) => WriteError::NoFileDescriptor,
        _ => WriteError::Metadata(format!("{}: {error}", file.path().display())),
    }
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
    fn read(env: &Env, format: &LogFormat, path: &Path) -> Result<Copy, OpenError> {
        let path = path.to_owned();
        if !env.disk.exists(&path) {
            let state = CopyState::new(Some("is missing".to_owned()), &[], 0, 0);
            let (frames, damage) = (Vec::new(), Vec::new());
            return Ok(Copy { path, bytes: None, key: 0, is_mirrored: false, frames, damage, state });
        }
        let bytes = env.disk.map(&path).map_err(|error| OpenError::Io { path: path.clone(), error })?;
        let (header, header_damage) = match (format.decode_header)(&bytes) {
            Ok(header) => (Some(header), None),
            Err(error @ DecodeError::Invalid { what, .. }) if what == format.version_field => {
                return Err(OpenError::Corrupt { path, what: error.to_string() });
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let key = header.map_or(0, |header| header.key);
        let scan = match header {
            Some(_) => scan_segment_from(&bytes, key, format.header_bytes, 0),
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
    format: &LogFormat,
    paths: &[PathBuf; 2],
    findings: &mut Findings<'_>,
) -> Result<Option<(Copy, bool)>, OpenError> {
    if !paths.iter().any(|path| env.disk.exists(path)) {
        return Ok(None);
    }
    let primary = Copy::read(env, format, &paths[0])?;
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
    let mirror = Copy::read(env, format, &paths[1])?;
    let rank = |copy: &Copy| {
        let CopyState { header_damage, damage, frames_end, .. } = &copy.state;
        (header_damage.is_none(), damage.is_none(), *frames_end)
    };
    let (best, other) = if rank(&mirror) > rank(&primary) { (mirror, primary) } else { (primary, mirror) };
    // A kill leaves at most one of them so; a power cut leaves both so only during a write of both.
    if best.state.has_cut_end && (other.state.has_cut_end || other.state.damage().is_some()) {
        let (path, offset) = (best.path.display(), best.state.frames_end);
        let content = format.content;
        findings.notes.push(format!(
            "{path}: neither copy is complete after offset {offset}: {content} written last is lost (not acknowledged if \
             the power was cut)"
        ));
    }
    if let (None, Some(what)) = (best.state.damage(), other.state.damage()) {
        let path = other.path.display();
        findings.repaired.push(format!("{path}: {what}; its copy is complete and nothing is lost"));
    }
    Ok(Some((best, false)))
}
