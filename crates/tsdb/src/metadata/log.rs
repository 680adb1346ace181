//! Metadata log: frames with metadata entries in two copies with equal bytes, read at the start and appended
//! to.
//!
//! Invariants: an acknowledged entry is in both copies, so damage to one of them loses nothing.
//! Not here: the choice between the copies (`frame_log::copies`), replacement after growth or a failure
//! (`base::append_file`), the entries in memory (the parent), bytes (`format::head::metadata`).

use std::path::Path;

use chronolith_base::{AppendFile, DecodeError, Env};
use chronolith_format::head::frame_log::FrameWriter;
use chronolith_format::head::metadata::{
    EntriesReader, FILE_HEADER_BYTES, FileHeader, KIND_ENTRIES, put_entry, put_tenant,
};
use chronolith_format::parse_store_name;
use chronolith_format::store_name;
use chronolith_model::{MetadataEntry, StoreId};

use crate::frame_log::copies::{self, CopyHeader, Findings, LogFormat};
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

    /// Adds entries of `store`; all entries since the last [`Frames::end_frame`] belong to one tenant.
    pub(super) fn put<'a>(&mut self, store: &StoreId, entries: impl Iterator<Item = &'a MetadataEntry>) {
        if self.payload.is_empty() {
            put_tenant(&store_name(store), &mut self.payload);
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

/// The format of the file.
pub(crate) const FORMAT: LogFormat = LogFormat {
    content: "metadata",
    header_bytes: FILE_HEADER_BYTES,
    version_field: "metadata version",
    decode_header: |bytes| {
        FileHeader::decode(bytes).map(|FileHeader { key, is_mirrored }| CopyHeader { key, is_mirrored })
    },
};

/// Reads the file in `dir` and calls `keep` with each entry. Returns the file, and frames that continue it.
///
/// # Errors
/// [`OpenError`] if it cannot be read or is of a later version.
pub(super) fn load(
    env: &Env,
    dir: &Path,
    findings: &mut Findings<'_>,
    mut keep: impl FnMut(&StoreId, &MetadataEntry),
) -> Result<(AppendFile, Frames), OpenError> {
    let paths = [dir.join(FILE_NAME), dir.join(MIRROR_NAME)];
    let key = u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
    let (file, frames) = copies::load(env, &FORMAT, key, paths, findings, |kind, payload| match kind {
        KIND_ENTRIES => keep_entries(payload, &mut keep),
        _ => Ok(()),
    })?;
    Ok((file, Frames { frames, payload: Vec::new() }))
}

/// Calls `keep` with the entries of a payload; the error text is for operators.
fn keep_entries(payload: &[u8], keep: &mut impl FnMut(&StoreId, &MetadataEntry)) -> Result<(), String> {
    let mut entries = EntriesReader::decode(payload).map_err(|error| error.to_string())?;
    let tenant = parse_store_name(entries.tenant).map_err(|error| error.to_string())?;
    while let Some(entry) = entries.next_entry().map_err(|error| error.to_string())? {
        keep(&tenant, &entry.to_entry());
    }
    Ok(())
}

/// Number of entries of a frame, all of which are read.
///
/// # Errors
/// [`DecodeError`] if one cannot be read.
pub(crate) fn frame_entry_count(kind: u8, payload: &[u8]) -> Result<u64, DecodeError> {
    if kind != KIND_ENTRIES {
        return Ok(0);
    }
    let mut entries = EntriesReader::decode(payload)?;
    let mut count = 0;
    while entries.next_entry()?.is_some() {
        count += 1;
    }
    Ok(count)
}
